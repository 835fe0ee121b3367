//! Who answers when the agent asks for approval.

use std::sync::Arc;
use std::time::Duration;

use takopi_core::approvals::{PendingApproval, accept_all, channel, deny, with_timeout};
use takopi_core::{ApprovalHandler, Decision};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::args::Approve;

/// How long a person may take to answer.
pub(crate) const PATIENCE: Duration = Duration::from_mins(5);

/// The questions on their way to the screen.
#[derive(Debug)]
pub(crate) struct Questions {
    questions: mpsc::Receiver<PendingApproval>,
    patience: Duration,
}

/// A question for the screen.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) pending: PendingApproval,
    until: Instant,
}

/// Declines everything, and says why: because the user said so, or because it is the default.
pub(crate) fn denial(is_default: bool) -> Arc<dyn ApprovalHandler> {
    let why = if is_default { "--approve deny is the default here" } else { "--approve deny" };
    Arc::new(deny().because(why))
}

/// The handler, and the questions it asks, if it asks any.
pub(crate) fn handler(
    approve: Approve,
    is_default: bool,
    patience: Duration,
) -> (Option<Arc<dyn ApprovalHandler>>, Option<Questions>) {
    match approve {
        Approve::Deny => (Some(denial(is_default)), None),
        Approve::Accept => (Some(Arc::new(accept_all())), None),
        Approve::Ask => {
            let (ask, questions) = channel(16);
            let ask = with_timeout(ask, patience);
            (Some(Arc::new(ask)), Some(Questions { questions, patience }))
        }
    }
}

impl Questions {
    /// The next one; `None` when none can come any more.
    pub(crate) async fn next(&mut self) -> Option<Question> {
        let pending = self.questions.recv().await?;
        Some(Question { pending, until: Instant::now() + self.patience })
    }
}

impl Question {
    /// How long there is left to answer.
    pub(crate) fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }
}

/// What a key says.
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
