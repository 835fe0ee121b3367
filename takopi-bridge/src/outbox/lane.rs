//! The line in which the calls to one chat stand.
//!
//! One call at a time, and none while the chat wants to be left alone. Who is of the first
//! [rank](Rank) goes first, in the order they came. Dropping a [`Turn`], or the future that waits for
//! it, leaves the line.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as Line, OwnedMutexGuard, watch};
use tokio::time::{Instant, sleep_until};

use super::after;

/// The least that a chat is left alone when it wants to be. Some say for no time at all.
const SHORTEST_WAIT: Duration = Duration::from_millis(250);

/// Who goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rank {
    /// What must be said: last words, questions, notices.
    First,
    /// What can wait: how things go on, and what is cleared away.
    Later,
}

#[derive(Debug, Default)]
pub(super) struct Lane {
    calls: Arc<Line<()>>,
    /// Whoever can wait stands here first, so that only one of them stands in the line of calls.
    later: Line<()>,
    /// How many of the first rank wait.
    first: watch::Sender<usize>,
    closed_until: Mutex<Option<Instant>>,
}

/// The leave to call a chat, for as long as it lives.
#[derive(Debug)]
pub(crate) struct Turn {
    lane: Arc<Lane>,
    _calls: OwnedMutexGuard<()>,
}

/// Somebody of the first rank waits, for as long as this lives.
struct Waits<'a>(&'a Lane);

impl<'a> Waits<'a> {
    fn new(lane: &'a Lane) -> Self {
        lane.first.send_modify(|waiting| *waiting += 1);
        Self(lane)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.first.send_modify(|waiting| *waiting -= 1);
    }
}

impl Lane {
    pub(super) async fn turn(self: &Arc<Self>, rank: Rank) -> Turn {
        let calls = match rank {
            Rank::First => {
                let _waits = Waits::new(self);
                let calls = self.calls.clone().lock_owned().await;
                self.open().await;
                calls
            }
            Rank::Later => {
                let _next = self.later.lock().await;
                loop {
                    // The sender lives in `self`.
                    let _ = self.first.subscribe().wait_for(|waiting| *waiting == 0).await;
                    // Not in the line of calls, where it would be ahead of what must be said.
                    self.open().await;
                    let calls = self.calls.clone().lock_owned().await;
                    if self.closed_until().is_none() {
                        break calls;
                    }
                }
            }
        };
        Turn { lane: self.clone(), _calls: calls }
    }

    /// Resolves when the chat may be called.
    pub(super) async fn open(&self) {
        while let Some(until) = self.closed_until() {
            sleep_until(until).await;
        }
    }

    /// The chat wants to be left alone for so long.
    pub(super) fn close(&self, wait: Duration) {
        let until = after(Instant::now(), wait.max(SHORTEST_WAIT));
        let mut closed = self.closed_until.lock().unwrap_or_else(PoisonError::into_inner);
        *closed = (*closed).max(Some(until));
    }

    /// When the chat may be called again, if it may not be now.
    pub(super) fn closed_until(&self) -> Option<Instant> {
        let closed = *self.closed_until.lock().unwrap_or_else(PoisonError::into_inner);
        closed.filter(|until| *until > Instant::now())
    }
}

impl Turn {
    pub(super) fn lane(&self) -> &Arc<Lane> {
        &self.lane
    }
}
