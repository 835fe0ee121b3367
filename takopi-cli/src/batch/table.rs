//! The summary table.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use takopi_batch::BatchReport;
use takopi_bridge::present::{Line, Style, elapsed};

/// A time of day, with the date if it is not today.
pub(super) fn clock(at: Timestamp) -> String {
    let zone = TimeZone::system();
    let (at, now) = (at.to_zoned(zone.clone()), Timestamp::now().to_zoned(zone));
    let form = if at.date() == now.date() { "%H:%M:%S" } else { "%b %-d %H:%M:%S" };
    at.strftime(form).to_string()
}

/// The figures, one per line.
pub(super) fn lines(report: &BatchReport) -> Vec<Line> {
    let failures = report.failures();
    let mut rows = vec![
        (Style::Good, "ok".to_owned(), report.ok.to_string(), String::new()),
        (Style::Bad, "failed".to_owned(), failures.to_string(), String::new()),
    ];
    for (reason, count) in &report.failed {
        rows.push((Style::Plain, format!("  {reason}"), count.to_string(), String::new()));
    }
    if report.sent_again > 0 {
        let figure = report.sent_again.to_string();
        rows.push((Style::Plain, "sent again".to_owned(), figure, String::new()));
    }
    let usage = &report.usage;
    let cached = match usage.cached_input_tokens {
        0 => String::new(),
        cached => format!("{} cached", grouped(cached)),
    };
    rows.push((Style::Plain, "tokens in".to_owned(), grouped(usage.input_tokens), cached));
    rows.push((Style::Plain, "tokens out".to_owned(), grouped(usage.output_tokens), String::new()));
    if let (Some(began), Some(ended)) = (report.began, report.ended) {
        let took = ended.duration_since(began).unsigned_abs();
        let from = format!("{} to {}", clock(began), clock(ended));
        rows.push((Style::Plain, "time".to_owned(), elapsed(took), from));
        let at_once = report.work.as_secs_f64() / took.as_secs_f64().max(0.001);
        let at_once = format!("{at_once:.1} at once");
        rows.push((Style::Plain, "work".to_owned(), elapsed(report.work), at_once));
    }
    let names = rows.iter().map(|(_, name, ..)| name.len()).max().unwrap_or_default();
    let figures = rows.iter().map(|(_, _, figure, _)| figure.len()).max().unwrap_or_default();
    let line = |(style, name, figure, more): (Style, String, String, String)| {
        let line = Line::new()
            .with(Style::Dim, format!("{name:<names$}  "))
            .with(if figure == "0" { Style::Plain } else { style }, format!("{figure:>figures$}"));
        if more.is_empty() { line } else { line.with(Style::Dim, format!("  {more}")) }
    };
    rows.into_iter().map(line).collect()
}

/// A number with its thousands separated.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push('\u{a0}');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        for (number, expected) in
            [(0, "0"), (999, "999"), (1000, "1 000"), (1_234_567, "1 234 567")]
        {
            assert_eq!(grouped(number).replace('\u{a0}', " "), expected);
        }
    }
}
