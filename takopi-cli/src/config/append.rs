//! Adds a table to the configuration file.
//!
//! Promises:
//! - the file is valid before and behind the change, or it is not changed;
//! - callers in many processes take turns, and each sees what the one before it added;
//! - a crash at any moment leaves the old or the new file.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::{Config, default_path, parse};
use crate::exit::Usage;

/// Who can read the file behind a change. A new one is always its owner's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Whoever could before.
    AsItIs,
    /// Its owner alone: a secret is added.
    #[cfg_attr(not(feature = "telegram"), expect(dead_code, reason = "only a bot has a secret"))]
    Owner,
}

/// Appends a table to the named file, or to the user's own, and returns the path. `check` gets what the file
/// has now, and may refuse the change.
pub(crate) fn append(
    named: Option<&Path>,
    table: &str,
    access: Access,
    check: impl FnOnce(&Config) -> Result<(), Usage>,
) -> anyhow::Result<PathBuf> {
    let path = named.map(Path::to_owned).or_else(default_path);
    let path = path.context("there is no home directory for a configuration file; use --config")?;
    let directory = match path.parent() {
        Some(directory) if directory.as_os_str().is_empty() => Path::new("."),
        Some(directory) => directory,
        None => Path::new("/"),
    };
    let failed = || format!("cannot write {}", path.display());
    std::fs::create_dir_all(directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    // Held until the end. The file itself cannot be locked: it is replaced.
    let lock = File::open(directory).with_context(failed)?;
    lock.lock().with_context(failed)?;
    // A link stays one: what it leads to is replaced.
    let target = path.canonicalize().unwrap_or_else(|_| path.clone());
    let before = match std::fs::read_to_string(&target) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    check(&parse(&before, &path)?)?;
    let gap = match before.trim_end() {
        "" => "",
        _ if before.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    let after = format!("{before}{gap}{table}");
    if let Err(error) = parse(&after, &path) {
        let head = table.lines().next().unwrap_or_default();
        return Err(Usage::new(format!(
            "{head} cannot be added to the file as it is; add it by hand ({error})"
        ))
        .into());
    }
    replace(&target, &after, access).with_context(failed)?;
    Ok(path)
}

fn replace(path: &Path, text: &str, access: Access) -> io::Result<()> {
    let beside = path.with_extension("toml.new");
    let mut options = OpenOptions::new();
    let mut file = options.create(true).truncate(true).write(true).mode(0o600).open(&beside)?;
    // Left over from a crash it may have had another mode.
    let mode = match path.metadata() {
        Ok(old) if access == Access::AsItIs => old.permissions(),
        _ => Permissions::from_mode(0o600),
    };
    file.set_permissions(mode)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&beside, path)
}
