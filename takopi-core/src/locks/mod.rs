//! Session locks: at most one run at a time on a session.
//!
//! A session is named by a [`SessionKey`]. [`SessionLocks`] is the small trait behind which the
//! layers stand: [`LocalLocks`] orders the tasks of one process, first come, first served;
//! [`FileLocks`] puts a kernel file lock under it, which orders the processes of one user on the
//! machine. A lock service can stand in later.
//!
//! Promises:
//! - the guard releases on drop, and a process that dies releases all it held;
//! - a waiter dropped in line leaves no trace, and an idle key costs no memory and no file;
//! - across processes the order is that of arrival: a process with many local waiters gives way,
//!   because each of them joins the line anew;
//! - waiting takes no thread and no busy loop.
//!
//! A session whose engine is kept warm between runs is a [`SessionLease`]: the part of the lock that
//! other processes see is kept, the part that orders this process's tasks is not. Who asks for the
//! session shows on [`SessionLease::is_wanted`], and the lease must then be given up.

mod file;
mod local;
mod ofd;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fmt, io};

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::model::{EngineId, ResumeToken};
use crate::process::descriptor_limit;

pub use file::FileLocks;
pub use local::{LocalGuard, LocalLocks};
pub(crate) use ofd::{ByteRange, OfdFile};

/// The name of a session's lock: `engine:value`, the value in canonical form.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionKey(Arc<str>);

impl SessionKey {
    /// The key of a session. The token's value must already be in canonical form.
    pub fn new(token: &ResumeToken) -> Self {
        Self(format!("{}:{}", token.engine, token.value).into())
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

/// Who holds a lock. Told to those who wait; believed only while the lock is held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Holder {
    /// The process.
    pub pid: u32,
    /// Since when, in seconds of the Unix epoch.
    pub since: u64,
    /// The engine it runs.
    pub engine: EngineId,
}

impl Holder {
    /// This process, from now on.
    pub fn here(engine: EngineId) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Self { pid: std::process::id(), since, engine }
    }

    /// How long it has held the lock.
    pub fn held_for(&self) -> Duration {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Duration::from_secs(now.saturating_sub(self.since))
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pid == std::process::id() {
            f.write_str("another run of this process")?;
        } else {
            write!(f, "process {}", self.pid)?;
        }
        write!(f, " for {} s", self.held_for().as_secs())
    }
}

/// A lock that could not be had for another reason than that it is held.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LockError {
    /// The lock file could not be used.
    #[error(
        "cannot lock the session with {path}: {source} (TAKOPI_STATE_DIR chooses another directory)"
    )]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// This process has too many open descriptors.
    #[error("cannot lock the session: too many open files (the limit is {limit}; see `ulimit -n`)")]
    OutOfDescriptors {
        /// The soft limit.
        limit: u64,
    },
}

impl LockError {
    fn new(path: &Path, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => {
                Self::OutOfDescriptors { limit: descriptor_limit().unwrap_or(0) }
            }
            _ => Self::Io { path: path.to_owned(), source },
        }
    }
}

/// What other processes see of a held session; released on drop.
pub trait OutsideLock: Send + Sync {
    /// Whether somebody waits for it.
    fn is_wanted(&self) -> bool;
}

/// Possession of a session; released on drop.
#[must_use = "the session is released when the guard is dropped"]
pub struct SessionGuard {
    // The outside goes first on drop: the next local waiter must find it free.
    outside: Option<Box<dyn OutsideLock>>,
    _inside: LocalGuard,
}

impl SessionGuard {
    /// Possession among the tasks of this process, and outside of it if there is an outside.
    pub fn new(inside: LocalGuard, outside: Option<Box<dyn OutsideLock>>) -> Self {
        Self { outside, _inside: inside }
    }

    /// Splits off what other processes see; the tasks of this process still find it held.
    pub(crate) fn split_lease(&mut self) -> Option<SessionLease> {
        self.outside.take().map(|outside| SessionLease { outside })
    }
}

impl fmt::Debug for SessionGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionGuard")
    }
}

/// A session kept from other processes between two runs; given up on drop.
#[must_use = "the session is given up when the lease is dropped"]
pub struct SessionLease {
    outside: Box<dyn OutsideLock>,
}

impl SessionLease {
    /// Whether another process, or another runner of this one, waits for the session.
    pub fn is_wanted(&self) -> bool {
        self.outside.is_wanted()
    }
}

impl fmt::Debug for SessionLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionLease")
    }
}

/// Who may hold leases that a new run of its own can take over.
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

/// A back end of session locks.
pub trait SessionLocks: Send + Sync {
    /// Takes the lock if nobody holds it or waits for it.
    fn try_lock(
        &self,
        key: &SessionKey,
        holder: &Holder,
        leases: &dyn LeaseHolder,
    ) -> Result<Option<SessionGuard>, LockError>;

    /// Waits in line for the lock. Dropping the future leaves the line.
    fn lock(
        &self,
        key: SessionKey,
        holder: Holder,
        leases: Arc<dyn LeaseHolder>,
    ) -> BoxFuture<'static, Result<SessionGuard, LockError>>;

    /// Who holds the lock now, as far as it is known.
    fn holder(&self, key: &SessionKey) -> Option<Holder>;
}
