//! The keyed mutex of one process: first come, first served.
//!
//! A key is in the map exactly while it is held; its waiters stand in a queue in its entry. Release
//! hands the key to the first waiter under the shard lock, so none can barge in between, and a
//! waiter that is dropped finds itself either in the queue (and leaves it) or already handed the
//! key (and passes it on). No shard guard is ever held over an await.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use futures::future::BoxFuture;
use futures::task::AtomicWaker;

use super::{Holder, LeaseHolder, LockError, SessionGuard, SessionKey, SessionLocks};

struct Held {
    holder: Holder,
    /// Sorted by number, because numbers are drawn under the shard lock.
    waiters: VecDeque<Arc<Waiter>>,
}

/// One of those that wait for a key: in the queue, and in the future that waits.
struct Waiter {
    number: u64,
    holder: Holder,
    granted: AtomicBool,
    waker: AtomicWaker,
}

impl Waiter {
    fn grant(&self) {
        self.granted.store(true, Ordering::Release);
        self.waker.wake();
    }

    fn poll_granted(&self, cx: &Context<'_>) -> bool {
        // Registered first, so that a grant from now on wakes it.
        self.waker.register(cx.waker());
        self.granted.load(Ordering::Acquire)
    }
}

#[derive(Default)]
struct Table {
    keys: DashMap<SessionKey, Held>,
    next_number: AtomicU64,
}

/// Session locks for the tasks of one process. Clones share one table.
#[derive(Clone, Default)]
pub struct LocalLocks {
    table: Arc<Table>,
}

impl LocalLocks {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many keys are held now.
    pub fn len(&self) -> usize {
        self.table.keys.len()
    }

    /// Whether no key is held.
    pub fn is_empty(&self) -> bool {
        self.table.keys.is_empty()
    }

    /// Takes the key if it is free.
    pub fn try_acquire(&self, key: &SessionKey, holder: &Holder) -> Option<LocalGuard> {
        match self.table.keys.entry(key.clone()) {
            Entry::Occupied(_) => None,
            Entry::Vacant(vacant) => {
                vacant.insert(Held { holder: holder.clone(), waiters: VecDeque::new() });
                Some(LocalGuard { table: self.table.clone(), key: key.clone() })
            }
        }
    }

    /// The task that holds the key now.
    pub(super) fn holder_of(&self, key: &SessionKey) -> Option<Holder> {
        self.table.keys.get(key).map(|held| held.holder.clone())
    }

    /// Waits in the queue for the key, from the first poll on. Dropping the future leaves the queue.
    pub fn acquire(
        &self,
        key: SessionKey,
        holder: Holder,
    ) -> impl Future<Output = LocalGuard> + Send + use<> {
        Acquire { table: self.table.clone(), state: Progress::New { key, holder } }
    }
}

impl Table {
    /// Takes the key if it is free, else a place in its queue.
    fn join(&self, key: SessionKey, holder: Holder) -> Progress {
        match self.keys.entry(key) {
            Entry::Vacant(vacant) => {
                let key = vacant.key().clone();
                vacant.insert(Held { holder, waiters: VecDeque::new() });
                Progress::Granted { key }
            }
            Entry::Occupied(mut occupied) => {
                let number = self.next_number.fetch_add(1, Ordering::Relaxed);
                let (granted, waker) = (AtomicBool::new(false), AtomicWaker::new());
                let waiter = Arc::new(Waiter { number, holder, granted, waker });
                occupied.get_mut().waiters.push_back(waiter.clone());
                Progress::Waiting { key: occupied.key().clone(), waiter }
            }
        }
    }

    /// Hands the key to the first waiter, or forgets it.
    fn release(&self, key: &SessionKey) {
        self.keys.remove_if_mut(key, |_, held| {
            let Some(first) = held.waiters.pop_front() else { return true };
            held.holder = first.holder.clone();
            // A future that is being dropped waits for the shard: it will find that it left the queue and
            // pass the key on.
            first.grant();
            false
        });
    }

    /// Leaves the queue; `false` if the key was already handed to this waiter.
    fn leave(&self, key: &SessionKey, number: u64) -> bool {
        let Some(mut held) = self.keys.get_mut(key) else { return false };
        match held.waiters.binary_search_by_key(&number, |waiter| waiter.number) {
            Ok(index) => {
                held.waiters.remove(index);
                true
            }
            Err(_) => false,
        }
    }
}

/// Possession of a key of [`LocalLocks`]; released on drop.
#[must_use = "the key is released when the guard is dropped"]
pub struct LocalGuard {
    table: Arc<Table>,
    key: SessionKey,
}

impl Drop for LocalGuard {
    fn drop(&mut self) {
        self.table.release(&self.key);
    }
}

/// The future that waits for a key.
struct Acquire {
    table: Arc<Table>,
    state: Progress,
}

/// How far it has come.
enum Progress {
    /// It was not polled yet.
    New { key: SessionKey, holder: Holder },
    /// It is in the queue, or was taken from it with the key.
    Waiting { key: SessionKey, waiter: Arc<Waiter> },
    /// It has the key.
    Granted { key: SessionKey },
    /// It gave the key to its guard.
    Done,
}

impl Future for Acquire {
    type Output = LocalGuard;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<LocalGuard> {
        if let Progress::New { .. } = self.state
            && let Progress::New { key, holder } = self.take()
        {
            self.state = self.table.join(key, holder);
        }
        if let Progress::Waiting { waiter, .. } = &self.state
            && !waiter.poll_granted(cx)
        {
            return Poll::Pending;
        }
        match self.take() {
            Progress::Waiting { key, .. } | Progress::Granted { key } => {
                Poll::Ready(LocalGuard { table: self.table.clone(), key })
            }
            Progress::New { .. } | Progress::Done => Poll::Pending,
        }
    }
}

impl Acquire {
    fn take(&mut self) -> Progress {
        std::mem::replace(&mut self.state, Progress::Done)
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        match self.take() {
            Progress::New { .. } | Progress::Done => {}
            Progress::Waiting { key, waiter } if self.table.leave(&key, waiter.number) => {}
            Progress::Waiting { key, .. } | Progress::Granted { key } => self.table.release(&key),
        }
    }
}

impl SessionLocks for LocalLocks {
    fn try_lock<'a>(
        &'a self,
        key: &'a SessionKey,
        holder: &'a Holder,
        _leases: &'a dyn LeaseHolder,
    ) -> BoxFuture<'a, Result<Option<SessionGuard>, LockError>> {
        let guard = self.try_acquire(key, holder).map(|local| SessionGuard::new(local, None));
        Box::pin(std::future::ready(Ok(guard)))
    }

    fn lock(
        &self,
        key: SessionKey,
        holder: Holder,
        _leases: Arc<dyn LeaseHolder>,
    ) -> BoxFuture<'static, Result<SessionGuard, LockError>> {
        let locks = self.clone();
        Box::pin(async move { Ok(SessionGuard::new(locks.acquire(key, holder).await, None)) })
    }

    fn holder<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, Option<Holder>> {
        Box::pin(std::future::ready(self.holder_of(key)))
    }
}
