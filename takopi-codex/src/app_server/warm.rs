//! Sessions kept warm between two runs.
//!
//! While a server has a thread loaded it holds codex's own writer, so the session is leased from
//! other processes as long as it is kept. A keeper looks after each kept session: when the lease is
//! wanted, when its time is over, when its server is gone, it closes the server and then gives up
//! the lease. A run of the same runner takes the session over instead.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use takopi_core::RunRequest;
use takopi_core::locks::{SessionKey, SessionLease};
use takopi_core::process::{Before, Marked};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::client::{Client, ServerLaunch};
use super::pool::Place;
use super::thread::Thread;

/// How often a keeper looks whether its session is wanted.
const LOOK: Duration = Duration::from_millis(200);
/// How long a session that was handed over may wait for its run.
const HANDED_OVER: Duration = Duration::from_secs(5);

/// A session with its server.
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) launch: ServerLaunch,
    pub(super) thread: Thread,
    /// Settings it was given, which hold until others are given.
    pub(super) settings: Settings,
    /// When the run that has it now began: what was started before is none of its business.
    pub(super) before: Before,
    /// Its place on a shared server and its commands there, if that is where it runs.
    pub(super) place: Option<(Place, Marked)>,
}

/// What a request may set for a session, and what then holds for its later turns too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Settings {
    model: Option<String>,
    effort: Option<String>,
    sandbox: Option<String>,
}

impl Settings {
    pub(super) fn of(request: &RunRequest) -> Self {
        Self {
            model: request.settings.model.clone(),
            effort: request.settings.effort.clone(),
            sandbox: request.settings.sandbox.clone(),
        }
    }

    /// Whether a session with these settings serves a request for `wanted`: what was set must be set
    /// again, because nothing takes it back but loading the session anew.
    pub(super) fn serve(&self, wanted: &Self) -> bool {
        let fits =
            |set: &Option<String>, wanted: &Option<String>| set.is_none() || wanted.is_some();
        fits(&self.model, &wanted.model)
            && fits(&self.effort, &wanted.effort)
            && fits(&self.sandbox, &wanted.sandbox)
    }
}

struct Kept {
    session: Session,
    /// Gone once it was handed over to a run that has not come yet.
    lease: Option<SessionLease>,
    until: Instant,
    /// Tells a keeper whether this is still its session.
    number: u64,
}

/// The sessions a runner keeps.
#[derive(Clone, Default)]
pub(super) struct Warm {
    state: Arc<Mutex<State>>,
    /// What is being closed behind a run.
    closing: TaskTracker,
}

#[derive(Default)]
struct State {
    kept: HashMap<SessionKey, Kept>,
    next_number: u64,
    /// Nothing is kept any more.
    closed: bool,
}

impl Warm {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a session for a while, or closes it if that is no time. Must be called on takopi's supervisor, as engines are.
    pub(super) fn keep(
        &self,
        key: SessionKey,
        session: Session,
        lease: Option<SessionLease>,
        time: Duration,
    ) {
        let until = Instant::now() + time;
        let mut state = self.state();
        state.next_number += 1;
        let number = state.next_number;
        let kept = Kept { session, lease, until, number };
        if time.is_zero() || state.closed {
            drop(state);
            tokio::spawn(self.closing.track_future(close(kept)));
            return;
        }
        state.kept.insert(key.clone(), kept);
        drop(state);
        tokio::spawn(self.clone().look_after(key, number));
    }

    /// Hands over the lease of a session; one that is wanted elsewhere is given up instead.
    pub(super) fn take_lease(&self, key: &SessionKey) -> Option<SessionLease> {
        let mut state = self.state();
        let kept = state.kept.get_mut(key)?;
        if kept.lease.as_ref().is_some_and(SessionLease::is_wanted) {
            // Its keeper will close it in a moment.
            kept.until = Instant::now();
            return None;
        }
        kept.until = Instant::now() + HANDED_OVER;
        kept.lease.take()
    }

    /// Takes the session itself; the caller has its lock.
    pub(super) fn take(&self, key: &SessionKey) -> Option<Session> {
        self.state().kept.remove(key).map(|kept| kept.session)
    }

    /// Closes everything that is kept, and keeps nothing any more.
    pub(super) async fn close_all(&self) {
        let all: Vec<Kept> = {
            let mut state = self.state();
            state.closed = true;
            state.kept.drain().map(|(_, kept)| kept).collect()
        };
        futures::future::join_all(all.into_iter().map(close)).await;
        // Which only means that it can be waited for.
        self.closing.close();
        self.closing.wait().await;
    }

    async fn look_after(self, key: SessionKey, number: u64) {
        loop {
            tokio::time::sleep(LOOK).await;
            let over = {
                let mut state = self.state();
                let Some(kept) = state.kept.get(&key).filter(|kept| kept.number == number) else {
                    return;
                };
                let wanted = kept.lease.as_ref().is_some_and(SessionLease::is_wanted);
                let over =
                    wanted || Instant::now() >= kept.until || kept.session.client.is_closed();
                if over { state.kept.remove(&key) } else { None }
            };
            if let Some(kept) = over {
                return self.closing.track_future(close(kept)).await;
            }
        }
    }
}

/// Closes the server first, so that the session is free when the lease is given up.
async fn close(kept: Kept) {
    kept.session.client.close().await;
    drop(kept.lease);
}
