//! Keeps the servers of an engine between runs: processes that have sessions loaded.
//!
//! The bookkeeping is the same for every engine with warm processes: which session is loaded where,
//! where its lease is, which server has room, when one is closed. What a server is, and whether it
//! suits a run, is the engine's business ([`Server`], and the `fits` of [`Keeper::offer`]). A warm
//! process for one session is a server with room for one ([`KeeperLimits::one_session`]); a pool is
//! servers with room for many ([`KeeperLimits::shared`]).
//!
//! Ownership: the keeper owns the servers and the leases of sessions that no run uses. A run has a
//! [`Seat`] on its server, and the session's lock. At its end it gives the session back with the
//! lease ([`Seat::release`]), reports that no run can ask for it again ([`Seat::spend`]), that nothing
//! was loaded ([`Seat::vacate`]), or that the state of the session is unknown ([`Seat::abandon`], and
//! every seat that is dropped). The lease of a run that ends before it has a seat comes back by itself.
//!
//! A server is open, then draining (it gets no further run), then closing. Promises:
//! - a session is on one server at a time: a run that asks for it gets that server, or waits until
//!   that server is gone;
//! - a server is never closed under a run, however long that takes;
//! - a lease is given up only when its server is gone, because the server may still write to the
//!   session;
//! - a session that is wanted elsewhere is given up within a second, if no run is on its server;
//! - no more servers than the limit exist, those that are starting or closing included;
//! - a server that fails to start is the failure of one run; the next that needs one starts another;
//! - closing happens on the host and goes on whatever becomes of the caller.

mod offer;
mod open;
mod seat;
mod slot;
#[cfg(test)]
mod tests;
mod waiter;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::slot::{Custody, Phase, Slot};
use crate::host::Host;
use crate::locks::{LeaseLender, SessionKey, SessionLease};

pub use self::offer::OfferError;
pub use self::open::OpenError;
pub use self::seat::{Seat, StartPermit};
pub use self::waiter::{Blocked, Waiter};

/// How often a server is looked at: whether it is alive, and whether its sessions are wanted.
const LOOK: Duration = Duration::from_millis(200);
/// How long a session whose lease was handed over may wait for its run.
const HANDOVER_LIMIT: Duration = Duration::from_secs(5);

/// A process that can have sessions loaded.
pub trait Server: Send + Sync + 'static {
    /// What is kept of a loaded session between two runs.
    type Session: Send + 'static;

    /// Whether the server is gone.
    fn is_closed(&self) -> bool;

    /// Ends the server. Returns when it is gone and writes to none of its sessions any more.
    fn close(self: Arc<Self>) -> BoxFuture<'static, ()>;
}

/// How many servers there are, and what each of them takes on.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct KeeperLimits {
    /// Runs at once on one server.
    pub running: usize,
    /// Sessions that one server has loaded, those that run included.
    pub loaded: usize,
    /// Servers. A run that finds all of them busy waits.
    pub servers: usize,
    /// Servers that are started at the same time.
    pub starting: usize,
    /// How long a server without a run is kept.
    pub idle: Duration,
}

impl KeeperLimits {
    /// A server for each session, kept for this long after its last run.
    pub fn one_session(idle: Duration) -> Self {
        Self { running: 1, loaded: 1, servers: usize::MAX, starting: usize::MAX, idle }
    }

    /// Many sessions on few servers, which are started one after the other: the first may have room
    /// for all waiting runs. No limit is less than one.
    pub fn shared(running: usize, loaded: usize, servers: usize, idle: Duration) -> Self {
        let (running, loaded, servers) = (running.max(1), loaded.max(1), servers.max(1));
        Self { running, loaded, servers, starting: 1, idle }
    }

    /// Sets [`Self::starting`]; at least one.
    pub fn starting(mut self, starting: usize) -> Self {
        self.starting = starting.max(1);
        self
    }
}

/// What a run gets that needs a server.
pub enum Offer<S: Server> {
    /// A place on a server, with the session if it is loaded there.
    Seat(Seat<S>),
    /// The right to start a server.
    Start(StartPermit<S>),
}

/// The servers of an engine. Clones are the same keeper.
pub struct Keeper<S: Server> {
    inner: Arc<Inner<S>>,
}

struct Inner<S: Server> {
    limits: KeeperLimits,
    state: Mutex<State<S>>,
    /// Changes whenever a waiting run may find something new.
    changed: watch::Sender<()>,
    /// What shutdown waits for: servers that are closing, and tasks of runs that have ended.
    closing: TaskTracker,
    /// Fires when nothing is kept any more.
    shutdown: CancellationToken,
}

struct State<S: Server> {
    slots: Vec<Slot<S>>,
    starting: usize,
    next_number: u64,
    /// Nothing is kept any more.
    shut_down: bool,
}

impl<S: Server> Clone for Keeper<S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<S: Server> Keeper<S> {
    /// A keeper without servers.
    pub fn new(limits: KeeperLimits) -> Self {
        let state = State { slots: Vec::new(), starting: 0, next_number: 0, shut_down: false };
        let closing = TaskTracker::new();
        // Which only means that it can be waited for.
        closing.close();
        let (state, changed) = (Mutex::new(state), watch::Sender::new(()));
        let shutdown = CancellationToken::new();
        Self { inner: Arc::new(Inner { limits, state, changed, closing, shutdown }) }
    }

    /// A seat for a run, or the permit to start a server for it; waits until there is either. See
    /// [`Waiter::try_offer`].
    pub async fn offer(
        &self,
        key: Option<&SessionKey>,
        fits: impl Fn(&S, Option<&S::Session>) -> bool,
    ) -> Offer<S> {
        let mut waiter = self.waiter(key);
        loop {
            match waiter.try_offer(&fits) {
                Ok(offer) => return offer,
                Err(_) => waiter.changed().await,
            }
        }
    }

    /// A run that needs a seat. It holds the lock of the session `key`.
    pub fn waiter<'a>(&'a self, key: Option<&'a SessionKey>) -> Waiter<'a, S> {
        Waiter::new(self, key)
    }

    fn look(
        &self,
        key: Option<&SessionKey>,
        fits: &impl Fn(&S, Option<&S::Session>) -> bool,
    ) -> Result<Offer<S>, Blocked> {
        let limits = self.inner.limits;
        let mut state = self.state();
        let state = &mut *state;
        let shut_down = state.shut_down;
        let loaded = key.and_then(|key| Some((key, state.slot_of(key)?)));
        if let Some((key, slot)) = loaded {
            let kept = slot.sessions.get(key).map(|kept| &kept.session);
            // If it is not kept, an earlier run has left it there in an unknown state.
            let is_kept = kept.is_some();
            if slot.server.is_closed() || (is_kept && !fits(&slot.server, kept)) {
                slot.drain();
            }
            if !is_kept || slot.phase != Phase::Open || slot.running >= limits.running {
                self.review(slot, shut_down);
                let drains = slot.phase == Phase::Draining;
                return Err(if drains { Blocked::Session } else { Blocked::Room });
            }
            let session = slot.sessions.remove(key).map(|kept| kept.session);
            return Ok(Offer::Seat(self.seat(slot, Some(key.clone()), session)));
        }
        let roomy = state.slots.iter_mut().filter(|slot| {
            slot.has_room(&limits) && !slot.server.is_closed() && fits(&slot.server, None)
        });
        if let Some(slot) = roomy.min_by_key(|slot| slot.running) {
            return Ok(Offer::Seat(self.seat(slot, key.cloned(), None)));
        }
        if state.starting >= limits.starting {
            return Err(Blocked::Room);
        }
        if state.slots.len().saturating_add(state.starting) < limits.servers {
            state.starting += 1;
            return Ok(Offer::Start(StartPermit { keeper: self.clone(), key: key.cloned() }));
        }
        // One that is closing makes room already.
        if state.slots.iter().all(|slot| slot.phase != Phase::Closing) {
            let slots = state.slots.iter_mut();
            let idle = slots.filter(|slot| slot.running == 0 && slot.is_expendable());
            if let Some(slot) = idle.min_by_key(|slot| slot.idle_since) {
                self.begin_close(slot);
            }
        }
        Err(Blocked::Room)
    }

    /// A seat for a run with this session, which nobody else may load meanwhile.
    fn seat(
        &self,
        slot: &mut Slot<S>,
        key: Option<SessionKey>,
        session: Option<S::Session>,
    ) -> Seat<S> {
        slot.running += 1;
        slot.in_use.extend(key.clone());
        Seat::new(self.clone(), slot.number, slot.server.clone(), key, session)
    }

    /// Hands over the lease of a session to a run. One that is wanted elsewhere is given up instead.
    /// Dropped before the run has a seat, the lease comes back.
    pub fn take_lease(&self, key: &SessionKey) -> Option<SessionLease> {
        let mut state = self.state();
        let shut_down = state.shut_down;
        let slot = state.slot_of(key).filter(|slot| slot.phase == Phase::Open)?;
        let kept = slot.sessions.get_mut(key)?;
        let Custody::Keeper(lease) = &mut kept.custody else { return None };
        if lease.as_ref().is_some_and(SessionLease::is_wanted) {
            slot.drain();
            self.review(slot, shut_down);
            return None;
        }
        let lease = lease.take()?;
        kept.custody = Custody::HandedOver { until: Instant::now() + HANDOVER_LIMIT };
        Some(lease.lent_by(self.inner.clone(), key.clone()))
    }

    /// Runs a task that still has a seat when its run has ended. [`Self::shutdown`] waits for it, so it
    /// should give up the seat when [`Self::shutdown_begun`] resolves.
    pub fn track(&self, host: &Host, task: impl Future<Output = ()> + Send + 'static) {
        host.track(self.inner.closing.track_future(task));
    }

    /// Resolves when [`Self::shutdown`] is called.
    pub async fn shutdown_begun(&self) {
        self.inner.shutdown.cancelled().await;
    }

    /// Closes every server that nobody runs on and waits until they are gone. The others are closed
    /// when their runs are over. Nothing is kept from here on.
    pub async fn shutdown(&self) {
        {
            let mut state = self.state();
            state.shut_down = true;
            for slot in &mut state.slots {
                self.review(slot, true);
            }
        }
        self.inner.shutdown.cancel();
        self.inner.closing.wait().await;
    }

    fn state(&self) -> MutexGuard<'_, State<S>> {
        self.inner.state()
    }

    fn add(&self, host: &Host, server: S, key: Option<SessionKey>) -> Seat<S> {
        let seat = {
            let mut state = self.state();
            state.next_number += 1;
            let mut slot = Slot::new(state.next_number, host.clone(), Arc::new(server));
            let seat = self.seat(&mut slot, key, None);
            state.slots.push(slot);
            seat
        };
        host.runtime().spawn(self.clone().tend(seat.number()));
        seat
    }

    /// Looks after one server until it is closing.
    async fn tend(self, number: u64) {
        loop {
            tokio::time::sleep(LOOK).await;
            let mut state = self.state();
            let shut_down = state.shut_down;
            let Some(slot) = state.slots.iter_mut().find(|slot| slot.number == number) else {
                return;
            };
            self.review(slot, shut_down);
            if slot.phase == Phase::Closing {
                return;
            }
        }
    }

    /// Decides whether a server goes on.
    fn review(&self, slot: &mut Slot<S>, shut_down: bool) {
        let now = Instant::now();
        if shut_down || slot.must_drain(now) || slot.is_spent(&self.inner.limits) {
            slot.drain();
        }
        let tired = slot.is_expendable()
            && now.saturating_duration_since(slot.idle_since) >= self.inner.limits.idle;
        if slot.running == 0 && (slot.phase == Phase::Draining || tired) {
            self.begin_close(slot);
        }
    }

    /// Closes a server. It stays known until it is gone, so that its sessions go nowhere else.
    fn begin_close(&self, slot: &mut Slot<S>) {
        if slot.phase == Phase::Closing {
            return;
        }
        slot.phase = Phase::Closing;
        let (keeper, number, server) = (self.clone(), slot.number, slot.server.clone());
        let token = self.inner.closing.token();
        slot.host.track(async move {
            server.close().await;
            let gone = {
                let mut state = keeper.state();
                let index = state.slots.iter().position(|slot| slot.number == number);
                index.map(|index| state.slots.swap_remove(index))
            };
            // The leases with it: the sessions are free.
            drop(gone);
            keeper.inner.changed.send_replace(());
            drop(token);
        });
    }

    fn change(&self, number: u64, change: impl FnOnce(&mut Slot<S>)) {
        let mut state = self.state();
        if let Some(slot) = state.slots.iter_mut().find(|slot| slot.number == number) {
            change(slot);
        }
    }

    /// Changes the slot of a run that leaves its seat.
    fn leave(&self, number: u64, change: impl FnOnce(&mut Slot<S>)) {
        {
            let mut state = self.state();
            let shut_down = state.shut_down;
            if let Some(slot) = state.slots.iter_mut().find(|slot| slot.number == number) {
                slot.running = slot.running.saturating_sub(1);
                slot.idle_since = Instant::now();
                change(slot);
                self.review(slot, shut_down);
            }
        }
        self.inner.changed.send_replace(());
    }
}

impl<S: Server> Inner<S> {
    fn state(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Server> LeaseLender for Inner<S> {
    /// The session stays loaded, and its server goes on. A server that is being closed has the lease until
    /// it is gone.
    fn take_back(&self, key: &SessionKey, lease: SessionLease) {
        {
            let mut state = self.state();
            let kept = state.slot_of(key).and_then(|slot| slot.sessions.get_mut(key));
            match kept {
                Some(kept) if !matches!(kept.custody, Custody::Keeper(_)) => {
                    kept.custody = Custody::Keeper(Some(lease));
                }
                _ => return,
            }
        }
        // The server may make room for others again.
        self.changed.send_replace(());
    }
}

impl<S: Server> State<S> {
    /// The server that has the session loaded, whether it is run, kept, or left in an unknown state.
    fn slot_of(&mut self, key: &SessionKey) -> Option<&mut Slot<S>> {
        self.slots.iter_mut().find(|slot| slot.has(key))
    }
}
