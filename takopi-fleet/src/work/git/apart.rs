//! Keeps what agents configure apart from the worker's own calls of git, which run with its credentials and in no sandbox.
//!
//! - The worktree of a session belongs to the mirror, but its *common directory* is one of the session's own: objects and refs are
//!   links into the mirror, configuration and hooks are not. `git config` in a worktree is for that session alone, and stays as long
//!   as the worktree does.
//! - The worker's calls name the mirror as the common directory. An agent that looks for it can still write there, so its
//!   configuration is restored before each of them.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use uuid::Uuid;

use super::remove;

/// What a session shares with the mirror. Not all of it is there from the beginning.
const SHARED: [&str; 8] =
    ["info", "logs", "objects", "packed-refs", "refs", "reftable", "shallow", "worktrees"];
/// The mirror's configuration, as git made it for this machine.
const TEMPLATE: &str = "takopi.config";
/// The same for a mirror of which that was not kept.
const PLAIN: &str = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n";
/// The extensions that say how a repository is stored: git cannot read it without them.
const STORED_AS: [&str; 2] = ["objectformat", "refstorage"];

/// Keeps the configuration of a mirror that was just made.
pub(super) fn keep(mirror: &Path) -> io::Result<()> {
    std::fs::copy(mirror.join("config"), mirror.join(TEMPLATE)).map(drop)
}

fn template(mirror: &Path) -> io::Result<Vec<u8>> {
    match std::fs::read(mirror.join(TEMPLATE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let found = std::fs::read(mirror.join("config")).unwrap_or_default();
            Ok(plain(&String::from_utf8_lossy(&found)).into_bytes())
        }
        read => read,
    }
}

/// A configuration with nothing of this one but how the repository is stored.
fn plain(config: &str) -> String {
    let mut is_inside = false;
    let mut stored_as = BTreeMap::new();
    for mut line in config.lines().map(str::trim) {
        if let Some((section, rest)) = line.strip_prefix('[').and_then(|it| it.split_once(']')) {
            is_inside = section.trim().eq_ignore_ascii_case("extensions");
            line = rest.trim();
        }
        let Some((name, value)) = line.split_once('=').filter(|_| is_inside) else { continue };
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
        let is_word = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if is_word && STORED_AS.contains(&name.as_str()) {
            stored_as.insert(name, value);
        }
    }
    if stored_as.is_empty() {
        return PLAIN.to_owned();
    }
    let lines = stored_as.iter().map(|(name, value)| format!("\t{name} = {value}\n"));
    let extensions: String = lines.collect();
    PLAIN.replace("version = 0", "version = 1") + "[extensions]\n" + &extensions
}

/// Makes the mirror's configuration what it was.
pub(super) fn restore(mirror: &Path) -> io::Result<()> {
    remove(&mirror.join("config.worktree"))?;
    let (config, template) = (mirror.join("config"), template(mirror)?);
    if std::fs::read(&config).is_ok_and(|found| found == template) {
        return Ok(());
    }
    let beside = mirror.join(format!("config.{}", Uuid::new_v4().simple()));
    std::fs::write(&beside, template)?;
    std::fs::rename(beside, config)
}

/// Makes `own` the common directory of a worktree, of which git keeps `git_dir` in the mirror.
pub(super) fn set(mirror: &Path, git_dir: &Path, own: &Path) -> io::Result<()> {
    let (mirror, own) = (std::path::absolute(mirror)?, std::path::absolute(own)?);
    std::fs::create_dir_all(&own)?;
    // Git makes no directory where a link leads. With the refs go their logs: stashed changes are in the log of a ref.
    std::fs::create_dir_all(mirror.join("logs"))?;
    for name in SHARED {
        let link = own.join(name);
        if std::fs::symlink_metadata(&link).is_err() {
            symlink(mirror.join(name), link)?;
        }
    }
    if !own.join("HEAD").is_file() {
        std::fs::copy(mirror.join("HEAD"), own.join("HEAD"))?;
    }
    if !own.join("config").is_file() {
        std::fs::write(own.join("config"), template(&mirror)?)?;
    }
    let (file, line) = (git_dir.join("commondir"), format!("{}\n", own.display()));
    if std::fs::read(&file).is_ok_and(|found| found == line.as_bytes()) {
        return Ok(());
    }
    let beside = git_dir.join("commondir.new");
    std::fs::write(&beside, line)?;
    std::fs::rename(beside, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_unknown_configuration_only_how_the_repository_is_stored_is_kept() {
        for nothing in ["", "[core]\n\trefstorage = reftable\n\tsshCommand = x\n"] {
            assert_eq!(plain(nothing), PLAIN);
        }
        let config = "[core]\n\tfsmonitor = x\n[Extensions] refStorage = reftable\n\tobjectformat=sha256
            worktreeConfig = true\n\trefstorage = ../x\n[filter \"extensions\"]\n\tobjectformat = x\n[include]\n\tpath = y\n";
        let stored_as = "\trepositoryformatversion = 1\n\tfilemode = true\n\tbare = true
[extensions]\n\tobjectformat = sha256\n\trefstorage = reftable\n";
        assert_eq!(plain(config), format!("[core]\n{stored_as}"));
    }
}
