//! A line for each session whose runs are being enqueued: calls to the board can overtake each other, and be repeated.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedMutexGuard;

type Line = Arc<tokio::sync::Mutex<()>>;

/// The lines, by session.
#[derive(Default)]
pub(super) struct Lines(Mutex<HashMap<String, Line>>);

/// The front of a line. Dropped, the next one may go.
pub(super) struct Place<'a> {
    // Dropped in this order: whoever leaves is not counted.
    _front: OwnedMutexGuard<()>,
    _leaving: Leaving<'a>,
}

/// Removes the line of a session with the last one that leaves it.
struct Leaving<'a> {
    lines: &'a Lines,
    session: String,
}

impl Lines {
    /// Resolves in front of a session's line, in the order of the calls.
    pub(super) async fn join(&self, session: &str) -> Place<'_> {
        let leaving = Leaving { lines: self, session: session.to_owned() };
        let line = self.lock().entry(session.to_owned()).or_default().clone();
        Place { _front: line.lock_owned().await, _leaving: leaving }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Line>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut lines = self.lines.lock();
        if lines.get(&self.session).is_some_and(|line| Arc::strong_count(line) == 1) {
            lines.remove(&self.session);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_line_is_there_as_long_as_somebody_is_in_it() {
        let lines = Lines::default();
        let count = || lines.lock().len();
        let first = lines.join("a").await;
        let mut second = Box::pin(lines.join("a"));
        assert!(second.as_mut().now_or_never().is_none());
        let mut third = Box::pin(lines.join("a"));
        assert!(third.as_mut().now_or_never().is_none());
        drop((lines.join("b").await, second));
        assert_eq!(count(), 1);
        drop(first);
        assert_eq!(count(), 1);
        drop(third.await);
        assert_eq!(count(), 0);
    }
}
