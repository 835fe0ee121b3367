//! The supervisor: the thread on which runs and process owners live, and the record of processes.
//!
//! It is a thread of takopi's own, not the caller's runtime: a caller that drops everything and shuts
//! its runtime down does not take the clean-up with it, and the kernel's death signal, which is tied
//! to the thread that started a process, fires when this process ends and not before.
//!
//! Promises:
//! - [`Supervisor::settle`] returns when every tracked task and every process is over;
//! - a process is on record before it is started and until nothing of it is left, so that a later
//!   takopi can find what a killed one left behind.

use std::any::Any;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use super::instance::{self, Instance, end_strays};
use super::launch::{Launch, SpawnError};
use super::owner::Process;
use super::pipe::Output;

/// After how many tasks the supervisor looks for what happened outside.
const EVENT_INTERVAL: u32 = 8;

/// What a process's owner keeps for others, and drops when nothing of the process is left.
pub(crate) type Keep = Box<dyn Any + Send>;

/// Clones are the same supervisor.
#[derive(Clone)]
pub(crate) struct Supervisor {
    inner: Arc<Inner>,
}

struct Inner {
    runtime: Handle,
    state_directory: PathBuf,
    instance: OnceLock<Instance>,
    /// Runs and processes. Closed from the start, which only means that they can be waited for.
    tasks: TaskTracker,
    /// What ends the strays of killed takopis. Closed, too.
    clean_up: TaskTracker,
    next_process: AtomicU64,
}

impl Supervisor {
    /// A supervisor on this runtime, or on a thread of its own that lives until the process ends.
    pub(crate) fn new(runtime: Option<Handle>, state_directory: PathBuf) -> io::Result<Self> {
        let runtime = runtime.map_or_else(start_thread, Ok)?;
        let (tasks, clean_up) = (TaskTracker::new(), TaskTracker::new());
        tasks.close();
        clean_up.close();
        Ok(Self {
            inner: Arc::new(Inner {
                runtime,
                state_directory,
                instance: OnceLock::new(),
                tasks,
                clean_up,
                next_process: AtomicU64::new(1),
            }),
        })
    }

    pub(crate) fn state_directory(&self) -> &Path {
        &self.inner.state_directory
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.inner.runtime
    }

    /// Runs a task that [`Self::settle`] waits for.
    pub(crate) fn track(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.inner.runtime.spawn(self.inner.tasks.track_future(task));
    }

    /// Waits until every task and every process is over, and removes the run record.
    pub(crate) async fn settle(&self) {
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

    /// Kills every process on record, and everything that came of them, without grace.
    pub(crate) fn kill_now(&self) {
        if let Some(instance) = self.inner.instance.get() {
            instance.kill_now();
        }
    }

    /// Starts a process that belongs to no run, on the supervisor's thread.
    pub(crate) async fn start(&self, launch: Launch) -> Result<(Process, Output), SpawnError> {
        let supervisor = self.clone();
        // Tracked: a caller that settles must not miss a process that is being started meanwhile.
        let started = self.inner.runtime.spawn(
            self.inner.tasks.track_future(async move { launch.start(&supervisor, Box::new(())) }),
        );
        match started.await {
            Ok(result) => result,
            Err(error) => Err(SpawnError::Supervisor { error: error.into() }),
        }
    }

    /// A number for a new process.
    pub(super) fn next_process(&self) -> u64 {
        self.inner.next_process.fetch_add(1, Ordering::Relaxed)
    }

    /// The marker of a process and of all that comes of it.
    pub(super) fn marker(&self, process: u64) -> String {
        self.instance().marker(process)
    }

    /// Puts a process on record, before it is started.
    pub(super) fn opened(&self, process: u64) {
        self.instance().opened(process);
    }

    /// Strikes a process off the record: nothing of it is left but what may stay.
    pub(super) fn closed(&self, process: u64) {
        self.instance().closed(process);
    }

    /// This process's run record. Its first use starts the clean-up behind killed takopis.
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
            Instance::new(&instance::directory(&self.inner.state_directory))
        })
    }
}

/// Starts the thread everything runs on. It lives until the process ends.
fn start_thread() -> io::Result<Handle> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // A task may start a process, which blocks the thread for a moment: what was printed meanwhile is
        // read after a few of them.
        .event_interval(EVENT_INTERVAL)
        .max_blocking_threads(4)
        .thread_name("takopi-blocking")
        .build()?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("takopi-supervisor".to_owned())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    Ok(handle)
}
