//! What a worker writes about a run, and what a submitter sends to it.

use serde::{Deserialize, Serialize};
use takopi_core::model::TakopiEvent;
use takopi_core::runner::{ApprovalRequest, Reply};

/// A row of a job.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Frame {
    /// An event of the run.
    Event(Box<TakopiEvent>),
    /// The agent asks for approval.
    Ask {
        /// The name of the question.
        id: String,
        /// What is asked.
        request: Box<ApprovalRequest>,
    },
    /// A question needs no answer any more.
    Withdrawn {
        /// The name of the question.
        id: String,
    },
    /// A request of the submitter was settled.
    Settled {
        /// The name of the request.
        id: String,
        /// Whether the run took it.
        taken: bool,
    },
    /// The worker that ran it was lost, and another one runs it again.
    TakenOver {
        /// The one that was lost.
        lost: String,
    },
}

/// The answer to a question of the agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AnswerBody {
    /// The name of the question.
    pub ask: String,
    /// The answer.
    pub reply: Reply,
}

/// A message into the running turn.
#[derive(Clone, Serialize, Deserialize)]
pub struct SteerBody {
    /// The message.
    pub text: String,
}
