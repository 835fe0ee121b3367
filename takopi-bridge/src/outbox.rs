//! The one place where the chat is called: one call at a time in each chat, in bounded time.
//!
//! Promises:
//! - the calls of a chat stand in a line, last words, questions and notices ahead of edits and
//!   deletions; chats do not wait for each other;
//! - a call ends within [`Pace::call_limit`]. One that panics is one that failed;
//! - once a chat asked to be left alone, no call to it begins before that time is over, whichever
//!   message it is for. That costs time, not attempts;
//! - what is [insisted](Outbox::insist) on is tried a bounded number of times, and for a bounded time
//!   in all.
//!
//! A future that is dropped drops its call and leaves the line. One that is kept must be polled: it
//! may be its turn.

mod lane;

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use self::lane::Lane;
pub(crate) use self::lane::{Rank, Turn};
use crate::transport::{Content, MessageId, MessageRef, Outgoing, Transport, TransportError};

/// The first pause behind a failure; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause behind a failure.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// How the chat is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pace {
    /// The time between two edits of a message.
    pub interval: Duration,
    /// How often a progress message is edited though nothing but time has passed; never if not set,
    /// and at most once a second.
    pub refresh: Option<Duration>,
    /// How long one call may take.
    pub call_limit: Duration,
    /// How often a final message, a question or a notice is tried. A rate limit is no try.
    pub attempts: u32,
    /// How long it is tried, with everything it waits for: the calls before it, pauses behind
    /// failures, and a chat that wants to be left alone. A chat that asks for more does not get it.
    pub longest_wait: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(2),
            refresh: None,
            call_limit: Duration::from_secs(30),
            attempts: 5,
            longest_wait: Duration::from_mins(5),
        }
    }
}

impl Pace {
    /// Leaves this much time between two edits of a message.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Lets time alone count as a change every so often. For chats where an edit costs nothing.
    pub fn refresh(mut self, refresh: impl Into<Option<Duration>>) -> Self {
        self.refresh = refresh.into();
        self
    }

    /// Gives a call this long.
    pub fn call_limit(mut self, limit: Duration) -> Self {
        self.call_limit = limit;
        self
    }

    /// Tries what must be said this often, at least once.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }

    /// Tries what must be said no longer than this.
    pub fn longest_wait(mut self, wait: Duration) -> Self {
        self.longest_wait = wait;
        self
    }
}

/// Calls a transport. Clones are the same outbox.
#[derive(Debug)]
pub(crate) struct Outbox<T> {
    transport: Arc<T>,
    pub(crate) pace: Pace,
    /// The lines of the chats that are being called, or want to be left alone.
    lanes: Arc<Mutex<HashMap<String, Arc<Lane>>>>,
}

impl<T> Clone for Outbox<T> {
    fn clone(&self) -> Self {
        Self { transport: self.transport.clone(), pace: self.pace, lanes: self.lanes.clone() }
    }
}

impl<T: Transport> Outbox<T> {
    pub(crate) fn new(transport: T, pace: Pace) -> Self {
        Self { transport: Arc::new(transport), pace, lanes: Arc::default() }
    }

    /// Waits for a turn to call this chat.
    pub(crate) fn turn(&self, chat: &str, rank: Rank) -> BoxFuture<'static, Turn> {
        let lane = self.lane(chat);
        Box::pin(async move { lane.turn(rank).await })
    }

    fn lane(&self, chat: &str) -> Arc<Lane> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.retain(|_, lane| Arc::strong_count(lane) > 1 || lane.closed_until().is_some());
        lanes.entry(chat.to_owned()).or_default().clone()
    }

    /// One call, as it is.
    pub(crate) fn send(
        &self,
        turn: &Turn,
        message: Outgoing,
    ) -> BoxFuture<'static, Result<MessageId, TransportError>> {
        let transport = self.transport.clone();
        self.call(turn, async move { transport.send(message).await })
    }

    /// One call, as it is.
    pub(crate) fn edit(
        &self,
        turn: &Turn,
        message: MessageRef,
        content: Content,
    ) -> BoxFuture<'static, Result<(), TransportError>> {
        let transport = self.transport.clone();
        self.call(turn, async move { transport.edit(message, content).await })
    }

    /// One call, as it is.
    pub(crate) fn delete(
        &self,
        turn: &Turn,
        message: MessageRef,
    ) -> BoxFuture<'static, Result<(), TransportError>> {
        let transport = self.transport.clone();
        self.call(turn, async move { transport.delete(message).await })
    }

    fn call<R: Send + 'static>(
        &self,
        turn: &Turn,
        call: impl Future<Output = Result<R, TransportError>> + Send + 'static,
    ) -> BoxFuture<'static, Result<R, TransportError>> {
        let (limit, lane) = (self.pace.call_limit, turn.lane().clone());
        Box::pin(async move {
            // Whatever state the author's code is left in is the author's.
            let call = AssertUnwindSafe(call).catch_unwind();
            let result = match timeout(limit, call).await {
                Ok(Ok(result)) => result,
                Ok(Err(_)) => Err(TransportError::failed("the transport panicked")),
                Err(_) => Err(TransportError::TimedOut(limit)),
            };
            if let Err(TransportError::RateLimited { retry_after }) = &result {
                lane.close(*retry_after);
            }
            result
        })
    }

    /// Insists on sending a message. If what it answers is gone, it answers nothing.
    pub(crate) async fn say(&self, mut message: Outgoing) -> Result<MessageId, TransportError> {
        let chat = message.place.chat.clone();
        let said = self.insist(&chat, Rank::First, |turn| self.send(turn, message.clone())).await;
        match said {
            Err(TransportError::Gone) if message.reply_to.take().is_some() => {
                self.insist(&chat, Rank::First, |turn| self.send(turn, message.clone())).await
            }
            said => said,
        }
    }

    /// Tries a call until it works, the message is gone, it was tried often enough or for too long, or
    /// the chat wants to be left alone for too long.
    pub(crate) async fn insist<R>(
        &self,
        chat: &str,
        rank: Rank,
        call: impl Fn(&Turn) -> BoxFuture<'static, Result<R, TransportError>>,
    ) -> Result<R, TransportError> {
        let lane = self.lane(chat);
        let deadline = after(Instant::now(), self.pace.longest_wait);
        let mut last = TransportError::TimedOut(self.pace.longest_wait);
        let mut failures = 0;
        let mut kept = None;
        loop {
            if let Some(until) = lane.closed_until()
                && until > deadline
            {
                return Err(TransportError::RateLimited { retry_after: until - Instant::now() });
            }
            let turn = match kept.take() {
                Some(turn) => {
                    lane.open().await;
                    turn
                }
                None => match timeout_at(deadline, lane.turn(rank)).await {
                    Ok(turn) => turn,
                    Err(_) => return Err(last),
                },
            };
            last = match call(&turn).await {
                Err(TransportError::RateLimited { .. }) => {
                    // What goes first stays at the head of the line.
                    kept = Some(turn).filter(|_| rank == Rank::First);
                    continue;
                }
                Err(error) => error,
                result => return result,
            };
            drop(turn);
            failures += 1;
            let pause = pause_behind(failures);
            let is_late = after(Instant::now(), pause) > deadline;
            if matches!(last, TransportError::Gone) || failures >= self.pace.attempts || is_late {
                return Err(last);
            }
            sleep(pause).await;
        }
    }
}

/// So long after a moment; what is beyond the clock is just far away.
pub(crate) fn after(moment: Instant, wait: Duration) -> Instant {
    const FAR: Duration = Duration::from_hours(24 * 365);
    moment + wait.min(FAR)
}

/// How long to leave the chat alone after so many failures in a row.
pub(crate) fn pause_behind(failures: u32) -> Duration {
    let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    FIRST_PAUSE.saturating_mul(doubled).min(LONGEST_PAUSE)
}
