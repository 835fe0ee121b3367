//! How approval requests are decided.

use std::sync::Arc;
use std::time::Duration;

use takopi_core::approvals::{PendingApproval, accept_all, channel, deny, with_timeout};
use takopi_core::{ApprovalHandler, Decision};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::args::Approve;

/// How long a person may take to decide.
pub(crate) const PATIENCE: Duration = Duration::from_mins(5);

/// The approval requests that are to be shown.
#[derive(Debug)]
pub(crate) struct Questions {
    questions: mpsc::Receiver<PendingApproval>,
    patience: Duration,
}

/// An approval request that is to be shown.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) pending: PendingApproval,
    until: Instant,
}

/// Declines every request, with the reason: the user's choice, or the default.
pub(crate) fn denial(is_default: bool) -> Arc<dyn ApprovalHandler> {
    let reason = if is_default { "--approve deny is the default here" } else { "--approve deny" };
    Arc::new(deny().because(reason))
}

/// The approval handler of a run, and the requests that it passes on to a person.
pub(crate) struct Approvals {
    pub(crate) handler: Arc<dyn ApprovalHandler>,
    /// `None` if no person is asked.
    pub(crate) questions: Option<Questions>,
}

impl Approvals {
    pub(crate) fn new(approve: Approve, is_default: bool, patience: Duration) -> Self {
        match approve {
            Approve::Deny => Self { handler: denial(is_default), questions: None },
            Approve::Accept => Self { handler: Arc::new(accept_all()), questions: None },
            Approve::Ask => {
                let (ask, questions) = channel(16);
                let questions = Some(Questions { questions, patience });
                Self { handler: Arc::new(with_timeout(ask, patience)), questions }
            }
        }
    }
}

impl Questions {
    /// The next request; `None` when there can be no more.
    pub(crate) async fn next(&mut self) -> Option<Question> {
        let pending = self.questions.recv().await?;
        Some(Question { pending, until: Instant::now() + self.patience })
    }
}

impl Question {
    /// The time that is left to decide.
    pub(crate) fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }
}

/// The decision of a key.
pub(crate) fn decision(key: char) -> Option<Decision> {
    match key.to_ascii_lowercase() {
        'y' => Some(Decision::Accept),
        'a' => Some(Decision::AcceptForSession),
        'n' => Some(Decision::Decline),
        'c' => Some(Decision::Cancel),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_keys_that_are_shown_decide() {
        let decided: Vec<char> = ('\0'..='\u{7f}').filter(|key| decision(*key).is_some()).collect();
        assert_eq!(decided, ['A', 'C', 'N', 'Y', 'a', 'c', 'n', 'y']);
        assert_eq!(decision('Y'), Some(Decision::Accept));
        assert_eq!(decision('c'), Some(Decision::Cancel));
    }
}
