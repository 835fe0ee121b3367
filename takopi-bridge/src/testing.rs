//! A chat room in memory, for tests of bridges: it keeps its messages, records every call, and fails on
//! request.
//!
//! With it and [`takopi_core::demo::Demo`] a bridge is tested without a network and, on tokio's
//! paused clock, without waiting. [`Room::until`] gates a test on what the room shows.
//!
//! ```
//! use takopi_bridge::testing::{RoomFault, Room};
//! use takopi_bridge::transport::{Content, Kind, Outgoing, Place, Transport};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let room = Room::new();
//! room.set_faults(|call| (call.number % 2 == 0).then_some(RoomFault::Fail));
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
pub use tokio::time::Instant;

use crate::scheduler::JobId;
use crate::transport::{
    Content, Kind, MessageId, MessageRef, Outgoing, Streaming, Transport, TransportError,
};

/// The job of this number, for tests of a transport alone.
pub fn job(number: u64) -> JobId {
    JobId::numbered(number)
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RoomFault {
    /// It returns an error, and nothing changes.
    Fail,
    /// It returns a rate limit of this length.
    RateLimit(Duration),
    /// It never returns, and nothing changes.
    Hang,
    /// The chat accepts no more calls.
    Closed,
}

/// The method of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RoomMethod {
    /// [`Transport::send`].
    Send,
    /// [`Transport::edit`].
    Edit,
    /// [`Transport::delete`].
    Delete,
}

/// A call that the room received.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RoomCall {
    /// Its number, from 1.
    pub number: usize,
    /// When it came.
    pub at: Instant,
    /// The method.
    pub method: RoomMethod,
    /// The chat it was for.
    pub chat: String,
    /// The text; empty for a deletion.
    pub text: String,
    /// The kind of message; `None` for a deletion.
    pub kind: Option<Kind>,
}

/// A message in the room.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RoomMessage {
    /// Its id.
    pub id: MessageId,
    /// The message as it was sent, with its current content.
    pub sent: Outgoing,
    /// How often it was edited.
    pub edits: usize,
}

impl RoomMessage {
    /// The message with its chat.
    pub fn at(&self) -> MessageRef {
        self.id.clone().at(&self.sent.place.chat)
    }

    /// Its current text.
    pub fn text(&self) -> &str {
        &self.sent.content.text
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        self.sent.content.kind
    }
}

type Faults = dyn Fn(&RoomCall) -> Option<RoomFault> + Send + Sync;

#[derive(Default)]
struct State {
    messages: Vec<RoomMessage>,
    calls: Vec<RoomCall>,
    sent: usize,
    faults: Option<Arc<Faults>>,
    streaming: Streaming,
}

/// A chat room in memory. Clones share their messages.
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

    /// Sets which calls fail, and how.
    pub fn set_faults(
        &self,
        faults: impl Fn(&RoomCall) -> Option<RoomFault> + Send + Sync + 'static,
    ) {
        self.state().faults = Some(Arc::new(faults));
    }

    /// Sets how it shows an answer while it is written.
    pub fn set_streaming(&self, streaming: Streaming) {
        self.state().streaming = streaming;
    }

    /// Lets every call succeed again.
    pub fn clear_faults(&self) {
        self.state().faults = None;
    }

    /// The messages in the room, in the order they were sent.
    pub fn messages(&self) -> Vec<RoomMessage> {
        self.state().messages.clone()
    }

    /// Their texts.
    pub fn texts(&self) -> Vec<String> {
        self.state().messages.iter().map(|message| message.text().to_owned()).collect()
    }

    /// The text of the last message; empty if there is none.
    pub fn last_text(&self) -> String {
        self.texts().pop().unwrap_or_default()
    }

    /// Every call so far, including those that failed.
    pub fn calls(&self) -> Vec<RoomCall> {
        self.state().calls.clone()
    }

    /// Deletes a message, as a person in the chat would.
    pub fn remove(&self, message: &MessageId) {
        self.state().messages.retain(|other| other.id != *message);
        self.changed.send_replace(());
    }

    /// Waits until `condition` returns a value for the messages in the room, and returns it.
    pub async fn until<R>(&self, condition: impl Fn(&[RoomMessage]) -> Option<R>) -> R {
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            let met = condition(&self.state().messages);
            if let Some(met) = met {
                return met;
            }
            // The sender lives in `self`.
            let _ = changed.changed().await;
        }
    }

    /// Waits for an approval request with buttons.
    pub async fn question(&self) -> MessageRef {
        let open = |message: &&RoomMessage| {
            message.kind() == Kind::Question && !message.sent.content.buttons.is_empty()
        };
        self.until(|messages| messages.iter().find(open).map(RoomMessage::at)).await
    }

    /// Waits for a message of this kind whose text contains this.
    pub async fn shows(&self, kind: Kind, text: &str) -> RoomMessage {
        let it = |message: &&RoomMessage| message.kind() == kind && message.text().contains(text);
        self.until(|messages| messages.iter().find(it).cloned()).await
    }

    /// Records a call, and fails if it should.
    async fn call(&self, method: RoomMethod, chat: &str, content: Option<&Content>) -> Answer {
        let fault = {
            let mut state = self.state();
            let call = RoomCall {
                number: state.calls.len() + 1,
                at: Instant::now(),
                method,
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
            Some(RoomFault::Fail) => Err(TransportError::failed("injected fault")),
            Some(RoomFault::RateLimit(retry_after)) => {
                Err(TransportError::RateLimited { retry_after })
            }
            Some(RoomFault::Hang) => std::future::pending().await,
            Some(RoomFault::Closed) => Err(TransportError::Closed("injected fault".to_owned())),
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
    fn streaming(&self) -> Streaming {
        self.state().streaming
    }

    async fn send(&self, message: Outgoing) -> Result<MessageId, TransportError> {
        self.call(RoomMethod::Send, &message.place.chat, Some(&message.content)).await?;
        Ok(self.change(|state| {
            state.sent += 1;
            let id = MessageId::from(format!("m{}", state.sent));
            state.messages.push(RoomMessage { id: id.clone(), sent: message, edits: 0 });
            id
        }))
    }

    async fn edit(&self, message: MessageRef, content: Content) -> Answer {
        self.call(RoomMethod::Edit, &message.chat, Some(&content)).await?;
        self.change(|state| {
            let found = state.messages.iter_mut().find(|other| other.at() == message);
            let found = found.ok_or(TransportError::Gone)?;
            found.sent.content = content;
            found.edits += 1;
            Ok(())
        })
    }

    async fn delete(&self, message: MessageRef) -> Answer {
        self.call(RoomMethod::Delete, &message.chat, None).await?;
        self.change(|state| state.messages.retain(|other| other.at() != message));
        Ok(())
    }
}
