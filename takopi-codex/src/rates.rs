//! The limits of a Codex account: how much is used, and when it resets.
//!
//! Codex reports them in two ways: as figures (`account/rateLimits/updated` over app-server), and in the
//! text of the failure, in local time (`try again at 3:04 PM`, `try again at Feb 3rd, 2026 3:04 PM`) or as
//! a length (`try again in 2 hours 5 minutes`). The text counts only where figures are missing.

use std::time::Duration;

use jiff::civil::{Date, Time};
use jiff::{Timestamp, Zoned};
use serde_json::{Map, Value};
use takopi_core::model::{Completed, RateLimitWindow, RateLimits, Reason};

/// The limits in Codex's own figures; `None` if there are none.
pub(crate) fn in_figures(figures: &Map<String, Value>) -> Option<RateLimits> {
    let windows: Vec<RateLimitWindow> =
        figures.iter().filter_map(|(name, figures)| window(name, figures)).collect();
    (!windows.is_empty()).then(|| RateLimits::new(windows))
}

fn window(name: &str, figures: &Value) -> Option<RateLimitWindow> {
    let read = |names: [&str; 2]| names.into_iter().find_map(|name| figures.get(name));
    let used = read(["usedPercent", "used_percent"])?.as_f64()?;
    Some(
        RateLimitWindow::new(name, used)
            .resets_at(read(["resetsAt", "resets_at"]).and_then(Value::as_i64))
            .window_minutes(read(["windowDurationMins", "window_minutes"]).and_then(Value::as_u64)),
    )
}

/// The limits that go with the end of a run. When a limit ended it and the figures do not include when
/// it resets, the text of the failure may. That needs the time of day.
pub(crate) fn at_end(completed: &Completed, figures: Option<RateLimits>) -> Option<RateLimits> {
    let limited = completed.reason == Some(Reason::UsageLimit);
    if !limited || figures.as_ref().is_some_and(|figures| figures.resets_at.is_some()) {
        return figures;
    }
    let error = completed.error.as_deref();
    match error.and_then(|error| in_text(error, &Zoned::now())) {
        Some(resets_at) => {
            let mut limits = figures.unwrap_or_default();
            limits.resets_at = Some(resets_at.as_second());
            Some(limits)
        }
        None => figures,
    }
}

/// The time a text names, as seen at `now`.
pub(crate) fn in_text(text: &str, now: &Zoned) -> Option<Timestamp> {
    let lower = text.to_lowercase();
    if let Some((_, rest)) = lower.rsplit_once("try again at ") {
        return at(rest, now);
    }
    let (_, rest) = lower.rsplit_once("try again in ")?;
    now.timestamp().checked_add(length(rest)?).ok()
}

/// How many minutes around midnight a time without a date may be of the day before.
const MIDNIGHT: i8 = 5;

/// `3:04 pm`, `feb 3rd, 2026 3:04 pm`.
fn at(text: &str, now: &Zoned) -> Option<Timestamp> {
    let words: Vec<&str> = text.split_whitespace().take(5).collect();
    let (date, clock) = match words.as_slice() {
        [month, day, year, clock, half] if !month.contains(':') => {
            (Some(date(month, day, year)?), self::clock(clock, half)?)
        }
        [clock, half, ..] => (None, self::clock(clock, half)?),
        _ => return None,
    };
    // Without a date it is the day of the message, which can just be over.
    let (sent, ends) = (now.time(), Time::constant(23, 60 - MIDNIGHT, 0, 0));
    let over = sent.hour() == 0 && sent.minute() < MIDNIGHT && clock >= ends;
    let today = if over { now.date().yesterday().ok()? } else { now.date() };
    let at = date.unwrap_or(today).to_datetime(clock).to_zoned(now.time_zone().clone()).ok()?;
    // Seconds are not included: it can be a minute later.
    at.timestamp().checked_add(Duration::from_mins(1)).ok()
}

fn date(month: &str, day: &str, year: &str) -> Option<Date> {
    const MONTHS: [&str; 12] =
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let month = MONTHS.iter().position(|name| month.starts_with(name))? + 1;
    Date::new(digits(year)?, i8::try_from(month).ok()?, digits(day)?).ok()
}

fn clock(clock: &str, half: &str) -> Option<Time> {
    let (hour, minute) = clock.split_once(':')?;
    let hour: i8 = digits(hour).filter(|hour| (1..=12).contains(hour))?;
    let hour = hour % 12 + if half.starts_with("pm") { 12 } else { 0 };
    Time::new(hour, digits(minute)?, 0, 0).ok()
}

/// The number that a text begins with: `3rd,` is 3.
fn digits<N: std::str::FromStr>(word: &str) -> Option<N> {
    let end = word.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(word.len());
    word[..end].parse().ok()
}

/// `2 days 3 hours 5 minutes`, up to the first part that is none of it.
fn length(text: &str) -> Option<Duration> {
    let mut words = text.split_whitespace();
    let mut total = None;
    while let (Some(count), Some(unit)) = (words.next(), words.next()) {
        let seconds = match unit.trim_end_matches(|letter: char| !letter.is_alphabetic()) {
            "second" | "seconds" => 1,
            "minute" | "minutes" => 60,
            "hour" | "hours" => 3600,
            "day" | "days" => 86_400,
            _ => break,
        };
        let Ok(count) = count.parse::<u32>() else { break };
        let length = Duration::from_secs(seconds * u64::from(count));
        total = Some(total.unwrap_or(Duration::ZERO).saturating_add(length));
        if unit.ends_with('.') {
            break;
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn named(text: &str) -> Option<String> {
        let zone = jiff::tz::TimeZone::fixed(jiff::tz::offset(1));
        let now = jiff::civil::date(2026, 1, 31).at(14, 0, 0, 0).to_zoned(zone).unwrap();
        in_text(text, &now).map(|at| at.to_string())
    }

    #[test]
    fn every_form_that_codex_has_used_is_read() {
        for (text, expected) in [
            ("You've hit your usage limit. Try again at 3:04 PM.", "2026-01-31T14:05:00Z"),
            ("limit reached, or try again at 12:30 AM.", "2026-01-30T23:31:00Z"),
            ("… or try again at Feb 3rd, 2026 9:05 AM.", "2026-02-03T08:06:00Z"),
            ("Try again in 2 hours 5 minutes.", "2026-01-31T15:05:00Z"),
            ("Try again in 1 day 3 hours. It will be fine", "2026-02-01T16:00:00Z"),
        ] {
            assert_eq!(named(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_names_no_time_gives_none() {
        for text in [
            "",
            "try again later.",
            "try again at noon",
            "try again in a while",
            "try again at 99:99 PM",
            "try again in 2 fortnights",
            "try again at Feb",
        ] {
            assert_eq!(named(text), None, "{text}");
        }
    }

    #[test]
    fn figures_of_every_spelling_are_read_and_odd_ones_are_left_out() {
        let limits = |json: serde_json::Value| in_figures(json.as_object().unwrap());
        let read = limits(json!({
            "limitId": "codex",
            "primary": { "usedPercent": 100, "windowDurationMins": 300, "resetsAt": 1_800_000_000 },
            "secondary": { "used_percent": 40.5, "resets_at": 1_900_000_000 },
            "credits": { "hasCredits": false },
        }));
        let windows = vec![
            RateLimitWindow::new("primary", 100.0).resets_at(1_800_000_000).window_minutes(300),
            RateLimitWindow::new("secondary", 40.5).resets_at(1_900_000_000),
        ];
        assert_eq!(read, Some(RateLimits::new(windows)));
        assert_eq!(
            limits(json!({ "primary": null, "secondary": { "usedPercent": "many" } })),
            None
        );
    }

    #[test]
    fn a_time_sent_just_before_midnight_is_not_a_day_away() {
        let zone = jiff::tz::TimeZone::fixed(jiff::tz::offset(1));
        let at = |hour, minute| {
            let now = jiff::civil::date(2026, 2, 1).at(hour, minute, 1, 0);
            let now = now.to_zoned(zone.clone()).unwrap();
            in_text("Try again at 11:59 PM.", &now).unwrap().to_string()
        };
        assert_eq!(at(0, 0), "2026-01-31T23:00:00Z");
        assert_eq!(at(0, 30), "2026-02-01T23:00:00Z");
        assert_eq!(at(23, 50), "2026-02-01T23:00:00Z");
    }
}
