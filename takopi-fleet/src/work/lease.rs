//! A worker's own view of its lease, by a clock that goes on while the machine sleeps.
//!
//! The lease counts from when the last good beat was *sent*, and ends a third before the board's: time to stop what runs, gently
//! and then not.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::sleep;

/// When a worker must have stopped.
pub(super) struct Lease {
    length: Duration,
    /// When the last good beat was sent, in milliseconds of [`Lease::now`].
    sent: AtomicU64,
}

impl Lease {
    pub(super) fn new(length: Duration, sent: u64) -> Self {
        Self { length: length * 2 / 3, sent: AtomicU64::new(sent) }
    }

    /// Milliseconds since the machine started, with those it was asleep.
    pub(super) fn now() -> u64 {
        #[cfg(target_os = "linux")]
        const CLOCK: nix::time::ClockId = nix::time::ClockId::CLOCK_BOOTTIME;
        #[cfg(not(target_os = "linux"))]
        const CLOCK: nix::time::ClockId = nix::time::ClockId::CLOCK_MONOTONIC;
        let now = nix::time::clock_gettime(CLOCK).map(Duration::from).unwrap_or_default();
        u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn renewed(&self, sent: u64) {
        self.sent.fetch_max(sent, Ordering::Relaxed);
    }

    /// How long it still holds.
    pub(super) fn left(&self) -> Duration {
        let since = Self::now().saturating_sub(self.sent.load(Ordering::Relaxed));
        self.length.saturating_sub(Duration::from_millis(since))
    }

    pub(super) fn is_over(&self) -> bool {
        self.left().is_zero()
    }

    /// Resolves when it is over.
    pub(super) async fn over(&self) {
        while !self.is_over() {
            // A timer of the runtime stands still while the machine sleeps: looked at often.
            sleep(self.left().min(Duration::from_secs(1))).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_counts_from_when_the_beat_was_sent_and_ends_before_the_boards() {
        let now = Lease::now();
        let lease = Lease::new(Duration::from_secs(30), now);
        assert!(lease.left() <= Duration::from_secs(20) && !lease.is_over());
        let lease = Lease::new(Duration::from_millis(30), now.saturating_sub(21));
        assert!(lease.is_over());
        lease.renewed(now.saturating_sub(100));
        assert!(lease.is_over(), "an older beat renews nothing");
    }
}
