//! The changes on their way to the browsers.
//!
//! Promises:
//! - a browser gets every change, in order;
//! - at most [`MOST`] changes of together [`BYTES`] wait for a browser, or a single one that is longer. A browser that is
//!   further behind gets no more changes, and its connection is closed, which frees what waits: a server does not ask
//!   for more of a stream that its client does not read, so that the stream could not end by itself.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// The most changes that a browser may be behind.
pub(super) const MOST: usize = 1024;
/// The most bytes that it may be behind.
pub(super) const BYTES: usize = 16 << 20;

/// The browsers that watch.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    all: Mutex<Vec<Watcher>>,
}

#[derive(Debug)]
struct Watcher {
    changes: mpsc::Sender<Arc<str>>,
    waiting: Arc<AtomicUsize>,
    /// Closes its connection.
    closing: CancellationToken,
}

/// The changes for one browser.
#[derive(Debug)]
pub(super) struct Changes {
    changes: mpsc::Receiver<Arc<str>>,
    /// How many bytes of them wait.
    waiting: Arc<AtomicUsize>,
}

impl Watchers {
    fn all(&self) -> MutexGuard<'_, Vec<Watcher>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is published from now on. `closing` closes the connection of the browser.
    pub(super) fn watch(&self, closing: CancellationToken) -> Changes {
        let (sender, changes) = mpsc::channel(MOST);
        let waiting = Arc::<AtomicUsize>::default();
        self.all().push(Watcher { changes: sender, waiting: waiting.clone(), closing });
        Changes { changes, waiting }
    }

    /// Their number.
    pub(super) fn count(&self) -> usize {
        let mut all = self.all();
        all.retain(|watcher| !watcher.changes.is_closed());
        all.len()
    }

    pub(super) fn publish(&self, change: &Arc<str>) {
        self.all().retain(|watcher| {
            let is_sent = watcher.send(change);
            if !is_sent {
                watcher.closing.cancel();
            }
            is_sent
        });
    }
}

impl Watcher {
    /// Whether it could take the change.
    fn send(&self, change: &Arc<str>) -> bool {
        let before = self.waiting.fetch_add(change.len(), Ordering::Relaxed);
        let fits = before == 0 || before + change.len() <= BYTES;
        fits && self.changes.try_send(change.clone()).is_ok()
    }
}

impl Changes {
    /// The next change; `None` behind the last one, if the browser was too far behind.
    pub(super) async fn next(&mut self) -> Option<Arc<str>> {
        let change = self.changes.recv().await?;
        self.waiting.fetch_sub(change.len(), Ordering::Relaxed);
        Some(change)
    }
}
