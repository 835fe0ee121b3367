//! What a run has of a keeper: a seat on a server, or the permit to start one.

use std::sync::Arc;

use super::slot::{Custody, Kept, Slot};
use super::{Keeper, Server};
use crate::host::Host;
use crate::locks::{SessionKey, SessionLease};

/// Where a seat that is dropped gets the lease of its session from.
type LeaseSource = Box<dyn FnOnce() -> Option<SessionLease> + Send>;

/// A run's place on a server. Dropped, it is [abandoned](Seat::abandon): it is unknown what the run
/// has left there.
#[must_use = "the server is drained when the seat is dropped"]
pub struct Seat<S: Server> {
    keeper: Keeper<S>,
    number: u64,
    server: Arc<S>,
    key: Option<SessionKey>,
    session: Option<S::Session>,
    lease: Option<LeaseSource>,
    left: bool,
}

impl<S: Server> Seat<S> {
    pub(super) fn new(
        keeper: Keeper<S>,
        number: u64,
        server: Arc<S>,
        key: Option<SessionKey>,
        session: Option<S::Session>,
    ) -> Self {
        Self { keeper, number, server, key, session, lease: None, left: false }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The server.
    pub fn server(&self) -> &Arc<S> {
        &self.server
    }

    /// The session, if the server has it loaded; once.
    pub fn take_session(&mut self) -> Option<S::Session> {
        self.session.take()
    }

    /// Names the session that the run has begun on the server.
    pub fn begun(&mut self, key: SessionKey) {
        if self.key.is_none() {
            self.key = Some(key.clone());
            self.keeper.change(self.number, |slot| slot.in_use.push(key));
        }
    }

    /// Where the lease of the session comes from if the seat is dropped. The lease must outlive the
    /// run then, because the server may still write to the session.
    pub fn lease_from(&mut self, lease: impl FnOnce() -> Option<SessionLease> + Send + 'static) {
        self.lease = Some(Box::new(lease));
    }

    /// The run is over and its session stays loaded, kept from others by its lease.
    pub fn release(mut self, key: SessionKey, session: S::Session, lease: Option<SessionLease>) {
        let kept = Kept { session, custody: Custody::Keeper(lease.map(SessionLease::owned)) };
        let used = self.key.take();
        self.leave(|slot| {
            slot.finish_use(used.as_ref());
            slot.sessions.insert(key, kept);
        });
    }

    /// The run is over and its session stays loaded, but no run can ask for it again: it is not stored. A server that is full
    /// of such sessions is closed.
    pub fn spend(mut self) {
        let used = self.key.take();
        self.leave(|slot| {
            slot.finish_use(used.as_ref());
            slot.spent += 1;
        });
    }

    /// Nothing of the session came to be on the server.
    pub fn vacate(mut self) {
        let used = self.key.take();
        self.leave(|slot| slot.finish_use(used.as_ref()));
    }

    /// The server is of no further use, or may have the session in an unknown state. It is closed when
    /// the other runs on it are over; the lease is held until then, and no other server gets the
    /// session.
    pub fn abandon(mut self, lease: Option<SessionLease>) {
        self.give_up(lease);
    }

    fn give_up(&mut self, lease: Option<SessionLease>) {
        self.leave(|slot| {
            slot.orphaned.extend(lease.map(SessionLease::owned));
            slot.drain();
        });
    }

    fn leave(&mut self, change: impl FnOnce(&mut Slot<S>)) {
        self.left = true;
        self.keeper.leave(self.number, change);
    }
}

impl<S: Server> Drop for Seat<S> {
    fn drop(&mut self) {
        if !self.left {
            let lease = self.lease.take().and_then(|lease| lease());
            self.give_up(lease);
        }
    }
}

/// The right to start a server. Dropped, it goes to the next run that needs one.
#[must_use = "others wait for the server that is to be started"]
pub struct StartPermit<S: Server> {
    pub(super) keeper: Keeper<S>,
    /// The session that the server is started for.
    pub(super) key: Option<SessionKey>,
}

impl<S: Server> StartPermit<S> {
    /// The server is there: the keeper's from now on, with a seat for the run.
    pub fn started(mut self, host: &Host, server: S) -> Seat<S> {
        let key = self.key.take();
        self.keeper.add(host, server, key)
    }
}

impl<S: Server> Drop for StartPermit<S> {
    fn drop(&mut self) {
        self.keeper.state().starting -= 1;
        self.keeper.inner.changed.send_replace(());
    }
}
