//! What is retried, and when.
//!
//! Retried are failures that a retry can fix: the model's service was overloaded or limited the rate, a usage
//! limit was reached, the connection was lost, or the engine could not be started. These are retried also if
//! tools ran, which the agent may then run again. An engine that died is retried only if no tool ran. Not
//! retried are turns that failed for their content, hit a time limit, or were interrupted.

use std::time::Duration;

use takopi_core::{Completed, Reason, TakopiEvent};

use crate::digest::Digest;

/// The wait before the first retry, which doubles with each.
const FIRST: Duration = Duration::from_secs(2);
/// The longest wait.
const LONGEST: Duration = Duration::from_mins(2);

/// What was seen of a run that bears on whether it may be tried again.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// A tool ran: what it did, it did.
    pub(crate) tool_ran: bool,
    /// The connection was tried again and again, and it is not known to have come back.
    pub(crate) reconnecting: bool,
}

impl Seen {
    /// Takes an event in.
    pub(crate) fn event(&mut self, event: &TakopiEvent) {
        let TakopiEvent::Action(event) = event else { return };
        let action = &event.action;
        self.tool_ran |= action.kind.is_tool();
        if action.id.ends_with(".reconnect") {
            self.reconnecting = event.ok != Some(true);
        }
    }
}

/// What happens after a run failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterFailure {
    /// It failed.
    Failed,
    /// It is tried again.
    Retry,
    /// It is tried again, and fewer at a time.
    RetrySlower,
    /// It is tried again when the account may go on.
    Limit,
    /// Nothing can run: it is as if it had not been started.
    Halt,
}

/// Decides by the reason and what the run did.
pub(crate) fn after_failure(completed: &Completed, seen: &Seen) -> AfterFailure {
    match completed.reason.as_ref() {
        Some(Reason::EngineMissing | Reason::EngineTooOld | Reason::Auth) => AfterFailure::Halt,
        Some(Reason::UsageLimit) => AfterFailure::Limit,
        Some(Reason::RateLimit | Reason::Overloaded | Reason::SpawnFailed) => {
            AfterFailure::RetrySlower
        }
        Some(Reason::ProcessDied) if !seen.tool_ran => AfterFailure::Retry,
        Some(Reason::EngineFailed) if seen.reconnecting => AfterFailure::Retry,
        _ => AfterFailure::Failed,
    }
}

/// How long to wait before the retry of this number, from 1. Jobs that failed together do not come
/// back together: each waits between half and all of the time, by its id.
pub(crate) fn backoff(job: Digest, retry: u32) -> Duration {
    let doubled = FIRST.saturating_mul(2_u32.saturating_pow(retry.saturating_sub(1)));
    doubled.min(LONGEST).mul_f64(0.5 + job.fraction() / 2.0)
}

#[cfg(test)]
mod tests {
    use takopi_core::{Action, ActionEvent, ActionKind, Phase};

    use super::*;

    fn judged(reason: Reason, seen: &Seen) -> AfterFailure {
        after_failure(&Completed::failure("demo", reason, "no"), seen)
    }

    #[test]
    fn only_what_another_try_can_mend_is_tried_again() {
        for reason in Reason::KNOWN {
            let expected = match reason {
                Reason::EngineMissing | Reason::EngineTooOld | Reason::Auth => AfterFailure::Halt,
                Reason::UsageLimit => AfterFailure::Limit,
                Reason::RateLimit | Reason::Overloaded | Reason::SpawnFailed => {
                    AfterFailure::RetrySlower
                }
                Reason::ProcessDied => AfterFailure::Retry,
                _ => AfterFailure::Failed,
            };
            assert_eq!(judged(reason.clone(), &Seen::default()), expected, "{reason}");
        }
    }

    #[test]
    fn a_death_after_a_tool_ran_is_final() {
        let mut seen = Seen::default();
        let action = Action::new("1", ActionKind::Command, "rm x");
        seen.event(&ActionEvent::new("demo", action, Phase::Started).into());
        assert_eq!(judged(Reason::ProcessDied, &seen), AfterFailure::Failed);
    }

    #[test]
    fn a_lost_connection_is_tried_again_and_one_that_came_back_is_not() {
        let note = |phase| {
            let action = Action::new("codex.reconnect", ActionKind::Note, "Reconnecting... 5/5");
            ActionEvent::new("codex", action, phase)
        };
        let mut seen = Seen::default();
        seen.event(&note(Phase::Started).into());
        assert_eq!(judged(Reason::EngineFailed, &seen), AfterFailure::Retry);
        seen.event(&note(Phase::Completed).ok(false).into());
        assert_eq!(judged(Reason::EngineFailed, &seen), AfterFailure::Retry);
        seen.event(&note(Phase::Completed).ok(true).into());
        assert_eq!(judged(Reason::EngineFailed, &seen), AfterFailure::Failed);
    }

    #[test]
    fn the_wait_doubles_up_to_a_bound_and_differs_from_job_to_job() {
        let job = Digest::of("a");
        let waits: Vec<_> = (1..=20).map(|retry| backoff(job, retry)).collect();
        assert!(waits[0] >= FIRST / 2 && waits[0] <= FIRST);
        assert_eq!(waits[1], waits[0] * 2);
        assert!(waits.is_sorted() && waits[19] <= LONGEST);
        assert_ne!(backoff(Digest::of("b"), 1), waits[0]);
    }
}
