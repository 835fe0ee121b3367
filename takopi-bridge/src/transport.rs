//! The interface to a chat: messages are sent, edited and deleted.
//!
//! A bridge's author implements [`Transport`] for a chat's API. What the kit guarantees:
//! - the calls to a chat come one at a time; final messages, questions and notices come before edits and
//!   deletions;
//! - a call has a bounded time and is then dropped, so a hanging chat delays neither a run nor another
//!   chat; after that the message may or may not be there, and it is sent again. A transport that can find
//!   out whether it is there does that first, also after a failure;
//! - after [`TransportError::RateLimited`] the chat is not called until the wait is over;
//! - a message that is [`TransportError::Gone`] is sent again; if the message it replies to is gone, it is
//!   sent without a reply;
//! - a call that panics counts as failed;
//! - an answer that the engine streams is shown while it is written, as the chat's [`Streaming`] says;
//! - a text is Markdown and within the [`Limit`](crate::present::Limit) of the settings.
//!
//! ```
//! use takopi_bridge::transport::{Content, MessageId, MessageRef, Outgoing, Transport, TransportError};
//!
//! /// A chat that prints its messages.
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

use takopi_core::{Decision, TakopiEvent};
use thiserror::Error;

use crate::scheduler::JobId;

/// A chat's API: the three calls that a bridge needs. Implement them as `async fn`.
pub trait Transport: Send + Sync + 'static {
    /// Sends a message and returns its id. [`TransportError::Gone`] if the message that it replies to
    /// does not exist any more: it is then sent again without a reply.
    fn send(
        &self,
        message: Outgoing,
    ) -> impl Future<Output = Result<MessageId, TransportError>> + Send;

    /// Replaces the content of a message. An error of the chat that nothing changed is `Ok`.
    fn edit(
        &self,
        message: MessageRef,
        content: Content,
    ) -> impl Future<Output = Result<(), TransportError>> + Send;

    /// Deletes a message. One that does not exist any more is `Ok`.
    fn delete(
        &self,
        message: MessageRef,
    ) -> impl Future<Output = Result<(), TransportError>> + Send;

    /// Whether it sends [`Content::file`]. Only then an answer that takes too many messages is shortened,
    /// with all of it in a file ([`Chat::max_messages`](crate::present::Chat::max_messages)).
    fn sends_files(&self) -> bool {
        false
    }

    /// How the chat shows an answer while it is written; by default not before it is complete.
    fn streaming(&self) -> Streaming {
        Streaming::Off
    }

    /// Gets every event of a job that runs, in order and as soon as it occurs: for a chat that shows more
    /// than the texts of messages. The events may come before the message of the job is sent. Must not
    /// block; by default it does nothing.
    fn event(&self, place: &Place, job: JobId, event: &TakopiEvent) {
        let _ = (place, job, event);
    }
}

/// How a chat shows an answer while it is written, if the engine streams it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Streaming {
    /// Not at all: the answer is in the final message.
    #[default]
    Off,
    /// In the progress message, which is edited at the [`Pace`](crate::Pace) of the chat. What does not fit
    /// is left out at the beginning; the final message has all of it.
    Edits,
    /// The transport shows it from the events that it [gets](Transport::event). Progress messages do not
    /// contain it.
    Events,
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

    fn sends_files(&self) -> bool {
        (**self).sends_files()
    }

    fn streaming(&self) -> Streaming {
        (**self).streaming()
    }

    fn event(&self, place: &Place, job: JobId, event: &TakopiEvent) {
        (**self).event(place, job, event);
    }
}

/// Why a call failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TransportError {
    /// Too many calls; the chat accepts none for this long.
    #[error("the chat accepts no calls for {retry_after:?}")]
    RateLimited {
        /// How long to wait.
        retry_after: Duration,
    },
    /// The message to edit, or to reply to, does not exist any more.
    #[error("the message does not exist any more")]
    Gone,
    /// The chat accepts no more calls of this program, for example because its token was revoked, or will never accept
    /// this one. The call is not repeated.
    #[error("the chat accepts no more calls: {0}")]
    Closed(String),
    /// Any other error; the call may be repeated. Displayed with all its causes.
    #[error("the chat's API failed: {}", causes(&**.0))]
    Failed(Box<dyn std::error::Error + Send + Sync>),
    /// The call took too long and was dropped.
    #[error("the chat's API did not respond within {0:?}")]
    TimedOut(Duration),
}

/// An error and its causes, in one line.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let shown = error.to_string();
        // Some errors print their cause themselves.
        if !text.contains(&shown) {
            text.push_str(": ");
            text.push_str(&shown);
        }
        cause = error.source();
    }
    text
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
    /// The id of the chat.
    pub chat: String,
    /// The id of the thread, if the chat has threads.
    pub thread: Option<String>,
}

impl Place {
    /// A chat without a thread.
    pub fn new(chat: impl Into<String>) -> Self {
        Self { chat: chat.into(), thread: None }
    }

    /// Sets the thread.
    pub fn thread(mut self, thread: impl Into<String>) -> Self {
        self.thread = Some(thread.into());
        self
    }
}

/// The id of a message in a chat, as the transport assigns it; opaque to the kit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MessageId(String);

impl MessageId {
    /// The id as text.
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

/// A message with its chat: ids need to be unique in their chat only.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct MessageRef {
    /// The chat.
    pub chat: String,
    /// The message in it.
    pub message: MessageId,
}

/// A message to send.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Outgoing {
    /// The chat and thread.
    pub place: Place,
    /// The message it replies to.
    pub reply_to: Option<MessageId>,
    /// Whether it is sent without a notification.
    pub silent: bool,
    /// Text and buttons.
    pub content: Content,
}

impl Outgoing {
    /// A message to a place that is no reply and not silent.
    pub fn new(place: Place, content: Content) -> Self {
        Self { place, reply_to: None, silent: false, content }
    }

    /// Sets the message it replies to.
    pub fn reply_to(mut self, message: impl Into<Option<MessageId>>) -> Self {
        self.reply_to = message.into();
        self
    }

    /// Sets whether it is sent without a notification.
    pub fn silent(mut self, silent: bool) -> Self {
        self.silent = silent;
        self
    }
}

/// The text of a message and its buttons.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Content {
    /// Markdown.
    pub text: String,
    /// The buttons; empty removes them.
    pub buttons: Vec<Press>,
    /// The kind of message, for chats that show kinds differently.
    pub kind: Kind,
    /// The job it belongs to, if there is one.
    pub job: Option<JobId>,
    /// The line that resumes the session, if the text ends with it. For chats that show it apart from
    /// the text.
    pub resume_line: Option<String>,
    /// The last lines of the job's messages: where it runs, and how to resume its session. A part of a long
    /// answer has them here even if they are in the text of the last part only.
    pub footer: Option<String>,
    /// A note of the bridge that the text contains, such as `queued behind 2` or who cancelled the job. For
    /// chats that write the text of a job themselves.
    pub note: Option<String>,
    /// A file that goes with the message, for transports that [send files](Transport::sends_files).
    pub file: Option<Attachment>,
}

/// A text as a file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attachment {
    /// Its name.
    pub name: String,
    /// What is in it.
    pub text: String,
}

impl Attachment {
    /// A file of this name.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into() }
    }
}

impl Content {
    /// A text without buttons.
    pub fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            buttons: Vec::new(),
            kind,
            job: None,
            resume_line: None,
            footer: None,
            file: None,
            note: None,
        }
    }

    /// Sets the buttons.
    pub fn buttons(mut self, buttons: impl Into<Vec<Press>>) -> Self {
        self.buttons = buttons.into();
        self
    }

    /// Sets the job it belongs to.
    pub fn job(mut self, job: impl Into<Option<JobId>>) -> Self {
        self.job = job.into();
        self
    }

    /// Sets the note that the text contains.
    pub fn note<'a>(mut self, note: impl Into<Option<&'a str>>) -> Self {
        self.note = note.into().map(str::to_owned);
        self
    }

    /// Sets the last lines of the job's messages.
    pub fn footer<'a>(mut self, lines: impl Into<Option<&'a str>>) -> Self {
        self.footer = lines.into().map(str::to_owned);
        self
    }

    /// Sets the line that resumes the session. Ignored if the text does not end with it.
    pub fn resume_line<'a>(mut self, line: impl Into<Option<&'a str>>) -> Self {
        let line = line.into();
        self.resume_line = line.filter(|line| self.text.ends_with(line)).map(str::to_owned);
        self
    }
}

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A job that waits in the queue.
    Queued,
    /// The progress of a running job.
    Progress,
    /// The end of a job with its answer, or one part of it.
    Final,
    /// The agent asks for approval. Without buttons: a diff that did not fit into the message that
    /// asks, or a request that was decided.
    Question,
    /// A note of the bridge itself, such as why a message was not accepted.
    Notice,
}

impl Kind {
    /// The kind in a machine-readable form.
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

/// A button of a message. It refers to the message it is pressed on, so a press that comes late, or
/// after a restart, never affects another job.
///
/// Its text form is short, for chats that attach data to every button:
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
    /// Decides the request that the message shows.
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

    /// The label of the button.
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
            // Not `cancel`, which is the text form of a decision.
            Self::Cancel => "stop",
            Self::Choose(decision) => decision.as_str(),
        })
    }
}

/// The text is not a [`Press`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is not a button")]
pub struct ParsePressError(String);

impl FromStr for Press {
    type Err = ParsePressError;

    fn from_str(text: &str) -> Result<Self, ParsePressError> {
        let press = Self::ALL.into_iter().find(|press| press.to_string() == text);
        press.ok_or_else(|| ParsePressError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Error)]
    #[error("request failed")]
    struct RequestError(#[source] std::io::Error);

    #[test]
    fn a_failure_is_displayed_with_all_its_causes_once() {
        let reset = std::io::Error::other("connection reset");
        let error = TransportError::failed(RequestError(reset));
        assert_eq!(error.to_string(), "the chat's API failed: request failed: connection reset");
        assert!(std::error::Error::source(&error).is_none(), "a chain would print it again");
        let error = TransportError::failed("no such chat");
        assert_eq!(error.to_string(), "the chat's API failed: no such chat");
    }
}
