//! Many sessions on few processes, for batches.
//!
//! A server is fast while few of its threads are busy, and grows with every thread it has loaded.
//! So each has a bound on both; one that is full is drained and replaced. A server is never closed
//! under a run. A finished session stays leased while its thread is loaded, because the server
//! still holds codex's writer; when somebody else wants the session, its server is drained.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use takopi_core::Host;
use takopi_core::locks::{SessionKey, SessionLease};
use takopi_core::process::Marked;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::client::{Client, ServerLaunch};
use super::error::ClientError;
use super::thread::Thread;
use super::warm::Settings;

/// How often a server's keeper looks at it.
const LOOK: Duration = Duration::from_millis(200);

/// How much a pool of shared app-servers takes on.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct PoolLimits {
    /// Sessions that run at once on one process. Beyond some sixteen codex gets slow.
    pub busy: usize,
    /// Sessions one process has loaded before it is replaced.
    pub loaded: usize,
    /// Processes. Who comes when all are busy, waits.
    pub processes: usize,
    /// How long the consumer of a run may take nothing while there is something to take, before the
    /// run is ended (`consumer_stalled`): others wait for its place.
    pub patience: Duration,
}

impl Default for PoolLimits {
    fn default() -> Self {
        Self { busy: 12, loaded: 60, processes: 8, patience: Duration::from_secs(30) }
    }
}

impl PoolLimits {
    /// Bounds of one's own; none of them is less than one.
    pub fn new(busy: usize, loaded: usize, processes: usize) -> Self {
        Self {
            busy: busy.max(1),
            loaded: loaded.max(1),
            processes: processes.max(1),
            ..Self::default()
        }
    }

    /// Sets [`Self::patience`].
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }
}

/// A thread that a server has loaded and nobody runs.
struct Loaded {
    thread: Thread,
    settings: Settings,
    commands: Marked,
    lease: Option<SessionLease>,
}

struct Server {
    number: u64,
    client: Client,
    launch: ServerLaunch,
    busy: usize,
    threads: HashMap<SessionKey, Loaded>,
    /// Sessions whose writer the server may still hold, though nobody can run them here.
    lost: Vec<SessionLease>,
    /// No new session is put on it; it is closed when nobody runs on it.
    draining: bool,
    idle_since: Instant,
}

impl Server {
    fn is_full(&self, limits: &PoolLimits) -> bool {
        self.busy >= limits.busy || self.threads.len() + self.busy >= limits.loaded
    }

    fn is_wanted(&self) -> bool {
        let mut leases = self.threads.values().filter_map(|loaded| loaded.lease.as_ref());
        leases.any(SessionLease::is_wanted)
    }
}

#[derive(Default)]
struct State {
    servers: Vec<Server>,
    starting: usize,
    next_number: u64,
    closed: bool,
}

/// The servers of a runner.
#[derive(Clone)]
pub(super) struct Pool {
    limits: PoolLimits,
    /// How long an idle server is kept.
    keep: Duration,
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
    /// What is being closed.
    closing: TaskTracker,
}

/// A place on a server. Dropped without [`Place::release`], it drains the server: nobody knows what
/// is left of its run.
pub(super) struct Place {
    pool: Pool,
    number: u64,
    pub(super) client: Client,
    /// The session's thread and its commands, if the server has it loaded.
    pub(super) thread: Option<(Thread, Marked)>,
    released: bool,
}

/// What to do for somebody who wants a place.
enum Next {
    Take(Box<Place>),
    Start,
    Close(Box<Server>),
    Wait,
}

impl Pool {
    pub(super) fn new(limits: PoolLimits, keep: Duration) -> Self {
        Self {
            limits,
            keep,
            state: Arc::default(),
            changed: Arc::default(),
            closing: TaskTracker::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn patience(&self) -> Duration {
        self.limits.patience
    }

    /// A place for a session: where its thread is loaded, else where there is room.
    pub(super) async fn place(
        &self,
        host: &Host,
        key: Option<&SessionKey>,
        launch: &ServerLaunch,
        settings: &Settings,
    ) -> Result<Place, ClientError> {
        loop {
            // Before the look, so that no change is missed.
            let changed = self.changed.notified();
            match self.next(key, launch, settings) {
                Next::Take(place) => return Ok(*place),
                Next::Start => {
                    // A task of its own: a server that is being started is of use to others, whatever
                    // becomes of whoever asked for it.
                    let start = self.clone().start(host.clone(), launch.clone());
                    if let Ok(started) = tokio::spawn(start).await {
                        started?;
                    }
                }
                Next::Close(server) => close(*server).await,
                Next::Wait => changed.await,
            }
        }
    }

    fn next(&self, key: Option<&SessionKey>, launch: &ServerLaunch, settings: &Settings) -> Next {
        let limits = self.limits;
        let mut state = self.state();
        let at = key.and_then(|key| {
            state.servers.iter().position(|server| server.threads.contains_key(key))
        });
        if let (Some(key), Some(at)) = (key, at) {
            let server = &mut state.servers[at];
            let serves = server.launch == *launch
                && server.threads.get(key).is_some_and(|loaded| loaded.settings.serve(settings));
            if !serves || server.client.is_closed() {
                // Nobody else can have the session before this server is gone.
                server.draining = true;
            }
            if server.draining || server.busy >= limits.busy {
                return Next::Wait;
            }
            let loaded = server.threads.remove(key);
            let thread = loaded.map(|loaded| (loaded.thread, loaded.commands));
            return Next::Take(Box::new(self.seat(server, thread)));
        }
        let roomy = state.servers.iter_mut().filter(|server| {
            !server.draining
                && !server.client.is_closed()
                && !server.is_full(&limits)
                && server.launch == *launch
        });
        if let Some(server) = roomy.min_by_key(|server| server.busy) {
            return Next::Take(Box::new(self.seat(server, None)));
        }
        if state.starting > 0 {
            // One at a time: it may have room for whoever waits, and several that start at once in a
            // new CODEX_HOME trip over each other.
            return Next::Wait;
        }
        if state.servers.len() < limits.processes {
            state.starting += 1;
            return Next::Start;
        }
        match state.servers.iter().position(|server| server.busy == 0) {
            Some(idle) => Next::Close(Box::new(state.servers.swap_remove(idle))),
            None => Next::Wait,
        }
    }

    fn seat(&self, server: &mut Server, thread: Option<(Thread, Marked)>) -> Place {
        server.busy += 1;
        Place {
            pool: self.clone(),
            number: server.number,
            client: server.client.clone(),
            thread,
            released: false,
        }
    }

    async fn start(self, host: Host, launch: ServerLaunch) -> Result<(), ClientError> {
        let starting = Starting { pool: &self };
        let client = Client::start(&host, &launch).await?;
        let number = {
            let mut state = self.state();
            state.next_number += 1;
            let number = state.next_number;
            state.servers.push(Server {
                number,
                client,
                launch,
                busy: 0,
                threads: HashMap::new(),
                lost: Vec::new(),
                draining: false,
                idle_since: Instant::now(),
            });
            number
        };
        drop(starting);
        tokio::spawn(self.clone().look_after(number));
        Ok(())
    }

    /// Hands over the lease of a session; one that is wanted elsewhere is given up instead.
    pub(super) fn take_lease(&self, key: &SessionKey) -> Option<SessionLease> {
        let mut state = self.state();
        let server = state.servers.iter_mut().find(|server| server.threads.contains_key(key))?;
        let loaded = server.threads.get_mut(key)?;
        if loaded.lease.as_ref().is_some_and(SessionLease::is_wanted) {
            server.draining = true;
            return None;
        }
        loaded.lease.take()
    }

    /// Closes every server that nobody runs on, and the others when their runs are over.
    pub(super) async fn close_all(&self) {
        let idle: Vec<Server> = {
            let mut state = self.state();
            state.closed = true;
            let (idle, busy): (Vec<_>, Vec<_>) =
                state.servers.drain(..).partition(|server| server.busy == 0);
            state.servers = busy;
            idle
        };
        futures::future::join_all(idle.into_iter().map(close)).await;
        // Which only means that it can be waited for.
        self.closing.close();
        self.closing.wait().await;
    }

    async fn look_after(self, number: u64) {
        loop {
            tokio::time::sleep(LOOK).await;
            let over = {
                let mut state = self.state();
                let closed = state.closed;
                let Some(index) = state.servers.iter().position(|server| server.number == number)
                else {
                    return;
                };
                let server = &mut state.servers[index];
                if server.is_wanted() || server.client.is_closed() || closed {
                    server.draining = true;
                }
                let now = Instant::now();
                let tired = now.saturating_duration_since(server.idle_since) >= self.keep;
                let over = server.busy == 0 && (server.draining || tired);
                over.then(|| state.servers.swap_remove(index))
            };
            if let Some(server) = over {
                self.closing.track_future(close(server)).await;
                self.changed.notify_waiters();
                return;
            }
        }
    }
}

impl Place {
    /// The run is over and the thread stays loaded.
    pub(super) fn release(
        mut self,
        key: SessionKey,
        session: (Thread, Settings),
        commands: Marked,
        lease: Option<SessionLease>,
    ) {
        let (thread, settings) = session;
        self.leave(|server, limits| {
            server.threads.insert(key, Loaded { thread, settings, commands, lease });
            if server.threads.len() >= limits.loaded {
                server.draining = true;
            }
        });
    }

    /// Nothing of the session came to be on the server.
    pub(super) fn vacate(mut self) {
        self.leave(|_, _| {});
    }

    /// Whether the session came to be on the server is not known: nobody gets it before the server is
    /// gone, which waits for its neighbours.
    pub(super) fn abandon(mut self, lease: Option<SessionLease>) {
        self.leave(|server, _| {
            server.lost.extend(lease);
            server.draining = true;
        });
    }

    fn leave(&mut self, change: impl FnOnce(&mut Server, &PoolLimits)) {
        self.released = true;
        let limits = self.pool.limits;
        let mut state = self.pool.state();
        let server = state.servers.iter_mut().find(|server| server.number == self.number);
        if let Some(server) = server {
            server.busy = server.busy.saturating_sub(1);
            server.idle_since = Instant::now();
            change(server, &limits);
        }
        drop(state);
        self.pool.changed.notify_waiters();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.released {
            self.leave(|server, _| server.draining = true);
        }
    }
}

/// Counts a server that is being started, however that ends.
struct Starting<'a> {
    pool: &'a Pool,
}

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        self.pool.state().starting -= 1;
        self.pool.changed.notify_waiters();
    }
}

/// Closes the server first, so that its sessions are free when the leases are given up.
async fn close(server: Server) {
    server.client.close().await;
    drop((server.threads, server.lost));
}
