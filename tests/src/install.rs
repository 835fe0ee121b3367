//! Installs what tests need, once each, below `target/`.
//!
//! Any number of test binaries may ask at the same time: a kernel lock per name lets one install while the others wait for
//! it, and what it installs appears in one piece, by a rename. An install that was killed leaves only a directory which
//! the next one removes.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, anyhow};

/// Downloads of hundreds of megabytes over a slow line end within this.
pub(crate) const INSTALL_LIMIT: Duration = Duration::from_mins(15);

/// Where something is installed, and how to check that it is.
pub(crate) struct Installation<'a, T> {
    /// What it is, in errors.
    pub(crate) what: &'a str,
    /// The directory of all installations of its kind.
    pub(crate) root: &'a Path,
    /// The directory of this one, below the root.
    pub(crate) name: &'a str,
    /// What is wanted of a complete installation; `None` if it is not complete.
    pub(crate) ready: fn(&Path) -> Option<T>,
}

/// A place to install from: its name, and what puts everything into a directory.
pub(crate) type Source<'a> = (&'a str, &'a dyn Fn(&Path) -> anyhow::Result<()>);

impl<T> Installation<'_, T> {
    /// What is wanted of it, installed now from the first source that has it, if it was not.
    pub(crate) fn get(&self, sources: &[Source<'_>]) -> anyhow::Result<T> {
        let Self { what, root, name, ready } = *self;
        let place = root.join(name);
        if let Some(found) = ready(&place) {
            return Ok(found);
        }
        fs::create_dir_all(root).with_context(|| format!("cannot create {}", root.display()))?;
        let lock = File::create(root.join(format!("{name}.lock")))
            .context("cannot create the lock of the installation")?;
        lock.lock().context("cannot lock the installation")?;
        // The last holder of the lock may have done the work.
        if let Some(found) = ready(&place) {
            return Ok(found);
        }
        self.install(&place, sources)?;
        ready(&place).with_context(|| format!("{what} was installed and is not there"))
    }

    fn install(&self, place: &Path, sources: &[Source<'_>]) -> anyhow::Result<()> {
        let prefix = format!("{}.installing-", self.name);
        self.sweep(&prefix);
        let mut reasons = Vec::new();
        for (source, fill) in sources {
            // A name of its own: the installer of a killed test may still be writing to the last one.
            let building = tempfile::Builder::new()
                .prefix(&prefix)
                .tempdir_in(self.root)
                .context("cannot create the place to install into")?;
            match fill(building.path()) {
                Ok(()) => {
                    discard(place)?;
                    return fs::rename(building.keep(), place)
                        .with_context(|| format!("cannot move {} into place", self.what));
                }
                Err(error) => reasons.push(format!("from {source}: {error:#}")),
            }
        }
        Err(anyhow!("cannot install {} ({})", self.what, reasons.join("; ")))
    }

    /// Removes what installs that were killed left behind, as far as possible.
    fn sweep(&self, prefix: &str) {
        for entry in fs::read_dir(self.root).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(prefix) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// `npm install` of one package into a directory, as the arguments behind `npm`.
pub(crate) fn npm_install(npm: &mut Command, into: &Path, package: &str) {
    npm.args(["install", "--no-audit", "--no-fund", "--ignore-scripts"])
        .args(["--loglevel=error", "--fetch-retries=2", "--prefix"])
        .arg(into)
        .arg(package);
}

fn discard(dir: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", dir.display()))
        }
        _ => Ok(()),
    }
}

/// Names the program of an installation, relative to it, and thereby marks it as complete.
const STAMP: &str = "takopi-stamp";

/// The program that [`stamp`] named.
pub(crate) fn stamped(place: &Path) -> Option<PathBuf> {
    let program = place.join(fs::read_to_string(place.join(STAMP)).ok()?);
    program.is_file().then_some(program)
}

/// Names the program of an installation, the last thing to be done in it.
pub(crate) fn stamp(place: &Path, program: &Path) -> anyhow::Result<()> {
    let relative = program.strip_prefix(place).context("it is below")?;
    let relative = relative.to_str().context("its path is UTF-8")?;
    fs::write(place.join(STAMP), relative).context("cannot write the stamp")
}
