//! Which updates are handled.
//!
//! Updates are handled in lanes, so one may be finished before an earlier one. The service forgets every update
//! before the offset that it is asked for, so the offset is the first update that is not finished: what was
//! being handled when the process died is delivered again, and what was handled behind it is known.
//!
//! From the offset on the service delivers 100 updates. So that one that takes long does not keep it from delivering
//! others, those that are being handled are stored when many are known behind them ([`Window::take`]); the offset
//! then passes them.
//!
//! The numbers only grow, except that the service begins anywhere after a week without updates. It then delivers
//! numbers below the offset, which it never does otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use tokio::sync::Notify;

/// How many updates may be known behind the offset. The service delivers 100 from there on.
const CROWD: i64 = 50;

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
    /// Updates that are being handled and that the service keeps.
    under_way: BTreeMap<i64, Value>,
    /// Updates behind the offset that are finished: a process that starts at the offset gets them again.
    handled: BTreeSet<i64>,
}

impl State {
    fn offset(&self) -> i64 {
        self.under_way.keys().next().copied().unwrap_or(self.next)
    }
}

impl Window {
    /// Everything before this offset is finished, and these behind it.
    pub(crate) fn new(offset: i64, handled: BTreeSet<i64>) -> Self {
        let state = State { next: offset, under_way: BTreeMap::new(), handled };
        Self { state: Mutex::new(state), finished: Notify::new() }
    }

    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The first update that is not finished.
    pub(crate) fn offset(&self) -> i64 {
        self.change(|state| state.offset())
    }

    /// The updates behind the offset that are finished.
    pub(crate) fn handled(&self) -> BTreeSet<i64> {
        self.change(|state| state.handled.clone())
    }

    /// Whether nothing is being handled that the service would deliver again at once.
    pub(crate) fn is_idle(&self) -> bool {
        self.change(|state| state.under_way.is_empty())
    }

    /// The service begins to count anew with this number. What it delivered a week ago, it does not deliver again.
    pub(crate) fn renumber(&self, first: i64) {
        self.change(|state| {
            state.next = first;
            state.under_way.clear();
            state.handled.clear();
        });
        self.finished.notify_one();
    }

    /// An update was delivered, behind those before it. `false` if it was delivered before and is not to be handled.
    pub(crate) fn begin(&self, number: i64, update: &Value) -> bool {
        self.change(|state| {
            if number < state.next {
                return false;
            }
            state.next = number + 1;
            let is_new = !state.handled.contains(&number);
            if is_new {
                state.under_way.insert(number, update.clone());
            }
            is_new
        })
    }

    /// Whether what is being handled will soon keep the service from delivering anything else.
    pub(crate) fn is_crowded(&self) -> bool {
        self.change(|state| state.next - state.offset() > CROWD)
    }

    /// Takes the updates that are being handled: the caller has stored them, and the service may forget them.
    pub(crate) fn take(&self) -> BTreeMap<i64, Value> {
        self.change(|state| {
            state.handled.clear();
            std::mem::take(&mut state.under_way)
        })
    }

    /// An update is finished.
    pub(crate) fn finish(&self, number: i64) {
        self.change(|state| {
            if state.under_way.remove(&number).is_some() {
                state.handled.insert(number);
            }
            let offset = state.offset();
            state.handled.retain(|it| *it >= offset);
        });
        self.finished.notify_one();
    }

    /// Waits until something may have been finished.
    pub(crate) async fn finished(&self) {
        self.finished.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(window: &Window, number: i64) -> bool {
        window.begin(number, &number.into())
    }

    #[test]
    fn the_offset_is_the_first_update_that_is_not_finished() {
        let window = Window::new(5, BTreeSet::new());
        for number in 5..9 {
            assert!(begin(&window, number));
        }
        for (finished, offset) in [(6, 5), (5, 7), (8, 7), (7, 9)] {
            window.finish(finished);
            assert_eq!(window.offset(), offset, "after {finished}");
        }
        assert!(!begin(&window, 7) && window.is_idle());
        assert!(begin(&window, 9) && !window.is_idle());
    }

    #[test]
    fn what_is_finished_behind_the_offset_is_not_handled_by_the_next_process() {
        let window = Window::new(5, BTreeSet::new());
        for number in [5, 6, 8] {
            begin(&window, number);
        }
        window.finish(6);
        window.finish(8);
        assert_eq!(window.handled(), BTreeSet::from([6, 8]));
        let next = Window::new(window.offset(), window.handled());
        assert_eq!([5, 6, 8, 9].map(|number| begin(&next, number)), [true, false, false, true]);
        next.finish(5);
        assert_eq!((next.offset(), next.handled()), (9, BTreeSet::new()));
    }

    #[test]
    fn a_service_that_counts_anew_is_followed_down() {
        let window = Window::new(1000, BTreeSet::from([1005]));
        begin(&window, 1000);
        window.renumber(7);
        assert!(window.is_idle() && begin(&window, 7));
        window.finish(1000);
        assert_eq!(window.offset(), 7, "of the old count");
        window.finish(7);
        assert_eq!((window.offset(), window.handled()), (8, BTreeSet::new()));
    }

    #[test]
    fn what_is_stored_does_not_hold_the_offset_back() {
        let window = Window::new(1, BTreeSet::new());
        for number in 1..=CROWD {
            begin(&window, number);
            if number > 2 {
                window.finish(number);
            }
        }
        assert!(!window.is_crowded());
        begin(&window, CROWD + 1);
        assert!(window.is_crowded());
        let stored: Vec<i64> = window.take().into_keys().collect();
        assert_eq!(stored, [1, 2, CROWD + 1]);
        assert!(!window.is_crowded() && window.is_idle());
        window.finish(2);
        assert_eq!((window.offset(), window.handled()), (CROWD + 2, BTreeSet::new()));
    }
}
