//! Exit codes, and the errors that choose one.

use takopi_core::{Completed, Reason};
use thiserror::Error;

use crate::signals::Signal;

/// Success.
pub(crate) const OK: u8 = 0;
/// Failure.
pub(crate) const FAILED: u8 = 1;
/// Wrong usage.
pub(crate) const USAGE: u8 = 2;
/// The engine is missing, not executable, or too old.
pub(crate) const NO_ENGINE: u8 = 3;
/// The session is in use.
pub(crate) const BUSY: u8 = 4;
/// A time limit was reached; the code of `timeout(1)`.
pub(crate) const TIMEOUT: u8 = 124;

/// An error in the usage.
#[derive(Debug, Error)]
#[error("{0}")]
pub(crate) struct Usage(String);

impl Usage {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// The code of an error before a command began.
pub(crate) fn of_error(error: &anyhow::Error) -> u8 {
    if error.downcast_ref::<Usage>().is_some() { USAGE } else { FAILED }
}

/// The code of a run.
pub(crate) fn of_run(completed: &Completed, signal: Option<Signal>) -> u8 {
    if completed.ok {
        return OK;
    }
    match (&completed.reason, signal) {
        (_, Some(signal)) => signal.code(),
        (Some(Reason::Interrupted), None) => Signal::Interrupt.code(),
        (Some(Reason::InvalidRequest), _) => USAGE,
        (Some(Reason::TimeoutIdle | Reason::TimeoutWall), _) => TIMEOUT,
        (Some(Reason::SessionBusy), _) => BUSY,
        (Some(Reason::EngineMissing | Reason::EngineTooOld), _) => NO_ENGINE,
        _ => FAILED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_code() {
        let expected = |reason: &Reason| match reason {
            Reason::Interrupted => 130,
            Reason::TimeoutIdle | Reason::TimeoutWall => 124,
            Reason::SessionBusy => 4,
            Reason::EngineMissing | Reason::EngineTooOld => 3,
            Reason::InvalidRequest => 2,
            _ => 1,
        };
        for reason in Reason::KNOWN {
            let completed = Completed::failure("codex", reason.clone(), "");
            assert_eq!(of_run(&completed, None), expected(reason), "{reason}");
        }
    }

    #[test]
    fn a_signal_has_its_own_code_unless_the_run_succeeded_before_it() {
        let failed = |reason| Completed::failure("codex", reason, "");
        let interrupted = failed(Reason::Interrupted);
        assert_eq!(of_run(&interrupted, Some(Signal::Terminate)), 143);
        assert_eq!(of_run(&interrupted, Some(Signal::Hangup)), 129);
        let done = Completed::success("codex", "done before the signal");
        assert_eq!(of_run(&done, Some(Signal::Interrupt)), 0);
    }
}
