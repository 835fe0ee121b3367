//! The app-servers that the engine keeps, and the threads they have loaded.
//!
//! The keeping itself is [`takopi_core::keeper`]'s. Codex's part is what a server is (a client and the
//! launch it came from), what a session is (a thread with the settings it was given), and when they
//! suit a run. While a server has a thread loaded it holds codex's own writer of that session, and
//! only closing the server frees it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use takopi_core::Host;
use takopi_core::keeper::{Keeper, KeeperLimits, Seat, Server, StartPermit};
use takopi_core::process::MarkedProcesses;
use tokio::sync::oneshot;

use super::client::{Client, ServerLaunch};
use super::error::ClientError;
use super::settings::SessionSettings;
use super::thread::Thread;

/// How much a pool of shared app-servers takes on.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct PoolLimits {
    /// Sessions that run at once on one process. Beyond some sixteen codex gets slow.
    pub busy: usize,
    /// Sessions one process has loaded before others are put on another process: it grows with each.
    pub loaded: usize,
    /// Processes. A run that finds all of them busy waits.
    pub processes: usize,
    /// How long the consumer of a run may take nothing while there are events, before the run is ended
    /// (`consumer_stalled`): other runs wait for its place.
    pub patience: Duration,
    /// How long a process may take to begin and end a turn that was cancelled, before it counts as broken and is
    /// replaced; 30 s at the most. With 50 turns at once codex takes 16 s for it.
    pub response: Duration,
}

impl Default for PoolLimits {
    fn default() -> Self {
        let limit = Duration::from_secs(30);
        Self { busy: 12, loaded: 60, processes: 8, patience: limit, response: limit }
    }
}

impl PoolLimits {
    /// Custom limits; none of them is less than one.
    pub fn new(busy: usize, loaded: usize, processes: usize) -> Self {
        Self {
            busy: busy.max(1),
            loaded: loaded.max(1),
            processes: processes.max(1),
            ..Self::default()
        }
    }

    /// Sets [`Self::response`].
    pub fn response(mut self, response: Duration) -> Self {
        self.response = response;
        self
    }

    /// Sets [`Self::patience`].
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }
}

/// The keeper of an engine: a pool, or a server for each session.
pub(super) fn keeper(pool: Option<PoolLimits>, keep_warm: Duration) -> Keeper<AppServer> {
    Keeper::new(match pool {
        Some(PoolLimits { busy, loaded, processes, .. }) => {
            KeeperLimits::shared(busy, loaded, processes, keep_warm)
        }
        None => KeeperLimits::one_session(keep_warm),
    })
}

/// A server and what it was started with.
pub(super) struct AppServer {
    pub(super) client: Client,
    pub(super) launch: ServerLaunch,
}

/// A thread that a server has loaded.
pub(super) struct LoadedThread {
    pub(super) thread: Thread,
    /// What it was given, which holds until something else is given.
    pub(super) settings: SessionSettings,
    /// Whether a turn was asked to work elsewhere than where codex opened the thread.
    pub(super) moved: bool,
    /// Finds the commands of this thread among those of a shared server.
    pub(super) commands: Option<MarkedProcesses>,
}

impl LoadedThread {
    /// The thread for a turn in this directory.
    pub(super) fn in_directory(mut self, directory: &Path) -> Self {
        self.moved |= self.thread.cwd().map(Path::new) != Some(directory);
        self
    }
}

impl Server for AppServer {
    type Session = LoadedThread;

    fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    fn close(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move { self.client.close().await })
    }
}

impl AppServer {
    /// Whether a run with this launch and these settings can go on with the thread, or begin one.
    pub(super) fn fits(
        &self,
        loaded: Option<&LoadedThread>,
        launch: &ServerLaunch,
        settings: &SessionSettings,
    ) -> bool {
        self.launch == *launch && loaded.is_none_or(|loaded| loaded.settings.serve(settings))
    }
}

/// Starts a shared server in the background: it is of use to others, whatever becomes of the run that
/// needs it first. A shutdown does not wait for one that starts slowly.
pub(super) async fn start_shared(
    host: &Host,
    keeper: &Keeper<AppServer>,
    permit: StartPermit<AppServer>,
    launch: ServerLaunch,
) -> Result<Seat<AppServer>, ClientError> {
    let (mut sender, started) = oneshot::channel();
    let (on, shutdown) = (host.clone(), keeper.clone());
    keeper.track(host, async move {
        let client = match Client::spawn(&on, &launch).await {
            Ok(client) => client,
            Err(error) => return drop(sender.send(Err(error))),
        };
        // A run that still waits for the server keeps it from being closed.
        let unwanted = async {
            shutdown.shutdown_begun().await;
            sender.closed().await;
        };
        let initialized = tokio::select! {
            biased;
            initialized = client.initialize() => initialized,
            () = unwanted => Err(closed()),
        };
        if let Err(error) = initialized {
            client.kill().await;
            return drop(sender.send(Err(error)));
        }
        let seat = permit.started(&on, AppServer { client, launch });
        if let Err(Ok(unused)) = sender.send(Ok(seat)) {
            unused.vacate();
        }
    });
    started.await.map_err(|_| closed())?
}

fn closed() -> ClientError {
    ClientError::Closed { method: "initialize".to_owned(), stderr_tail: String::new() }
}
