//! The limits of a subscription: how much is used, and when it resets.
//!
//! Claude Code reports them as figures, and again in the text of the failure. The text counts only where
//! figures are missing, and only if it names a date, a year and a time zone.

use jiff::Timestamp;
use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;
use takopi_core::model::{Completed, RateLimitWindow, RateLimits, Reason};

use crate::wire::RateLimit;

/// How many windows are kept.
const WINDOWS: usize = 16;

/// The limits that were reported.
#[derive(Debug, Default)]
pub(super) struct Limits {
    windows: Vec<RateLimitWindow>,
}

impl Limits {
    /// Takes figures. Whether they are news.
    pub(super) fn report(&mut self, limit: &RateLimit) -> bool {
        let name = limit.kind.as_deref().unwrap_or("subscription");
        let rejected = limit.status.as_deref() == Some("rejected");
        let used = limit.utilization.map(|used| used * 100.0);
        let used = if rejected { Some(used.unwrap_or(100.0).max(100.0)) } else { used };
        let Some(used) = used else { return false };
        let window = RateLimitWindow::new(name, used)
            .resets_at(limit.resets_at)
            .window_minutes(minutes(name));
        match self.windows.iter().position(|known| known.name == name) {
            Some(at) if self.windows[at] == window => return false,
            Some(at) => self.windows[at] = window,
            None if self.windows.len() < WINDOWS => self.windows.push(window),
            None => return false,
        }
        true
    }

    /// The limits that go with the end of a run.
    pub(super) fn at_end(&mut self, completed: &Completed) -> Option<RateLimits> {
        let windows = std::mem::take(&mut self.windows);
        let figures = (!windows.is_empty()).then(|| RateLimits::new(windows));
        let limited = completed.reason == Some(Reason::UsageLimit);
        if !limited || figures.as_ref().is_some_and(|figures| figures.resets_at.is_some()) {
            return figures;
        }
        match completed.error.as_deref().and_then(in_text) {
            Some(resets_at) => {
                let mut limits = figures.unwrap_or_default();
                limits.resets_at = Some(resets_at);
                Some(limits)
            }
            None => figures,
        }
    }
}

fn minutes(window: &str) -> Option<u64> {
    match window {
        "five_hour" => Some(5 * 60),
        _ if window.starts_with("seven_day") => Some(7 * 24 * 60),
        _ => None,
    }
}

/// The time in `resets Mar 17, 2030, 5:46pm (UTC)`, in seconds since 1970.
fn in_text(text: &str) -> Option<i64> {
    let (_, rest) = text.rsplit_once("resets ")?;
    let (when, zone) = rest.split_once('(')?;
    let zone = TimeZone::get(zone.split_once(')')?.0.trim()).ok()?;
    let mut words = when.split([' ', ',']).filter(|word| !word.is_empty());
    let date = date(words.next()?, words.next()?, words.next()?)?;
    let clock = clock(words.next()?)?;
    let at: Timestamp = date.to_datetime(clock).to_zoned(zone).ok()?.timestamp();
    Some(at.as_second())
}

fn date(month: &str, day: &str, year: &str) -> Option<Date> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = MONTHS.iter().position(|name| month.starts_with(name))? + 1;
    let year = (year.len() == 4).then(|| year.parse().ok()).flatten()?;
    Date::new(year, i8::try_from(month).ok()?, day.parse().ok()?).ok()
}

/// `5:46pm`, `5pm`.
fn clock(text: &str) -> Option<Time> {
    let lower = text.to_ascii_lowercase();
    let (text, afternoon) = match lower.strip_suffix("pm") {
        Some(text) => (text, 12),
        None => (lower.strip_suffix("am")?, 0),
    };
    let (hour, minute) = text.split_once(':').unwrap_or((text, "0"));
    let hour: i8 = hour.parse().ok().filter(|hour| (1..=12).contains(hour))?;
    Time::new(hour % 12 + afternoon, minute.parse().ok()?, 0, 0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_in_the_text_counts_only_if_it_is_unambiguous() {
        let reset = "You've hit your limit · resets Mar 17, 2030, 5:46pm (UTC)";
        assert_eq!(in_text(reset), Some(1_899_999_960));
        for text in [
            "Spending cap reached resets Mar 17, 2030, 5:46pm",
            "You've hit your limit · resets 5pm (UTC)",
            "You've hit your limit · resets Mar 17, 5:46pm (UTC)",
            "resets Mar 32, 2030, 5:46pm (UTC)",
            "resets Mar 17, 2030, 25:46pm (UTC)",
            "resets Mar 17, 2030, 5:46pm (Nowhere/Else)",
            "resets (",
            "",
        ] {
            assert_eq!(in_text(text), None, "{text}");
        }
    }

    #[test]
    fn a_rejection_means_that_the_window_is_used_up() {
        let mut limits = Limits::default();
        let mut limit = RateLimit {
            status: Some("allowed_warning".to_owned()),
            resets_at: Some(5),
            kind: Some("five_hour".to_owned()),
            utilization: Some(0.93),
            ..RateLimit::default()
        };
        assert!(limits.report(&limit) && !limits.report(&limit));
        limit.status = Some("rejected".to_owned());
        limit.utilization = None;
        assert!(limits.report(&limit));
        let completed = Completed::failure("claude", Reason::UsageLimit, "resets never");
        let at_end = limits.at_end(&completed).unwrap();
        assert_eq!((at_end.resets_at, at_end.windows[0].window_minutes), (Some(5), Some(300)));
    }
}
