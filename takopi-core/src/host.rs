//! Where takopi lives in this process: the supervisor, the state directory, the session locks.
//!
//! [`Host::global`] is the usual one. [`Host::builder`] makes others: with a lock
//! service in place of lock files, or, for tests, on a runtime with a paused clock or with a state
//! directory of their own.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use thiserror::Error;
use tokio::runtime::Handle;

use crate::locks::{FileLocks, LocalLocks, SessionLocks};
use crate::process::{Launch, Output, Process, SpawnError, Supervisor};

/// Threads do not survive a fork.
pub(crate) const FORKED: &str =
    "this process was forked from one that uses takopi; fork before takopi is used";

/// The supervisor could not be started.
#[derive(Debug, Error)]
#[error("cannot start takopi's supervisor thread: {detail}")]
pub struct HostError {
    /// The system's error.
    detail: String,
}

impl From<io::Error> for HostError {
    fn from(error: io::Error) -> Self {
        Self { detail: error.to_string() }
    }
}

/// The supervisor thread, the state directory and the locks that runs share. Clones are the same
/// host.
#[derive(Clone)]
pub struct Host {
    inner: Arc<Inner>,
}

struct Inner {
    /// The process the host was made in.
    process: u32,
    supervisor: Supervisor,
    local_locks: LocalLocks,
    session_locks: Arc<dyn SessionLocks>,
}

impl Host {
    /// The host of this process, with the user's state directory.
    pub fn global() -> Result<Self, HostError> {
        static GLOBAL: Mutex<Option<Host>> = Mutex::new(None);
        let mut global = GLOBAL.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(host) = global.as_ref() {
            return Ok(host.clone());
        }
        let host = Self::builder().build()?;
        *global = Some(host.clone());
        Ok(host)
    }

    /// Another host.
    pub fn builder() -> HostBuilder {
        HostBuilder { state_directory: None, runtime: None, session_locks: None }
    }

    /// The directory for locks and run records.
    pub fn state_directory(&self) -> &Path {
        self.inner.supervisor.state_directory()
    }

    /// The locks of sessions that live in this process only.
    pub fn local_locks(&self) -> &LocalLocks {
        &self.inner.local_locks
    }

    /// The locks of sessions that other processes can reach.
    pub fn session_locks(&self) -> &Arc<dyn SessionLocks> {
        &self.inner.session_locks
    }

    /// Waits until every run and every process of this host is over, and removes the run record.
    ///
    /// New runs are not refused; call it at the end of a program, when its streams are done.
    pub async fn settle(&self) {
        if self.clone().checked().is_ok() {
            self.inner.supervisor.settle().await;
        }
    }

    /// Waits for the clean-up behind killed takopis, and removes the run record if nothing is open.
    pub(crate) async fn tidy(&self) {
        self.inner.supervisor.tidy().await;
    }

    /// Kills every process that runs started here, and everything that came of them, without grace.
    /// For a program that got a second signal to end and exits right away; it blocks for a moment.
    /// (On Linux; elsewhere the processes end with their input or by the kernel's death signal.)
    pub fn kill_now(&self) {
        self.inner.supervisor.kill_now();
    }

    /// Starts a process that belongs to no run, on the supervisor's thread.
    pub async fn start(&self, launch: Launch) -> Result<(Process, Output), SpawnError> {
        let host = self.clone().checked();
        let host =
            host.map_err(|error| SpawnError::Supervisor { error: io::Error::other(error) })?;
        host.inner.supervisor.start(launch).await
    }

    /// The host, unless this process was forked from the one it was made in: threads do not survive a
    /// fork, so nothing that is begun here would ever end.
    pub(crate) fn checked(self) -> Result<Self, HostError> {
        if self.inner.process == std::process::id() {
            return Ok(self);
        }
        Err(HostError { detail: FORKED.to_owned() })
    }

    /// Runs a task on the supervisor that [`Self::settle`] waits for.
    pub fn track(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.inner.supervisor.track(task);
    }

    pub(crate) fn runtime(&self) -> &Handle {
        self.inner.supervisor.runtime()
    }

    pub(crate) fn supervisor(&self) -> &Supervisor {
        &self.inner.supervisor
    }
}

/// Makes a [`Host`].
pub struct HostBuilder {
    state_directory: Option<PathBuf>,
    runtime: Option<Handle>,
    session_locks: Option<Arc<dyn SessionLocks>>,
}

impl HostBuilder {
    /// Keeps locks and run records in this directory.
    pub fn state_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.state_directory = Some(directory.into());
        self
    }

    /// Runs on this runtime instead of a thread of its own. The promises about a caller that shuts
    /// its runtime down then do not hold.
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Locks sessions with these instead of lock files in the state directory: the way in for a
    /// [lock service](crate::locks::LockBackend) that spans machines.
    pub fn session_locks(mut self, locks: impl SessionLocks + 'static) -> Self {
        self.session_locks = Some(Arc::new(locks));
        self
    }

    /// Makes the host; starts its thread unless it was given a runtime.
    pub fn build(self) -> Result<Host, HostError> {
        let state_directory = self.state_directory.unwrap_or_else(default_state_directory);
        let session_locks = self.session_locks.unwrap_or_else(|| {
            Arc::new(FileLocks::new(LocalLocks::new(), state_directory.join("locks")))
        });
        let supervisor = Supervisor::new(self.runtime, state_directory)?;
        let local_locks = LocalLocks::new();
        let process = std::process::id();
        Ok(Host { inner: Arc::new(Inner { process, supervisor, local_locks, session_locks }) })
    }
}

/// `TAKOPI_STATE_DIR`, else `takopi` under `XDG_STATE_HOME`, else under `~/.local/state`.
fn default_state_directory() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(directory) = set("TAKOPI_STATE_DIR") {
        return directory;
    }
    if let Some(directory) = set("XDG_STATE_HOME").filter(|directory| directory.is_absolute()) {
        return directory.join("takopi");
    }
    if let Some(home) = std::env::home_dir().filter(|home| !home.as_os_str().is_empty()) {
        return home.join(".local/state/takopi");
    }
    std::env::temp_dir().join(format!("takopi-{}", nix::unistd::getuid()))
}
