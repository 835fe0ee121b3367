//! A process that is talked to in lines of JSON, both ways, for longer than one run.
//!
//! What such a process understands is the engine's business. Here is what every client of one needs:
//! the process and its input ([`Peer`]), a sender that ends with it ([`Wire`]), and the requests that
//! wait for their response ([`PendingRequests`]).
//!
//! Promises:
//! - dropping the last handle ends the process and what it started; [`Peer::close`] lets it end by
//!   itself, so that what the agent detached on purpose stays, and [`Peer::close_with_group`] waits for
//!   what it started as parts of itself too;
//! - a second caller of an end waits for the same end;
//! - a sender never keeps the input open.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::Serialize;
use tokio::sync::{oneshot, watch};

use crate::host::Host;
use crate::process::{
    Launch, Output, Process, SpawnError, StartCutoff, Stderr, StdinWriter, group_lives,
};

/// How long the end of stderr is waited for when the output has ended.
const STDERR_WAIT: Duration = Duration::from_secs(5);

/// How long killed processes are waited for.
const KILL_WAIT: Duration = Duration::from_secs(10);

/// How soon it is looked again whether a process group is gone, at first and at the latest.
const LOOK: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(100));

/// A process with an open input. Clones are the same process.
#[derive(Clone)]
pub struct Peer {
    inner: Arc<Inner>,
}

struct Inner {
    /// Its process group.
    group: Option<Pid>,
    process: Mutex<Option<Process>>,
    stdin: Mutex<Option<Arc<StdinWriter>>>,
    stderr: Stderr,
    /// Whether nothing is left of the process.
    gone: watch::Receiver<bool>,
    host: Host,
}

impl Peer {
    /// Starts a process; its input must be [open](crate::process::StdinPlan::Open).
    pub async fn start(host: &Host, launch: Launch) -> Result<(Self, Output), SpawnError> {
        let (mut process, output) = host.start(launch).await?;
        let inner = Inner {
            group: i32::try_from(process.pid()).ok().map(Pid::from_raw),
            stdin: Mutex::new(process.stdin().map(Arc::new)),
            stderr: process.stderr(),
            gone: process.settled(),
            process: Mutex::new(Some(process)),
            host: host.clone(),
        };
        Ok((Self { inner: Arc::new(inner) }, output))
    }

    /// A sender to its input.
    pub fn wire(&self) -> Wire {
        let stdin = self.inner.stdin.lock().unwrap_or_else(PoisonError::into_inner);
        let stdin = stdin.as_ref().map(Arc::downgrade).unwrap_or_default();
        Wire { stdin, host: self.inner.host.clone() }
    }

    /// The end of its stderr. If its output has ended and nobody ended it here, it is given a moment to
    /// exit: its last lines are read after its output.
    pub async fn stderr_tail(&self) -> String {
        let ended_here =
            self.inner.process.lock().unwrap_or_else(PoisonError::into_inner).is_none();
        let limit = if ended_here { Duration::ZERO } else { STDERR_WAIT };
        self.inner.stderr.at_exit(limit).await
    }

    /// Closes its input and waits until it is gone.
    pub async fn close(&self) {
        self.end(Process::finish).await;
    }

    /// Closes its input and waits until it is gone, and everything else in its process group. An adapter may exit before
    /// the agent that it runs, which has the session until then. What is left of the group after `limit` is killed.
    pub async fn close_with_group(&self, limit: Duration) {
        self.close().await;
        let Some(group) = self.inner.group else { return };
        if tokio::time::timeout(limit, until_gone(group)).await.is_err() {
            tracing::warn!(%group, "parts of the engine outlive it; ending them");
            let _ = killpg(group, Signal::SIGKILL);
            // They exit a moment later; on a busy machine much later.
            if tokio::time::timeout(KILL_WAIT, until_gone(group)).await.is_err() {
                tracing::warn!(%group, "parts of the engine cannot be killed");
            }
        }
    }

    /// Ends it and everything that came of it but what was started before `spared`, and waits until
    /// nothing is left.
    pub async fn kill_sparing(&self, spared: StartCutoff) {
        self.end(|process| drop(process.stop_sparing(spared))).await;
    }

    /// Ends the process, unless that has begun already, and waits until it is gone.
    async fn end(&self, end: impl FnOnce(Process)) {
        let stdin = self.inner.stdin.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(stdin);
        let process = self.inner.process.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(process) = process {
            end(process);
        }
        let _ = self.inner.gone.clone().wait_for(|gone| *gone).await;
    }
}

/// Waits until no member of a process group lives.
async fn until_gone(group: Pid) {
    let (mut pause, longest) = LOOK;
    // A process table that cannot be read shows nothing: this process may be out of descriptors.
    while group_lives(group).unwrap_or(true) {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(longest);
    }
}

/// Sends lines for as long as the peer's input is open.
#[derive(Clone)]
pub struct Wire {
    stdin: Weak<StdinWriter>,
    host: Host,
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wire")
    }
}

impl Wire {
    /// Sends a message; `false` if the process no longer reads.
    pub async fn send(&self, message: &impl Serialize) -> bool {
        match line_of(message) {
            Some(line) => self.write(line).await,
            None => false,
        }
    }

    /// Sends a message in the background, from where nothing can be waited for.
    pub fn send_soon(self, message: &impl Serialize) {
        let Some(line) = line_of(message) else { return };
        let host = self.host.clone();
        host.track(async move {
            self.write(line).await;
        });
    }

    async fn write(&self, line: Vec<u8>) -> bool {
        match self.stdin.upgrade() {
            Some(stdin) => stdin.write(line).await,
            None => false,
        }
    }
}

fn line_of(message: &impl Serialize) -> Option<Vec<u8>> {
    let mut line = serde_json::to_vec(message).ok()?;
    line.push(b'\n');
    Some(line)
}

/// Requests of ours whose responses are still to come, each with a tag of the client's own.
///
/// ```
/// use takopi_core::peer::PendingRequests;
///
/// let mut pending = PendingRequests::<u32, &str>::default();
/// let response = pending.register(1, ()).unwrap();
/// let (caller, ()) = pending.take(&1).unwrap();
/// caller.send("pong").unwrap();
/// assert_eq!(response.blocking_recv().unwrap(), "pong");
/// pending.close();
/// assert!(pending.register(2, ()).is_none());
/// ```
#[derive(Debug)]
pub struct PendingRequests<Id, Response, Tag = ()> {
    /// `None` once the peer is gone.
    callers: Option<HashMap<Id, (oneshot::Sender<Response>, Tag)>>,
}

impl<Id, Response, Tag> Default for PendingRequests<Id, Response, Tag> {
    fn default() -> Self {
        Self { callers: Some(HashMap::new()) }
    }
}

impl<Id: Eq + Hash, Response, Tag> PendingRequests<Id, Response, Tag> {
    /// Registers a request and returns its response to come; `None` if the peer is gone.
    pub fn register(&mut self, id: Id, tag: Tag) -> Option<oneshot::Receiver<Response>> {
        let (caller, response) = oneshot::channel();
        self.callers.as_mut()?.insert(id, (caller, tag));
        Some(response)
    }

    /// The caller of a request, who no longer waits. `None` for a response that nobody waits for.
    pub fn take(&mut self, id: &Id) -> Option<(oneshot::Sender<Response>, Tag)> {
        self.callers.as_mut()?.remove(id)
    }

    /// The ids of the requests that wait.
    pub fn ids(&self) -> impl Iterator<Item = &Id> {
        self.callers.iter().flat_map(HashMap::keys)
    }

    /// The peer is gone: every request fails, and every later one.
    pub fn close(&mut self) {
        self.callers = None;
    }

    /// Whether the peer is gone.
    pub fn is_closed(&self) -> bool {
        self.callers.is_none()
    }
}
