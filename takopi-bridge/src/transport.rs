//! The chat, as the kit sees it: a place where messages are sent, edited and deleted.
//!
//! [`Transport`] is all that a bridge's author writes about a chat's API. What the kit promises them:
//! - the calls to a chat come one at a time, what must be said ahead of edits and deletions;
//! - a call is given a bounded time and then dropped, so a hanging chat stalls neither a run nor
//!   another chat; after that the message may or may not be there;
//! - [`TransportError::RateLimited`] holds back every further call to that chat for as long as asked;
//! - a message that is [`TransportError::Gone`] is written anew, and one whose answered message is
//!   gone answers nothing;
//! - a call that panics is one that failed;
//! - a text is Markdown and within the [`Limit`](crate::present::Limit) of the settings.
//!
//! ```
//! use takopi_bridge::transport::{Content, MessageId, MessageRef, Outgoing, Transport, TransportError};
//!
//! /// A chat without memory: it prints what it is told.
//! struct Printer;
//!
//! impl Transport for Printer {
//!     async fn send(&self, message: Outgoing) -> Result<MessageId, TransportError> {
//!         println!("{}", message.content.text);
//!         Ok(MessageId::from("1"))
//!     }
//!
//!     async fn edit(&self, _: MessageRef, content: Content) -> Result<(), TransportError> {
//!         println!("{}", content.text);
//!         Ok(())
//!     }
//!
//!     async fn delete(&self, _: MessageRef) -> Result<(), TransportError> {
//!         Ok(())
//!     }
//! }
//! ```

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use takopi_core::Decision;
use thiserror::Error;

use crate::scheduler::JobId;

/// A chat's API: the three calls that a bridge needs. Write them as `async fn`.
pub trait Transport: Send + Sync + 'static {
    /// Sends a message; says what the chat calls it. [`TransportError::Gone`] if the message that it
    /// answers is not there any more: it is then sent again, answering nothing.
    fn send(
        &self,
        message: Outgoing,
    ) -> impl Future<Output = Result<MessageId, TransportError>> + Send;

    /// Puts this in the place of what the message said. A chat that complains that nothing changed
    /// has done what was asked: that is `Ok`.
    fn edit(
        &self,
        message: MessageRef,
        content: Content,
    ) -> impl Future<Output = Result<(), TransportError>> + Send;

    /// Takes a message away. One that is gone already is `Ok`.
    fn delete(
        &self,
        message: MessageRef,
    ) -> impl Future<Output = Result<(), TransportError>> + Send;
}

impl<T: Transport> Transport for Arc<T> {
    async fn send(&self, message: Outgoing) -> Result<MessageId, TransportError> {
        (**self).send(message).await
    }

    async fn edit(&self, message: MessageRef, content: Content) -> Result<(), TransportError> {
        (**self).edit(message, content).await
    }

    async fn delete(&self, message: MessageRef) -> Result<(), TransportError> {
        (**self).delete(message).await
    }
}

/// Why a call did not do what it should.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TransportError {
    /// Too many calls; the chat wants to be left alone for so long.
    #[error("the chat wants no calls for {retry_after:?}")]
    RateLimited {
        /// How long.
        retry_after: Duration,
    },
    /// The message to be edited, or answered, is not there any more.
    #[error("the message is gone")]
    Gone,
    /// Whatever else; it may work another time.
    #[error("the chat's API failed")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The call took too long, and the kit waits for it no more.
    #[error("the chat's API did not answer within {0:?}")]
    TimedOut(Duration),
}

impl TransportError {
    /// A failure, from any error or text.
    pub fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Failed(error.into())
    }
}

/// A chat, or a thread (topic, channel thread) in one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Place {
    /// The chat, as the transport names it.
    pub chat: String,
    /// The thread in it, if the chat has threads.
    pub thread: Option<String>,
}

impl Place {
    /// A chat.
    pub fn new(chat: impl Into<String>) -> Self {
        Self { chat: chat.into(), thread: None }
    }

    /// This thread of it.
    pub fn thread(mut self, thread: impl Into<String>) -> Self {
        self.thread = Some(thread.into());
        self
    }
}

/// A message in a chat, as the transport names it; opaque to the kit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MessageId(String);

impl MessageId {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The message in this chat.
    pub fn at(self, chat: impl Into<String>) -> MessageRef {
        MessageRef { chat: chat.into(), message: self }
    }
}

impl<S: Into<String>> From<S> for MessageId {
    fn from(id: S) -> Self {
        Self(id.into())
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A message, wherever it is: ids need to be unique in their chat only.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct MessageRef {
    /// The chat.
    pub chat: String,
    /// The message in it.
    pub message: MessageId,
}

/// A message to be sent.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Outgoing {
    /// Where to.
    pub place: Place,
    /// The message it answers.
    pub reply_to: Option<MessageId>,
    /// Whether nobody's phone should ring.
    pub silent: bool,
    /// What it says.
    pub content: Content,
}

impl Outgoing {
    /// A message to a place, which answers nothing and is not silent.
    pub fn new(place: Place, content: Content) -> Self {
        Self { place, reply_to: None, silent: false, content }
    }

    /// In answer to this message.
    pub fn reply_to(mut self, message: impl Into<Option<MessageId>>) -> Self {
        self.reply_to = message.into();
        self
    }

    /// Whether nobody's phone should ring.
    pub fn silent(mut self, silent: bool) -> Self {
        self.silent = silent;
        self
    }
}

/// What a message says and what can be pressed on it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Content {
    /// Markdown.
    pub text: String,
    /// What can be pressed; empty takes the buttons away.
    pub buttons: Vec<Press>,
    /// What kind of message it is, for chats that show them differently.
    pub kind: Kind,
    /// The job it belongs to, if there is one.
    pub job: Option<JobId>,
    /// The line with which a person goes on with the session, if the text ends with one. For chats
    /// that show it apart: it is the end of the text, as it stands.
    pub resume_line: Option<String>,
}

impl Content {
    /// A text without buttons.
    pub fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self { text: text.into(), buttons: Vec::new(), kind, job: None, resume_line: None }
    }

    /// With these buttons.
    pub fn buttons(mut self, buttons: impl Into<Vec<Press>>) -> Self {
        self.buttons = buttons.into();
        self
    }

    /// Belonging to this job.
    pub fn job(mut self, job: impl Into<Option<JobId>>) -> Self {
        self.job = job.into();
        self
    }

    /// Says which line goes on with the session, if the text ends with it.
    pub(crate) fn resume_line(mut self, line: Option<&str>) -> Self {
        self.resume_line = line.filter(|line| self.text.ends_with(line)).map(str::to_owned);
        self
    }
}

/// What kind of message it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A job that waits for its turn.
    Queued,
    /// A run that goes on.
    Progress,
    /// How a job ended, or one part of it.
    Final,
    /// The agent asks for approval. Without buttons: a diff that did not fit into the message that
    /// asks, or a request that was decided.
    Question,
    /// A word of the kit's own, such as why a message was not taken.
    Notice,
}

impl Kind {
    /// The word for it where machines read.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Progress => "progress",
            Self::Final => "final",
            Self::Question => "question",
            Self::Notice => "notice",
        }
    }
}

/// Something that can be pressed on a message. What it is about is the message it is pressed on, so
/// a press that comes late, or after a restart, never hits anything else.
///
/// It is written in a short word, for a chat that carries a text with every button:
///
/// ```
/// use takopi_bridge::transport::Press;
/// use takopi_core::Decision;
///
/// let press = Press::Choose(Decision::AcceptForSession);
/// assert_eq!((press.to_string().as_str(), press.label()), ("accept_for_session", "Accept for the session"));
/// assert_eq!("accept_for_session".parse(), Ok(press));
/// assert_eq!("stop".parse(), Ok(Press::Cancel));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Press {
    /// Cancels the job of the message.
    Cancel,
    /// Decides the question that the message asks.
    Choose(Decision),
}

impl Press {
    const ALL: [Self; 5] = [
        Self::Cancel,
        Self::Choose(Decision::Accept),
        Self::Choose(Decision::AcceptForSession),
        Self::Choose(Decision::Decline),
        Self::Choose(Decision::Cancel),
    ];

    /// What to write on the button.
    pub fn label(self) -> &'static str {
        match self {
            Self::Cancel => "Cancel",
            Self::Choose(Decision::Accept) => "Accept",
            Self::Choose(Decision::AcceptForSession) => "Accept for the session",
            Self::Choose(Decision::Cancel) => "Decline and stop",
            Self::Choose(_) => "Decline",
        }
    }
}

impl fmt::Display for Press {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            // Not `cancel`, which is a decision's word.
            Self::Cancel => "stop",
            Self::Choose(decision) => decision.as_str(),
        })
    }
}

/// The text is no [`Press`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is nothing that can be pressed")]
pub struct NotAPress(String);

impl FromStr for Press {
    type Err = NotAPress;

    fn from_str(word: &str) -> Result<Self, NotAPress> {
        let press = Self::ALL.into_iter().find(|press| press.to_string() == word);
        press.ok_or_else(|| NotAPress(word.to_owned()))
    }
}
