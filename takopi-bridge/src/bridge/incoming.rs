//! What comes in from a chat.

use std::fmt;

use takopi_core::ResumeToken;

use crate::transport::{MessageId, MessageRef, Place};

/// A message of a person.
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
    /// Where it was said, and where it is answered.
    pub place: Place,
    /// The message.
    pub message: MessageId,
    /// What it says.
    pub text: String,
    /// Who said it.
    pub user: Option<String>,
    /// The message it replies to.
    pub reply_to: Option<ReplyTo>,
    /// The session it is for, if the author knows better than the kit.
    pub resume: Option<ResumeToken>,
    /// What to do with it while its session is busy, if not what the settings say.
    pub follow_up: Option<FollowUp>,
}

/// The message that another one replies to.
#[derive(Clone)]
#[non_exhaustive]
pub struct ReplyTo {
    /// The message.
    pub message: MessageId,
    /// Its text, if the chat tells it: a resume line in it counts, though the kit does not know the
    /// message (any more).
    pub text: Option<String>,
}

/// What to do with a message whose session is busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FollowUp {
    /// It waits for its turn.
    #[default]
    Queue,
    /// The running turn gets it; it waits for its turn if the turn does not take it.
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
            follow_up: None,
        }
    }

    /// Where the message is.
    pub(super) fn at(&self) -> MessageRef {
        self.message.clone().at(&self.place.chat)
    }

    /// Said by this person.
    pub fn by(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// In reply to this message.
    pub fn replying_to(mut self, message: impl Into<MessageId>) -> Self {
        self.reply_to = Some(ReplyTo { message: message.into(), text: None });
        self
    }

    /// In reply to this message, which says this.
    pub fn replying_to_text(
        mut self,
        message: impl Into<MessageId>,
        text: impl Into<String>,
    ) -> Self {
        self.reply_to = Some(ReplyTo { message: message.into(), text: Some(text.into()) });
        self
    }

    /// For this session.
    pub fn resume(mut self, session: ResumeToken) -> Self {
        self.resume = Some(session);
        self
    }

    /// What to do with it while its session is busy.
    pub fn follow_up(mut self, follow_up: FollowUp) -> Self {
        self.follow_up = Some(follow_up);
        self
    }
}

// Not derived: what people write is never logged.
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
