//! Which updates are handled.
//!
//! Updates are handled in lanes, so one may be finished before an earlier one. The service forgets every update
//! before the offset that it is asked for, so the offset is the first update that is not finished: what was
//! being handled when the process died is delivered again.
//!
//! The numbers only grow, except that the service begins anywhere after a week without updates. It then delivers
//! numbers below the offset, which it never does otherwise.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// The updates that are known.
#[derive(Debug)]
pub(crate) struct Window {
    state: Mutex<State>,
    finished: Notify,
}

#[derive(Debug)]
struct State {
    /// The first update that was not seen.
    next: i64,
    /// Updates that are being handled.
    under_way: BTreeSet<i64>,
}

impl State {
    fn offset(&self) -> i64 {
        self.under_way.first().copied().unwrap_or(self.next)
    }
}

impl Window {
    /// Everything before this offset is finished.
    pub(crate) fn new(offset: i64) -> Self {
        let state = State { next: offset, under_way: BTreeSet::new() };
        Self { state: Mutex::new(state), finished: Notify::new() }
    }

    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The first update that is not finished.
    pub(crate) fn offset(&self) -> i64 {
        self.change(|state| state.offset())
    }

    /// Whether nothing is being handled.
    pub(crate) fn is_idle(&self) -> bool {
        self.change(|state| state.under_way.is_empty())
    }

    /// Whether an update was not seen before.
    pub(crate) fn is_new(&self, number: i64) -> bool {
        self.change(|state| number >= state.next)
    }

    /// The service begins to count anew with this number. What it delivered a week ago, it does not deliver again.
    pub(crate) fn renumber(&self, first: i64) {
        self.change(|state| {
            state.next = first;
            state.under_way.clear();
        });
        self.finished.notify_one();
    }

    /// An update was seen.
    pub(crate) fn begin(&self, number: i64) {
        self.change(|state| {
            state.under_way.insert(number);
            state.next = state.next.max(number + 1);
        });
    }

    /// An update is finished. Returns the offset.
    pub(crate) fn finish(&self, number: i64) -> i64 {
        let offset = self.change(|state| {
            state.under_way.remove(&number);
            state.offset()
        });
        self.finished.notify_one();
        offset
    }

    /// Waits until something may have been finished.
    pub(crate) async fn finished(&self) {
        self.finished.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_is_the_first_update_that_is_not_finished() {
        let window = Window::new(5);
        for number in 5..9 {
            window.begin(number);
        }
        assert_eq!(window.finish(6), 5);
        assert!(!window.is_new(7) && window.is_new(9) && !window.is_idle());
        assert_eq!(window.finish(5), 7);
        assert_eq!(window.finish(8), 7);
        assert_eq!(window.finish(7), 9);
        assert!(window.is_idle());
    }

    #[test]
    fn a_service_that_counts_anew_is_followed_down() {
        let window = Window::new(1000);
        window.begin(1000);
        window.renumber(7);
        assert!(window.is_new(7) && window.is_idle());
        window.begin(7);
        assert_eq!(window.finish(1000), 7, "of the old count");
        assert_eq!(window.finish(7), 8);
    }
}
