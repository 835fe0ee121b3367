//! The child: its start, and the wait for its end.
//!
//! On Linux it is started without copying this process ([`sys::vfork`](crate::sys)) and waited for by a
//! descriptor of the process; elsewhere, and on kernels that have none, tokio does both.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::SigSet;
use tokio::process::{ChildStdin, Command};

use super::mark;

/// What to start.
pub(super) struct Program<'a> {
    pub(super) path: &'a Path,
    pub(super) args: &'a [OsString],
    pub(super) env: BTreeMap<OsString, OsString>,
    pub(super) cwd: Option<&'a Path>,
    /// Whether its standard input is a pipe, not empty.
    pub(super) has_input: bool,
    /// The number in its [mark](mark).
    pub(super) number: Option<u64>,
    /// Its limit on descriptors, if that is not this process's.
    pub(super) descriptors: Option<(u64, u64)>,
    /// Whether the kernel sends it SIGINT when the calling thread ends (Linux).
    pub(super) interrupt_on_death: bool,
}

/// A child and this process's ends of its pipes.
pub(super) struct Started {
    pub(super) child: Child,
    pub(super) input: Option<OwnedFd>,
    pub(super) output: OwnedFd,
    pub(super) errors: OwnedFd,
}

/// A child of this process. Dropping it does not end it.
pub(super) enum Child {
    /// Started and waited for here.
    #[cfg(target_os = "linux")]
    Own(linux::OwnChild),
    /// Started and waited for by tokio.
    Tokio(tokio::process::Child),
}

impl Child {
    /// Its pid, as long as it was not waited for.
    pub(super) fn id(&self) -> Option<u32> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Own(child) => child.id(),
            Self::Tokio(child) => child.id(),
        }
    }

    /// Waits until it has exited, and reaps it. Cancel-safe.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Own(child) => child.wait().await,
            Self::Tokio(child) => child.wait().await,
        }
    }

    /// Kills a child that cannot be used.
    pub(super) fn discard(self) {
        match self {
            #[cfg(target_os = "linux")]
            Self::Own(child) => child.discard(),
            Self::Tokio(mut child) => {
                // tokio reaps it.
                if let Err(error) = child.start_kill() {
                    tracing::debug!(%error, "cannot kill a child that could not be used");
                }
            }
        }
    }
}

impl Program<'_> {
    /// Starts it.
    pub(super) fn start(self) -> io::Result<Started> {
        #[cfg(target_os = "linux")]
        if crate::sys::vfork::has_pidfd() {
            return self.start_here();
        }
        self.start_by_tokio()
    }

    fn start_by_tokio(self) -> io::Result<Started> {
        let mut command = Command::new(self.path);
        command
            .args(self.args)
            .env_clear()
            .envs(self.env)
            .stdin(if self.has_input { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        if let Some(cwd) = self.cwd {
            command.current_dir(cwd);
        }
        let (number, descriptors, interrupt_on_death) =
            (self.number, self.descriptors, self.interrupt_on_death);
        let parent = nix::unistd::getpid();
        // SAFETY: the closure runs in the forked child and makes system calls only: no allocation,
        // no locks.
        unsafe {
            command.pre_exec(move || {
                reset_signals()?;
                if let Some(number) = number {
                    mark::put(number);
                }
                if let Some((soft, hard)) = descriptors {
                    setrlimit(Resource::RLIMIT_NOFILE, soft, hard)?;
                }
                #[cfg(target_os = "linux")]
                if interrupt_on_death {
                    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGINT)?;
                    if nix::unistd::getppid() != parent {
                        // The parent died before the line above: the signal would never come.
                        return Err(io::ErrorKind::BrokenPipe.into());
                    }
                }
                #[cfg(not(target_os = "linux"))]
                let _ = (interrupt_on_death, parent);
                Ok(())
            });
        }
        let mut child = command.spawn()?;
        let pipes = (|| {
            let input = child.stdin.take().map(ChildStdin::into_owned_fd).transpose()?;
            let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?.into_owned_fd()?;
            let errors = child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?.into_owned_fd()?;
            Ok((input, output, errors))
        })();
        let child = Child::Tokio(child);
        match pipes {
            Ok((input, output, errors)) => Ok(Started { child, input, output, errors }),
            Err(error) => {
                child.discard();
                Err(error)
            }
        }
    }
}

/// Gives this process default dispositions and blocks no signal. It is called between fork and exec:
/// system calls only. See `sys/vfork.rs` for the reason.
fn reset_signals() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    const LAST: libc::c_int = 64;
    #[cfg(not(target_os = "linux"))]
    const LAST: libc::c_int = 31;
    for number in 1..=LAST {
        // SAFETY: no handler is installed. Those that cannot be changed (SIGKILL, SIGSTOP, two that
        // the C library keeps for itself) are refused, and need no change.
        unsafe { libc::signal(number, libc::SIG_DFL) };
    }
    Ok(SigSet::empty().thread_set_mask()?)
}

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::{CString, OsStr};
    use std::fs::File;
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    use std::os::unix::process::ExitStatusExt as _;

    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    use super::{Child, ExitStatus, OsString, OwnedFd, Program, Resource, Started, io, mark};
    use crate::sys::vfork::{self, pidfd, wait};

    /// A child that was started here.
    pub(in super::super) struct OwnChild {
        pid: libc::pid_t,
        exit: AsyncFd<OwnedFd>,
        status: Option<ExitStatus>,
    }

    impl OwnChild {
        pub(super) fn id(&self) -> Option<u32> {
            self.status.is_none().then_some(self.pid).and_then(|pid| pid.try_into().ok())
        }

        pub(super) fn discard(mut self) {
            discard(self.pid);
            self.status = Some(ExitStatus::default());
        }

        pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
            loop {
                if let Some(status) = self.status {
                    return Ok(status);
                }
                let mut ready = self.exit.readable().await?;
                self.status = wait(self.pid, libc::WNOHANG)?.map(ExitStatus::from_raw);
                ready.clear_ready();
            }
        }
    }

    /// Kills a child and waits for its end.
    fn discard(pid: libc::pid_t) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        let _ = wait(pid, 0);
    }

    impl Drop for OwnChild {
        fn drop(&mut self) {
            if self.status.is_none() {
                // Its owner is gone, because the runtime is: a child that has exited is reaped at least.
                let _ = wait(self.pid, libc::WNOHANG);
            }
        }
    }

    impl Program<'_> {
        pub(super) fn start_here(self) -> io::Result<Started> {
            let (input, own_input) = if self.has_input {
                let (reader, writer) = io::pipe()?;
                (OwnedFd::from(reader), Some(OwnedFd::from(writer)))
            } else {
                (File::open("/dev/null")?.into(), None)
            };
            let (own_output, output) = io::pipe()?;
            let (own_errors, errors) = io::pipe()?;
            let number = self.number.and_then(mark::limit);
            let limits =
                [(Resource::RLIMIT_RTTIME, number), (Resource::RLIMIT_NOFILE, self.descriptors)];
            let path = text(self.path.as_os_str())?;
            let pid = vfork::Program {
                args: std::iter::once(Ok(path.clone()))
                    .chain(self.args.iter().map(|arg| text(arg)))
                    .collect::<io::Result<_>>()?,
                path,
                env: self.env.into_iter().map(variable).collect::<io::Result<_>>()?,
                cwd: self.cwd.map(|cwd| text(cwd.as_os_str())).transpose()?,
                stdio: [input, output.into(), errors.into()],
                limits: limits
                    .into_iter()
                    .filter_map(|(resource, limit)| {
                        limit.map(|(soft, hard)| (resource, soft, hard))
                    })
                    .collect(),
                death_signal: self.interrupt_on_death.then_some(Signal::SIGINT),
            }
            .start()?;
            let exit = pidfd(pid).and_then(|fd| {
                // SAFETY: it is open for as long as it is owned, and always the same.
                let registered = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
                Ok(registered?)
            });
            let exit = exit.inspect_err(|_| discard(pid))?;
            Ok(Started {
                child: Child::Own(OwnChild { pid, exit, status: None }),
                input: own_input,
                output: own_output.into(),
                errors: own_errors.into(),
            })
        }
    }

    fn variable((name, value): (OsString, OsString)) -> io::Result<CString> {
        let mut variable = name.into_vec();
        variable.push(b'=');
        variable.extend_from_slice(value.as_bytes());
        Ok(CString::new(variable)?)
    }

    fn text(text: &OsStr) -> io::Result<CString> {
        Ok(CString::new(text.as_bytes())?)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    type Start = fn(Program<'_>) -> io::Result<Started>;

    /// Every way to start a program.
    const WAYS: &[Start] = &[
        #[cfg(target_os = "linux")]
        |program| program.start_here(),
        |program| program.start_by_tokio(),
    ];

    fn program<'a>(path: &'a str, args: &'a [OsString]) -> Program<'a> {
        Program {
            path: Path::new(path),
            args,
            env: BTreeMap::from([("COLOUR".into(), "blue green".into())]),
            cwd: Some(Path::new("/")),
            has_input: true,
            number: None,
            descriptors: Some((123, 456)),
            interrupt_on_death: true,
        }
    }

    fn script(text: &str) -> [OsString; 2] {
        ["-c".into(), text.into()]
    }

    fn read(fd: OwnedFd) -> String {
        let mut text = String::new();
        std::fs::File::from(fd).read_to_string(&mut text).unwrap();
        text
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_program_has_its_number_however_it_is_started() {
        let number = (1 << 61) + 4711;
        let args = script("grep 'Max realtime timeout' /proc/$$/limits");
        for start in WAYS {
            let started =
                start(Program { number: Some(number), ..program("/bin/sh", &args) }).unwrap();
            let limits = read(started.output);
            assert!(limits.split_whitespace().any(|word| word == number.to_string()), "{limits}");
        }
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_child_that_has_exited_is_reaped_though_nobody_waits_for_it() {
        use nix::sys::wait::{Id, WaitPidFlag, waitid};
        let started = program("/bin/sh", &script("exit 0")).start_here().unwrap();
        let pid = nix::unistd::Pid::from_raw(started.child.id().unwrap().cast_signed());
        waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).unwrap();
        drop(started);
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG;
        assert_eq!(waitid(Id::Pid(pid), flags), Err(nix::errno::Errno::ECHILD));
    }

    #[tokio::test]
    async fn a_program_is_set_up_the_same_way_however_it_is_started() {
        // A signal that is ignored here is not ignored there.
        // SAFETY: no handler is installed.
        unsafe { libc::signal(libc::SIGUSR2, libc::SIG_IGN) };
        let args = script(
            "cat; echo $COLOUR in $PWD, $(ulimit -n) of $(ulimit -Hn); [ $(ps -o pgid= -p $$) -eq $$ ] && \
             echo leads; echo oops >&2; kill -USR2 $$",
        );
        for start in WAYS {
            let mut started = start(program("/bin/sh", &args)).unwrap();
            let mut input = std::fs::File::from(started.input.take().unwrap());
            input.write_all(b"hello\n").unwrap();
            drop(input);
            assert_eq!(read(started.output), "hello\nblue green in /, 123 of 456\nleads\n");
            assert_eq!(read(started.errors), "oops\n");
            assert!(started.child.id().is_some());
            let status = started.child.wait().await.unwrap();
            assert_eq!(status.signal(), Some(libc::SIGUSR2));
            assert_eq!(started.child.wait().await.unwrap(), status, "it can be asked again");
            assert_eq!(started.child.id(), None, "the pid may be another's now");
        }
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_program_is_interrupted_with_its_starters_end_however_it_is_started() {
        let args = script("exec cat");
        let runtime = tokio::runtime::Handle::current();
        for start in WAYS {
            for interrupt_on_death in [true, false] {
                let program = Program { interrupt_on_death, ..program("/bin/sh", &args) };
                let in_runtime = || {
                    let _entered = runtime.enter();
                    start(program).unwrap()
                };
                // It is the thread that counts.
                let mut started =
                    std::thread::scope(|scope| scope.spawn(in_runtime).join().unwrap());
                if !interrupt_on_death {
                    drop(started.input.take());
                }
                let limit = std::time::Duration::from_mins(1);
                let ended = tokio::time::timeout(limit, started.child.wait()).await;
                let status = ended.expect("it was not interrupted").unwrap();
                assert_eq!(status.signal(), interrupt_on_death.then_some(libc::SIGINT));
            }
        }
    }

    #[tokio::test]
    async fn what_cannot_be_executed_is_the_error_of_the_system() {
        for start in WAYS {
            let failed = |program| start(program).map(drop).unwrap_err().raw_os_error();
            assert_eq!(failed(program("/no/such", &[])), Some(libc::ENOENT));
            assert_eq!(failed(program("/etc/passwd", &[])), Some(libc::EACCES));
            let nowhere = Program { cwd: Some(Path::new("/no/such")), ..program("/bin/sh", &[]) };
            assert_eq!(failed(nowhere), Some(libc::ENOENT));
            let zero = ["a\0b".into()];
            assert_eq!(
                start(program("/bin/sh", &zero)).map(drop).unwrap_err().kind(),
                io::ErrorKind::InvalidInput
            );
        }
    }

    #[tokio::test]
    async fn a_script_that_names_no_shell_is_run_by_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("script");
        // Written by another process: what this one forks in the meantime would keep it open, and busy.
        let write = ["-c", r#"echo 'echo $1 && exit 3' >"$0" && chmod 700 "$0""#];
        let written = std::process::Command::new("sh").args(write).arg(&path).status();
        assert!(written.unwrap().success());
        for start in WAYS {
            let args = ["one".into()];
            let mut started = start(program(path.to_str().unwrap(), &args)).unwrap();
            assert_eq!(read(started.output), "one\n");
            assert_eq!(started.child.wait().await.unwrap().code(), Some(3));
        }
    }

    #[tokio::test]
    async fn a_discarded_child_is_killed() {
        for start in WAYS {
            let args = script("exec sleep 1000");
            let Started { child, output, .. } = start(program("/bin/sh", &args)).unwrap();
            child.discard();
            // Its end of the pipe is closed with it.
            assert_eq!(read(output), "");
        }
    }
}
