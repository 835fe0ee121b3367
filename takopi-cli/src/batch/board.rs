//! The progress display of a batch.
//!
//! On a terminal a bar and one line for each running job are drawn at the bottom, with failures above them;
//! elsewhere each job that ends is a line. The display is redrawn at intervals and not at every event: a batch
//! can have thousands of events a second.

use std::io;
use std::path::Path;
use std::time::Duration;

use takopi_batch::{BatchEvent, Halt, JobResult, JournalError, Tally};
use takopi_bridge::present::{Line, Style, elapsed, one_line};
use takopi_core::{ActionKind, Reason, TakopiEvent};
use tokio::time::Instant;

use super::answers::Answers;
use super::args::BatchArgs;
use super::table::clock;
use crate::screen::Screen;
use crate::terminal::{Terminal, write_output};

/// The width of the bar where there is room.
const BAR: usize = 24;
/// The least width of the bar; with less room it is left out.
const SHORT_BAR: usize = 8;
/// The most characters of an error or a step that are shown.
const TEXT_CHARS: usize = 300;

/// What is displayed, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Show {
    /// A bar and the running jobs, drawn on the terminal.
    Drawn,
    /// A line for each job that ends.
    Lines,
    /// Nothing but errors.
    Quiet,
    /// Events on standard output.
    Json,
}

impl Show {
    pub(super) fn of(args: &BatchArgs, terminal: Terminal) -> Self {
        match (args.options.json, args.options.quiet) {
            (true, _) => Self::Json,
            (_, true) => Self::Quiet,
            _ if terminal.draws => Self::Drawn,
            _ => Self::Lines,
        }
    }

    /// Whether the events of runs are needed.
    pub(super) fn runs(self) -> bool {
        matches!(self, Self::Drawn | Self::Json)
    }
}

/// A job that runs.
#[derive(Debug)]
struct Running {
    job: String,
    attempt: u32,
    since: Instant,
    doing: String,
}

/// The display of a batch.
#[derive(Debug)]
pub(super) struct Board {
    show: Show,
    /// Results go to standard output.
    prints_results: bool,
    terminal: Terminal,
    screen: Screen,
    tally: Tally,
    running: Vec<Running>,
    begun: Instant,
    /// Lines that are written above the block at the next drawing.
    permanent: Vec<Line>,
    /// The last line of the block.
    notice: Option<String>,
    answers: Option<Answers>,
    answers_failed: bool,
}

impl Board {
    pub(super) fn new(
        show: Show,
        terminal: Terminal,
        args: &BatchArgs,
        answers: Option<Answers>,
    ) -> Self {
        Self {
            show,
            prints_results: args.out.is_none() && show != Show::Json,
            terminal,
            screen: Screen::new(terminal),
            tally: Tally::default(),
            running: Vec::new(),
            begun: Instant::now(),
            permanent: Vec::new(),
            notice: None,
            answers,
            answers_failed: false,
        }
    }

    /// Whether an answer could not be written to its file.
    pub(super) fn answers_failed(&self) -> bool {
        self.answers_failed
    }

    /// Writes the answers of earlier runs that have no file or an older one: the disk was full, or takopi was killed.
    pub(super) fn restore_answers(&mut self, out: &Path) -> Result<(), JournalError> {
        if self.answers.is_none() {
            return Ok(());
        }
        JobResult::read_each(out, |result| {
            if self.answers.as_ref().is_some_and(|answers| !answers.has(&result)) {
                self.keep_answer(&result);
            }
        })
    }

    fn keep_answer(&mut self, result: &JobResult) {
        let Some(Err(error)) = self.answers.as_ref().map(|answers| answers.write(result)) else {
            return;
        };
        // The first is enough: the directory is gone, or the disk is full.
        if !self.answers_failed {
            self.screen.clear();
            self.terminal.error(&format!("cannot write the answer of {}: {error}", result.id));
        }
        self.answers_failed = true;
    }

    /// Handles an event. An error means that standard output cannot be written to.
    pub(super) fn event(&mut self, event: &BatchEvent) -> io::Result<()> {
        self.tally.apply(event);
        if let BatchEvent::Finished { result, .. } = event {
            self.keep_answer(result);
        }
        if self.show == Show::Json {
            return print(event);
        }
        if let (true, BatchEvent::Finished { result, .. }) = (self.prints_results, event) {
            if self.terminal.shows_output {
                // On the terminal they go above the block, which is redrawn at the next tick.
                self.screen.clear();
            }
            print(result)?;
        }
        if self.show != Show::Quiet {
            self.follow(event);
        }
        Ok(())
    }

    fn follow(&mut self, event: &BatchEvent) {
        match event {
            BatchEvent::Started { job, attempt } if self.show == Show::Drawn => {
                let (job, attempt, since) = (job.clone(), *attempt, Instant::now());
                self.running.push(Running { job, attempt, since, doing: String::new() });
            }
            BatchEvent::Run { job, event } => self.doing(job, event),
            BatchEvent::Retry { job, after, reason, error } => {
                self.ended(job);
                // A pause is reported once, not for each job.
                if *reason != Some(Reason::UsageLimit) {
                    let when = elapsed(*after + Duration::from_millis(999));
                    let text = format!(" {job}: retry in {when}: {}", one_line(error, TEXT_CHARS));
                    self.print_line(Line::new().with(Style::Warn, "↻").with(Style::Plain, text));
                }
            }
            BatchEvent::Returned { job } => self.ended(job),
            BatchEvent::Finished { result, .. } => {
                self.ended(&result.id);
                if !result.ok || self.show == Show::Lines {
                    self.print_line(entry(result));
                }
            }
            BatchEvent::Slowed { jobs } => {
                let text = format!("the service is overloaded: running {jobs} at once for now");
                self.warn(&text);
            }
            BatchEvent::Paused { until, known, error } => {
                let (until, error) = (clock(*until), one_line(error, TEXT_CHARS));
                let text = if *known {
                    format!("paused until {until}: {error}")
                } else {
                    format!("paused, next try at {until}: {error}")
                };
                self.warn(&text);
                self.notice = Some(format!("paused until {until}"));
            }
            BatchEvent::Resumed => {
                self.notice = None;
                self.warn("the batch continues");
            }
            BatchEvent::Stopping { why, running } => {
                let text = stopping(why, *running);
                if self.show == Show::Lines {
                    self.warn(&text);
                }
                self.notice = Some(text);
            }
            _ => {}
        }
    }

    fn doing(&mut self, job: &str, event: &TakopiEvent) {
        let TakopiEvent::Action(event) = event else { return };
        let action = &event.action;
        if matches!(action.kind, ActionKind::Turn | ActionKind::Telemetry) {
            return;
        }
        if let Some(running) = self.running.iter_mut().find(|running| running.job == job) {
            running.doing = one_line(&action.title, TEXT_CHARS);
        }
    }

    fn ended(&mut self, job: &str) {
        self.running.retain(|running| running.job != job);
    }

    fn warn(&mut self, text: &str) {
        self.print_line(Line::new().with(Style::Warn, "!").with(Style::Plain, format!(" {text}")));
    }

    fn print_line(&mut self, line: Line) {
        match self.show {
            Show::Drawn => self.permanent.push(line),
            _ => self.terminal.line(&line),
        }
    }

    /// Whether the display changes with time.
    pub(super) fn is_moving(&self) -> bool {
        self.show == Show::Drawn
    }

    /// Redraws.
    pub(super) fn tick(&mut self) {
        let (width, height) = Terminal::size();
        // A line that fills the last column wraps on some terminals.
        let width = width.saturating_sub(1).max(1);
        let block = self.block(width, height / 2, Instant::now());
        let permanent: Vec<Line> = self.permanent.drain(..).map(|line| line.cut(width)).collect();
        self.screen.draw(&permanent, block, width);
    }

    /// Ends the display; `true` if every job has a result.
    pub(super) fn close(mut self) -> bool {
        if self.show == Show::Drawn {
            self.tick();
            self.screen.clear();
        }
        self.tally.total == Some(self.tally.done())
    }

    fn block(&self, width: usize, height: usize, now: Instant) -> Vec<Line> {
        let room = height.saturating_sub(2).max(1);
        let shown = if self.running.len() > room { room - 1 } else { self.running.len() };
        let line = |running: &Running| {
            let mut line = Line::new().with(Style::Busy, "▸").with(Style::Plain, " ");
            line.push(Style::Strong, &running.job);
            if running.attempt > 1 {
                line.push(Style::Warn, &format!(" (attempt {})", running.attempt));
            }
            line.push(Style::Dim, &format!(" {}", elapsed(now - running.since)));
            line.push(Style::Plain, &format!("  {}", running.doing));
            line.cut(width)
        };
        let mut lines: Vec<Line> = self.running.iter().take(shown).map(line).collect();
        if self.running.len() > shown {
            let more = format!("  … {} more", self.running.len() - shown);
            lines.push(Line::new().with(Style::Dim, more));
        }
        lines.push(status(&self.tally, now - self.begun, width));
        if let Some(notice) = &self.notice {
            lines.push(Line::new().with(Style::Warn, notice).cut(width));
        }
        lines
    }
}

/// The bar and the figures; the bar gets the room that is left.
fn status(tally: &Tally, took: Duration, width: usize) -> Line {
    let figures = figures(tally, took);
    let Some(total) = tally.total else { return figures.cut(width) };
    let room = width.saturating_sub(figures.width() + 1).min(BAR);
    if room < SHORT_BAR {
        return figures.cut(width);
    }
    let part = |count: u64| {
        let cells = (count * room as u64).checked_div(total).unwrap_or(0);
        usize::try_from(cells).unwrap_or(room).min(room)
    };
    let (done, failed) = (tally.done(), tally.failed + tally.failed_before);
    let (full, bad) = (part(done), part(failed).max(usize::from(failed > 0)).min(part(done)));
    let line = Line::new()
        .with(Style::Good, "━".repeat(full - bad))
        .with(Style::Bad, "━".repeat(bad))
        .with(Style::Dim, "─".repeat(room - full));
    figures
        .spans()
        .iter()
        .fold(line.with(Style::Plain, " "), |line, span| line.with(span.style, &span.text))
}

fn figures(tally: &Tally, took: Duration) -> Line {
    let done = tally.done();
    let failed = tally.failed + tally.failed_before;
    let mut line = Line::new();
    line.push(
        Style::Strong,
        &tally.total.map_or_else(|| format!("{done} done"), |total| format!("{done}/{total}")),
    );
    let mut figure = |style, text: String| line.push(style, &text);
    if failed > 0 {
        figure(Style::Bad, format!(" · {failed} failed"));
    }
    figure(Style::Plain, format!(" · {} running · {} queued", tally.running, tally.queued()));
    let here = tally.ok + tally.failed;
    if here > 0 && took.as_secs() > 0 {
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = here as f64 / took.as_secs_f64();
        figure(
            Style::Dim,
            match rate {
                10.0.. => format!(" · {rate:.0}/s"),
                1.0.. => format!(" · {rate:.1}/s"),
                _ => format!(" · {:.1}/min", rate * 60.0),
            },
        );
        if tally.total.is_some() {
            #[expect(clippy::cast_precision_loss, reason = "a time for people")]
            let left = (tally.queued() + tally.running) as f64 / rate;
            let left = Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX);
            figure(Style::Dim, format!(" · {} left", elapsed(left)));
        }
    }
    figure(Style::Dim, format!(" · {}", elapsed(took)));
    line
}

/// The line of a job that has ended.
fn entry(result: &JobResult) -> Line {
    if result.ok {
        let took = format!(" · {}", elapsed(result.took()));
        let line = Line::new().with(Style::Good, "✓").with(Style::Plain, format!(" {}", result.id));
        return line.with(Style::Dim, took);
    }
    let error = one_line(result.error.as_deref().unwrap_or("failed"), TEXT_CHARS);
    let line = Line::new().with(Style::Bad, "✗").with(Style::Plain, format!(" {}: ", result.id));
    let line = line.with(Style::Plain, error);
    match &result.reason {
        Some(reason) => line.with(Style::Dim, format!(" ({reason})")),
        None => line,
    }
}

fn stopping(halt: &Halt, running: usize) -> String {
    let cause = match halt {
        Halt::Interrupted => "interrupted",
        Halt::TimedOut => "out of time",
        Halt::Engine { .. } => "the engine is not usable",
        Halt::Limit { .. } => "usage limit reached",
        Halt::Failed { .. } => "a job failed",
        Halt::Input { .. } => "invalid line",
        _ => "stopping",
    };
    match (halt, running) {
        (_, 0) => cause.to_owned(),
        (Halt::Interrupted, running) => {
            format!("{cause}: waiting for {running} to finish (again to exit at once)")
        }
        (_, running) => format!("{cause}: waiting for {running} to finish"),
    }
}

fn print(value: &impl serde::Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    write_output(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_gets_the_room_that_the_figures_leave() {
        let mut tally = Tally::default();
        tally.total = Some(1000);
        (tally.ok, tally.failed, tally.running) = (118, 5, 8);
        let at = |width| status(&tally, Duration::from_mins(3), width).plain();
        let figures =
            "123/1000 · 5 failed · 8 running · 869 queued · 41.0/min · 21m 23s left · 3m 00s";
        assert_eq!(at(120), format!("━━{} {figures}", "─".repeat(22)));
        assert_eq!(at(figures.chars().count() + 9), format!("──────── {figures}"));
        assert_eq!(at(figures.chars().count()), figures);
        assert_eq!(at(39), "123/1000 · 5 failed · 8 running · 869 …");
    }
}
