//! Signals: the first stops the run in order, the second exits takopi at once.
//!
//! Signals within half a second of each other are one: `timeout` and some supervisors signal takopi and then its
//! process group. In a chat Ctrl-C is a key that a person presses, and each one counts.

mod pipe;

use std::io::{self, Read as _};
use std::time::{Duration, Instant};

use nix::libc;
use takopi_core::Host;
use tokio::signal::unix::{self, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::keys;
use crate::terminal::write_error;

/// Signals that are closer than this are one.
const TOGETHER: Duration = Duration::from_millis(500);

/// A signal that ends takopi.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// From `kill`, or at a shutdown of the system.
    Terminate,
    /// The terminal was closed.
    Hangup,
}

impl Signal {
    /// Its exit code: 128 and its number.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
            Self::Hangup => 129,
        }
    }
}

/// The first signal that was received, if any.
pub(crate) type Received = watch::Receiver<Option<Signal>>;

/// Handles signals from now on: the first cancels, the second exits.
///
/// Signals are handled on another thread than the one that writes output, so that a blocked pipe cannot
/// prevent an interrupt.
pub(crate) fn watch(cancel: CancellationToken) -> io::Result<Received> {
    let (sender, received) = watch::channel(None);
    let mut last = None;
    each(move |signal| {
        if is_repeated(&mut last, Instant::now()) {
            return;
        }
        if sender.borrow().is_some() {
            exit_now(signal);
        }
        sender.send_replace(Some(signal));
        cancel.cancel();
    })?;
    Ok(received)
}

/// Passes signals on from now on. If one has not been received when the next arrives, the receiver is stuck,
/// and takopi exits.
pub(crate) fn forward() -> io::Result<mpsc::Receiver<Signal>> {
    let (sender, receiver) = mpsc::channel(1);
    let mut last = None;
    each(move |signal| {
        if signal != Signal::Interrupt && is_repeated(&mut last, Instant::now()) {
            return;
        }
        if sender.try_send(signal).is_err() {
            exit_now(signal);
        }
    })?;
    Ok(receiver)
}

/// Whether a signal came together with the one before it.
fn is_repeated(last: &mut Option<Instant>, now: Instant) -> bool {
    let repeated = last.is_some_and(|last| now.duration_since(last) < TOGETHER);
    *last = Some(now);
    repeated
}

/// Fires when takopi continues after a suspend, e.g. by Ctrl-Z.
pub(crate) fn continued() -> io::Result<unix::Signal> {
    signal(SignalKind::from_raw(libc::SIGCONT))
}

/// Calls `act` for each signal from now on.
fn each(mut act: impl FnMut(Signal) + Send + 'static) -> io::Result<()> {
    let mut received = pipe::open()?;
    std::thread::Builder::new().name("takopi-signals".to_owned()).spawn(move || {
        let mut byte = [0];
        while received.read_exact(&mut byte).is_ok() {
            match i32::from(byte[0]) {
                libc::SIGINT => act(Signal::Interrupt),
                libc::SIGTERM => act(Signal::Terminate),
                libc::SIGHUP => act(Signal::Hangup),
                _ => {}
            }
        }
    })?;
    pipe::handle(nix::sys::signal::Signal::SIGINT)?;
    pipe::handle(nix::sys::signal::Signal::SIGTERM)?;
    // Under `nohup` hang-ups are ignored; a handler would undo that.
    if !ignores_hangup() {
        pipe::handle(nix::sys::signal::Signal::SIGHUP)?;
    }
    Ok(())
}

/// Whether takopi was started with hang-ups ignored.
fn ignores_hangup() -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action the call only fills in the old one, and zeroes are one too.
    let action = unsafe {
        libc::sigaction(libc::SIGHUP, std::ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}

/// Kills the engines and exits at once.
pub(crate) fn exit_now(signal: Signal) -> ! {
    keys::restore();
    write_error("\n");
    if let Ok(host) = Host::global() {
        host.kill_now();
    }
    std::process::exit(i32::from(signal.code()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_within_half_a_second_of_each_other_are_one() {
        let (begun, mut last) = (Instant::now(), None);
        let mut repeated = |at: u64| is_repeated(&mut last, begun + Duration::from_millis(at));
        assert_eq!([0, 10, 400, 899, 1400].map(&mut repeated), [false, true, true, true, false]);
    }
}
