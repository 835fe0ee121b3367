//! The programs of engines.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::process::Command;

use super::Finding;
use crate::process::find_program;

/// The program of an engine, and how users name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Program {
    /// What is looked up on the `PATH`.
    pub name: &'static str,
    /// The flag that names another one, without dashes, e.g. `codex-bin`. Also its key in a
    /// configuration file.
    pub flag: &'static str,
    /// The environment variable that names another one.
    pub variable: &'static str,
    /// The command that installs it.
    pub install: &'static str,
}

impl Program {
    /// A program.
    pub const fn new(
        name: &'static str,
        flag: &'static str,
        variable: &'static str,
        install: &'static str,
    ) -> Self {
        Self { name, flag, variable, install }
    }

    /// How to get the program when it is missing.
    pub fn advice(&self) -> String {
        format!("install it with `{}`, or name it with --{} PATH", self.install, self.flag)
    }

    /// Whether the program is found: the one that its variable names, or the one on the `PATH`.
    pub fn is_installed(&self) -> bool {
        let named = std::env::var_os(self.variable).filter(|named| !named.is_empty());
        let program = named.map_or_else(|| self.name.into(), PathBuf::from);
        find_program(&program, None).is_some()
    }

    /// The program that was named, or the one on the `PATH`, if it can be run.
    pub fn executable(&self, named: Option<&Path>) -> Result<PathBuf, Finding> {
        let program = named.unwrap_or(Path::new(self.name));
        let problem = |path: &Path, what: &str, hint: String| {
            Finding::problem(self.name, format!("{} {what}", path.display()), hint)
        };
        if program.is_dir() {
            let hint = format!("name the program itself with --{} PATH", self.flag);
            return Err(problem(program, "is a directory", hint));
        }
        let Some(found) = find_program(program, None) else {
            return Err(problem(program, "was not found", self.advice()));
        };
        let mode = found.metadata().map_or(0, |metadata| metadata.permissions().mode());
        if mode & 0o111 == 0 {
            let hint = format!("chmod +x {}", found.display());
            return Err(problem(&found, "is not executable", hint));
        }
        Ok(found)
    }
}

/// Runs a command to its end, without input, within this time. The error says what was run and why that
/// failed.
pub async fn output(command: &mut Command, limit: Duration) -> Result<Output, String> {
    let shown = command.as_std();
    let words = std::iter::once(shown.get_program()).chain(shown.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    let line = format!("`{}`", words.join(" "));
    command.stdin(Stdio::null()).kill_on_drop(true);
    match tokio::time::timeout(limit, command.output()).await {
        Ok(Ok(output)) => Ok(output),
        Ok(Err(error)) => Err(format!("{line} cannot be run: {error}")),
        Err(_) => Err(format!("{line} did not end within {} s", limit.as_secs())),
    }
}
