//! How a process is ended: gently first.

use std::time::Duration;

use nix::sys::signal::Signal;

/// One step of a [`StopSequence`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopStep {
    /// Close its standard input.
    CloseStdin,
    /// SIGINT to its group: what a person's Ctrl-C would send.
    Interrupt,
    /// SIGTERM to its group.
    Terminate,
    /// SIGKILL to its group.
    Kill,
}

impl StopStep {
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
pub struct StopSequence {
    pub(super) steps: Vec<(StopStep, Duration)>,
}

impl StopSequence {
    /// SIGINT, SIGTERM, SIGKILL: for a program that ends its own children on SIGINT.
    pub fn interrupt_first() -> Self {
        Self {
            steps: vec![
                (StopStep::Interrupt, Duration::from_secs(3)),
                (StopStep::Terminate, Duration::from_secs(2)),
            ],
        }
    }

    /// End of input, SIGTERM, SIGKILL: for a server that ends with its input.
    pub fn end_of_input_first() -> Self {
        Self {
            steps: vec![
                (StopStep::CloseStdin, Duration::from_secs(3)),
                (StopStep::Terminate, Duration::from_secs(2)),
            ],
        }
    }

    /// Steps of one's own.
    pub fn new(steps: impl IntoIterator<Item = (StopStep, Duration)>) -> Self {
        Self { steps: steps.into_iter().collect() }
    }
}
