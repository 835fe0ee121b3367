//! Session locks: at most one run at a time on a session.
//!
//! A session is named by a [`SessionKey`]. [`SessionLocks`] is what a run uses:
//!
//! - [`LocalLocks`] orders the tasks of one process, first come, first served;
//! - [`SharedLocks`] puts a [`LockBackend`] under them, which orders processes. [`FileLocks`] is the
//!   one with kernel file locks, for the processes of one user on a machine; a lock service that spans
//!   machines implements [`LockBackend`] and is given to
//!   [`HostBuilder::session_locks`](crate::host::HostBuilder::session_locks).
//!
//! Promises:
//! - the guard releases on drop, and a process that dies releases all it held. A process that was forked
//!   without exec has a copy of what the parent holds: dropping it there releases nothing, but as long as
//!   such a process lives, a parent that dies does not release its file locks;
//! - a waiter dropped in the queue leaves no trace, and an idle key costs no memory and no file;
//! - across processes the order is that of arrival: a process with many local waiters gives way,
//!   because each of them joins the queue again;
//! - waiting takes no thread and no busy loop;
//! - a lock that is lost ([`HeldLock::lost`]) stops its run before another can begin.
//!
//! A session whose engine is kept warm between runs is a [`SessionLease`]: the part of the lock that
//! other processes see is kept, the part that orders this process's tasks is not. The lease must be
//! given up when another run waits for the session ([`SessionLease::wanted`]). A run that takes it over
//! and ends without opening the session gives it back: the session is still loaded.

mod file;
mod holder;
mod local;
mod shared;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use thiserror::Error;

use crate::model::ResumeToken;
use crate::sys::descriptor_limit;

pub use file::LockFiles;
pub use holder::Holder;
pub use local::{LocalGuard, LocalLocks};
pub use shared::{FileLocks, HeldLock, LockBackend, LostLock, SharedLocks};

/// The name of a session's lock: `store:value`, the value in canonical form.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionKey(Arc<str>);

impl SessionKey {
    /// The key of a session of an engine with a session store of its own. The token's value must
    /// already be in canonical form.
    pub fn new(token: &ResumeToken) -> Self {
        Self::in_store(token.engine.as_str(), &token.value)
    }

    /// The key of a session in a store. Engines that open each other's sessions name the same store,
    /// and so share the lock.
    pub fn in_store(store: &str, value: &str) -> Self {
        Self(format!("{store}:{value}").into())
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A lock that could not be had for another reason than that it is held.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LockError {
    /// The lock file could not be used.
    #[error(
        "cannot lock the session with {path}: {detail} (TAKOPI_STATE_DIR chooses another directory)"
    )]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        detail: String,
    },
    /// This process has too many open descriptors.
    #[error("cannot lock the session: too many open files (the limit is {limit}; see `ulimit -n`)")]
    OutOfDescriptors {
        /// The soft limit.
        limit: u64,
    },
    /// The lock service failed.
    #[error("cannot lock the session: {detail}")]
    Service {
        /// Its error.
        detail: String,
    },
}

impl LockError {
    /// A failure of a lock service.
    pub fn service(detail: impl Into<String>) -> Self {
        Self::Service { detail: detail.into() }
    }

    fn file(path: &Path, error: &std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => {
                Self::OutOfDescriptors { limit: descriptor_limit().unwrap_or(0) }
            }
            _ => Self::File { path: path.to_owned(), detail: error.to_string() },
        }
    }
}

/// Possession of a session; released on drop.
#[must_use = "the session is released when the guard is dropped"]
pub struct SessionGuard {
    // Dropped first: the next local waiter must find the lock free.
    shared: Option<SessionLease>,
    _local: LocalGuard,
}

impl SessionGuard {
    pub(crate) fn new(local: LocalGuard, shared: Option<SessionLease>) -> Self {
        Self { shared, _local: local }
    }

    /// Resolves when the lock is lost; `None` if it cannot be.
    pub(crate) fn lost(&self) -> Option<BoxFuture<'static, LostLock>> {
        self.shared.as_ref()?.lost()
    }

    /// Splits off what other processes see; the tasks of this process still find it held.
    pub(crate) fn split_lease(&mut self) -> Option<SessionLease> {
        self.shared.take()
    }
}

impl fmt::Debug for SessionGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionGuard")
    }
}

/// A session kept from other processes between two runs; given up on drop, unless what it was taken
/// over from still has the session loaded.
#[must_use = "the session is given up when the lease is dropped"]
pub struct SessionLease {
    /// `None` once it went back.
    lock: Option<Box<dyn HeldLock>>,
    lender: Option<(Arc<dyn LeaseLender>, SessionKey)>,
}

/// Has sessions loaded, and gets back the leases of runs that did not open theirs.
pub(crate) trait LeaseLender: Send + Sync {
    /// Keeps the lease if the session is still loaded. It is given up otherwise.
    fn take_back(&self, key: &SessionKey, lease: SessionLease);
}

impl SessionLease {
    pub(crate) fn new(lock: Box<dyn HeldLock>) -> Self {
        Self { lock: Some(lock), lender: None }
    }

    /// Goes back to the lender when it is dropped.
    pub(crate) fn lent_by(mut self, lender: Arc<dyn LeaseLender>, key: SessionKey) -> Self {
        self.lender = Some((lender, key));
        self
    }

    /// Is given up when it is dropped.
    pub(crate) fn owned(mut self) -> Self {
        self.lender = None;
        self
    }

    /// Resolves when the lock is lost; `None` if it cannot be.
    fn lost(&self) -> Option<BoxFuture<'static, LostLock>> {
        self.lock.as_ref()?.lost()
    }

    /// Resolves when the lease must be given up: another process, or another runner of this one, waits
    /// for the session, or the lock is lost.
    pub async fn wanted(&self) {
        let Some(lock) = &self.lock else { return };
        let lost = lock.lost();
        let lost = async {
            match lost {
                Some(lost) => drop(lost.await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = lock.wanted() => {}
            () = lost => {}
        }
    }

    /// Whether the lease must be given up, as far as it is known now.
    pub fn is_wanted(&self) -> bool {
        self.wanted().now_or_never().is_some()
    }
}

impl Drop for SessionLease {
    fn drop(&mut self) {
        if let (Some((lender, key)), Some(lock)) = (self.lender.take(), self.lock.take()) {
            lender.take_back(&key, Self::new(lock));
        }
    }
}

impl fmt::Debug for SessionLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionLease")
    }
}

/// Something that may hold leases which a new run of its own can take over.
pub trait LeaseHolder: Send + Sync {
    /// Hands over the lease of a session. One that others wait for is not handed over but given up.
    fn take_lease(&self, key: &SessionKey) -> Option<SessionLease> {
        let _ = key;
        None
    }
}

/// Holds no leases.
#[derive(Debug, Clone, Copy)]
pub struct NoLeases;

impl LeaseHolder for NoLeases {}

/// The locks of a host's sessions.
pub trait SessionLocks: Send + Sync {
    /// Takes the lock if it is free and has no waiters.
    fn try_lock<'a>(
        &'a self,
        key: &'a SessionKey,
        holder: &'a Holder,
        leases: &'a dyn LeaseHolder,
    ) -> BoxFuture<'a, Result<Option<SessionGuard>, LockError>>;

    /// Waits in the queue for the lock. Dropping the future leaves the queue.
    fn lock(
        &self,
        key: SessionKey,
        holder: Holder,
        leases: Arc<dyn LeaseHolder>,
    ) -> BoxFuture<'static, Result<SessionGuard, LockError>>;

    /// The current holder of the lock, as far as it is known.
    fn holder<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, Option<Holder>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_fails_for_want_of_descriptors_names_the_limit() {
        let error = |code| {
            let error = std::io::Error::from_raw_os_error(code);
            LockError::file(Path::new("/locks/a"), &error).to_string()
        };
        for code in [libc::EMFILE, libc::ENFILE] {
            assert!(error(code).contains("too many open files (the limit is "), "{}", error(code));
        }
        assert!(error(libc::EACCES).contains("/locks/a"), "{}", error(libc::EACCES));
    }
}
