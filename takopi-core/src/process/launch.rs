//! What to start, and starting it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;
use tokio::net::unix::pipe;
use tokio::sync::watch;

use super::child::{Program, Started};
use super::environment::{EnvPolicy, find_program, is_executable};
use super::frames::DEFAULT_LINE_LIMIT;
use super::mark::{MARKER, Mark};
use super::owner::{self, Process};
use super::pipe::{Output, PipeReader, StdinWriter};
use super::stop::StopSequence;
use super::supervisor::{Keep, Supervisor};
use crate::model::Reason;
use crate::sys::{descriptor_limit, original_limit};

/// What an engine finds on its standard input. It is never inherited.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum StdinPlan {
    /// Nothing.
    #[default]
    Closed,
    /// These bytes, and then the end.
    Payload(Vec<u8>),
    /// Whatever is written to [`Process::stdin`], until that is dropped.
    Open,
}

/// A process to start.
///
/// The environment is inherited but for the deny list of the [`EnvPolicy`]; the process leads a
/// group of its own.
#[derive(Debug, Clone)]
pub struct Launch {
    program: PathBuf,
    args: Vec<OsString>,
    cwd: Option<PathBuf>,
    env: Vec<(OsString, OsString)>,
    policy: EnvPolicy,
    stdin: StdinPlan,
    pub(super) stop_sequence: StopSequence,
    pub(super) linger: Duration,
    interrupt_on_death: bool,
    line_limit: usize,
}

impl Launch {
    /// A program by name or path.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            cwd: None,
            env: Vec::new(),
            policy: EnvPolicy::default(),
            stdin: StdinPlan::Closed,
            stop_sequence: StopSequence::interrupt_first(),
            linger: Duration::from_secs(10),
            interrupt_on_death: true,
            line_limit: DEFAULT_LINE_LIMIT,
        }
    }

    /// Adds arguments.
    pub fn args<I, S>(mut self, args: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: Into<OsString>,
    {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// The arguments so far.
    pub fn arguments(&self) -> &[OsString] {
        &self.args
    }

    /// The directory to run in.
    pub fn cwd(mut self, cwd: impl Into<PathBuf>) -> Self {
        self.cwd = Some(cwd.into());
        self
    }

    /// Sets a variable, deny list or not: what the caller names, it means.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Which variables are inherited.
    pub fn env_policy(mut self, policy: EnvPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// What stands on its standard input.
    pub fn stdin(mut self, stdin: StdinPlan) -> Self {
        self.stdin = stdin;
        self
    }

    /// How it is ended.
    pub fn stop_sequence(mut self, stop_sequence: StopSequence) -> Self {
        self.stop_sequence = stop_sequence;
        self
    }

    /// How long it may take to exit after its work is done.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// Whether the kernel sends it SIGINT when this process dies (Linux). On by default; off for
    /// servers that exit at the end of their input and orphan their children on SIGINT.
    pub fn interrupt_on_death(mut self, on: bool) -> Self {
        self.interrupt_on_death = on;
        self
    }

    /// The longest line of output that is taken whole.
    pub fn line_limit(mut self, bytes: usize) -> Self {
        self.line_limit = bytes;
        self
    }

    /// Starts it; its owner task lives on the supervisor thread, and drops `keep` when nothing of the
    /// process is left.
    ///
    /// Must be called on that thread, as engines are: the kernel ties the death signal to the
    /// thread that started a process.
    pub(crate) fn start(
        mut self,
        supervisor: &Supervisor,
        keep: Keep,
    ) -> Result<(Process, Output), SpawnError> {
        let program = self.resolve()?;
        let number = supervisor.next_process();
        let marker = supervisor.marker(number);
        // On record first: this process may be killed at any time.
        supervisor.opened(number);
        let (exited, exit_seen) = watch::channel(false);
        let started = self.spawn(&program, &marker).and_then(|started| {
            let Started { child, input, output, errors } = started;
            let pipes = (|| {
                let input = input.map(pipe::Sender::from_owned_fd).transpose()?;
                let output = PipeReader::new(output, exit_seen.clone())?;
                Ok((input, output, PipeReader::new(errors, exit_seen)?))
            })();
            match pipes {
                Ok((input, output, errors)) => Ok((child, input, output, errors)),
                Err(error) => {
                    child.discard();
                    Err(error)
                }
            }
        });
        let (child, input, output, errors) = match started {
            Ok(parts) => parts,
            Err(error) => {
                supervisor.closed(number);
                return Err(SpawnError::from_system(&program, error));
            }
        };
        let output = Output::new(output, self.line_limit);
        let (writer, lines) = StdinWriter::channel();
        let writer = match std::mem::take(&mut self.stdin) {
            StdinPlan::Closed => None,
            StdinPlan::Payload(bytes) => {
                // The queue is empty: there is room for one.
                let _ = writer.queue_now(bytes);
                None
            }
            StdinPlan::Open => Some(writer),
        };
        let parts = owner::Parts {
            launch: self,
            number,
            marker,
            child,
            input,
            exited,
            errors,
            lines,
            keep,
        };
        Ok((owner::start(supervisor, parts, writer), output))
    }

    fn resolve(&self) -> Result<PathBuf, SpawnError> {
        if let Some(cwd) = &self.cwd
            && !cwd.is_dir()
        {
            return Err(SpawnError::NoDirectory { path: cwd.clone() });
        }
        let path = self.env.iter().rev().find(|(name, _)| name == "PATH");
        let path = path.map(|(_, value)| value.as_os_str());
        let program =
            find_program(&self.program, path).ok_or_else(|| SpawnError::missing(&self.program))?;
        if is_executable(&program) {
            Ok(program)
        } else {
            Err(SpawnError::NotExecutable { program })
        }
    }

    /// The variables that are inherited, those that were set, and the marker.
    fn environment(&self, marker: &str) -> BTreeMap<OsString, OsString> {
        let inherited = std::env::vars_os().filter(|(name, _)| self.policy.allows(name));
        let marker = (MARKER.into(), marker.into());
        inherited.chain(self.env.iter().cloned()).chain([marker]).collect()
    }

    fn spawn(&self, path: &Path, marker: &str) -> io::Result<Started> {
        Program {
            path,
            args: &self.args,
            env: self.environment(marker),
            cwd: self.cwd.as_deref(),
            has_input: !matches!(self.stdin, StdinPlan::Closed),
            number: Mark::of_process(marker).number,
            descriptors: original_limit(),
            interrupt_on_death: self.interrupt_on_death,
        }
        .start()
    }
}

/// Why a process could not be started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// No such program.
    #[error("{} was not found", program.display())]
    Missing {
        /// The name or path that was asked for.
        program: PathBuf,
    },
    /// A directory was named instead of a program.
    #[error("{} is a directory, not a program", program.display())]
    Directory {
        /// The directory.
        program: PathBuf,
    },
    /// The program's file may not be executed.
    #[error("{} is not executable", program.display())]
    NotExecutable {
        /// The file.
        program: PathBuf,
    },
    /// The directory to run in does not exist.
    #[error("the directory {} does not exist", path.display())]
    NoDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// This process has too many open descriptors.
    #[error("cannot start {}: too many open files (the limit is {limit}; see `ulimit -n`)", program.display())]
    OutOfDescriptors {
        /// The program.
        program: PathBuf,
        /// The soft limit.
        limit: u64,
    },
    /// The supervisor's thread is gone: this process is about to end.
    #[error("takopi's supervisor is gone: {error}")]
    Supervisor {
        /// The error that ended it.
        error: io::Error,
    },
    /// The system refused.
    #[error("cannot start {}: {error}", program.display())]
    System {
        /// The program.
        program: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

impl SpawnError {
    fn from_system(program: &Path, error: io::Error) -> Self {
        let program = program.to_owned();
        match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => {
                Self::OutOfDescriptors { program, limit: descriptor_limit().unwrap_or(0) }
            }
            Some(libc::EACCES | libc::ENOEXEC) => Self::NotExecutable { program },
            _ => Self::System { program, error },
        }
    }

    fn missing(program: &Path) -> Self {
        let program = program.to_owned();
        // A bare name is looked up on the `PATH`, whatever is in the current directory.
        let is_path = program.components().count() > 1 || program.is_absolute();
        if is_path && program.is_dir() {
            Self::Directory { program }
        } else {
            Self::Missing { program }
        }
    }

    /// The reason a run ends with.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Missing { .. } | Self::Directory { .. } | Self::NotExecutable { .. } => {
                Reason::EngineMissing
            }
            Self::NoDirectory { .. } => Reason::InvalidRequest,
            // So many arguments are no machine's fault, and too many on the next one, too.
            Self::System { error, .. } if error.kind() == io::ErrorKind::ArgumentListTooLong => {
                Reason::InvalidRequest
            }
            Self::OutOfDescriptors { .. } | Self::Supervisor { .. } | Self::System { .. } => {
                Reason::SpawnFailed
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_directory_is_reported_as_such_only_where_a_path_was_named() {
        let is_directory = |program| {
            matches!(SpawnError::missing(Path::new(program)), SpawnError::Directory { .. })
        };
        // The tests run in the directory of the crate.
        for (program, expected) in [
            ("/", true),
            ("/usr", true),
            ("src/process", true),
            ("./src", true),
            ("src", false),
            ("/no/such", false),
            ("no/such", false),
        ] {
            assert_eq!(is_directory(program), expected, "{program}");
        }
    }

    #[test]
    fn an_error_of_the_system_is_named_by_its_cause() {
        let error =
            |code| SpawnError::from_system(Path::new("x"), io::Error::from_raw_os_error(code));
        for code in [libc::EACCES, libc::ENOEXEC] {
            assert_eq!(error(code).to_string(), "x is not executable");
            assert_eq!(error(code).reason(), Reason::EngineMissing);
        }
        assert!(matches!(error(libc::EMFILE), SpawnError::OutOfDescriptors { .. }));
        assert!(matches!(error(libc::ENOMEM), SpawnError::System { .. }));
        assert_eq!(error(libc::ENOMEM).reason(), Reason::SpawnFailed);
    }

    #[test]
    fn arguments_that_are_too_long_are_the_fault_of_the_request() {
        let error = io::Error::from_raw_os_error(libc::E2BIG);
        let error = SpawnError::from_system(Path::new("x"), error);
        assert_eq!(error.reason(), Reason::InvalidRequest);
    }

    #[test]
    fn the_arguments_of_a_launch_can_be_read() {
        let launch = Launch::new("x").args(["a", "b"]).args(["c"]);
        assert_eq!(launch.arguments(), ["a", "b", "c"]);
    }
}
