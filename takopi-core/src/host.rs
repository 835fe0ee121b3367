//! Where takopi lives in this process: the supervisor's runtime, the state directory, the locks.
//!
//! Runs and process owners live on a thread of takopi's own, not on the caller's runtime: a caller
//! that drops everything and shuts its runtime down does not take the clean-up with it, and the
//! kernel's death signal, which is tied to the thread that started a process, fires when this
//! process ends and not before.
//!
//! [`Host::global`] is the one nearly everybody uses. [`Host::builder`] makes others: for tests, on
//! a runtime with a paused clock or with a state directory of their own.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use thiserror::Error;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::locks::{FileLocks, LocalLocks, SessionGuard, SessionLease};
use crate::process::{Instance, Launch, Output, Process, SpawnError, end_strays};

/// The supervisor could not be started.
#[derive(Debug, Error)]
#[error("cannot start takopi's supervisor thread: {source}")]
pub struct HostError {
    #[from]
    source: io::Error,
}

/// Where takopi lives in this process. Clones are the same host.
#[derive(Clone)]
pub struct Host {
    inner: Arc<Inner>,
}

struct Inner {
    runtime: Handle,
    state_directory: PathBuf,
    local_locks: LocalLocks,
    file_locks: FileLocks,
    instance: OnceLock<Instance>,
    /// Runs and processes. Closed from the start, which only means that they can be waited for.
    tasks: TaskTracker,
    /// What ends the strays of killed takopis. Closed, too.
    clean_up: TaskTracker,
    next_process: AtomicU64,
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
        HostBuilder { state_directory: None, runtime: None }
    }

    /// The directory for locks and run records.
    pub fn state_directory(&self) -> &Path {
        &self.inner.state_directory
    }

    /// The locks of sessions that live in this process only.
    pub fn local_locks(&self) -> &LocalLocks {
        &self.inner.local_locks
    }

    /// The locks of sessions that other processes can reach.
    pub fn file_locks(&self) -> &FileLocks {
        &self.inner.file_locks
    }

    /// Waits until every run and every process of this host is over, and removes the run record.
    ///
    /// New runs are not refused; it is for the end of a program, after its streams are done with.
    pub async fn settle(&self) {
        self.inner.tasks.wait().await;
        self.tidy().await;
    }

    /// Waits for the clean-up behind killed takopis, and removes the run record if nothing is open.
    pub(crate) async fn tidy(&self) {
        self.inner.clean_up.wait().await;
        if let Some(instance) = self.inner.instance.get() {
            instance.remove();
        }
    }

    /// Kills every process that runs started here, and everything that came of them, without grace.
    /// For a program that was told a second time to end and leaves right away; it blocks for a moment.
    /// (On Linux; elsewhere the processes are told by the kernel and by the end of their input.)
    pub fn kill_now(&self) {
        if let Some(instance) = self.inner.instance.get() {
            instance.kill_now();
        }
    }

    /// Starts a process that belongs to no run, on the supervisor's thread.
    pub async fn start(&self, launch: Launch) -> Result<(Process, Output), SpawnError> {
        let host = self.clone();
        // Tracked: whoever settles must not find a process that is started behind its back.
        let started = self.inner.runtime.spawn(self.inner.tasks.track_future(async move {
            let keep = RunKeep::new(SessionSlot::default(), &TaskTracker::new());
            launch.start(&host, keep)
        }));
        match started.await {
            Ok(result) => result,
            Err(error) => Err(SpawnError::Supervisor { source: error.into() }),
        }
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.inner.runtime
    }

    /// Runs a task on the supervisor that [`Self::settle`] waits for.
    pub fn track(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.inner.runtime.spawn(self.inner.tasks.track_future(task));
    }

    /// A number for a new process.
    pub(crate) fn next_process(&self) -> u64 {
        self.inner.next_process.fetch_add(1, Ordering::Relaxed)
    }

    /// The marker of a process and of all that comes of it.
    pub(crate) fn marker(&self, process: u64) -> String {
        self.instance().marker(process)
    }

    /// Puts a process on record, before it is started.
    pub(crate) fn opened(&self, process: u64) {
        self.instance().opened(process);
    }

    /// Strikes a process off the record: nothing of it is left but what may stay.
    pub(crate) fn closed(&self, process: u64) {
        self.instance().closed(process);
    }

    /// This process's run record. The first use is the start of which the next takopi's clean-up
    /// speaks: what a killed one left behind is ended beside the run.
    fn instance(&self) -> &Instance {
        self.inner.instance.get_or_init(|| {
            let state_directory = self.inner.state_directory.clone();
            let clean_up = move || {
                for stray in end_strays(&state_directory) {
                    tracing::warn!(
                        pid = stray.pid,
                        command = stray.command,
                        "ended a stray process"
                    );
                }
            };
            self.inner.clean_up.spawn_blocking_on(clean_up, &self.inner.runtime);
            Instance::new(&self.inner.state_directory.join("runs"))
        })
    }
}

/// Makes a [`Host`].
#[derive(Debug)]
pub struct HostBuilder {
    state_directory: Option<PathBuf>,
    runtime: Option<Handle>,
}

impl HostBuilder {
    /// Keeps locks and run records in this directory.
    pub fn state_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.state_directory = Some(directory.into());
        self
    }

    /// Lives on this runtime instead of a thread of its own. The promises about a caller that shuts
    /// its runtime down then do not hold.
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Makes the host; starts its thread unless it was given a runtime.
    pub fn build(self) -> Result<Host, HostError> {
        let runtime = match self.runtime {
            Some(runtime) => runtime,
            None => supervisor()?,
        };
        let state_directory = self.state_directory.unwrap_or_else(default_state_directory);
        let local_locks = LocalLocks::new();
        let file_locks = FileLocks::new(LocalLocks::new(), state_directory.join("locks"));
        let (tasks, clean_up) = (TaskTracker::new(), TaskTracker::new());
        tasks.close();
        clean_up.close();
        Ok(Host {
            inner: Arc::new(Inner {
                runtime,
                state_directory,
                local_locks,
                file_locks,
                instance: OnceLock::new(),
                tasks,
                clean_up,
                next_process: AtomicU64::new(1),
            }),
        })
    }
}

/// Starts the thread everything runs on. It lives until the process ends.
fn supervisor() -> io::Result<Handle> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(4)
        .thread_name("takopi-blocking")
        .build()?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("takopi-supervisor".to_owned())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    Ok(handle)
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

/// Where a run keeps its session's lock. The lock goes with the last clone.
#[derive(Clone, Default)]
pub(crate) struct SessionSlot {
    guard: Arc<Mutex<Option<SessionGuard>>>,
}

impl SessionSlot {
    /// Keeps the lock.
    pub(crate) fn put(&self, guard: SessionGuard) {
        *self.guard.lock().unwrap_or_else(PoisonError::into_inner) = Some(guard);
    }

    /// Whether the run has the lock.
    pub(crate) fn is_taken(&self) -> bool {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Splits off what other processes see of the lock.
    pub(crate) fn split_lease(&self) -> Option<SessionLease> {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner).as_mut()?.split_lease()
    }

    /// Lets the lock go: nothing of the run can write any more.
    pub(crate) fn clear(&self) {
        let guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(guard);
    }
}

/// What a process of a run keeps until it is gone: the session's lock, and the run's knowledge that
/// something of it is alive.
pub(crate) struct RunKeep {
    // In this order: who waits for the token's end may rely on the lock being free.
    _slot: SessionSlot,
    _token: TaskTrackerToken,
}

impl RunKeep {
    pub(crate) fn new(slot: SessionSlot, processes: &TaskTracker) -> Self {
        Self { _slot: slot, _token: processes.token() }
    }
}
