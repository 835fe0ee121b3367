//! How many jobs run at once: as many as configured, fewer when the service is overloaded, none while
//! the account is at its limit.
//!
//! An overload halves the number, once for all runs of that time. After as many successes as may run
//! at once, one more may. After a pause one job goes first, and the rest follow when it succeeded.

use std::time::Duration;

use tokio::time::Instant;

/// The first pause when the end of a limit is unknown; it doubles from pause to pause.
const FIRST_PAUSE: Duration = Duration::from_mins(1);
/// The longest of these.
const LONGEST_PAUSE: Duration = Duration::from_mins(30);
/// How long after its end a limit is believed to be over: clocks differ.
const MARGIN: Duration = Duration::from_secs(2);

/// How fast the queue may go.
#[derive(Debug)]
pub(crate) struct Pace {
    jobs: usize,
    allowed: usize,
    /// Successes since the number last changed.
    succeeded: usize,
    slowed: Option<Instant>,
    gate: Gate,
    /// Pauses in a row whose end was unknown.
    blind: u32,
}

/// Whether the account is at its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gate {
    /// It is not.
    Open,
    /// It is: nothing runs until then.
    Paused { until: Instant },
    /// The pause is over: one job goes first, to try.
    Probing,
}

impl Pace {
    pub(crate) fn new(jobs: usize) -> Self {
        let jobs = jobs.max(1);
        Self { jobs, allowed: jobs, succeeded: 0, slowed: None, gate: Gate::Open, blind: 0 }
    }

    /// How many may run now.
    pub(crate) fn allowed(&self) -> usize {
        match self.gate {
            Gate::Paused { .. } => 0,
            Gate::Probing => 1,
            Gate::Open => self.allowed,
        }
    }

    /// Until when nothing may run.
    pub(crate) fn paused(&self) -> Option<Instant> {
        match self.gate {
            Gate::Paused { until } => Some(until),
            Gate::Open | Gate::Probing => None,
        }
    }

    /// A run succeeded.
    pub(crate) fn succeeded(&mut self) {
        self.past_limit();
        self.succeeded += 1;
        if self.succeeded >= self.allowed && self.allowed < self.jobs {
            self.allowed += 1;
            self.succeeded = 0;
        }
    }

    /// A run ended, and not for a limit: the account may go on.
    pub(crate) fn past_limit(&mut self) {
        // A run that began before the pause does not show that the pause can end.
        if self.paused().is_none() {
            self.gate = Gate::Open;
            self.blind = 0;
        }
    }

    /// The service was overloaded for a run that began at this moment.
    pub(crate) fn overloaded(&mut self, began: Instant, now: Instant) {
        self.succeeded = 0;
        if self.slowed.is_none_or(|slowed| began > slowed) {
            self.allowed = (self.allowed / 2).max(1);
            self.slowed = Some(now);
        }
    }

    /// The account is at its limit, for so long if that is known. Returns the pause if it is a new one
    /// or a longer one.
    pub(crate) fn limit(&mut self, lasts: Option<Duration>, now: Instant) -> Option<Duration> {
        let pause = match lasts {
            Some(lasts) => lasts + MARGIN,
            None if self.paused().is_some() => return None,
            None => {
                self.blind += 1;
                let doubled = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(self.blind - 1));
                doubled.min(LONGEST_PAUSE)
            }
        };
        let until = now + pause;
        // Two runs that report the same limit cause one pause.
        if self.paused().is_some_and(|paused| until <= paused + MARGIN) {
            return None;
        }
        self.gate = Gate::Paused { until };
        Some(pause)
    }

    /// Ends a pause whose time has come; `true` if it did.
    pub(crate) fn wake(&mut self, now: Instant) -> bool {
        let is_over = self.paused().is_some_and(|until| until <= now);
        if is_over {
            self.gate = Gate::Probing;
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overload_halves_once_for_all_that_ran_and_success_restores_it() {
        let mut pace = Pace::new(8);
        let begun = Instant::now();
        let later = begun + Duration::from_secs(1);
        for _ in 0..8 {
            pace.overloaded(begun, later);
        }
        assert_eq!(pace.allowed(), 4);
        pace.overloaded(later + Duration::from_millis(1), later);
        assert_eq!(pace.allowed(), 2);
        for _ in 0..2 {
            pace.succeeded();
        }
        assert_eq!(pace.allowed(), 3);
        for _ in 0..100 {
            pace.succeeded();
        }
        assert_eq!(pace.allowed(), 8);
    }

    #[test]
    fn after_a_pause_one_goes_first() {
        let mut pace = Pace::new(8);
        let now = Instant::now();
        let hour = Duration::from_hours(1);
        assert_eq!(pace.limit(Some(hour), now), Some(hour + MARGIN));
        assert_eq!(pace.limit(Some(hour), now), None, "the same limit, reported again");
        assert_eq!(pace.allowed(), 0);
        assert!(!pace.wake(now + hour));
        assert!(pace.wake(now + hour + MARGIN));
        assert_eq!(pace.allowed(), 1);
        pace.succeeded();
        assert_eq!(pace.allowed(), 8);
    }

    #[test]
    fn a_limit_without_an_end_is_looked_at_again_after_longer_and_longer_pauses() {
        let mut pace = Pace::new(2);
        let mut now = Instant::now();
        let mut pauses = Vec::new();
        for _ in 0..7 {
            let pause = pace.limit(None, now).unwrap();
            assert_eq!(pace.limit(None, now), None);
            pauses.push(pause.as_secs() / 60);
            now += pause;
            assert!(pace.wake(now));
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        pace.succeeded();
        assert_eq!(pace.limit(None, now), Some(FIRST_PAUSE));
    }
}
