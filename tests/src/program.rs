//! Agents that run here: programs that were tried before any test blames takopi.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::anyhow;

use crate::command;
use crate::version::Version;

/// A program that answers `--version` does so within this, even on a busy machine.
const VERSION_LIMIT: Duration = Duration::from_mins(1);

/// An agent that runs here.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program.
    pub path: PathBuf,
    /// The version that it reports.
    pub version: Version,
}

impl AsRef<Path> for Program {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

impl Program {
    /// A program given by path or, without a slash, by name. Tests run it from other directories, so the path is made absolute.
    pub(crate) fn named(path: &Path) -> anyhow::Result<Self> {
        let by_name = path.components().count() == 1;
        Self::tried(if by_name { path.to_owned() } else { std::path::absolute(path)? })
    }

    /// Runs `--version`, so that a program which cannot run here is found out.
    pub(crate) fn tried(path: PathBuf) -> anyhow::Result<Self> {
        let mut command = Command::new(&path);
        command.arg("--version");
        let output = command::run(command, VERSION_LIMIT)?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let version = printed.split_whitespace().find_map(|word| word.parse().ok());
        let version = version.ok_or_else(|| anyhow!("{} printed {printed:?}", path.display()))?;
        Ok(Self { path, version })
    }
}

/// The releases of one agent that this process asked for: each is installed and tried once.
pub(crate) struct Releases(Mutex<BTreeMap<Version, Result<Program, String>>>);

impl Releases {
    /// None so far.
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// A release, or why it cannot be had.
    pub(crate) fn get(
        &self,
        version: Version,
        install: impl FnOnce() -> anyhow::Result<PathBuf>,
    ) -> anyhow::Result<Program> {
        let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = found.entry(version).or_insert_with(|| {
            install().and_then(Program::tried).map_err(|error| format!("{error:#}"))
        });
        found.clone().map_err(anyhow::Error::msg)
    }
}
