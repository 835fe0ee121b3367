//! Signals that are ignored, that play steps, or that the fake dies of.

use std::collections::HashMap;
use std::io::Read;
use std::os::fd::{IntoRawFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::fake::{Signal, Step};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{self, SaFlags, SigAction, SigHandler, SigSet};

use super::complain;
use super::player::Player;

/// Where the handler writes the number of a signal.
static WAKE: AtomicI32 = AtomicI32::new(-1);

/// What each signal plays, once its watcher runs.
static REACTIONS: Mutex<Option<Reactions>> = Mutex::new(None);

type Reactions = HashMap<i32, (Player, Vec<Step>)>;

/// Ignores signals.
pub(crate) fn ignore(signals: &[Signal]) {
    for signal in signals {
        handle(*signal, SigHandler::SigIgn);
    }
}

/// Lets the signals that a process is ended with do so, whatever was inherited.
pub(crate) fn restore() {
    for signal in [Signal::Hup, Signal::Int, Signal::Quit, Signal::Term] {
        handle(signal, SigHandler::SigDfl);
    }
}

/// Lets a signal play steps, beside whatever the process does.
pub(crate) fn react(signal: Signal, player: Player, steps: Vec<Step>) {
    let mut reactions = REACTIONS.lock().unwrap_or_else(PoisonError::into_inner);
    if reactions.is_none() {
        let (watch, wake) = std::io::pipe().expect("a pipe for signals");
        WAKE.store(wake.into_raw_fd(), Ordering::SeqCst);
        std::thread::spawn(move || serve(watch));
    }
    reactions.get_or_insert_default().insert(number(signal) as i32, (player, steps));
    drop(reactions);
    handle(signal, SigHandler::Handler(wake));
}

/// Dies of a signal, without a core dump.
pub(crate) fn die(signal: Signal) -> ! {
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    if signal != Signal::Kill {
        handle(signal, SigHandler::SigDfl);
    }
    let _ = signal::raise(number(signal));
    complain(&format!("survived {signal:?}"))
}

extern "C" fn wake(signal: libc::c_int) {
    let fd: RawFd = WAKE.load(Ordering::SeqCst);
    let byte = u8::try_from(signal).unwrap_or(0);
    // SAFETY: `write` may be called in a handler; the descriptor is never closed and the byte lives
    // on this stack. A full pipe means that signals are waiting already.
    let _ = unsafe { libc::write(fd, (&raw const byte).cast(), 1) };
}

fn serve(mut watch: impl Read) {
    let mut byte = [0];
    while watch.read_exact(&mut byte).is_ok() {
        let reactions = REACTIONS.lock().unwrap_or_else(PoisonError::into_inner);
        let reaction = reactions.as_ref().and_then(|all| all.get(&i32::from(byte[0])));
        let reaction = reaction.map(|(player, steps)| (player.beside(), steps.clone()));
        drop(reactions);
        let Some((mut player, steps)) = reaction else {
            continue;
        };
        for step in &steps {
            player.play(step);
        }
    }
}

fn handle(signal: Signal, handler: SigHandler) {
    let action = SigAction::new(handler, SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the only handler installed here is `wake`, which does nothing but an atomic load and
    // a `write`.
    let installed = unsafe { signal::sigaction(number(signal), &action) };
    if let Err(error) = installed {
        complain(&format!("cannot handle {signal:?}: {error}"));
    }
}

fn number(signal: Signal) -> signal::Signal {
    match signal {
        Signal::Hup => signal::SIGHUP,
        Signal::Int => signal::SIGINT,
        Signal::Quit => signal::SIGQUIT,
        Signal::Abrt => signal::SIGABRT,
        Signal::Kill => signal::SIGKILL,
        Signal::Segv => signal::SIGSEGV,
        Signal::Pipe => signal::SIGPIPE,
        Signal::Term => signal::SIGTERM,
        Signal::Usr1 => signal::SIGUSR1,
    }
}
