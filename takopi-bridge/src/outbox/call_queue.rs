//! The queue of the calls to one chat.
//!
//! One call at a time, and none while the chat is rate limited. Calls of [high priority](Priority) go
//! first, in the order they came. Dropping a [`CallPermit`], or the future that waits for it, leaves
//! the queue.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedMutexGuard, watch};
use tokio::time::{Instant, sleep_until};

use super::after;

/// The shortest pause after a rate limit. Some chats report a wait of zero.
const SHORTEST_WAIT: Duration = Duration::from_millis(250);

/// Tokio's mutex is fair, so its waiters are a first-in, first-out queue.
type FairMutex<T> = tokio::sync::Mutex<T>;

/// Which calls go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Priority {
    /// Final messages, questions and notices.
    High,
    /// Progress and deletions.
    Low,
}

#[derive(Debug, Default)]
pub(super) struct CallQueue {
    calls: Arc<FairMutex<()>>,
    /// Calls of low priority wait here first, so that at most one of them waits for `calls`.
    low: FairMutex<()>,
    /// How many calls of high priority wait.
    high_waiting: watch::Sender<usize>,
    closed_until: Mutex<Option<Instant>>,
}

/// The permit to call a chat, for as long as it lives.
#[derive(Debug)]
pub(crate) struct CallPermit {
    queue: Arc<CallQueue>,
    _calls: OwnedMutexGuard<()>,
}

/// Counts a waiting call of high priority for as long as it lives.
struct HighWaiter<'a>(&'a CallQueue);

impl<'a> HighWaiter<'a> {
    fn new(queue: &'a CallQueue) -> Self {
        queue.high_waiting.send_modify(|waiting| *waiting += 1);
        Self(queue)
    }
}

impl Drop for HighWaiter<'_> {
    fn drop(&mut self) {
        self.0.high_waiting.send_modify(|waiting| *waiting -= 1);
    }
}

impl CallQueue {
    /// Waits until this chat may be called.
    pub(super) async fn acquire(self: &Arc<Self>, priority: Priority) -> CallPermit {
        let calls = match priority {
            Priority::High => {
                let _waiter = HighWaiter::new(self);
                let calls = self.calls.clone().lock_owned().await;
                self.open().await;
                calls
            }
            Priority::Low => {
                let _next = self.low.lock().await;
                loop {
                    // The sender lives in `self`.
                    let _ = self.high_waiting.subscribe().wait_for(|waiting| *waiting == 0).await;
                    // Not while holding `calls`: that would block calls of high priority.
                    self.open().await;
                    let calls = self.calls.clone().lock_owned().await;
                    if self.closed_until().is_none() {
                        break calls;
                    }
                }
            }
        };
        CallPermit { queue: self.clone(), _calls: calls }
    }

    /// Resolves when the chat is not rate limited.
    pub(super) async fn open(&self) {
        while let Some(until) = self.closed_until() {
            sleep_until(until).await;
        }
    }

    /// The chat accepts no calls for this long.
    pub(super) fn close(&self, wait: Duration) {
        let until = after(Instant::now(), wait.max(SHORTEST_WAIT));
        let mut closed = self.closed_until.lock().unwrap_or_else(PoisonError::into_inner);
        *closed = (*closed).max(Some(until));
    }

    /// When the rate limit ends, if the chat is rate limited now.
    pub(super) fn closed_until(&self) -> Option<Instant> {
        let closed = *self.closed_until.lock().unwrap_or_else(PoisonError::into_inner);
        closed.filter(|until| *until > Instant::now())
    }
}

impl CallPermit {
    pub(super) fn queue(&self) -> &Arc<CallQueue> {
        &self.queue
    }
}
