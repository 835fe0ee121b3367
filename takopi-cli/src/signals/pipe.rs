//! The pipe that signal handlers write to: a signal that was caught is never lost.
//!
//! Tokio (and signal-hook, which it builds on) installs the handler first and connects it to its
//! listeners afterwards. A signal that arrives in between is dropped without a trace, and takopi would
//! run on as if there had been no signal. Here the pipe exists before the first handler is installed.

use std::io::{self, PipeReader};
use std::os::fd::{AsFd, IntoRawFd};
use std::sync::atomic::{AtomicI32, Ordering};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// The writing end; open until the process ends, because a handler may run at any time.
static WRITER: AtomicI32 = AtomicI32::new(-1);
/// The process that handles signals. A child has the handlers too, between its fork and its exec.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Opens the pipe; the number of each signal that is handled from then on comes out as one byte.
pub(super) fn open() -> io::Result<PipeReader> {
    let (reader, writer) = io::pipe()?;
    // A handler must not wait for the reader.
    fcntl(writer.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    OWNER.store(nix::unistd::getpid().as_raw(), Ordering::SeqCst);
    WRITER.store(writer.into_raw_fd(), Ordering::SeqCst);
    Ok(reader)
}

/// Sends this signal through the pipe from now on.
pub(super) fn handle(signal: Signal) -> io::Result<()> {
    let handler = SigHandler::Handler(write);
    let flags = SaFlags::SA_RESTART | SaFlags::SA_ONSTACK;
    // SAFETY: the handler makes system calls only, and leaves errno as it was.
    unsafe { sigaction(signal, &SigAction::new(handler, flags, SigSet::empty())) }?;
    Ok(())
}

extern "C" fn write(signal: libc::c_int) {
    let errno = Errno::last_raw();
    if nix::unistd::getpid().as_raw() == OWNER.load(Ordering::SeqCst)
        && let Ok(byte) = u8::try_from(signal)
    {
        // SAFETY: the descriptor is never closed, and the buffer is one byte. If the pipe is full, there are
        // enough unhandled signals in it already.
        unsafe { libc::write(WRITER.load(Ordering::SeqCst), (&raw const byte).cast(), 1) };
    }
    Errno::set_raw(errno);
}
