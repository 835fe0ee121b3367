//! Keeps a worker's lease, in a task of its own: whatever the worker waits for, beats go on, and its runs are cut when the lease is
//! over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::lease::Lease;
use crate::board::{Board, Held};

/// A worker with a long lease beats as often as this, too: that it is heard shows that submitters can be
/// ([`STEADY`](crate::board::STEADY)).
const LONGEST: Duration = Duration::from_secs(5);

/// The answer to a good beat.
#[derive(Clone)]
pub(super) struct Beat {
    /// When it was sent, by [`Lease::now`].
    pub(super) sent: u64,
    /// What the board says the worker holds.
    pub(super) held: Vec<Held>,
}

/// A worker's beats. They end when it is dropped.
pub(super) struct Pulse {
    /// Fires when the lease is over, by the own clock or by what the board says.
    pub(super) lost: CancellationToken,
    /// To be fired when the worker takes no more jobs; the board is told at once.
    pub(super) draining: CancellationToken,
    /// The newest answer.
    pub(super) answers: watch::Receiver<Option<Beat>>,
    busy: Arc<AtomicU32>,
    task: JoinSet<()>,
}

impl Pulse {
    pub(super) fn start(
        board: Arc<dyn Board>,
        id: String,
        length: Duration,
        lease: Arc<Lease>,
    ) -> Self {
        let (lost, draining) = (CancellationToken::new(), CancellationToken::new());
        let (sender, answers) = watch::channel(None);
        let busy = Arc::new(AtomicU32::new(0));
        let beating = Beating {
            board,
            id,
            length,
            lease: lease.clone(),
            draining: draining.clone(),
            busy: busy.clone(),
            answers: sender,
        };
        let mut task = JoinSet::new();
        let over = lost.clone();
        task.spawn(async move {
            // The own clock goes on while the board does not answer.
            tokio::select! {
                biased;
                () = lease.over() => {}
                () = beating.until_refused() => {}
            }
            over.cancel();
        });
        Self { lost, draining, answers, busy, task }
    }

    /// Says how many jobs run, with the next beat.
    pub(super) fn set_busy(&self, runs: usize) {
        self.busy.store(u32::try_from(runs).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Sends no more beats.
    pub(super) fn stop(&mut self) {
        self.task.abort_all();
    }
}

struct Beating {
    board: Arc<dyn Board>,
    id: String,
    length: Duration,
    lease: Arc<Lease>,
    draining: CancellationToken,
    busy: Arc<AtomicU32>,
    answers: watch::Sender<Option<Beat>>,
}

impl Beating {
    /// Beats on time until the board says that the lease is over.
    async fn until_refused(self) {
        let mut tick = interval((self.length / 6).min(LONGEST));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut said = false;
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = self.draining.cancelled(), if !said => {}
            }
            said = self.draining.is_cancelled();
            let (sent, busy) = (Lease::now(), self.busy.load(Ordering::Relaxed));
            match self.board.beat(&self.id, self.length, busy, said).await {
                Ok(None) => return,
                Ok(Some(held)) => {
                    self.lease.renewed(sent);
                    self.answers.send_replace(Some(Beat { sent, held }));
                }
                Err(error) => tracing::debug!("a beat failed: {error}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tokio::time::Instant;
    use uuid::Uuid;

    use super::*;
    use crate::board::memory::MemoryBoard;
    use crate::board::{STEADY, WorkerInfo};

    #[tokio::test(start_paused = true)]
    async fn a_worker_with_a_long_lease_is_heard_all_the_time() {
        let (board, length) = (Arc::new(MemoryBoard::new()), Duration::from_hours(1));
        let info = WorkerInfo {
            id: "m1/1".to_owned(),
            machine: "m1".to_owned(),
            instance: Uuid::nil(),
            offers: Vec::new(),
            versions: BTreeMap::new(),
            slots: 1,
        };
        board.register(info, length).await.unwrap();
        let lease = Arc::new(Lease::new(length, Lease::now()));
        let mut pulse = Pulse::start(board, "m1/1".to_owned(), length, lease);
        pulse.answers.changed().await.unwrap();
        let first = Instant::now();
        pulse.answers.changed().await.unwrap();
        assert!(first.elapsed() < STEADY, "{:?}", first.elapsed());
    }
}
