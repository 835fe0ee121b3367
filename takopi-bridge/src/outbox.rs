//! The only place that calls the chat: one call at a time in each chat, in bounded time.
//!
//! Promises:
//! - the calls of a chat wait in a queue, final messages, questions and notices ahead of edits and
//!   deletions; chats do not wait for each other;
//! - a call ends within [`Pace::call_timeout`]. A call that panics counts as failed;
//! - while a chat is rate limited no call to it starts, whichever message it is for. That costs time,
//!   not attempts;
//! - a call that is [retried](Outbox::retry) is tried a bounded number of times, and for a bounded
//!   time in all.
//!
//! Dropping a future drops its call and leaves the queue. A future that is kept must be polled: it may
//! hold the permit that the next call waits for.

mod call_queue;

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use takopi_core::TakopiEvent;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use self::call_queue::CallQueue;
pub(crate) use self::call_queue::{CallPermit, Priority};
use crate::scheduler::JobId;
use crate::transport::{
    Content, MessageId, MessageRef, Outgoing, Place, Streaming, Transport, TransportError,
};

/// The first pause after a failure; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause after a failure.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// How often and how long the chat is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pace {
    /// The time between two edits of a message.
    pub interval: Duration,
    /// How often a progress message is edited although only the elapsed time changed: never if not
    /// set, and at most once a second.
    pub refresh: Option<Duration>,
    /// How long one call may take.
    pub call_timeout: Duration,
    /// How often a final message, a question or a notice is tried. A rate limit does not count.
    pub attempts: u32,
    /// How long it is tried, including the calls before it, pauses after failures and rate limits. A
    /// rate limit that is longer is not waited for.
    pub longest_wait: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(2),
            refresh: None,
            call_timeout: Duration::from_secs(30),
            attempts: 5,
            longest_wait: Duration::from_mins(5),
        }
    }
}

impl Pace {
    /// Sets the time between two edits of a message.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Edits progress messages this often although only the elapsed time changed. For chats where an
    /// edit costs nothing.
    pub fn refresh(mut self, refresh: impl Into<Option<Duration>>) -> Self {
        self.refresh = refresh.into();
        self
    }

    /// Sets how long one call may take.
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = timeout;
        self
    }

    /// Sets how often a final message, a question or a notice is tried. Zero counts as one.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// Sets how long a final message, a question or a notice is tried.
    pub fn longest_wait(mut self, wait: Duration) -> Self {
        self.longest_wait = wait;
        self
    }
}

/// Calls a transport. Clones share its state.
#[derive(Debug)]
pub(crate) struct Outbox<T> {
    transport: Arc<T>,
    pub(crate) pace: Pace,
    /// The queues of the chats that are being called or are rate limited.
    queues: Arc<Mutex<HashMap<String, Arc<CallQueue>>>>,
}

impl<T> Clone for Outbox<T> {
    fn clone(&self) -> Self {
        Self { transport: self.transport.clone(), pace: self.pace, queues: self.queues.clone() }
    }
}

impl<T: Transport> Outbox<T> {
    /// Whether the chat can have files.
    pub(crate) fn sends_files(&self) -> bool {
        self.transport.sends_files()
    }

    pub(crate) fn new(transport: T, pace: Pace) -> Self {
        Self { transport: Arc::new(transport), pace, queues: Arc::default() }
    }

    /// Waits for the permit to call this chat.
    pub(crate) fn permit(&self, chat: &str, priority: Priority) -> BoxFuture<'static, CallPermit> {
        let queue = self.queue(chat);
        Box::pin(async move { queue.acquire(priority).await })
    }

    fn queue(&self, chat: &str) -> Arc<CallQueue> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.retain(|_, queue| Arc::strong_count(queue) > 1 || queue.closed_until().is_some());
        queues.entry(chat.to_owned()).or_default().clone()
    }

    /// Sends once, without a retry.
    pub(crate) fn send(
        &self,
        permit: &CallPermit,
        message: Outgoing,
    ) -> BoxFuture<'static, Result<MessageId, TransportError>> {
        let transport = self.transport.clone();
        self.call(permit, async move { transport.send(message).await })
    }

    /// Edits once, without a retry.
    pub(crate) fn edit(
        &self,
        permit: &CallPermit,
        message: MessageRef,
        content: Content,
    ) -> BoxFuture<'static, Result<(), TransportError>> {
        let transport = self.transport.clone();
        self.call(permit, async move { transport.edit(message, content).await })
    }

    /// Deletes once, without a retry.
    pub(crate) fn delete(
        &self,
        permit: &CallPermit,
        message: MessageRef,
    ) -> BoxFuture<'static, Result<(), TransportError>> {
        let transport = self.transport.clone();
        self.call(permit, async move { transport.delete(message).await })
    }

    /// How the chat shows an answer while it is written.
    pub(crate) fn streaming(&self) -> Streaming {
        self.transport.streaming()
    }

    /// Passes an event to the chat. A panic in there ends nothing.
    pub(crate) fn event(&self, place: &Place, job: JobId, event: &TakopiEvent) {
        let pass = AssertUnwindSafe(|| self.transport.event(place, job, event));
        if std::panic::catch_unwind(pass).is_err() {
            tracing::warn!("the transport panicked at an event");
        }
    }

    fn call<R: Send + 'static>(
        &self,
        permit: &CallPermit,
        call: impl Future<Output = Result<R, TransportError>> + Send + 'static,
    ) -> BoxFuture<'static, Result<R, TransportError>> {
        let (limit, queue) = (self.pace.call_timeout, permit.queue().clone());
        Box::pin(async move {
            // The transport's state after a panic is the author's concern.
            let call = AssertUnwindSafe(call).catch_unwind();
            let result = match timeout(limit, call).await {
                Ok(Ok(result)) => result,
                Ok(Err(_)) => Err(TransportError::failed("the transport panicked")),
                Err(_) => Err(TransportError::TimedOut(limit)),
            };
            if let Err(TransportError::RateLimited { retry_after }) = &result {
                queue.close(*retry_after);
            }
            result
        })
    }

    /// Sends a message with retries. If the message it replies to is gone, it is sent without a reply.
    pub(crate) async fn deliver(&self, mut message: Outgoing) -> Result<MessageId, TransportError> {
        let chat = message.place.chat.clone();
        let send = |permit: &CallPermit| self.send(permit, message.clone());
        let sent = self.retry(&chat, Priority::High, send).await;
        match sent {
            Err(TransportError::Gone) if message.reply_to.take().is_some() => {
                let send = |permit: &CallPermit| self.send(permit, message.clone());
                self.retry(&chat, Priority::High, send).await
            }
            sent => sent,
        }
    }

    /// Repeats a call until it succeeds, the message or the chat is gone, or the attempts or the time of
    /// the [`Pace`] are used up.
    pub(crate) async fn retry<R>(
        &self,
        chat: &str,
        priority: Priority,
        call: impl Fn(&CallPermit) -> BoxFuture<'static, Result<R, TransportError>>,
    ) -> Result<R, TransportError> {
        let queue = self.queue(chat);
        let deadline = after(Instant::now(), self.pace.longest_wait);
        let mut last = TransportError::TimedOut(self.pace.longest_wait);
        let mut failures = 0;
        let mut kept = None;
        loop {
            if let Some(until) = queue.closed_until()
                && until > deadline
            {
                return Err(TransportError::RateLimited { retry_after: until - Instant::now() });
            }
            let permit = match kept.take() {
                Some(permit) => {
                    queue.open().await;
                    permit
                }
                None => match timeout_at(deadline, queue.acquire(priority)).await {
                    Ok(permit) => permit,
                    Err(_) => return Err(last),
                },
            };
            last = match call(&permit).await {
                Err(TransportError::RateLimited { .. }) => {
                    // A call of high priority stays at the head of the queue.
                    kept = Some(permit).filter(|_| priority == Priority::High);
                    continue;
                }
                Err(error) => error,
                result => return result,
            };
            drop(permit);
            failures += 1;
            let pause = pause_after(failures);
            let is_late = after(Instant::now(), pause) > deadline;
            let is_final = matches!(last, TransportError::Gone | TransportError::Closed(_));
            if is_final || failures >= self.pace.attempts || is_late {
                return Err(last);
            }
            sleep(pause).await;
        }
    }
}

/// The moment this long after another, with a wait beyond the clock's range shortened to a year.
pub(crate) fn after(moment: Instant, wait: Duration) -> Instant {
    const FAR: Duration = Duration::from_hours(24 * 365);
    moment + wait.min(FAR)
}

/// How long to pause after this many failures in a row.
pub(crate) fn pause_after(failures: u32) -> Duration {
    let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    FIRST_PAUSE.saturating_mul(doubled).min(LONGEST_PAUSE)
}
