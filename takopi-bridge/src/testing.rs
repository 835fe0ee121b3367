//! A chat room in memory, for tests of bridges: it keeps what was said, records every call, and
//! misbehaves when told to.
//!
//! With it and [`takopi_core::demo::Demo`] a bridge is tested without a network and, on tokio's
//! paused clock, without waiting. [`Room::until`] gates a test on what the room shows.
//!
//! ```
//! use takopi_bridge::testing::{Fault, Room};
//! use takopi_bridge::transport::{Content, Kind, Outgoing, Place, Transport};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let room = Room::new();
//! room.misbehave(|call| (call.number % 2 == 0).then_some(Fault::Fail));
//! let message = Outgoing::new(Place::new("general"), Content::new(Kind::Notice, "hello"));
//! assert!(room.send(message.clone()).await.is_ok());
//! assert!(room.send(message).await.is_err());
//! assert_eq!(room.texts(), ["hello"]);
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::transport::{Content, Kind, MessageId, MessageRef, Outgoing, Transport, TransportError};

/// How a call goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It fails, and nothing happens.
    Fail,
    /// The room wants to be left alone for so long.
    RateLimit(Duration),
    /// It never comes back, and nothing happens.
    Hang,
}

/// Which call it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// [`Transport::send`].
    Send,
    /// [`Transport::edit`].
    Edit,
    /// [`Transport::delete`].
    Delete,
}

/// A call, as the room saw it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Call {
    /// The first is 1.
    pub number: usize,
    /// When it came.
    pub at: Instant,
    /// Which it was.
    pub verb: Verb,
    /// The chat it was for.
    pub chat: String,
    /// What was to be said.
    pub text: String,
    /// What kind of message it was for; none for a deletion.
    pub kind: Option<Kind>,
}

/// A message that is in the room.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Message {
    /// Its id.
    pub id: MessageId,
    /// As it was sent, with what it says now.
    pub sent: Outgoing,
    /// How often it was edited.
    pub edits: usize,
}

impl Message {
    /// Where it is.
    pub fn at(&self) -> MessageRef {
        self.id.clone().at(&self.sent.place.chat)
    }

    /// What it says.
    pub fn text(&self) -> &str {
        &self.sent.content.text
    }

    /// What kind of message it is.
    pub fn kind(&self) -> Kind {
        self.sent.content.kind
    }
}

type Faults = dyn Fn(&Call) -> Option<Fault> + Send + Sync;

#[derive(Default)]
struct State {
    messages: Vec<Message>,
    calls: Vec<Call>,
    sent: usize,
    faults: Option<Arc<Faults>>,
}

/// A chat room in memory. Clones are the same room.
#[derive(Clone)]
pub struct Room {
    state: Arc<Mutex<State>>,
    changed: Arc<watch::Sender<()>>,
}

impl Default for Room {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room")
            .field("messages", &self.state().messages.len())
            .finish_non_exhaustive()
    }
}

impl Room {
    /// An empty room.
    pub fn new() -> Self {
        Self { state: Arc::default(), changed: Arc::new(watch::Sender::new(())) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on this says which calls go wrong, and how.
    pub fn misbehave(&self, faults: impl Fn(&Call) -> Option<Fault> + Send + Sync + 'static) {
        self.state().faults = Some(Arc::new(faults));
    }

    /// From now on every call works.
    pub fn behave(&self) {
        self.state().faults = None;
    }

    /// The messages that are in the room, in the order they were sent.
    pub fn messages(&self) -> Vec<Message> {
        self.state().messages.clone()
    }

    /// What they say.
    pub fn texts(&self) -> Vec<String> {
        self.state().messages.iter().map(|message| message.text().to_owned()).collect()
    }

    /// What the last of them says; nothing if there is none.
    pub fn last_text(&self) -> String {
        self.texts().pop().unwrap_or_default()
    }

    /// Every call so far, those that went wrong included.
    pub fn calls(&self) -> Vec<Call> {
        self.state().calls.clone()
    }

    /// Somebody deletes a message.
    pub fn remove(&self, message: &MessageId) {
        self.state().messages.retain(|other| other.id != *message);
        self.changed.send_replace(());
    }

    /// Waits until the room shows this, and gives what `shows` makes of it.
    pub async fn until<R>(&self, shows: impl Fn(&[Message]) -> Option<R>) -> R {
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            let shown = shows(&self.state().messages);
            if let Some(shown) = shown {
                return shown;
            }
            // The sender lives in `self`.
            let _ = changed.changed().await;
        }
    }

    /// Waits for a message that can be pressed to decide something.
    pub async fn question(&self) -> MessageRef {
        let open = |message: &&Message| {
            message.kind() == Kind::Question && !message.sent.content.buttons.is_empty()
        };
        self.until(|messages| messages.iter().find(open).map(Message::at)).await
    }

    /// Waits for a message of this kind with this in its text.
    pub async fn says(&self, kind: Kind, text: &str) -> Message {
        let it = |message: &&Message| message.kind() == kind && message.text().contains(text);
        self.until(|messages| messages.iter().find(it).cloned()).await
    }

    /// Takes a call down, and goes wrong if it should.
    async fn call(&self, verb: Verb, chat: &str, content: Option<&Content>) -> Answer {
        let fault = {
            let mut state = self.state();
            let call = Call {
                number: state.calls.len() + 1,
                at: Instant::now(),
                verb,
                chat: chat.to_owned(),
                text: content.map(|content| content.text.clone()).unwrap_or_default(),
                kind: content.map(|content| content.kind),
            };
            let faults = state.faults.clone();
            state.calls.push(call.clone());
            drop(state);
            faults.and_then(|faults| faults(&call))
        };
        self.changed.send_replace(());
        match fault {
            None => Ok(()),
            Some(Fault::Fail) => Err(TransportError::failed("the room is on fire")),
            Some(Fault::RateLimit(retry_after)) => Err(TransportError::RateLimited { retry_after }),
            Some(Fault::Hang) => std::future::pending().await,
        }
    }

    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let result = change(&mut self.state());
        self.changed.send_replace(());
        result
    }
}

type Answer = Result<(), TransportError>;

impl Transport for Room {
    async fn send(&self, message: Outgoing) -> Result<MessageId, TransportError> {
        self.call(Verb::Send, &message.place.chat, Some(&message.content)).await?;
        Ok(self.change(|state| {
            state.sent += 1;
            let id = MessageId::from(format!("m{}", state.sent));
            state.messages.push(Message { id: id.clone(), sent: message, edits: 0 });
            id
        }))
    }

    async fn edit(&self, message: MessageRef, content: Content) -> Answer {
        self.call(Verb::Edit, &message.chat, Some(&content)).await?;
        self.change(|state| {
            let found = state.messages.iter_mut().find(|other| other.at() == message);
            let found = found.ok_or(TransportError::Gone)?;
            found.sent.content = content;
            found.edits += 1;
            Ok(())
        })
    }

    async fn delete(&self, message: MessageRef) -> Answer {
        self.call(Verb::Delete, &message.chat, None).await?;
        self.change(|state| state.messages.retain(|other| other.at() != message));
        Ok(())
    }
}
