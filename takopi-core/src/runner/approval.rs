//! Asking for leave: what an agent may want to do, and who decides.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::{Map, Value};

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

impl ApprovalKind {
    /// The word for it where machines read.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::FileChange => "file_change",
            Self::Permissions => "permissions",
            Self::Elicitation => "elicitation",
            Self::UserInput => "user_input",
        }
    }
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

impl Decision {
    /// Whether it is a yes.
    pub fn is_yes(self) -> bool {
        matches!(self, Self::Accept | Self::AcceptForSession)
    }

    /// The word for it where machines read.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::AcceptForSession => "accept_for_session",
            Self::Decline => "decline",
            Self::Cancel => "cancel",
        }
    }
}

/// A decision, and what goes with it: who decided, why, and what was filled in.
///
/// ```
/// use takopi_core::Decision;
/// use takopi_core::runner::Reply;
///
/// let reply = Reply::from(Decision::Accept).by("alice").with("branch", "main");
/// assert_eq!(reply.to_string(), "accepted by alice");
/// assert_eq!(Reply::from(Decision::Decline).because("not on a Friday").to_string(),
///            "declined: not on a Friday");
/// assert_eq!(Reply::from(Decision::Cancel).by("alice").to_string(),
///            "declined by alice, and the turn ends");
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Reply {
    /// Yes or no.
    pub decision: Decision,
    /// Who decided: a person's name, `a rule`, …
    pub by: Option<String>,
    /// Why, if there is something to say.
    pub why: Option<String>,
    /// The answers to what was asked, by the question's id or the field's name: a text, or a list
    /// of texts. Only with a yes, and only where something is to be filled in.
    pub content: Map<String, Value>,
}

impl Reply {
    /// Says who decided.
    pub fn by(mut self, who: impl Into<String>) -> Self {
        self.by = Some(who.into());
        self
    }

    /// Says why.
    pub fn because(mut self, why: impl Into<String>) -> Self {
        self.why = Some(why.into());
        self
    }

    /// Fills something in.
    pub fn with(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.content.insert(key.into(), value.into());
        self
    }
}

impl From<Decision> for Reply {
    fn from(decision: Decision) -> Self {
        Self { decision, by: None, why: None, content: Map::new() }
    }
}

/// As it is shown: `accepted by alice`, `declined: nobody answered within 30s`.
impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.decision {
            Decision::Accept => "accepted",
            Decision::AcceptForSession => "accepted for the session",
            Decision::Decline | Decision::Cancel => "declined",
        })?;
        if let Some(by) = &self.by {
            write!(f, " by {by}")?;
        }
        if self.decision == Decision::Cancel {
            f.write_str(", and the turn ends")?;
        }
        if let Some(why) = &self.why {
            write!(f, ": {why}")?;
        }
        Ok(())
    }
}

/// Decides what an agent may do. Ready ones are in [`approvals`](crate::approvals).
///
/// Called on takopi's own thread: it must not block.
pub trait ApprovalHandler: Send + Sync {
    /// Decides. The future is dropped when the question is withdrawn or the run ends.
    fn decide(&self, request: ApprovalRequest) -> BoxFuture<'static, Decision>;

    /// Decides, with all there is to say about it. This is what engines call; a handler that has
    /// more to say than [`ApprovalHandler::decide`] can, writes this one too.
    fn reply(&self, request: ApprovalRequest) -> BoxFuture<'static, Reply> {
        let decision = self.decide(request);
        Box::pin(async move { decision.await.into() })
    }
}

impl<H: ApprovalHandler + ?Sized> ApprovalHandler for Arc<H> {
    fn decide(&self, request: ApprovalRequest) -> BoxFuture<'static, Decision> {
        (**self).decide(request)
    }

    fn reply(&self, request: ApprovalRequest) -> BoxFuture<'static, Reply> {
        (**self).reply(request)
    }
}
