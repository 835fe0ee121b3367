//! What a run has of a keeper: a seat on a server, or the permit to start one.

use std::sync::Arc;

use super::slot::{Custody, Kept, Slot};
use super::{Keeper, Server};
use crate::host::Host;
use crate::locks::{SessionKey, SessionLease};

/// A run's place on a server. Dropped, it is [abandoned](Seat::abandon): nobody knows what the run has
/// left there.
#[must_use = "the server is drained when the seat is dropped"]
pub struct Seat<S: Server> {
    keeper: Keeper<S>,
    number: u64,
    server: Arc<S>,
    session: Option<S::Session>,
    left: bool,
}

impl<S: Server> Seat<S> {
    pub(super) fn new(
        keeper: Keeper<S>,
        number: u64,
        server: Arc<S>,
        session: Option<S::Session>,
    ) -> Self {
        Self { keeper, number, server, session, left: false }
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

    /// The run is over and its session stays loaded, kept from others by its lease.
    pub fn release(mut self, key: SessionKey, session: S::Session, lease: Option<SessionLease>) {
        let kept = Kept { session, custody: Custody::Keeper(lease) };
        self.leave(|slot| {
            slot.sessions.insert(key, kept);
        });
    }

    /// Nothing of the session came to be on the server.
    pub fn vacate(mut self) {
        self.leave(|_| {});
    }

    /// The server is of no further use, or may have the session in an unknown state. It is closed when
    /// the other runs on it are over; the lease is held until then.
    pub fn abandon(mut self, lease: Option<SessionLease>) {
        self.leave(|slot| {
            slot.orphaned.extend(lease);
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
            self.leave(Slot::drain);
        }
    }
}

/// The right to start a server. Dropped, it goes to the next run that needs one.
#[must_use = "others wait for the server that is to be started"]
pub struct StartPermit<S: Server> {
    pub(super) keeper: Keeper<S>,
}

impl<S: Server> StartPermit<S> {
    /// The server is there: the keeper's from now on, with a seat for the run.
    pub fn started(self, host: &Host, server: S) -> Seat<S> {
        self.keeper.add(host, server)
    }
}

impl<S: Server> Drop for StartPermit<S> {
    fn drop(&mut self) {
        self.keeper.state().starting -= 1;
        self.keeper.inner.changed.notify_waiters();
    }
}
