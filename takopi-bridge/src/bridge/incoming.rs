//! Messages from a chat.

use std::fmt;

use takopi_core::{EngineId, ResumeToken, RunSettings};

use crate::transport::{MessageId, MessageRef, Place};

/// A message that a person wrote.
///
/// ```
/// use takopi_bridge::{Incoming, Place};
///
/// let place = Place::new("-100123").thread("7");
/// let message = Incoming::new(place, "4711", "and now the tests").by("alice").replying_to("4700");
/// assert_eq!(message.reply_to.unwrap().message.as_str(), "4700");
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct Incoming {
    /// Where it was written, and where it is answered.
    pub place: Place,
    /// Its id.
    pub message: MessageId,
    /// Its text.
    pub text: String,
    /// The name of its author.
    pub user: Option<String>,
    /// The message it replies to.
    pub reply_to: Option<ReplyTo>,
    /// The session to resume, if the bridge's author knows it.
    pub resume: Option<ResumeToken>,
    /// The engine of a session that it starts, unless its text names one; else the router's default.
    pub engine: Option<EngineId>,
    /// The message of the only question that it may answer without being a reply to it; else, where a place is one
    /// conversation, it answers the oldest one of that.
    pub may_answer: Option<MessageId>,
    /// What happens to it while its session is busy; overrides the settings.
    pub while_busy: Option<WhileBusy>,
    /// Where it runs. A message that resumes the session of an earlier one runs where that did.
    pub context: Option<RunContext>,
}

/// Where a message runs: a directory, a model and the like, and the line that names it in the chat.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct RunContext {
    /// The line of Markdown that messages show above the resume line.
    pub line: Option<String>,
    /// The settings of its runs; they win over those of the bridge.
    pub settings: RunSettings,
}

impl RunContext {
    /// Settings without a line.
    pub fn new(settings: RunSettings) -> Self {
        Self { line: None, settings }
    }

    /// Sets the line.
    pub fn line(mut self, line: impl Into<String>) -> Self {
        self.line = Some(line.into());
        self
    }
}

/// The message that another one replies to.
#[derive(Clone)]
#[non_exhaustive]
pub struct ReplyTo {
    /// Its id.
    pub message: MessageId,
    /// Its text, if the chat provides it: a resume line in it counts even if the bridge does not know
    /// the message (any more).
    pub text: Option<String>,
}

/// What happens to a message whose session is busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum WhileBusy {
    /// It waits in the queue.
    #[default]
    Queue,
    /// It is added to the running turn, or waits in the queue if it has images or the engine does not accept it.
    Steer,
}

impl Incoming {
    /// A message.
    pub fn new(place: Place, message: impl Into<MessageId>, text: impl Into<String>) -> Self {
        Self {
            place,
            message: message.into(),
            text: text.into(),
            user: None,
            reply_to: None,
            resume: None,
            engine: None,
            may_answer: None,
            while_busy: None,
            context: None,
        }
    }

    /// The message with its chat.
    pub(super) fn at(&self) -> MessageRef {
        self.message.clone().at(&self.place.chat)
    }

    /// Sets the name of the author.
    pub fn by(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Sets the message that this one replies to.
    pub fn replying_to(mut self, message: impl Into<MessageId>) -> Self {
        self.reply_to = Some(ReplyTo { message: message.into(), text: None });
        self
    }

    /// Sets the message that this one replies to, and its text.
    pub fn replying_to_text(
        mut self,
        message: impl Into<MessageId>,
        text: impl Into<String>,
    ) -> Self {
        self.reply_to = Some(ReplyTo { message: message.into(), text: Some(text.into()) });
        self
    }

    /// Sets the session to resume.
    pub fn resume(mut self, session: ResumeToken) -> Self {
        self.resume = Some(session);
        self
    }

    /// Sets where it runs, if it does not resume the session of an earlier message.
    pub fn context(mut self, context: RunContext) -> Self {
        self.context = Some(context);
        self
    }

    /// Sets the engine of a session that it starts.
    pub fn engine(mut self, engine: impl Into<EngineId>) -> Self {
        self.engine = Some(engine.into());
        self
    }

    /// Sets the message of the only request that it may answer without being a reply to it: for chats where a place is one
    /// conversation and that show one request at a time. If that takes no text, it answers nothing.
    pub fn may_answer(mut self, request: impl Into<MessageId>) -> Self {
        self.may_answer = Some(request.into());
        self
    }

    /// Sets what happens to it while its session is busy.
    pub fn while_busy(mut self, while_busy: WhileBusy) -> Self {
        self.while_busy = Some(while_busy);
        self
    }
}

// Not derived, so that texts of people are never logged.
impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming")
            .field("place", &self.place)
            .field("message", &self.message)
            .field("text", &format_args!("{} bytes", self.text.len()))
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ReplyTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplyTo").field("message", &self.message).finish_non_exhaustive()
    }
}
