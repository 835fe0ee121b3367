//! Asking for leave: what an agent may want to do, and who decides.

use std::path::PathBuf;

use futures::future::BoxFuture;

use crate::model::{Detail, EngineId, ResumeToken};

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ApprovalKind {
    /// To run a command.
    Command,
    /// To change files.
    FileChange,
    /// For wider permissions.
    Permissions,
    /// An MCP server asks the user something.
    Elicitation,
    /// The agent asks the user something.
    UserInput,
}

/// A question to whoever may decide. What is asked is shown: never an empty directory.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ApprovalRequest {
    /// The engine that asks.
    pub engine: EngineId,
    /// The session it asks in, if it is known already.
    pub session: Option<ResumeToken>,
    /// What is asked for.
    pub kind: ApprovalKind,
    /// The command, the summary of the changes, the message.
    pub title: String,
    /// Where it would happen.
    pub cwd: PathBuf,
    /// Why, if the agent says.
    pub reason: Option<String>,
    /// Particulars.
    pub detail: Detail,
}

impl ApprovalRequest {
    /// A question without reason and particulars.
    pub fn new(
        engine: EngineId,
        kind: ApprovalKind,
        title: impl Into<String>,
        cwd: PathBuf,
    ) -> Self {
        Self {
            engine,
            session: None,
            kind,
            title: title.into(),
            cwd,
            reason: None,
            detail: Detail::new(),
        }
    }
}

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Decision {
    /// Yes, this once.
    Accept,
    /// Yes, and the like of it for the rest of the session.
    AcceptForSession,
    /// No; the agent goes on without.
    Decline,
    /// No, and the turn ends.
    Cancel,
}

/// Decides what an agent may do.
pub trait ApprovalHandler: Send + Sync {
    /// Decides. The future is dropped when the question is withdrawn or the run ends.
    fn decide(&self, request: ApprovalRequest) -> BoxFuture<'static, Decision>;
}
