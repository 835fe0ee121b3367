//! Gates: points at which a scripted answer stops until the test opens the gate.
//!
//! A gate belongs to no runtime: the model server waits at it on its own thread while the test, sync or async, with a
//! running or a paused clock, waits for the arrival and opens it. Once open it stays open. Clones are the same gate.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

use super::deadline::{PATIENCE, within};

/// A point in an answer that is passed only after [`Gate::open`].
#[derive(Clone)]
pub struct Gate(Arc<Inner>);

struct Inner {
    open: watch::Sender<bool>,
    arrivals: watch::Sender<usize>,
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self(Arc::new(Inner { open: watch::Sender::new(false), arrivals: watch::Sender::new(0) }))
    }

    /// Lets through everything that waits here now or comes later.
    pub fn open(&self) {
        self.0.open.send_replace(true);
    }

    /// Waits until an answer has come to this gate, that is, until codex has called and is being kept waiting.
    ///
    /// Panics after [`PATIENCE`] of real time.
    pub async fn reached(&self) {
        self.reached_by(1).await;
    }

    /// Waits until `count` answers have come to this gate, counting those already let through.
    ///
    /// Panics after [`PATIENCE`] of real time.
    pub async fn reached_by(&self, count: usize) {
        let mut arrivals = self.0.arrivals.subscribe();
        let arrived = arrivals.wait_for(|arrived| *arrived >= count);
        let what = format!("{count} answer(s) at a gate");
        let _ = within(PATIENCE, &what, arrived).await;
    }

    /// How many answers have come to this gate so far.
    pub fn arrivals(&self) -> usize {
        *self.0.arrivals.borrow()
    }

    pub(super) async fn pass(&self) {
        let mut open = self.0.open.subscribe();
        self.0.arrivals.send_modify(|arrived| *arrived += 1);
        // The sender lives in `self`, so this ends only by opening.
        let _ = open.wait_for(|open| *open).await;
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("open", &*self.0.open.borrow())
            .field("arrivals", &self.arrivals())
            .finish()
    }
}
