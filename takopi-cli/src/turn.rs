//! One turn, seen and told: it is run, shown while it goes on, and reported when it is over.

use futures::StreamExt as _;
use takopi_bridge::present::terminal::{TICK, summary};
use takopi_bridge::present::{Line, Style};
use takopi_core::{Completed, Host, Reason, RunRequest, Runner};
use tokio::time::MissedTickBehavior;

use crate::approve::{Question, Questions};
use crate::exit;
use crate::signals::{Received, Signal};
use crate::terminal::{self, Terminal};
use crate::view::{Mode, Seen, View};
use crate::{answer, hints, resume};

/// What a turn is shown with.
#[derive(Clone, Copy)]
pub(crate) struct Turn<'a> {
    pub(crate) runner: &'a dyn Runner,
    pub(crate) terminal: Terminal,
    pub(crate) mode: Mode,
}

/// What else bears on how a turn is reported.
#[derive(Debug, Default)]
pub(crate) struct Report<'a> {
    /// The signal that ended it.
    pub(crate) signal: Option<Signal>,
    /// The sandbox that was asked for.
    pub(crate) sandbox: Option<&'a str>,
    /// Somebody could answer what the agent asked.
    pub(crate) could_ask: bool,
}

impl Turn<'_> {
    /// Runs a request to its end, and shows it meanwhile.
    pub(crate) async fn show(
        self,
        request: RunRequest,
        mut questions: Option<Questions>,
        received: &mut Received,
    ) -> Seen {
        let cancel = request.cancel.clone();
        let mut events = self.runner.run(request);
        let mut view = View::new(self.mode, self.terminal);
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // What happened before a question is shown before it.
                biased;
                event = events.next() => match event {
                    Some(event) => {
                        if view.event(&event).is_err() {
                            // Nobody reads the events any more.
                            cancel.cancel();
                        }
                    }
                    None => return view.close(),
                },
                Some(question) = next(&mut questions) => view.ask(question),
                Some(key) = view.key() => view.pressed(key),
                Ok(()) = received.changed() => view.ending(),
                _ = ticks.tick(), if view.is_moving() => view.tick(),
            }
        }
    }

    /// Says how it ended; returns the exit code.
    pub(crate) fn report(self, seen: &Seen, report: &Report<'_>) -> anyhow::Result<u8> {
        let Some(completed) = seen.progress.outcome() else {
            anyhow::bail!("the run ended without saying how");
        };
        if seen.unread {
            // Who went away is not to be told why it ended.
            return Ok(exit::FAILED);
        }
        if self.mode != Mode::Json {
            self.answer(completed)?;
        }
        if self.mode == Mode::Progress {
            self.terminal.say(&summary(&seen.progress, seen.took));
        }
        if !completed.ok {
            self.error(completed);
        }
        if self.mode == Mode::Progress {
            let sandbox = hints::of_sandbox(&seen.progress, report.sandbox);
            let silence = hints::of_silence(&seen.progress, report.could_ask);
            sandbox.into_iter().chain(silence).for_each(|hint| self.terminal.hint(hint));
            self.resume_line(seen);
        }
        Ok(exit::of_run(completed, report.signal))
    }

    /// The answer; on a terminal it is set off from what stands around it.
    fn answer(self, completed: &Completed) -> anyhow::Result<()> {
        let set_off = self.mode == Mode::Progress
            && self.terminal.draws
            && self.terminal.shows_output
            && !completed.answer.is_empty();
        if set_off {
            terminal::print(b"\n")?;
        }
        answer::print(&completed.answer, self.terminal)?;
        if set_off {
            terminal::print(b"\n")?;
        }
        Ok(())
    }

    fn error(self, completed: &Completed) {
        // The summary says it already.
        let said = self.mode == Mode::Progress && completed.reason == Some(Reason::Interrupted);
        if !said {
            self.terminal.error(completed.error.as_deref().unwrap_or("the run failed"));
        }
        if let Some(hint) = hints::of_run(completed) {
            self.terminal.hint(&hint);
        }
    }

    fn resume_line(self, seen: &Seen) {
        if let Some(token) = seen.progress.resume()
            && resume::is_valid(self.runner, token)
        {
            // Without its backticks: a shell would run what is between them.
            let line = self.runner.format_resume(token);
            self.terminal.say(&Line::new().with(Style::Dim, line.trim_matches('`')));
        }
    }

    /// Waits until nothing is left of the run, unless one more signal says not to.
    pub(crate) async fn end(self, received: &mut Received) {
        let all_over = async {
            self.runner.shutdown().await;
            if let Ok(host) = Host::global() {
                host.settle().await;
            }
        };
        tokio::select! {
            () = all_over => {}
            Ok(()) = received.changed() => {}
        }
    }
}

async fn next(questions: &mut Option<Questions>) -> Option<Question> {
    questions.as_mut()?.next().await
}
