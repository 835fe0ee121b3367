//! One server of a keeper, and the sessions it has loaded.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::{KeeperLimits, Server};
use crate::host::Host;
use crate::locks::{SessionKey, SessionLease};

/// What becomes of a server. Only forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    /// It gets no further run, and is closed when those it has are over.
    Draining,
    Closing,
}

/// The holder of the lease of a session that is loaded and not run.
pub(super) enum Custody {
    /// The keeper; `None` if no other process can reach the session.
    Keeper(Option<SessionLease>),
    /// A run that must ask for the session by this moment.
    HandedOver { until: Instant },
    /// A run that has asked for the session and waits for a seat.
    Awaited,
}

/// A session that is loaded and not run.
pub(super) struct Kept<T> {
    pub(super) session: T,
    pub(super) custody: Custody,
}

pub(super) struct Slot<S: Server> {
    pub(super) number: u64,
    pub(super) host: Host,
    pub(super) server: Arc<S>,
    pub(super) phase: Phase,
    pub(super) running: usize,
    pub(super) sessions: HashMap<SessionKey, Kept<S::Session>>,
    /// How many sessions are loaded that no run will ask for again.
    pub(super) spent: usize,
    /// Sessions of the runs on the server, and those that a run has left in an unknown state. No other
    /// server may load them.
    pub(super) in_use: Vec<SessionKey>,
    /// Leases of sessions that were left in an unknown state.
    pub(super) orphaned: Vec<SessionLease>,
    /// When the last run left.
    pub(super) idle_since: Instant,
}

impl<S: Server> Slot<S> {
    pub(super) fn new(number: u64, host: Host, server: Arc<S>) -> Self {
        Self {
            number,
            host,
            server,
            phase: Phase::Open,
            running: 0,
            sessions: HashMap::new(),
            spent: 0,
            in_use: Vec::new(),
            orphaned: Vec::new(),
            idle_since: Instant::now(),
        }
    }

    /// Whether the server has the session loaded, or may have.
    pub(super) fn has(&self, key: &SessionKey) -> bool {
        self.sessions.contains_key(key) || self.in_use.contains(key)
    }

    /// A run no longer uses the session, and left it in a known state.
    pub(super) fn finish_use(&mut self, key: Option<&SessionKey>) {
        let found = self.in_use.iter().position(|used| Some(used) == key);
        if let Some(found) = found {
            self.in_use.swap_remove(found);
        }
    }

    pub(super) fn drain(&mut self) {
        if self.phase == Phase::Open {
            self.phase = Phase::Draining;
        }
    }

    /// Whether a session that is not loaded here can be.
    pub(super) fn has_room(&self, limits: &KeeperLimits) -> bool {
        self.phase == Phase::Open
            && self.running < limits.running
            && self.sessions.len() + self.spent + self.running < limits.loaded
    }

    /// Whether it has no room, and nothing that is worth keeping.
    pub(super) fn is_spent(&self, limits: &KeeperLimits) -> bool {
        self.sessions.is_empty() && self.spent >= limits.loaded
    }

    /// Whether no run is on its way to one of the sessions.
    pub(super) fn is_expendable(&self) -> bool {
        self.sessions.values().all(|kept| matches!(kept.custody, Custody::Keeper(_)))
    }

    /// Whether the server is dead, a session is wanted elsewhere, or a run did not come for one.
    pub(super) fn must_drain(&self, now: Instant) -> bool {
        self.server.is_closed()
            || self.sessions.values().any(|kept| match &kept.custody {
                Custody::Keeper(lease) => lease.as_ref().is_some_and(SessionLease::is_wanted),
                Custody::HandedOver { until } => now >= *until,
                Custody::Awaited => false,
            })
    }
}
