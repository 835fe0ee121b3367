//! What came of a turn.

use takopi_core::model::{Reason, Usage};

use crate::app_server::transcript::Message;

/// A turn of a conversation that is over, however it ended.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ConversationReport {
    /// The answer; `None` if the agent gave none, which is not the same as an empty one. Of a turn
    /// that did not go well, the answer so far.
    pub final_text: Option<String>,
    /// The messages and tool calls, without the input. See [`Transcript`](super::super::Transcript).
    pub messages: Vec<Message>,
    /// How many tools were called.
    pub tool_iterations: usize,
    /// Whether the turn was interrupted: by the host, by the approval handler, or by codex itself.
    pub interrupted: bool,
    /// What went wrong, for people.
    pub error: Option<String>,
    /// What went wrong, for machines.
    pub reason: Option<Reason>,
    /// The turn, if it was started.
    pub turn_id: Option<String>,
    /// The thread, if it is known.
    pub thread_id: Option<String>,
    /// Whether the process that ran the turn is of no further use. The next turn gets a fresh one,
    /// and goes on with the thread.
    pub retired: bool,
    /// Tokens used by this turn.
    pub usage: Option<Usage>,
}

impl ConversationReport {
    /// Whether the turn went well.
    pub fn ok(&self) -> bool {
        self.reason.is_none() && self.error.is_none()
    }

    pub(super) fn closed() -> Self {
        Self {
            interrupted: true,
            error: Some("the conversation is closed".to_owned()),
            reason: Some(Reason::Interrupted),
            ..Self::default()
        }
    }
}
