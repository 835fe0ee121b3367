//! Starting a program without copying this process.
//!
//! `fork` copies the page tables of this process, which takes longer the more memory it has. Here the child
//! shares the memory until it executes its program, and the calling thread waits for that, as in
//! `posix_spawn`. Unlike there, the child first sets limits and the signal it gets when its parent dies.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};

/// What the child's own calls need, and what the C library needs to look up a program; the arguments come on
/// top, which it may copy.
const STACK: usize = 64 * 1024;

/// A program and how its process is set up. It leads a process group, and has default signals.
pub(crate) struct Program {
    pub(crate) path: CString,
    /// Its arguments, its name first.
    pub(crate) args: Vec<CString>,
    /// Its environment, as `NAME=value`.
    pub(crate) env: Vec<CString>,
    pub(crate) cwd: Option<CString>,
    /// Standard input, output, error.
    pub(crate) stdio: [OwnedFd; 3],
    /// Limits (resource, soft, hard).
    pub(crate) limits: Vec<(Resource, u64, u64)>,
    /// What the kernel sends it when the calling thread ends.
    pub(crate) death_signal: Option<Signal>,
}

/// What the child reads. Everything is made before it exists: it must not allocate.
struct Child<'a> {
    path: &'a CStr,
    args: Vec<*const c_char>,
    env: Vec<*const c_char>,
    cwd: Option<&'a CStr>,
    stdio: [RawFd; 3],
    limits: &'a [(Resource, u64, u64)],
    death_signal: Option<Signal>,
    parent: libc::pid_t,
    /// Why it could not execute the program.
    error: AtomicI32,
}

impl Program {
    /// Starts it; returns when the program is executed, or why it cannot be.
    pub(crate) fn start(self) -> io::Result<libc::pid_t> {
        let [input, output, errors] = self.stdio;
        let stdio = [above_stdio(input)?, above_stdio(output)?, above_stdio(errors)?];
        let mut child = Child {
            path: &self.path,
            args: pointers(&self.args),
            env: pointers(&self.env),
            cwd: self.cwd.as_deref(),
            stdio: stdio.each_ref().map(AsRawFd::as_raw_fd),
            limits: &self.limits,
            death_signal: self.death_signal,
            parent: nix::unistd::getpid().as_raw(),
            error: AtomicI32::new(0),
        };
        let mut stack: Vec<u128> =
            Vec::with_capacity((STACK + child.args.len() * size_of::<usize>()) / size_of::<u128>());
        // A handler of this process must not run in the child, in shared memory.
        let blocked = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
        // SAFETY: the stack is of its own and aligned (its elements have 16 bytes); it and everything behind the
        // pointers outlive the child's use of this memory, because this thread does not go on before the child
        // has executed its program or exited.
        let pid = unsafe {
            let top = stack.as_mut_ptr().add(stack.capacity());
            let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
            libc::clone(run_child, top.cast(), flags, (&raw mut child).cast())
        };
        let cloned = if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(pid) };
        blocked.thread_set_mask()?;
        let pid = cloned?;
        match child.error.load(Ordering::Acquire) {
            0 => Ok(pid),
            error => {
                // It exited right away.
                let _ = wait(pid, 0);
                Err(io::Error::from_raw_os_error(error))
            }
        }
    }
}

/// The descriptor, or a copy of it that is none of 0, 1 and 2: those are overwritten in the child.
fn above_stdio(fd: OwnedFd) -> io::Result<OwnedFd> {
    if fd.as_raw_fd() > libc::STDERR_FILENO { Ok(fd) } else { fd.try_clone() }
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
}

extern "C" fn run_child(child: *mut c_void) -> c_int {
    // SAFETY: the parent passed a `Child`, and waits.
    let child = unsafe { &*child.cast::<Child<'_>>() };
    let error = child.execute();
    child.error.store(error, Ordering::Release);
    // SAFETY: ends the child without running anything of the parent's.
    unsafe { libc::_exit(127) }
}

impl Child<'_> {
    /// Sets the process up and executes the program; returns the error of the call that failed. System calls
    /// only: no allocation, no locks, and the parent's memory is not changed.
    fn execute(&self) -> c_int {
        let set_up = || -> Result<(), c_int> {
            // SAFETY: all pointers are valid, see `Program::start`.
            unsafe {
                check(libc::setpgid(0, 0))?;
                default_signals();
                for (resource, soft, hard) in self.limits {
                    setrlimit(*resource, *soft, *hard).map_err(|error| error as c_int)?;
                }
                if let Some(signal) = self.death_signal {
                    check(libc::prctl(libc::PR_SET_PDEATHSIG, signal as c_int))?;
                    if libc::getppid() != self.parent {
                        // It died before the line above: the signal would never come.
                        return Err(libc::EPIPE);
                    }
                }
                for (number, fd) in (0..).zip(self.stdio) {
                    check(libc::dup2(fd, number))?;
                }
                if let Some(cwd) = self.cwd {
                    check(libc::chdir(cwd.as_ptr()))?;
                }
                let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
                libc::sigemptyset(none.as_mut_ptr());
                check(libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut()))?;
                check(libc::execvpe(self.path.as_ptr(), self.args.as_ptr(), self.env.as_ptr()))
            }
        };
        set_up().err().unwrap_or(libc::EINVAL)
    }
}

fn check(result: c_int) -> Result<(), c_int> {
    // SAFETY: the address of this thread's errno.
    if result == -1 { Err(unsafe { *libc::__errno_location() }) } else { Ok(()) }
}

/// Gives the child default dispositions.
///
/// What is ignored stays ignored in a new program. A shell starts what runs in its background with SIGINT
/// ignored, `nohup` ignores SIGHUP, a Rust program SIGPIPE: the engine would not end when it is asked to,
/// nor would its pipelines.
unsafe fn default_signals() {
    // SAFETY: zeroes are a valid action: the default one, no flags, no mask.
    let action: libc::sigaction = unsafe { std::mem::zeroed() };
    for number in 1..=64 {
        // SAFETY: no handler is installed. Those that cannot be changed (SIGKILL, SIGSTOP, two that the C
        // library keeps for itself) are refused, and need no change.
        unsafe { libc::sigaction(number, &raw const action, ptr::null_mut()) };
    }
}

/// Waits for a child of this process; `None` if it lives on and the flags say not to wait.
pub(crate) fn wait(pid: libc::pid_t, flags: c_int) -> io::Result<Option<c_int>> {
    let mut status = 0;
    loop {
        // SAFETY: the status is where the call expects it.
        match unsafe { libc::waitpid(pid, &raw mut status, flags) } {
            0 => return Ok(None),
            -1 => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
            _ => return Ok(Some(status)),
        }
    }
}

/// A descriptor that becomes readable when the process exits.
pub(crate) fn pidfd(pid: libc::pid_t) -> io::Result<OwnedFd> {
    // SAFETY: a system call with plain numbers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    match RawFd::try_from(fd) {
        // SAFETY: the kernel has just made it for us.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether this kernel has such descriptors (Linux 5.3).
pub(crate) fn has_pidfd() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        // For want of a descriptor the kernel was not asked.
        let missing =
            |error: &io::Error| !matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
        !pidfd(nix::unistd::getpid().as_raw()).as_ref().is_err_and(missing)
    })
}
