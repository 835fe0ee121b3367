//! Calls the `git` program.
//!
//! Git gets no input, asks nothing, speaks English, and finds the repository by its directory alone: variables
//! such as `GIT_DIR`, which a hook sets, are not passed on. Nor are the secrets of this program: a hook of the
//! repository would get them. An error is one line.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use takopi_core::process::SECRET_VARIABLES;
use takopi_core::redact::redact;
use thiserror::Error;

/// The longest error text of git.
const LONGEST_ERROR: usize = 300;

/// Variables that point git at another repository.
const OTHER_REPOSITORY: [&str; 7] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_COMMON_DIR",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
];

/// A call of git that failed. One line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GitError {
    /// The program is not there.
    #[error("cannot run {program}: {error}; install git, or add it to PATH")]
    Missing {
        /// The program.
        program: String,
        /// Why it could not be run.
        error: String,
    },
    /// Git refused.
    #[error("{0}")]
    Failed(String),
}

impl GitError {
    /// Whether files could not be written. Git does not always say why: on a full disk a checkout fails with
    /// `unable to write file`.
    pub(crate) fn is_of_disk(&self) -> bool {
        let signs = ["unable to write file", "No space left on device", "Disk quota exceeded"];
        matches!(self, Self::Failed(text) if signs.iter().any(|sign| text.contains(sign)))
    }
}

/// The git program.
#[derive(Debug, Clone)]
pub struct Git {
    program: PathBuf,
}

impl Default for Git {
    fn default() -> Self {
        Self { program: "git".into() }
    }
}

impl Git {
    /// Another program than the `git` of `PATH`.
    pub fn at(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into() }
    }

    /// Runs git in a directory and returns what it printed.
    pub(crate) fn run<S: AsRef<OsStr>>(
        &self,
        directory: &Path,
        args: impl IntoIterator<Item = S>,
    ) -> Result<String, GitError> {
        let mut command = Command::new(&self.program);
        command.arg("-C").arg(directory).args(args).stdin(Stdio::null());
        for name in OTHER_REPOSITORY.iter().chain(&SECRET_VARIABLES) {
            command.env_remove(name);
        }
        command.env("GIT_TERMINAL_PROMPT", "0").env("LC_ALL", "C");
        let output = command.output().map_err(|error| GitError::Missing {
            program: self.program.display().to_string(),
            error: error.to_string(),
        })?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        Err(GitError::Failed(one_line(&stderr).unwrap_or_else(|| output.status.to_string())))
    }

    /// The work tree that a git directory elsewhere belongs to, if it says so: that of a submodule does.
    pub(crate) fn work_tree(&self, directory: &Path) -> Option<PathBuf> {
        let config = directory.join("config");
        let args =
            ["config".as_ref(), "--file".as_ref(), config.as_os_str(), "core.worktree".as_ref()];
        let named = self.run(directory, args).ok()?;
        directory.join(named.trim_end()).canonicalize().ok()
    }

    /// Whether git says yes: it exits with success.
    pub(crate) fn agrees(&self, directory: &Path, args: &[&str]) -> bool {
        self.run(directory, args).is_ok()
    }
}

/// The line of git's errors that says most: the first `fatal:` or `error:`, else the last one.
fn one_line(stderr: &str) -> Option<String> {
    let lines = || stderr.lines().map(str::trim).filter(|line| !line.is_empty());
    let told = |line: &&str| line.starts_with("fatal:") || line.starts_with("error:");
    let line = lines().find(told).or_else(|| lines().next_back())?;
    let line = line.trim_start_matches("fatal:").trim_start_matches("error:").trim();
    let shown: String = line.chars().filter(|c| !c.is_control()).take(LONGEST_ERROR).collect();
    Some(redact(&shown).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_telling_line_of_an_error_is_kept() {
        let stderr = "Preparing worktree\nfatal: 'x' is not a branch\nhint: try\n";
        assert_eq!(one_line(stderr).as_deref(), Some("'x' is not a branch"));
        assert_eq!(one_line("one\ntwo\u{1b}[0m\n").as_deref(), Some("two[0m"));
        assert_eq!(one_line(" \n"), None);
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = Git::at("/nope/git").run(Path::new("/"), ["--version"]).unwrap_err();
        assert!(error.to_string().starts_with("cannot run /nope/git: "), "{error}");
    }
}
