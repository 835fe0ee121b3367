//! The keyed mutex of one process: first come, first served.
//!
//! A key is in the map exactly while it is held; its waiters stand in a queue in its entry. Release
//! hands the key to the first waiter under the shard lock, so none can barge in between, and a
//! waiter that is dropped finds itself either in the queue (and leaves it) or already handed the
//! key (and passes it on). No shard guard is ever held over an await.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use futures::future::BoxFuture;
use tokio::sync::oneshot;

use super::{Holder, LeaseHolder, LockError, SessionGuard, SessionKey, SessionLocks};

struct Held {
    holder: Holder,
    /// Sorted by number, because numbers are drawn under the shard lock.
    waiters: VecDeque<Waiter>,
}

struct Waiter {
    number: u64,
    holder: Holder,
    granted: oneshot::Sender<()>,
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

    /// Waits in the queue for the key.
    pub async fn acquire(&self, key: SessionKey, holder: Holder) -> LocalGuard {
        match self.join(key, holder) {
            Ok(guard) => guard,
            Err(place) => place.await,
        }
    }

    fn join(&self, key: SessionKey, holder: Holder) -> Result<LocalGuard, PlaceInLine> {
        match self.table.keys.entry(key) {
            Entry::Vacant(vacant) => {
                let key = vacant.key().clone();
                vacant.insert(Held { holder, waiters: VecDeque::new() });
                Ok(LocalGuard { table: self.table.clone(), key })
            }
            Entry::Occupied(mut occupied) => {
                let number = self.table.next_number.fetch_add(1, Ordering::Relaxed);
                let (granted, turn) = oneshot::channel();
                occupied.get_mut().waiters.push_back(Waiter { number, holder, granted });
                let key = occupied.key().clone();
                let claim = Claim { table: self.table.clone(), key, number };
                Err(PlaceInLine { claim: Some(claim), turn })
            }
        }
    }
}

impl Table {
    /// Hands the key to the first waiter, or forgets it.
    fn release(&self, key: &SessionKey) {
        self.keys.remove_if_mut(key, |_, held| {
            let Some(first) = held.waiters.pop_front() else { return true };
            held.holder = first.holder;
            // A receiver that is gone already is being dropped and waits for the shard: its claim
            // will find that it left the queue and pass the key on.
            let _ = first.granted.send(());
            false
        });
    }

    /// Leaves the line; `false` if the key was already handed to this place.
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

struct Claim {
    table: Arc<Table>,
    key: SessionKey,
    number: u64,
}

struct PlaceInLine {
    /// Taken when the place turns into a guard.
    claim: Option<Claim>,
    turn: oneshot::Receiver<()>,
}

impl Future for PlaceInLine {
    type Output = LocalGuard;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<LocalGuard> {
        // The sender is only ever dropped after it was used, so an error cannot come before a grant.
        let _ = ready!(Pin::new(&mut self.turn).poll(cx));
        match self.claim.take() {
            Some(claim) => Poll::Ready(LocalGuard { table: claim.table, key: claim.key }),
            None => Poll::Pending,
        }
    }
}

impl Drop for PlaceInLine {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take()
            && !claim.table.leave(&claim.key, claim.number)
        {
            claim.table.release(&claim.key);
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
