//! Calls the `git` program.
//!
//! Git gets no input, asks nothing, speaks English, and finds the repository by its directory alone: variables
//! such as `GIT_DIR`, which a hook sets, are not passed on. Nor are the secrets of this program: a hook of the
//! repository would get them. A call ends in bounded time: git is then stopped with what it started, as hooks and
//! credential helpers. An error is one line.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use takopi_core::process::SECRET_VARIABLES;
use takopi_core::redact::redact;
use thiserror::Error;

/// The longest error text of git.
const LONGEST_ERROR: usize = 300;

/// How long a call may take; one that writes the files of a worktree, with its hooks, may take longer.
const LIMIT: Duration = Duration::from_mins(1);
const LONG_LIMIT: Duration = Duration::from_mins(10);
/// How long git may clean up when it is stopped.
const GRACE: Duration = Duration::from_secs(5);

/// So that nobody is asked: neither on the terminal, nor in a window of git, ssh or a credential manager.
const QUIET: [(&str, &str); 4] = [
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", ""),
    ("SSH_ASKPASS_REQUIRE", "never"),
    ("GCM_INTERACTIVE", "never"),
];

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
    /// Git took too long.
    #[error(
        "git {command} did not end within {} s and was stopped; a hook, a credential helper or a network file \
         system may hang", limit.as_secs_f64()
    )]
    TimedOut {
        /// What git was to do.
        command: String,
        /// How long it was given.
        limit: Duration,
    },
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
    limit: Option<Duration>,
}

impl Default for Git {
    fn default() -> Self {
        Self::at("git")
    }
}

impl Git {
    /// Another program than the `git` of `PATH`.
    pub fn at(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), limit: None }
    }

    /// Sets how long a call may take; by default a minute, and ten minutes for the files of a worktree.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Runs git in a directory and returns what it printed.
    pub(crate) fn run<S: AsRef<OsStr>>(
        &self,
        directory: &Path,
        args: impl IntoIterator<Item = S>,
    ) -> Result<String, GitError> {
        let args: Vec<S> = args.into_iter().collect();
        let mut command = Command::new(&self.program);
        command.arg("-C").arg(directory).args(&args);
        for name in OTHER_REPOSITORY.iter().chain(&SECRET_VARIABLES) {
            command.env_remove(name);
        }
        command.envs(QUIET).env("LC_ALL", "C");
        let named = args.first().map(|it| it.as_ref().to_string_lossy().into_owned());
        let named = named.unwrap_or_default();
        let usual = if named == "worktree" { LONG_LIMIT } else { LIMIT };
        let limit = self.limit.unwrap_or(usual);
        let output = output(command, limit).map_err(|error| GitError::Missing {
            program: self.program.display().to_string(),
            error: error.to_string(),
        })?;
        let output = output.ok_or(GitError::TimedOut { command: named, limit })?;
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

/// What a command printed; `None` if it did not end in time. It is then stopped, with its process group.
fn output(mut command: Command, limit: Duration) -> io::Result<Option<Output>> {
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let deadline = Instant::now() + limit;
    let mut child = command.spawn()?;
    let group = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let stdout = in_background(move || read(stdout))?;
    let stderr = in_background(move || read(stderr))?;
    let ended = in_background(move || child.wait())?;
    let left = || deadline.saturating_duration_since(Instant::now());
    let collect = || -> Result<io::Result<Output>, RecvTimeoutError> {
        let status = ended.recv_timeout(left())?;
        // What git started may hold its output open.
        let (stdout, stderr) = (stdout.recv_timeout(left())?, stderr.recv_timeout(left())?);
        Ok(status.map(|status| Output { status, stdout, stderr }))
    };
    if let Ok(output) = collect() {
        return output.map(Some);
    }
    // Git removes what it did not complete.
    let _ = killpg(group, Signal::SIGTERM);
    let _ = ended.recv_timeout(GRACE);
    let _ = killpg(group, Signal::SIGKILL);
    Ok(None)
}

fn read(pipe: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        // What was read before an error counts.
        let _ = pipe.read_to_end(&mut bytes);
    }
    bytes
}

/// Does this on a thread of its own, which ends with the processes of the command.
fn in_background<R: Send + 'static>(
    work: impl FnOnce() -> R + Send + 'static,
) -> io::Result<Receiver<R>> {
    let (sender, result) = mpsc::sync_channel(1);
    let work = move || {
        let _ = sender.send(work());
    };
    thread::Builder::new().name("takopi-git".to_owned()).spawn(work)?;
    Ok(result)
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
