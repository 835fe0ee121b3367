//! Runs of a worker, as people see them: one line at the start and the end of each, and figures.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::future::BoxFuture;
use takopi_bridge::present::{Line, Style, one_line};
use takopi_core::locks::{LockError, SessionGuard};
use takopi_core::runner::ResumeCodec;
use takopi_core::{Completed, EngineId, EventStream, ResumeToken, RunRequest, Runner, TakopiEvent};

use crate::terminal::Terminal;

/// The upper bounds of the classes of durations, in seconds.
pub(super) const CLASSES: [f64; 9] = [0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0];
/// The width of a job's key.
const KEY: usize = 60;

/// Figures of one engine.
#[derive(Debug, Clone, Default)]
pub(super) struct Figures {
    pub(super) running: u64,
    /// By how they ended: `ok`, or the reason of the failure.
    pub(super) ended: BTreeMap<String, u64>,
    /// How many runs took no longer than each of [`CLASSES`].
    pub(super) within: [u64; CLASSES.len()],
    pub(super) seconds: f64,
}

/// Figures of all engines since the start.
#[derive(Debug, Default)]
pub(super) struct Counters {
    engines: Mutex<BTreeMap<String, Figures>>,
}

impl Counters {
    pub(super) fn read(&self) -> BTreeMap<String, Figures> {
        self.engines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change(&self, engine: &EngineId, change: impl FnOnce(&mut Figures)) {
        let mut engines = self.engines.lock().unwrap_or_else(PoisonError::into_inner);
        change(engines.entry(engine.to_string()).or_default());
    }

    fn ended(&self, engine: &EngineId, outcome: &str, took: Duration) {
        let seconds = took.as_secs_f64();
        self.change(engine, |figures| {
            *figures.ended.entry(outcome.to_owned()).or_default() += 1;
            figures.seconds += seconds;
            let classes = CLASSES.iter().zip(&mut figures.within);
            classes.filter(|(most, _)| seconds <= **most).for_each(|(_, count)| *count += 1);
        });
    }
}

/// A runner whose runs are shown and counted.
pub(super) struct Watched {
    pub(super) runner: Arc<dyn Runner>,
    pub(super) counters: Arc<Counters>,
    pub(super) terminal: Terminal,
}

/// A run that is shown. It counts as running for as long as this lives.
struct Shown {
    engine: EngineId,
    job: String,
    begun: Instant,
    counters: Arc<Counters>,
    terminal: Terminal,
}

impl Shown {
    fn ended(&self, completed: &Completed) {
        let took = self.begun.elapsed();
        let reason = completed.reason.as_ref().map_or("failed", |reason| reason.as_str());
        let (mark, style, outcome) =
            if completed.ok { ("✓", Style::Good, "ok") } else { ("✗", Style::Bad, reason) };
        self.counters.ended(&self.engine, outcome, took);
        let time = format!("{:.1} s", took.as_secs_f64());
        let mut line = self.line(style, mark).with(Style::Dim, format!("  {time}"));
        if !completed.ok {
            line.push(style, &format!("  {outcome}"));
        }
        self.terminal.line(&line);
    }

    fn line(&self, style: Style, mark: &str) -> Line {
        let job = one_line(&self.job, KEY);
        Line::new().with(style, mark).with(Style::Plain, format!(" {} {job}", self.engine))
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.counters.change(&self.engine, |figures| figures.running -= 1);
    }
}

impl Runner for Watched {
    fn engine(&self) -> EngineId {
        self.runner.engine()
    }

    fn run(&self, request: RunRequest) -> EventStream {
        let engine = self.engine();
        self.counters.change(&engine, |figures| figures.running += 1);
        let shown = Shown {
            engine: engine.clone(),
            job: request.key.clone().unwrap_or_default(),
            begun: Instant::now(),
            counters: self.counters.clone(),
            terminal: self.terminal,
        };
        self.terminal.line(&shown.line(Style::Busy, "▸"));
        let events = self.runner.run(request).inspect(move |event| {
            if let TakopiEvent::Completed(completed) = event {
                shown.ended(completed);
            }
        });
        EventStream::new(engine, events)
    }

    fn resume_codec(&self) -> ResumeCodec {
        self.runner.resume_codec()
    }

    fn hold<'a>(
        &'a self,
        session: &'a ResumeToken,
    ) -> BoxFuture<'a, Result<Option<SessionGuard>, LockError>> {
        self.runner.hold(session)
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        self.runner.shutdown()
    }
}
