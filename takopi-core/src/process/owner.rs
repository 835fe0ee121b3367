//! The owner: one task per process, which alone touches the child.

use std::io;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::sys::signal::killpg;
use nix::unistd::Pid;
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::census::{Census, StartCutoff};
use super::child::Child;
use super::launch::Launch;
use super::mark::Mark;
use super::pipe::{PipeReader, StdinWriter, feed};
use super::stop::StopStep;
use super::supervisor::{Keep, Supervisor};
use super::sweep::{survey, sweep};
use super::tail::Tail;

/// How much of stderr is kept.
const STDERR_TAIL: usize = 8 * 1024;
/// How long the owner waits for a killed process before it logs that; it goes on waiting.
const KILL_LIMIT: Duration = Duration::from_secs(5);

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exit {
    /// Its exit code, unless a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// The end of what it wrote to stderr.
    pub stderr_tail: String,
}

impl Exit {
    /// An exit with this code and this end of stderr, for tests of translators.
    pub fn with_code(code: i32, stderr_tail: impl Into<String>) -> Self {
        Self { code: Some(code), signal: None, stderr_tail: stderr_tail.into() }
    }

    /// The code, or the negated signal: what `rc` means in messages.
    pub fn rc(&self) -> i32 {
        self.code.or(self.signal.map(|signal| -signal)).unwrap_or(-1)
    }
}

/// What the holder of the handle wants.
#[derive(Debug, PartialEq, Eq)]
enum Ending {
    /// Its work is done: wait for it to exit, within the limit.
    Finish,
    /// End it, and everything that came of it but what was started before.
    Stop(StartCutoff),
}

/// The end of what a process wrote to stderr.
#[derive(Debug, Clone)]
pub struct Stderr {
    tail: Arc<Mutex<Tail>>,
    exit: watch::Receiver<Option<Exit>>,
}

impl Stderr {
    /// What was read so far.
    pub fn so_far(&self) -> String {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner).text()
    }

    /// What there is once the process has exited: its last lines may be read after its output has
    /// ended. After the limit, what was read so far.
    pub async fn at_exit(&self, limit: Duration) -> String {
        let mut exit = self.exit.clone();
        let _ = timeout(limit, exit.wait_for(Option::is_some)).await;
        self.so_far()
    }
}

/// A handle on a running process. Dropping it stops the process.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    stdin: Option<StdinWriter>,
    ending: Option<oneshot::Sender<Ending>>,
    exit: watch::Receiver<Option<Exit>>,
    settled: watch::Receiver<bool>,
    stderr: Arc<Mutex<Tail>>,
}

impl Process {
    /// Its pid, which is also its group.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its standard input, if it was started with [`StdinPlan::Open`](super::StdinPlan::Open). Taken once; dropping it
    /// closes the input.
    pub fn stdin(&mut self) -> Option<StdinWriter> {
        self.stdin.take()
    }

    /// The end of its stderr, which can be read after the handle is given away.
    pub fn stderr(&self) -> Stderr {
        Stderr { tail: self.stderr.clone(), exit: self.exit.clone() }
    }

    /// Waits until it has ended and its stderr is read. Cancel-safe.
    pub async fn exited(&mut self) -> Exit {
        match self.exit.wait_for(Option::is_some).await {
            Ok(exit) => exit.clone(),
            Err(_) => None,
        }
        .unwrap_or(Exit { code: None, signal: None, stderr_tail: String::new() })
    }

    /// Turns true when nothing is left of the process that its end was to remove.
    pub fn settled(&self) -> watch::Receiver<bool> {
        self.settled.clone()
    }

    /// Waits for it to exit, within its linger time, and reaps it in the background.
    pub fn finish(mut self) {
        self.end(Ending::Finish);
    }

    /// Like [`Self::finish`], and returns when it is gone.
    pub async fn finished(mut self) {
        self.end(Ending::Finish);
        let _ = self.settled.wait_for(|settled| *settled).await;
    }

    /// Ends it and everything that came of it, from now on; the future resolves when nothing is left.
    pub fn stop(self) -> impl Future<Output = ()> + Send + 'static {
        self.stop_sparing(StartCutoff::default())
    }

    /// Like [`Self::stop`], but leaves alone what of it was started before.
    pub fn stop_sparing(
        mut self,
        spared: StartCutoff,
    ) -> impl Future<Output = ()> + Send + 'static {
        self.end(Ending::Stop(spared));
        async move {
            let _ = self.settled.wait_for(|settled| *settled).await;
        }
    }

    fn end(&mut self, ending: Ending) {
        if let Some(sender) = self.ending.take() {
            // The owner outlives its handles; it is gone only if its runtime is.
            let _ = sender.send(ending);
        }
    }
}

struct Owner {
    launch: Launch,
    child: Child,
    group: Pid,
    census: Census,
    exited: watch::Sender<bool>,
    exit: watch::Sender<Option<Exit>>,
    feeder: Option<JoinHandle<()>>,
    drain: JoinHandle<()>,
    stderr: Arc<Mutex<Tail>>,
}

/// What an owner is made of.
pub(super) struct Parts {
    pub(super) launch: Launch,
    /// Its number in the run record.
    pub(super) number: u64,
    pub(super) marker: String,
    pub(super) child: Child,
    /// The writing end of its standard input, unless that is empty.
    pub(super) input: Option<pipe::Sender>,
    /// Notified when the child is gone.
    pub(super) exited: watch::Sender<bool>,
    pub(super) errors: PipeReader,
    /// What goes to its standard input.
    pub(super) lines: mpsc::Receiver<Vec<u8>>,
    /// Dropped when nothing of the process is left.
    pub(super) keep: Keep,
}

/// Puts the owner of a child on the supervisor's runtime.
pub(super) fn start(supervisor: &Supervisor, parts: Parts, stdin: Option<StdinWriter>) -> Process {
    let Parts { launch, number, marker, child, input, exited, errors, lines, keep } = parts;
    let pid = child.id().unwrap_or_default();
    let group = Pid::from_raw(i32::try_from(pid).unwrap_or_default());
    let stderr = Arc::new(Mutex::new(Tail::new(STDERR_TAIL)));
    let (exit, exit_seen) = watch::channel(None);
    let (settle, settled) = watch::channel(false);
    let (ending, wish) = oneshot::channel();
    let feeder = input.map(|input| tokio::spawn(feed(input, lines)));
    let owner = Owner {
        launch,
        child,
        group,
        census: Census::new(group.as_raw(), Mark::of_process(&marker)),
        exited,
        exit,
        feeder,
        drain: tokio::spawn(drain(errors, stderr.clone())),
        stderr: stderr.clone(),
    };
    let supervisor_of_task = supervisor.clone();
    supervisor.track(async move {
        owner.run(wish).await;
        supervisor_of_task.closed(number);
        drop(keep);
        let _ = settle.send(true);
    });
    Process { pid, stdin, ending: Some(ending), exit: exit_seen, settled, stderr }
}

async fn drain(mut errors: PipeReader, tail: Arc<Mutex<Tail>>) {
    let mut buffer = vec![0; 4096];
    while let Ok(count) = errors.read(&mut buffer).await
        && count > 0
    {
        tail.lock().unwrap_or_else(PoisonError::into_inner).push(&buffer[..count]);
    }
}

impl Owner {
    async fn run(mut self, mut wish: oneshot::Receiver<Ending>) {
        let stop = |_| Ending::Stop(StartCutoff::default());
        let first = tokio::select! {
            // A wish that is known already is heeded first: a stop needs its snapshot of the tree.
            biased;
            ending = &mut wish => Err(ending.unwrap_or_else(stop)),
            status = self.child.wait() => Ok(status),
        };
        match first {
            Ok(status) => {
                let killed = self.gone(status).await;
                match wish.await.unwrap_or_else(stop) {
                    Ending::Stop(spared) => {
                        self.census.spare(spared);
                        self.sweep().await;
                    }
                    Ending::Finish if killed => self.sweep().await,
                    Ending::Finish => {}
                }
            }
            Err(Ending::Finish) => {
                if let Ok(status) = timeout(self.launch.linger, self.child.wait()).await {
                    if self.gone(status).await {
                        self.sweep().await;
                    }
                } else {
                    tracing::warn!(pid = %self.group, "the engine lingers after its work; ending it");
                    // What the agent detached on purpose stays, unless the engine had to be killed
                    // and could not end its own commands.
                    if self.climb().await {
                        self.sweep().await;
                    } else {
                        // What it started as parts of itself must not outlive it: it may write to the session.
                        let _ = killpg(self.group, StopStep::Kill.signal());
                    }
                }
            }
            Err(Ending::Stop(spared)) => {
                self.census.spare(spared);
                self.climb().await;
                self.sweep().await;
            }
        }
    }

    /// Runs the stop sequence until the child is gone; returns whether a signal ended it.
    async fn climb(&mut self) -> bool {
        let steps = std::mem::take(&mut self.launch.stop_sequence.steps);
        for (step, grace) in steps {
            self.step(step).await;
            if let Ok(status) = timeout(grace, self.child.wait()).await {
                return self.gone(status).await;
            }
        }
        self.step(StopStep::Kill).await;
        loop {
            if let Ok(status) = timeout(KILL_LIMIT, self.child.wait()).await {
                return self.gone(status).await;
            }
            tracing::error!(pid = %self.group, "the engine does not die; its session stays locked");
        }
    }

    async fn step(&mut self, step: StopStep) {
        if let Err(error) = self.survey(Census::observe).await {
            tracing::warn!(%error, pid = %self.group, "cannot see the engine's descendants");
        }
        tracing::debug!(pid = %self.group, ?step, "ending the engine");
        match step.signal() {
            Some(signal) => {
                let _ = killpg(self.group, signal);
            }
            None => {
                if let Some(feeder) = self.feeder.take() {
                    feeder.abort();
                }
            }
        }
    }

    /// The child is reaped: notifies the readers and publishes how it ended.
    async fn gone(&mut self, status: io::Result<ExitStatus>) -> bool {
        use std::os::unix::process::ExitStatusExt;
        if let Some(feeder) = self.feeder.take() {
            feeder.abort();
        }
        let _ = self.exited.send(true);
        if killpg(self.group, None).is_ok()
            && let Err(error) = self.survey(Census::observe_group).await
        {
            tracing::warn!(%error, pid = %self.group, "cannot see the rest of the engine's group");
        }
        let _ = (&mut self.drain).await;
        let stderr_tail = self.stderr.lock().unwrap_or_else(PoisonError::into_inner).text();
        let (code, signal) = match status {
            Ok(status) => (status.code(), status.signal()),
            Err(error) => {
                tracing::debug!(%error, "cannot learn how the engine ended");
                (None, None)
            }
        };
        let _ = self.exit.send(Some(Exit { code, signal, stderr_tail }));
        signal.is_some()
    }

    /// Ends everything of the run that is still alive.
    async fn sweep(&mut self) {
        sweep(&mut self.census).await;
    }

    async fn survey(&mut self, look: fn(&mut Census) -> io::Result<()>) -> io::Result<()> {
        survey(&mut self.census, look).await
    }
}
