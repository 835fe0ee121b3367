//! A run that needs a seat and may have to wait for it.

use tokio::sync::watch;
use tokio::time::Instant;

use super::slot::Custody;
use super::{Keeper, Offer, Server};
use crate::locks::SessionKey;

/// Why a run gets no server now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Blocked {
    /// The session is on a server that is drained, and other runs are on it. How long they take is
    /// unknown.
    Session,
    /// A server must be started, get room, or end first.
    Room,
}

/// A run that needs a seat. Dropped, it no longer waits for its session, and should soon drop the lease if
/// it was handed one: the server of a session without a lease is drained.
pub struct Waiter<'a, S: Server> {
    keeper: &'a Keeper<S>,
    key: Option<&'a SessionKey>,
    changes: watch::Receiver<()>,
}

impl<'a, S: Server> Waiter<'a, S> {
    pub(super) fn new(keeper: &'a Keeper<S>, key: Option<&'a SessionKey>) -> Self {
        let waiter = Self { keeper, key, changes: keeper.inner.changed.subscribe() };
        waiter.change(|custody| {
            if matches!(custody, Custody::HandedOver { .. }) {
                *custody = Custody::Awaited;
            }
        });
        waiter
    }

    /// A seat for the run, or the permit to start a server for it.
    ///
    /// If the session is loaded, its seat is there; if that server does not fit any more, it is closed
    /// first. `fits` decides by the server, and by the session if it is loaded there.
    pub fn try_offer(
        &mut self,
        fits: impl Fn(&S, Option<&S::Session>) -> bool,
    ) -> Result<Offer<S>, Blocked> {
        // Before the look, so that no change is missed.
        self.changes.mark_unchanged();
        self.keeper.look(self.key, &fits)
    }

    /// Waits until [`Self::try_offer`] may come to something else. Cancel-safe.
    pub async fn changed(&mut self) {
        // The sender lives as long as the keeper.
        let _ = self.changes.changed().await;
    }

    fn change(&self, change: impl FnOnce(&mut Custody)) {
        let Some(key) = self.key else { return };
        let mut state = self.keeper.state();
        let kept = state.slot_of(key).and_then(|slot| slot.sessions.get_mut(key));
        if let Some(kept) = kept {
            change(&mut kept.custody);
        }
    }
}

impl<S: Server> Drop for Waiter<'_, S> {
    fn drop(&mut self) {
        self.change(|custody| {
            if matches!(custody, Custody::Awaited) {
                *custody = Custody::HandedOver { until: Instant::now() };
            }
        });
    }
}
