//! Locks that several processes share: local order first, then a back end that other processes see.

use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;

use super::{
    Holder, LeaseHolder, LocalLocks, LockError, LockFiles, SessionGuard, SessionKey, SessionLease,
    SessionLocks,
};

/// A lock that other processes see, held; released on drop.
///
/// Dropping it must not block: a service is notified in the background.
pub trait HeldLock: Send + Sync {
    /// Resolves when another holder waits for the lock. What is known already resolves at the first
    /// poll.
    fn wanted(&self) -> BoxFuture<'_, ()>;

    /// Resolves when the lock is lost: the service is gone, or the lease ran out. `None` for locks that
    /// cannot be lost, such as kernel locks.
    ///
    /// The run is then stopped, which takes as long as its engine needs to end, at most
    /// [`STOP_LIMIT`](crate::runner::STOP_LIMIT). A service must not grant the lock again before
    /// that time is over or the lock is released, whichever comes first.
    fn lost(&self) -> Option<BoxFuture<'static, LostLock>> {
        None
    }
}

/// Why a lock was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostLock {
    /// For people, e.g. `the lock service is gone`.
    pub cause: String,
}

impl LostLock {
    /// A lock lost for this cause.
    pub fn new(cause: impl Into<String>) -> Self {
        Self { cause: cause.into() }
    }
}

/// What orders processes: files, or a service. It never sees two tasks of one process ask for the
/// same key at once.
pub trait LockBackend: Send + Sync + 'static {
    /// Takes the lock if it is free and has no waiters.
    fn try_lock<'a>(
        &'a self,
        key: &'a SessionKey,
        holder: &'a Holder,
    ) -> BoxFuture<'a, Result<Option<Box<dyn HeldLock>>, LockError>>;

    /// Waits in the queue for the lock. Dropping the future leaves the queue.
    fn lock<'a>(
        &'a self,
        key: &'a SessionKey,
        holder: &'a Holder,
    ) -> BoxFuture<'a, Result<Box<dyn HeldLock>, LockError>>;

    /// The current holder of the lock, as far as it is known.
    fn holder<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, Option<Holder>>;
}

/// Session locks over a back end. Clones share their local order.
pub struct SharedLocks<B> {
    local: LocalLocks,
    backend: Arc<B>,
}

/// Session locks across the processes of one user on this machine.
pub type FileLocks = SharedLocks<LockFiles>;

impl<B: LockBackend> SharedLocks<B> {
    /// Locks over this back end.
    pub fn over(local: LocalLocks, backend: B) -> Self {
        Self { local, backend: Arc::new(backend) }
    }

    /// The back end.
    pub fn backend(&self) -> &B {
        &self.backend
    }
}

impl FileLocks {
    /// Locks whose files live in `directory`, which is created when first needed.
    pub fn new(local: LocalLocks, directory: impl Into<PathBuf>) -> Self {
        Self::over(local, LockFiles::new(directory))
    }

    /// The lock file of a key.
    pub fn path(&self, key: &SessionKey) -> PathBuf {
        self.backend.path(key)
    }
}

impl<B> Clone for SharedLocks<B> {
    fn clone(&self) -> Self {
        Self { local: self.local.clone(), backend: self.backend.clone() }
    }
}

impl<B: LockBackend> SessionLocks for SharedLocks<B> {
    fn try_lock<'a>(
        &'a self,
        key: &'a SessionKey,
        holder: &'a Holder,
        leases: &'a dyn LeaseHolder,
    ) -> BoxFuture<'a, Result<Option<SessionGuard>, LockError>> {
        Box::pin(async move {
            let Some(local) = self.local.try_acquire(key, holder) else { return Ok(None) };
            let lock = match leases.take_lease(key) {
                Some(lease) => Some(lease),
                None => self.backend.try_lock(key, holder).await?.map(SessionLease::new),
            };
            Ok(lock.map(|lock| SessionGuard::new(local, Some(lock))))
        })
    }

    fn lock(
        &self,
        key: SessionKey,
        holder: Holder,
        leases: Arc<dyn LeaseHolder>,
    ) -> BoxFuture<'static, Result<SessionGuard, LockError>> {
        let locks = self.clone();
        Box::pin(async move {
            let local = locks.local.acquire(key.clone(), holder.clone()).await;
            let lock = match leases.take_lease(&key) {
                Some(lease) => lease,
                None => SessionLease::new(locks.backend.lock(&key, &holder).await?),
            };
            Ok(SessionGuard::new(local, Some(lock)))
        })
    }

    fn holder<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, Option<Holder>> {
        Box::pin(async move {
            match self.backend.holder(key).await {
                Some(holder) => Some(holder),
                None => self.local.holder_of(key),
            }
        })
    }
}
