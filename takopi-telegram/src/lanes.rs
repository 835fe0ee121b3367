//! Work in lanes: what belongs to one chat is done one after another, in the order it came; chats do not wait
//! for each other.
//!
//! A lane holds a bounded number of things that wait. Closing drops what waits and what is being done.

use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

type Work = BoxFuture<'static, ()>;

/// The lanes of all chats. Clones share them.
#[derive(Clone)]
pub(crate) struct Lanes {
    waiting: Arc<Mutex<HashMap<i64, VecDeque<Work>>>>,
    /// The most that waits in a lane.
    most: usize,
    closed: CancellationToken,
}

impl std::fmt::Debug for Lanes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lanes").field("most", &self.most).finish_non_exhaustive()
    }
}

impl Lanes {
    /// Lanes in which this much can wait.
    pub(crate) fn new(most: usize) -> Self {
        Self { waiting: Arc::default(), most, closed: CancellationToken::new() }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<i64, VecDeque<Work>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does this behind what waits in the lane. `false` if too much waits there: it is dropped.
    pub(crate) fn add(&self, lane: i64, work: impl Future<Output = ()> + Send + 'static) -> bool {
        let mut waiting = self.waiting();
        if let Some(behind) = waiting.get_mut(&lane) {
            let fits = behind.len() < self.most;
            if fits {
                behind.push_back(Box::pin(work));
            }
            return fits;
        }
        waiting.insert(lane, VecDeque::from([Box::pin(work) as Work]));
        tokio::spawn(self.clone().work_off(lane));
        true
    }

    async fn work_off(self, lane: i64) {
        while let Some(work) = self.next(lane) {
            tokio::select! {
                // A panic does not end the lane; the hook of the program reports it.
                _ = AssertUnwindSafe(work).catch_unwind() => {}
                () = self.closed.cancelled() => return,
            }
        }
    }

    fn next(&self, lane: i64) -> Option<Work> {
        let mut waiting = self.waiting();
        let next = waiting.get_mut(&lane)?.pop_front();
        if next.is_none() {
            waiting.remove(&lane);
        }
        next
    }

    /// Stops at once.
    pub(crate) fn close(&self) {
        self.closed.cancel();
        self.waiting().clear();
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::{mpsc, oneshot};

    use super::*;

    #[tokio::test]
    async fn a_lane_keeps_its_order_and_delays_no_other() {
        let lanes = Lanes::new(10);
        let (done, mut order) = mpsc::channel(10);
        let (open, gate) = oneshot::channel::<()>();
        let (first, second, other) = (done.clone(), done.clone(), done);
        lanes.add(1, async move {
            let _ = gate.await;
            let _ = first.send("first").await;
        });
        lanes.add(1, async move {
            let _ = second.send("second").await;
        });
        lanes.add(2, async move {
            let _ = other.send("other").await;
        });
        assert_eq!(order.recv().await, Some("other"));
        open.send(()).unwrap();
        assert_eq!(order.recv().await, Some("first"));
        assert_eq!(order.recv().await, Some("second"));
        assert_eq!(order.recv().await, None);
    }

    #[tokio::test]
    async fn a_lane_is_bounded_and_survives_a_panic() {
        let lanes = Lanes::new(1);
        let (begun, has_begun) = oneshot::channel();
        let (open, gate) = oneshot::channel::<()>();
        let blocked = async move {
            begun.send(()).unwrap();
            let _ = gate.await;
            panic!("a panic of a test");
        };
        assert!(lanes.add(1, blocked));
        has_begun.await.unwrap();
        let (done, is_done) = oneshot::channel();
        assert!(lanes.add(1, async move { done.send(()).unwrap() }));
        assert!(!lanes.add(1, async {}), "one waits already");
        assert!(lanes.add(2, async {}));
        open.send(()).unwrap();
        is_done.await.unwrap();
    }

    #[tokio::test]
    async fn closing_drops_what_waits_and_what_is_being_done() {
        let lanes = Lanes::new(10);
        let (held, mut dropped) = mpsc::channel::<()>(1);
        for _ in 0..3 {
            let held = held.clone();
            lanes.add(1, async move {
                let _held = held;
                std::future::pending::<()>().await;
            });
        }
        drop(held);
        lanes.close();
        assert_eq!(dropped.recv().await, None, "nobody holds it any more");
    }
}
