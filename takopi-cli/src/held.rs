//! Lines that wait after a warning, so that a failure is told once.
//!
//! Engines report many failures twice: as a warning, and right after it as the error that ends the run. So a
//! warning, and what follows it, waits for [`PATIENCE`] at most; one that the error repeats is not shown.

use std::time::Duration;

use takopi_bridge::present::Line;
use takopi_core::{ActionEvent, ActionKind};
use tokio::time::Instant;

/// How long a warning waits for the end of its run.
const PATIENCE: Duration = Duration::from_millis(100);

/// What waits of one run, in order.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// When it is shown at the latest, if something waits.
    due: Option<Instant>,
    /// The words of a warning, and its lines.
    waiting: Vec<(Option<String>, Vec<Line>)>,
}

impl Held {
    /// Adds the lines of an event; returns those to show now.
    pub(crate) fn event(&mut self, event: &ActionEvent, lines: Vec<Line>) -> Vec<Line> {
        let warning = event.action.kind == ActionKind::Warning;
        self.add(warning.then_some(event.action.title.as_str()), lines)
    }

    /// Adds lines, and the words of the warning that they show; returns those to show now.
    fn add(&mut self, warning: Option<&str>, lines: Vec<Line>) -> Vec<Line> {
        let warning = warning.map(str::trim).filter(|words| !words.is_empty());
        if lines.is_empty() || (warning.is_none() && self.waiting.is_empty()) {
            return lines;
        }
        self.due.get_or_insert_with(|| Instant::now() + PATIENCE);
        self.waiting.push((warning.map(str::to_owned), lines));
        Vec::new()
    }

    /// When what waits is to be shown.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// What has waited long enough.
    pub(crate) fn ripe(&mut self) -> Vec<Line> {
        if self.due.is_some_and(|due| due <= Instant::now()) { self.take("") } else { Vec::new() }
    }

    /// Everything that waits, but warnings that this error repeats.
    pub(crate) fn take(&mut self, error: &str) -> Vec<Line> {
        self.due = None;
        let said = |words: &Option<String>| words.as_ref().is_some_and(|it| error.contains(it));
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        waiting.filter(|(words, _)| !said(words)).flat_map(|(_, lines)| lines).collect()
    }
}

#[cfg(test)]
mod tests {
    use takopi_bridge::present::Style;

    use super::*;

    fn line(text: &str) -> Vec<Line> {
        vec![Line::new().with(Style::Plain, text)]
    }

    #[test]
    fn a_warning_waits_and_is_dropped_only_if_the_error_repeats_it() {
        let mut held = Held::default();
        assert_eq!(held.add(None, line("a step")), line("a step"));
        for (error, left) in [("no model: said no", vec![]), ("other", line("! said no"))] {
            assert!(held.add(Some("said no"), line("! said no")).is_empty());
            assert!(held.add(None, line("after it")).is_empty());
            assert_eq!(held.take(error), [left, line("after it")].concat());
        }
        assert_eq!((held.due(), held.take("")), (None, Vec::new()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_warning_is_shown_in_time_while_the_run_goes_on() {
        let mut held = Held::default();
        held.add(Some("slow"), line("! slow"));
        assert!(held.ripe().is_empty());
        tokio::time::sleep_until(held.due().unwrap()).await;
        assert_eq!(held.ripe(), line("! slow"));
    }
}
