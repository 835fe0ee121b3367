//! A machine that cannot run jobs (a full disk, a program that is gone) takes them ever more rarely.
//!
//! It would end each job at once and take the next one, and so all of them, while others could run them. If there are no others, each
//! job still gets its error.

use std::time::Duration;

use tokio::time::Instant;

use super::turn::Ended;

/// How long nothing is taken after the first job that could not be run: twice as long after each further one.
const FIRST: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_mins(1);

/// Whether the machine rests.
#[derive(Default)]
pub(super) struct Rest {
    /// How many in a row could not be run.
    failures: u32,
    until: Option<Instant>,
}

impl Rest {
    /// A turn ended.
    pub(super) fn ended(&mut self, ended: &Ended, now: Instant) {
        if ended.unfit {
            let pause = FIRST.saturating_mul(1 << self.failures.min(10)).min(LONGEST);
            self.failures += 1;
            self.until = Some(now + pause);
            tracing::warn!("this machine could not run a job; it takes no other for {pause:?}");
        } else if ended.begun {
            *self = Self::default();
        }
    }

    /// Whether nothing is to be taken now.
    pub(super) fn lasts(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rests_longer_after_each_failure_and_not_after_a_run() {
        let (mut rest, now) = (Rest::default(), Instant::now());
        assert!(!rest.lasts(now));
        let unfit = Ended { begun: false, unfit: true };
        for seconds in [2, 4, 8, 16, 32, 60, 60] {
            rest.ended(&unfit, now);
            let at = |offset| now + Duration::from_secs(seconds) - Duration::from_millis(offset);
            assert!(rest.lasts(at(1)) && !rest.lasts(at(0)), "{seconds}");
        }
        rest.ended(&Ended { begun: false, unfit: false }, now);
        assert!(rest.lasts(now), "a job that was refused proves nothing");
        rest.ended(&Ended { begun: true, unfit: false }, now);
        assert!(!rest.lasts(now));
    }
}
