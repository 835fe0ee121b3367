//! How a process is ended: gently first.

use std::time::Duration;

use nix::sys::signal::Signal;

/// One step of a ladder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rung {
    /// Close its standard input.
    CloseStdin,
    /// SIGINT to its group: what a person's Ctrl-C would send.
    Interrupt,
    /// SIGTERM to its group.
    Terminate,
    /// SIGKILL to its group.
    Kill,
}

impl Rung {
    pub(super) fn signal(self) -> Option<Signal> {
        match self {
            Self::CloseStdin => None,
            Self::Interrupt => Some(Signal::SIGINT),
            Self::Terminate => Some(Signal::SIGTERM),
            Self::Kill => Some(Signal::SIGKILL),
        }
    }
}

/// The steps by which a process is ended, each with the time it is given before the next.
///
/// SIGKILL always stands at the end, whatever the steps are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ladder {
    pub(super) rungs: Vec<(Rung, Duration)>,
}

impl Ladder {
    /// SIGINT, SIGTERM, SIGKILL: for a program that ends its own children on SIGINT.
    pub fn interrupt_first() -> Self {
        Self {
            rungs: vec![
                (Rung::Interrupt, Duration::from_secs(3)),
                (Rung::Terminate, Duration::from_secs(2)),
            ],
        }
    }

    /// End of input, SIGTERM, SIGKILL: for a server that ends with its input.
    pub fn end_of_input_first() -> Self {
        Self {
            rungs: vec![
                (Rung::CloseStdin, Duration::from_secs(3)),
                (Rung::Terminate, Duration::from_secs(2)),
            ],
        }
    }

    /// Steps of one's own.
    pub fn new(rungs: impl IntoIterator<Item = (Rung, Duration)>) -> Self {
        Self { rungs: rungs.into_iter().collect() }
    }
}
