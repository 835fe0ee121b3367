//! The one place where the chat is called: bounded time per call, rate limits per chat.
//!
//! Promises: a call ends within [`Pace::call_limit`]; once a chat asked to be left alone, no call to
//! it begins before that time is over, whichever message it is for; what is [insisted](Outbox::insist)
//! on is tried a bounded number of times. A future that is dropped drops its call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::{Instant, sleep, sleep_until, timeout};

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
    /// How often a progress message is edited though nothing but time has passed; never if not set.
    pub refresh: Option<Duration>,
    /// How long one call may take.
    pub call_limit: Duration,
    /// How often a final message, a question or a notice is tried.
    pub attempts: u32,
    /// The longest that a final message waits because the chat wants to be left alone; who asks for
    /// more does not get it.
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

    /// Waits no longer than this for a chat that wants to be left alone.
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
    /// When a chat may be called again; those that may be are not in it.
    closed: Arc<Mutex<HashMap<String, Instant>>>,
}

impl<T> Clone for Outbox<T> {
    fn clone(&self) -> Self {
        Self { transport: self.transport.clone(), pace: self.pace, closed: self.closed.clone() }
    }
}

impl<T: Transport> Outbox<T> {
    pub(crate) fn new(transport: T, pace: Pace) -> Self {
        Self { transport: Arc::new(transport), pace, closed: Arc::default() }
    }

    /// One call, as it is.
    pub(crate) fn send(
        &self,
        message: Outgoing,
    ) -> BoxFuture<'static, Result<MessageId, TransportError>> {
        let (outbox, chat) = (self.clone(), message.place.chat.clone());
        Box::pin(async move { outbox.call(&chat, outbox.transport.send(message)).await })
    }

    /// One call, as it is.
    pub(crate) fn edit(
        &self,
        message: MessageRef,
        content: Content,
    ) -> BoxFuture<'static, Result<(), TransportError>> {
        let (outbox, chat) = (self.clone(), message.chat.clone());
        Box::pin(async move { outbox.call(&chat, outbox.transport.edit(message, content)).await })
    }

    /// One call, as it is.
    pub(crate) fn delete(
        &self,
        message: MessageRef,
    ) -> BoxFuture<'static, Result<(), TransportError>> {
        let (outbox, chat) = (self.clone(), message.chat.clone());
        Box::pin(async move { outbox.call(&chat, outbox.transport.delete(message)).await })
    }

    async fn call<R>(
        &self,
        chat: &str,
        call: impl Future<Output = Result<R, TransportError>>,
    ) -> Result<R, TransportError> {
        let limit = self.pace.call_limit;
        let result =
            timeout(limit, call).await.unwrap_or_else(|_| Err(TransportError::TimedOut(limit)));
        if let Err(TransportError::RateLimited { retry_after }) = &result {
            let until = after(Instant::now(), *retry_after);
            let mut closed = self.closed();
            let entry = closed.entry(chat.to_owned()).or_insert(until);
            *entry = until.max(*entry);
        }
        result
    }

    fn closed(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the chat may be called again, if it may not be now.
    fn closed_until(&self, chat: &str) -> Option<Instant> {
        let mut closed = self.closed();
        let now = Instant::now();
        closed.retain(|_, until| *until > now);
        closed.get(chat).copied()
    }

    /// Resolves when the chat may be called.
    pub(crate) async fn open(&self, chat: &str) {
        while let Some(until) = self.closed_until(chat) {
            sleep_until(until).await;
        }
    }

    /// Tries a call until it works, the message is gone, it was tried often enough, or the chat wants
    /// to be left alone for too long.
    pub(crate) async fn insist<R>(
        &self,
        chat: &str,
        call: impl Fn(&Self) -> BoxFuture<'static, Result<R, TransportError>>,
    ) -> Result<R, TransportError> {
        let mut failures = 0;
        loop {
            if let Some(until) = self.closed_until(chat) {
                let retry_after = until - Instant::now();
                if retry_after > self.pace.longest_wait {
                    return Err(TransportError::RateLimited { retry_after });
                }
                self.open(chat).await;
            }
            let error = match call(self).await {
                Err(error) => error,
                result => return result,
            };
            failures += 1;
            match error {
                TransportError::Gone => return Err(error),
                error if failures >= self.pace.attempts => return Err(error),
                // The chat said for how long.
                TransportError::RateLimited { .. } => {}
                _ => sleep(pause_behind(failures)).await,
            }
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
