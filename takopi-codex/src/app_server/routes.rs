//! Who gets what the server says: routed by thread and turn before anything else.
//!
//! Answers go to the request that waits for them; late ones are dropped. Notifications and requests
//! of the server go to the turn that runs on their thread. What belongs to another turn, or to a
//! thread of a sub-agent, reaches nobody. A turn whose consumer does not read is not waited for: its
//! inbox overflows, the turn is told so, and only its end is still kept; nobody else notices.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::value::RawValue;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::error::ClientError;
use super::message::{Address, Beheaded, ErrorBody, Incoming, Notification, RequestId};
use super::requests::ServerRequest;

/// How many messages wait for a turn's consumer.
const INBOX_MESSAGES: usize = 4096;
/// Places behind them: for the word that there were more, and for the turn's end.
const INBOX_KEPT: usize = 2;
/// About how many bytes of them.
const INBOX_BYTES: usize = 32 * 1024 * 1024;
/// Turns that ended lately, whose late messages are known for what they are.
const ENDED_REMEMBERED: usize = 8;

/// What reaches a running turn.
#[derive(Debug)]
pub(super) enum TurnMessage {
    Told(Notification),
    Asked(ServerRequest),
    /// The end of the turn was too long to be read.
    EndUnread,
    /// More came than the consumer took.
    Overflow,
}

impl TurnMessage {
    fn is_end(&self) -> bool {
        match self {
            Self::Told(told) => told.method == "turn/completed",
            Self::EndUnread => true,
            Self::Asked(_) | Self::Overflow => false,
        }
    }
}

/// The reading end of a turn's inbox.
#[derive(Debug)]
pub(super) struct Inbox {
    /// The thread's usage as it was last told before the turn.
    pub(super) usage_before: Option<Box<RawValue>>,
    messages: mpsc::Receiver<(TurnMessage, usize)>,
    bytes: Arc<Mutex<usize>>,
    taken: Arc<Notify>,
    overflow: CancellationToken,
}

impl Inbox {
    /// Resolves when more came than the consumer took.
    pub(super) async fn overflowed(&self) {
        self.overflow.cancelled().await;
    }

    /// The next message; `None` when the server is gone.
    pub(super) async fn next(&mut self) -> Option<TurnMessage> {
        let (message, weight) = self.messages.recv().await?;
        Some(self.took(message, weight))
    }

    /// A message that is there already.
    pub(super) fn try_next(&mut self) -> Option<TurnMessage> {
        let (message, weight) = self.messages.try_recv().ok()?;
        Some(self.took(message, weight))
    }

    fn took(&self, message: TurnMessage, weight: usize) -> TurnMessage {
        *self.bytes.lock().unwrap_or_else(PoisonError::into_inner) -= weight;
        self.taken.notify_one();
        message
    }
}

type Answer = Result<Box<RawValue>, AnswerError>;

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum AnswerError {
    Refused(ErrorBody),
    TooLong,
}

#[derive(Default)]
pub(super) struct Routes {
    state: Mutex<State>,
    /// Told whenever a consumer took a message.
    taken: Arc<Notify>,
}

#[derive(Default)]
struct State {
    waiting: HashMap<i64, oneshot::Sender<Answer>>,
    threads: HashMap<String, ThreadRoute>,
    closed: bool,
}

#[derive(Default)]
struct ThreadRoute {
    turn: Option<TurnRoute>,
    ended: VecDeque<String>,
    /// The thread's last `tokenUsage`, of whatever turn: the baseline of the next.
    usage: Option<Box<RawValue>>,
}

struct TurnRoute {
    id: Option<String>,
    inbox: mpsc::Sender<(TurnMessage, usize)>,
    bytes: Arc<Mutex<usize>>,
    overflow: CancellationToken,
}

/// What the reader must do with a message nobody takes.
pub(super) enum Unrouted {
    Nothing,
    /// A request of the server that must be answered all the same.
    Asked(ServerRequest),
}

impl Routes {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the answer to request `id`; an error if the server is gone already.
    pub(super) fn await_answer(&self, id: i64) -> Option<oneshot::Receiver<Answer>> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state();
        if state.closed {
            return None;
        }
        state.waiting.insert(id, sender);
        Some(receiver)
    }

    /// Nobody waits any more: a late answer is dropped.
    pub(super) fn forget(&self, id: i64) {
        self.state().waiting.remove(&id);
    }

    /// Opens the inbox of a turn that is about to be started.
    pub(super) fn open_turn(&self, thread: &str) -> Result<Inbox, ClientError> {
        let mut state = self.state();
        let route = state.threads.entry(thread.to_owned()).or_default();
        if route.turn.is_some() {
            return Err(ClientError::TurnRunning { thread: thread.to_owned() });
        }
        let usage_before = route.usage.clone();
        let (inbox, messages) = mpsc::channel(INBOX_MESSAGES + INBOX_KEPT);
        let bytes = Arc::new(Mutex::new(0));
        let overflow = CancellationToken::new();
        if !state.closed {
            let route = state.threads.entry(thread.to_owned()).or_default();
            let (bytes, overflow) = (bytes.clone(), overflow.clone());
            route.turn = Some(TurnRoute { id: None, inbox, bytes, overflow });
        }
        Ok(Inbox { usage_before, messages, bytes, taken: self.taken.clone(), overflow })
    }

    /// Resolves when every turn has room for what one read can bring.
    pub(super) async fn room(&self) {
        while self.state().threads.values().any(ThreadRoute::is_half_full) {
            self.taken.notified().await;
        }
    }

    /// The turn has this id; it may have been learnt from a notification before.
    pub(super) fn name_turn(&self, thread: &str, turn: &str) {
        if let Some(route) =
            self.state().threads.get_mut(thread).and_then(|route| route.turn.as_mut())
        {
            route.id.get_or_insert_with(|| turn.to_owned());
        }
    }

    /// The turn is over, or nobody cares for it any more.
    pub(super) fn close_turn(&self, thread: &str) {
        if let Some(route) = self.state().threads.get_mut(thread) {
            route.end_turn();
        }
        self.taken.notify_one();
    }

    /// The server is gone: everything that waits, fails.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.waiting.clear();
        state.threads.clear();
    }

    /// Delivers one message.
    pub(super) fn deliver(
        &self,
        incoming: Incoming<'_>,
        ask: impl FnOnce(RequestId, String, Box<RawValue>) -> ServerRequest,
    ) -> Unrouted {
        let Incoming { id, method, params, result, error } = incoming;
        let Some(method) = method else {
            if let Some(RequestId::Number(id)) = id {
                let answer = match error {
                    Some(error) => Err(AnswerError::Refused(error)),
                    None => Ok(result.map_or_else(null, ToOwned::to_owned)),
                };
                self.answer(id, answer);
            }
            return Unrouted::Nothing;
        };
        let params = params.map_or_else(null, ToOwned::to_owned);
        let weight = params.get().len() + method.len();
        let Some(id) = id else {
            self.tell(Notification { method: method.into_owned(), params }, weight);
            return Unrouted::Nothing;
        };
        let request = ask(id, method.into_owned(), params);
        let thread = request.thread().map(std::borrow::Cow::into_owned);
        match thread {
            Some(thread) => self.ask(&thread, request, weight),
            None => Unrouted::Asked(request),
        }
    }

    /// A message of which only the head was read.
    pub(super) fn deliver_beheaded(&self, head: &[u8]) {
        match Beheaded::of(head) {
            Beheaded::Answer(id) => self.answer(id, Err(AnswerError::TooLong)),
            Beheaded::Notification { method, thread: Some(thread) }
                if method == "turn/completed" =>
            {
                if let Some(route) = self.state().threads.get_mut(&thread)
                    && let Some(turn) = &mut route.turn
                {
                    turn.send(TurnMessage::EndUnread, 0);
                    route.end_turn();
                }
            }
            Beheaded::Notification { .. } | Beheaded::Unknown => {
                tracing::warn!("a message of the app-server was too long and is skipped");
            }
        }
    }

    fn answer(&self, id: i64, answer: Answer) {
        let waiting = self.state().waiting.remove(&id);
        // Whoever waited may have gone; then nobody needs it.
        if waiting.is_none_or(|waiting| waiting.send(answer).is_err()) {
            tracing::debug!(id, "a late answer of the app-server");
        }
    }

    fn ask(&self, thread: &str, request: ServerRequest, weight: usize) -> Unrouted {
        let mut state = self.state();
        match state.threads.get_mut(thread).and_then(|route| route.turn.as_mut()) {
            Some(turn) => {
                turn.send(TurnMessage::Asked(request), weight);
                Unrouted::Nothing
            }
            None => Unrouted::Asked(request),
        }
    }

    fn tell(&self, notification: Notification, weight: usize) {
        let params = notification.params.clone();
        let address = Address::of(&params);
        let mut state = self.state();
        let Some(thread) = address.thread() else {
            // Of no thread: of interest to whoever runs a turn.
            for turn in state.threads.values_mut().filter_map(|route| route.turn.as_mut()) {
                turn.send(TurnMessage::Told(notification.clone()), weight);
            }
            return;
        };
        let usage = notification.method == "thread/tokenUsage/updated";
        let route = if usage {
            // Replayed by `thread/resume`, possibly ahead of its reply: the baseline of the next turn.
            state.threads.entry(thread.to_owned()).or_default()
        } else {
            let Some(route) = state.threads.get_mut(thread) else { return };
            route
        };
        if usage {
            route.usage = Some(notification.params.clone());
        }
        let ends = notification.method == "turn/completed";
        let ThreadRoute { turn: Some(turn), ended, .. } = route else { return };
        if let Some(id) = address.turn().filter(|_| !usage) {
            if ended.iter().any(|ended| ended == id) {
                return;
            }
            if turn.id.as_deref().is_some_and(|own| own != id) {
                return;
            }
            if notification.method == "turn/started" || ends {
                turn.id.get_or_insert_with(|| id.to_owned());
            }
        }
        turn.send(TurnMessage::Told(notification), weight);
        if ends {
            route.end_turn();
        }
    }
}

impl ThreadRoute {
    fn is_half_full(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| {
            let bytes = *turn.bytes.lock().unwrap_or_else(PoisonError::into_inner);
            turn.inbox.capacity() < INBOX_MESSAGES / 2 || bytes > INBOX_BYTES / 2
        })
    }

    fn end_turn(&mut self) {
        if let Some(id) = self.turn.take().and_then(|turn| turn.id) {
            self.ended.push_back(id);
            if self.ended.len() > ENDED_REMEMBERED {
                self.ended.pop_front();
            }
        }
    }
}

impl TurnRoute {
    fn send(&mut self, message: TurnMessage, weight: usize) {
        if self.overflow.is_cancelled() {
            // The end has a place of its own; what is asked declines itself when it is dropped.
            if message.is_end() {
                let _ = self.inbox.try_send((message, 0));
            }
            return;
        }
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        if *bytes + weight > INBOX_BYTES || self.inbox.capacity() <= INBOX_KEPT {
            drop(bytes);
            let _ = self.inbox.try_send((TurnMessage::Overflow, 0));
            self.overflow.cancel();
            return self.send(message, weight);
        }
        if self.inbox.try_send((message, weight)).is_ok() {
            *bytes += weight;
        }
    }
}

fn null() -> Box<RawValue> {
    RawValue::NULL.to_owned()
}
