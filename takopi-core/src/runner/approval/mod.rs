//! Approvals: what an agent asks for, and how it is decided.

mod action;
mod location;
mod question;
#[cfg(test)]
mod tests;
mod words;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use location::Location;
pub(crate) use location::real_path;
pub use question::{
    Access, ApprovalKind, ChangeKind, Command, Excerpt, FileAccess, FileChange, FileScope, Form,
    FormField, Network, Patch, Permissions, Question, QuestionOption, ToolCall, Unknown,
    UserQuestion,
};
pub(crate) use words::words;

use crate::model::{EngineId, ResumeToken};

/// A request for approval. It holds all that a yes would grant; the directory is never empty.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ApprovalRequest {
    /// The engine that asks.
    pub engine: EngineId,
    /// The session it asks in, if it is known already.
    pub session: Option<ResumeToken>,
    /// The sub-agent that asks, if it is not the agent of the session itself.
    pub subagent: Option<String>,
    /// What is asked.
    pub question: Question,
    /// Where it would happen.
    pub cwd: PathBuf,
    /// Why, if the agent gives a reason.
    pub reason: Option<String>,
    /// Parts of the agent's request that the engine does not know, could not parse or found too
    /// large. They may grant anything: [`Rules`](crate::approvals::Rules) accept no request with one.
    pub unrecognized: Vec<Unrecognized>,
    /// The decisions that the agent accepts as an answer; all of them unless the engine removes some.
    /// A yes that is not among them counts as [`Decision::Decline`].
    pub decisions: Vec<Decision>,
}

/// A part of an agent's request that the engine did not understand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Unrecognized {
    /// The agent's name for it.
    pub field: String,
    /// Its value.
    pub value: Excerpt,
}

impl Unrecognized {
    /// A field that was not understood.
    pub fn new(field: impl Into<String>, value: Excerpt) -> Self {
        Self { field: field.into(), value }
    }
}

impl ApprovalRequest {
    /// A request without a reason.
    pub fn new(engine: EngineId, question: Question, cwd: PathBuf) -> Self {
        Self {
            engine,
            session: None,
            subagent: None,
            question,
            cwd,
            reason: None,
            unrecognized: Vec::new(),
            decisions: Decision::ALL.to_vec(),
        }
    }

    /// The kind of what is asked.
    pub fn kind(&self) -> ApprovalKind {
        self.question.kind()
    }

    /// Whether everything in the agent's request was understood.
    pub fn is_understood(&self) -> bool {
        self.unrecognized.is_empty() && !matches!(self.question, Question::Unknown(_))
    }

    /// Whether a person who reads all of this request knows all that a yes grants. Not so where
    /// something had to be left out, or the files of a patch are not known. The diff of a very
    /// large patch is the exception: it is truncated, and the presenters mark that.
    pub fn is_whole(&self) -> bool {
        let whole = match &self.question {
            Question::Patch(patch) => !patch.files.is_empty() || patch.grant_root.is_some(),
            Question::ToolCall(call) => call.input.as_ref().is_none_or(Excerpt::is_whole),
            Question::Plan(text) => text.is_whole(),
            Question::Unknown(unknown) => unknown.raw.is_whole(),
            _ => true,
        };
        whole && self.unrecognized.iter().all(|part| part.value.is_whole())
    }

    /// Whether the agent takes this decision as an answer. A no always is one.
    pub fn offers(&self, decision: Decision) -> bool {
        !decision.is_yes() || self.decisions.contains(&decision)
    }

    /// Looks up where symbolic links lead, on a thread that may block.
    pub(super) async fn resolved(self) -> Self {
        if !matches!(self.question, Question::Patch(_)) {
            return self;
        }
        let mut request = self.clone();
        let resolved = tokio::task::spawn_blocking(move || {
            if let Question::Patch(patch) = &mut request.question {
                patch.resolve(&request.cwd);
            }
            request
        });
        resolved.await.unwrap_or(self)
    }
}

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
    /// Every decision.
    pub const ALL: [Self; 4] = [Self::Accept, Self::AcceptForSession, Self::Decline, Self::Cancel];

    /// Whether it is a yes.
    pub fn is_yes(self) -> bool {
        matches!(self, Self::Accept | Self::AcceptForSession)
    }

    /// The name in events.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::AcceptForSession => "accept_for_session",
            Self::Decline => "decline",
            Self::Cancel => "cancel",
        }
    }
}

/// A decision, and what goes with it: by whom, why, and what was filled in.
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Reply {
    /// Yes or no.
    pub decision: Decision,
    /// What decided: a person's name, `a rule`, …
    pub by: Option<String>,
    /// The reason, if one was given.
    pub why: Option<String>,
    /// The answers to what was asked, by the question's id or the field's name: a text, or a list
    /// of texts. Only with a yes, and only where something is to be filled in.
    pub content: Map<String, Value>,
}

impl Reply {
    /// Sets the name of the person or rule that decided.
    pub fn by(mut self, who: impl Into<String>) -> Self {
        self.by = Some(who.into());
        self
    }

    /// Sets the reason.
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

/// As it is shown: `accepted by alice`, `declined: no answer within 30s`.
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

    /// Decides, with name and reason. This is what engines call; implement it too if the handler
    /// returns more than a [`Decision`].
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
