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

/// A row of the table.
struct Row {
    style: Style,
    name: String,
    figure: String,
    /// Details after the figure; may be empty.
    details: String,
}

impl Row {
    fn new(name: impl Into<String>, figure: &impl ToString) -> Self {
        let (name, figure) = (name.into(), figure.to_string());
        Self { style: Style::Plain, name, figure, details: String::new() }
    }

    fn style(self, style: Style) -> Self {
        Self { style, ..self }
    }

    fn details(self, details: String) -> Self {
        Self { details, ..self }
    }
}

/// The figures, one per line.
pub(super) fn lines(report: &BatchReport) -> Vec<Line> {
    let mut rows = vec![
        Row::new("ok", &report.ok).style(Style::Good),
        Row::new("failed", &report.failures()).style(Style::Bad),
    ];
    rows.extend(report.failed.iter().map(|(reason, count)| Row::new(format!("  {reason}"), count)));
    if report.sent_again > 0 {
        rows.push(Row::new("sent again", &report.sent_again));
    }
    let usage = &report.usage;
    let cached = match usage.cached_input_tokens {
        0 => String::new(),
        cached => format!("{} cached", grouped(cached)),
    };
    rows.push(Row::new("tokens in", &grouped(usage.input_tokens)).details(cached));
    rows.push(Row::new("tokens out", &grouped(usage.output_tokens)));
    if let (Some(began), Some(ended)) = (report.began, report.ended) {
        let took = ended.duration_since(began).unsigned_abs();
        let period = format!("{} to {}", clock(began), clock(ended));
        rows.push(Row::new("time", &elapsed(took)).details(period));
        let at_once = report.work.as_secs_f64() / took.as_secs_f64().max(0.001);
        rows.push(Row::new("work", &elapsed(report.work)).details(format!("{at_once:.1} at once")));
    }
    let names = rows.iter().map(|row| row.name.len()).max().unwrap_or_default();
    let figures = rows.iter().map(|row| row.figure.len()).max().unwrap_or_default();
    let line = |row: Row| {
        let Row { style, name, figure, details } = row;
        let line = Line::new()
            .with(Style::Dim, format!("{name:<names$}  "))
            .with(if figure == "0" { Style::Plain } else { style }, format!("{figure:>figures$}"));
        if details.is_empty() { line } else { line.with(Style::Dim, format!("  {details}")) }
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
