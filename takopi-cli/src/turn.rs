//! One turn: run, shown while it runs, and reported when it ends.

use futures::{FutureExt as _, StreamExt as _};
use takopi_bridge::present::terminal::{TICK, summary};
use takopi_bridge::present::{Line, Style};
use takopi_bridge::progress::Progress;
use takopi_core::catalog::EngineEntry;
use takopi_core::{Completed, Host, Reason, RunRequest, Runner};
use takopi_projects::Context;
use tokio::time::{Instant, MissedTickBehavior};

use crate::approve::{Question, Questions};
use crate::exit;
use crate::signals::{Received, Signal};
use crate::terminal::{self, Terminal, harmless};
use crate::view::{Mode, Output, Seen, View};
use crate::{answer, hints, resume};

/// The most lines of stderr that are shown of an engine that failed.
const STDERR_LINES: usize = 8;

/// How a turn is run and shown.
#[derive(Clone, Copy)]
pub(crate) struct Turn<'a> {
    pub(crate) runner: &'a dyn Runner,
    pub(crate) terminal: Terminal,
    pub(crate) mode: Mode,
}

/// What the report of a turn depends on.
#[derive(Debug, Default)]
pub(crate) struct Report<'a> {
    /// The signal that ended it.
    pub(crate) signal: Option<Signal>,
    /// The sandbox that was asked for.
    pub(crate) sandbox: Option<&'a str>,
    /// The engine, for hints.
    pub(crate) engine: Option<&'static dyn EngineEntry>,
    /// The project and branch that it ran in.
    pub(crate) place: Option<&'a Context>,
    /// Approval requests were declined because no person could be asked.
    pub(crate) declines: bool,
}

impl Turn<'_> {
    /// Runs a request to its end and shows its progress.
    pub(crate) async fn show(
        self,
        mut request: RunRequest,
        mut questions: Option<Questions>,
        received: &mut Received,
    ) -> Seen {
        let cancel = request.cancel.clone();
        request.deltas |= View::streams(self.mode, self.terminal);
        let mut events = self.runner.run(request);
        let mut view = View::new(self.mode, self.terminal);
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let due = view.due();
            tokio::select! {
                // Events that precede a question are shown before it.
                biased;
                event = events.next() => match event {
                    Some(event) => {
                        if view.event(&event).is_err() {
                            // Nobody gets the events any more.
                            cancel.cancel();
                        }
                    }
                    None => return view.close(),
                },
                Some(question) = next(&mut questions) => {
                    // They may have arrived a moment ago, with the question.
                    while let Some(Some(event)) = events.next().now_or_never() {
                        if view.event(&event).is_err() {
                            cancel.cancel();
                        }
                    }
                    view.ask(question);
                }
                Some(key) = view.key() => view.pressed(key),
                Ok(()) = received.changed() => view.stopping(),
                () = until(due), if due.is_some() => view.redraw(),
                _ = ticks.tick(), if view.is_moving() => view.tick(),
            }
        }
    }

    /// Reports how the turn ended; returns the exit code.
    pub(crate) fn report(self, seen: &Seen, report: &Report<'_>) -> anyhow::Result<u8> {
        let Some(completed) = seen.progress.outcome() else {
            anyhow::bail!("the run ended without a result");
        };
        match &seen.output {
            Output::Open => {}
            // There is no point in an error message.
            Output::Closed => return Ok(exit::FAILED),
            Output::Failed(why) => {
                self.last_lines(seen, report.place);
                anyhow::bail!("cannot write to standard output: {why}");
            }
        }
        // What follows is shown even if the answer cannot be written.
        let written = match self.mode {
            Mode::Json => Ok(()),
            _ if seen.answered => Ok(()),
            _ => self.answer(completed),
        };
        if self.mode == Mode::Progress {
            self.terminal.line(&summary(&seen.progress, seen.took));
        }
        if !completed.ok {
            self.error(completed, &seen.progress);
        }
        if self.mode == Mode::Progress {
            let sandbox = report
                .engine
                .and_then(|entry| hints::of_sandbox(entry, &seen.progress, report.sandbox));
            let declined = report
                .declines
                .then(|| hints::of_declined(report.engine, &seen.progress))
                .flatten();
            sandbox.iter().chain(&declined).for_each(|hint| self.terminal.hint(hint));
            self.last_lines(seen, report.place);
        }
        written.map(|()| exit::of_run(completed, report.signal))
    }

    /// Prints the answer; on a terminal with a blank line before and after it.
    fn answer(self, completed: &Completed) -> anyhow::Result<()> {
        let spaced = self.mode == Mode::Progress
            && self.terminal.draws
            && self.terminal.shows_output
            && !completed.answer.is_empty();
        if spaced {
            terminal::print(b"\n")?;
        }
        answer::print(&completed.answer, self.terminal)?;
        if spaced {
            terminal::print(b"\n")?;
        }
        Ok(())
    }

    fn error(self, completed: &Completed, progress: &Progress) {
        // The summary has it already.
        let reported = self.mode == Mode::Progress && completed.reason == Some(Reason::Interrupted);
        if !reported {
            self.terminal.error(completed.error.as_deref().unwrap_or("the run failed"));
            self.terminal.lines(&last_output(progress));
        }
        if let Some(hint) = hints::of_run(completed) {
            self.terminal.hint(&hint);
        }
    }

    /// Prints where it ran and how to resume it: `run --resume` reads both back.
    fn last_lines(self, seen: &Seen, place: Option<&Context>) {
        if let Some(token) = seen.progress.resume()
            && (seen.started || resume::may_exist(token, seen.progress.outcome()))
            && resume::is_valid(self.runner, token)
        {
            let place = place.map(ToString::to_string);
            for line in place.into_iter().chain([self.runner.format_resume(token)]) {
                // Without its backticks: a shell would run what is between them.
                let line = line.trim_matches('`').trim();
                self.terminal.line(&Line::new().with(Style::Dim, line));
            }
        }
    }

    /// Waits until nothing is left of the run, or until one more signal arrives.
    pub(crate) async fn end(self, received: &mut Received) {
        let settled = async {
            self.runner.shutdown().await;
            if let Ok(host) = Host::global() {
                host.settle().await;
            }
        };
        tokio::select! {
            () = settled => {}
            Ok(()) = received.changed() => {}
        }
    }
}

/// Waits until this moment.
pub(crate) async fn until(due: Option<Instant>) {
    if let Some(due) = due {
        tokio::time::sleep_until(due).await;
    }
}

async fn next(questions: &mut Option<Questions>) -> Option<Question> {
    questions.as_mut()?.next().await
}

/// The last lines that an engine wrote to stderr before it failed.
fn last_output(progress: &Progress) -> Vec<Line> {
    let mut tails = progress.actions().filter_map(|it| it.action.detail.get("stderr_tail"));
    let Some(text) = tails.next_back().and_then(|tail| tail.as_str().map(str::to_owned)) else {
        return Vec::new();
    };
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(STDERR_LINES)..];
    last.iter().map(|line| Line::new().with(Style::Dim, format!("  {}", harmless(line)))).collect()
}
