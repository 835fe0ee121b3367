//! Where a run keeps its session's lock until nothing of the run can write any more.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::locks::{LostLock, SessionGuard, SessionLease};

/// Holds the lock; it is released with the last clone, or by [`Self::clear`].
#[derive(Clone, Default)]
pub(super) struct SessionSlot {
    guard: Arc<Mutex<Option<SessionGuard>>>,
}

impl SessionSlot {
    fn guard(&self) -> MutexGuard<'_, Option<SessionGuard>> {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the lock; what resolves when it is lost, if it can be.
    pub(super) fn put(&self, guard: SessionGuard) -> Option<BoxFuture<'static, LostLock>> {
        let lost = guard.lost();
        *self.guard() = Some(guard);
        lost
    }

    /// Whether the run has the lock.
    pub(super) fn is_taken(&self) -> bool {
        self.guard().is_some()
    }

    /// Splits off what other processes see of the lock.
    pub(super) fn split_lease(&self) -> Option<SessionLease> {
        self.guard().as_mut()?.split_lease()
    }

    /// Releases the lock: nothing of the run can write any more.
    pub(super) fn clear(&self) {
        let guard = self.guard().take();
        drop(guard);
    }
}

/// What each process of a run keeps until it is gone: the session's lock, and a token by which the
/// run counts its processes.
pub(super) struct RunKeep {
    // In this order: when the token is dropped, the lock must be free.
    _slot: SessionSlot,
    _token: TaskTrackerToken,
}

impl RunKeep {
    pub(super) fn new(slot: SessionSlot, processes: &TaskTracker) -> Self {
        Self { _slot: slot, _token: processes.token() }
    }
}
