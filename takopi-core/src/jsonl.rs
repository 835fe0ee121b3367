//! Engines that are programs printing JSON lines.
//!
//! An author writes a [`LineEngine`] (what to start) and a [`Translator`] (a pure state machine from
//! lines to events: no I/O, no clock). Starting, feeding, framing, waiting for a session that is
//! held elsewhere, ending and reaping are here and in [`process`](crate::process).

mod head;
mod lines;
mod object;
mod repair;
mod unread;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::timeout;

pub use head::whole_members;
pub use lines::LineWarnings;
pub use object::{Object, list, text, value};
pub use repair::{parse_repaired, repair};
pub use unread::{ProcessLines, UnreadLines};

use crate::model::{Completed, EngineId, Reason, ResumeToken, TakopiEvent};
use crate::process::{Exit, Frame, Launch, Output, Process};
use crate::runner::{
    Engine, EngineRun, EngineRunner, ResumeCodec, RunError, RunRequest, SessionScope, StoppedError,
};

/// How long a process may live on after it closed its output.
const EXIT_AFTER_OUTPUT: Duration = Duration::from_secs(10);

/// A program that is given a prompt and prints JSON lines.
pub trait LineEngine: Send + Sync + 'static {
    /// Turns its lines into events.
    type Translator: Translator;

    /// Its name.
    fn id(&self) -> EngineId;

    /// How its session ids and resume lines are written.
    fn resume_codec(&self) -> ResumeCodec;

    /// Where its sessions can be reached from.
    fn session_scope(&self) -> SessionScope {
        SessionScope::Machine
    }

    /// Checks a request before anything is locked or started.
    fn check(&self, request: &RunRequest) -> Result<(), RunError> {
        let _ = request;
        Ok(())
    }

    /// Whether it can run without storing the session. If not, requests for that are refused.
    fn can_be_ephemeral(&self) -> bool {
        false
    }

    /// What to start: program, arguments, environment, standard input.
    fn launch(
        &self,
        request: &RunRequest,
        resume: Option<&ResumeToken>,
    ) -> Result<Launch, RunError>;

    /// A translator for one run.
    fn translator(&self, request: &RunRequest, resume: Option<&ResumeToken>) -> Self::Translator;

    /// A check beside the run, such as of the program's version. Resolves only if the run must end
    /// for it.
    fn early_failure(&self, run: &EngineRun) -> BoxFuture<'static, RunError> {
        let _ = run;
        Box::pin(std::future::pending())
    }
}

/// A line that is not JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotJsonError;

/// What the end of the process means.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// The run is over; `Completed` was pushed.
    Over,
    /// A program outside takopi holds the session, and nothing was done: wait and start again.
    Busy {
        /// The holder, as far as it is known.
        holder: String,
    },
}

/// Turns the lines of one run into events. Pure: no I/O, no clock.
pub trait Translator: Send + 'static {
    /// Translates one line. Blank lines never come; a line that is JSON but unknown is no error.
    fn line(&mut self, line: &[u8], events: &mut Vec<TakopiEvent>) -> Result<(), NotJsonError>;

    /// The process ended without a terminal event: decides what that means.
    fn end(&mut self, exit: &Exit, events: &mut Vec<TakopiEvent>) -> Ending;

    /// The answer so far, for runs that are cut short.
    fn answer(&self) -> Option<&str> {
        None
    }

    /// Whether a tool that was started may still run. `false` lets the idle limit run although
    /// the tool's action is open: the engine has gone on to something that gave no event.
    fn tool_running(&self) -> bool {
        true
    }

    /// Whether the last line was part of the run. One that is unknown, or about something else, does not renew the
    /// idle limit.
    fn is_of_run(&self) -> bool {
        true
    }
}

/// A [`LineEngine`] as an [`Engine`].
pub struct Jsonl<E> {
    engine: E,
}

impl<E: LineEngine> Jsonl<E> {
    /// Wraps the engine.
    pub fn new(engine: E) -> Self {
        Self { engine }
    }

    /// A runner for the engine, on the global host.
    pub fn runner(engine: E) -> EngineRunner<Self> {
        EngineRunner::new(Self::new(engine))
    }
}

impl<E: LineEngine> Engine for Jsonl<E> {
    fn id(&self) -> EngineId {
        self.engine.id()
    }

    fn resume_codec(&self) -> ResumeCodec {
        self.engine.resume_codec()
    }

    fn session_scope(&self) -> SessionScope {
        self.engine.session_scope()
    }

    fn check(&self, request: &RunRequest) -> Result<(), RunError> {
        self.engine.check(request)
    }

    fn can_be_ephemeral(&self) -> bool {
        self.engine.can_be_ephemeral()
    }

    fn run(self: Arc<Self>, run: EngineRun) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            // A stop is no fault here: the run's driver knows why.
            let _ = self.turn(&run).await;
        })
    }
}

impl<E: LineEngine> Jsonl<E> {
    async fn turn(&self, run: &EngineRun) -> Result<(), StoppedError> {
        let mut pause = Duration::from_millis(100);
        loop {
            let started = self
                .engine
                .launch(&run.request, run.resume.as_ref())
                .and_then(|launch| run.start(launch).map_err(RunError::from));
            let (process, output) = match started {
                Ok(started) => started,
                Err(failure) => {
                    run.fail(failure).await;
                    return Ok(());
                }
            };
            let translator = self.engine.translator(&run.request, run.resume.as_ref());
            let early_failure = self.engine.early_failure(run);
            let mut reader = ProcessReader {
                run,
                translator,
                events: Vec::new(),
                lines: LineWarnings::default(),
                active: false,
            };
            match reader.read(process, output, early_failure).await? {
                Ending::Over => return Ok(()),
                Ending::Busy { holder } => {
                    if !run.wait_for_session(&holder, pause).await? {
                        let error = format!("the session is held by {holder}");
                        run.fail(RunError::new(Reason::SessionBusy, error)).await;
                        return Ok(());
                    }
                    pause = (pause * 2).min(Duration::from_secs(1));
                }
            }
        }
    }
}

/// One process, from its first line to its end.
struct ProcessReader<'a, T> {
    run: &'a EngineRun,
    translator: T,
    events: Vec<TakopiEvent>,
    /// Lines that could not be read.
    lines: LineWarnings,
    /// The engine printed something since the last look that is part of the run and is no event. Events show
    /// by themselves whether it is active.
    active: bool,
}

impl<T: Translator> ProcessReader<'_, T> {
    async fn read(
        &mut self,
        process: Process,
        mut output: Output,
        mut early_failure: BoxFuture<'static, RunError>,
    ) -> Result<Ending, StoppedError> {
        let stop = self.run.stop().clone();
        loop {
            let more = tokio::select! {
                biased;
                () = stop.cancelled() => return self.stop(process, output).await,
                failure = &mut early_failure => {
                    process.stop().await;
                    return self.cut_short(failure.reason, failure.message).await;
                }
                more = output.fill() => more,
            };
            if !more {
                break;
            }
            match self.translate(&mut output).await {
                Ok(false) if self.translator.tool_running() => {}
                Ok(false) => self.run.no_tool_running(),
                Ok(true) => {
                    process.finish();
                    self.run.discard(output);
                    return Ok(Ending::Over);
                }
                Err(StoppedError) => return self.stop(process, output).await,
            }
        }
        self.end(process).await
    }

    /// Translates what is there; `true` once the run is over.
    async fn translate(&mut self, output: &mut Output) -> Result<bool, StoppedError> {
        loop {
            // Of a long line only a part may be there.
            let mut in_line = true;
            while let Some(frame) = output.pop() {
                in_line = false;
                match frame {
                    Frame::Line(line) => self.line(line),
                    Frame::Skipped { bytes, .. } => {
                        let warning = self.lines.too_long(bytes);
                        self.events.extend(warning.map(|text| self.run.warning(text)));
                    }
                }
            }
            self.active |= in_line;
            // Passed on together: waking the consumer costs more than reading on.
            if !output.try_fill() {
                break;
            }
        }
        if std::mem::take(&mut self.active) {
            self.run.renew_idle();
        }
        self.pass_on().await
    }

    fn line(&mut self, line: &[u8]) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        let before = self.events.len();
        let understood = self.translator.line(line, &mut self.events).or_else(|NotJsonError| {
            let repaired = repair(line).ok_or(NotJsonError)?;
            self.translator.line(repaired.as_bytes(), &mut self.events)
        });
        if understood.is_ok() {
            self.active |= self.events.len() == before && self.translator.is_of_run();
        } else {
            let warning = self.lines.not_json(line);
            self.events.extend(warning.map(|text| self.run.warning(text)));
        }
    }

    /// Emits the translated events; `true` once `Completed` is among them.
    async fn pass_on(&mut self) -> Result<bool, StoppedError> {
        let Some(end) = self.take_end() else {
            self.run.emit_drained(&mut self.events).await?;
            return Ok(false);
        };
        let rest = self.lines.rest().into_iter().map(|text| self.run.warning(text));
        self.events.extend(rest);
        let emitted = self.run.emit_drained(&mut self.events).await;
        // Of a run that was stopped meanwhile, too: the end has its answer.
        self.run.emit(end).await.and(emitted)?;
        Ok(true)
    }

    /// Takes the end out of the translated events; nothing that may stand behind it counts.
    fn take_end(&mut self) -> Option<TakopiEvent> {
        let end = self.events.iter().position(|it| matches!(it, TakopiEvent::Completed(_)))?;
        self.events.drain(end..).next()
    }

    /// The output is at its end without a terminal event.
    async fn end(&mut self, mut process: Process) -> Result<Ending, StoppedError> {
        let stop = self.run.stop().clone();
        let exit = tokio::select! {
            biased;
            () = stop.cancelled() => None,
            exit = timeout(EXIT_AFTER_OUTPUT, process.exited()) => Some(exit.ok()),
        };
        let Some(exit) = exit else {
            process.stop().await;
            return self.interrupted().await;
        };
        let Some(exit) = exit else {
            process.stop().await;
            let error = "the engine closed its output but did not exit";
            return self.cut_short(Reason::Protocol, error).await;
        };
        let ending = self.translator.end(&exit, &mut self.events);
        // Anything it started in its group or under its marker goes with a process that was killed;
        // the owner knows.
        process.finish();
        self.pass_on().await?;
        Ok(ending)
    }

    /// Ends the process, reading to the last for the answer so far.
    async fn stop(&mut self, process: Process, mut output: Output) -> Result<Ending, StoppedError> {
        let stopped = process.stop();
        tokio::pin!(stopped);
        let mut open = true;
        loop {
            tokio::select! {
                biased;
                more = output.fill(), if open => {
                    open = more;
                    while let Some(frame) = output.pop() {
                        if let Frame::Line(line) = frame {
                            self.line(line);
                        }
                        // Only the answer is still needed, which an end has taken from the translator.
                        if let Some(end) = self.take_end() {
                            let _ = self.run.emit(end).await;
                        }
                        self.events.clear();
                    }
                }
                () = &mut stopped => break,
            }
        }
        self.interrupted().await
    }

    async fn interrupted(&mut self) -> Result<Ending, StoppedError> {
        self.cut_short(Reason::Interrupted, "interrupted").await
    }

    /// Ends the run with the answer so far.
    async fn cut_short(
        &mut self,
        reason: Reason,
        error: impl Into<String>,
    ) -> Result<Ending, StoppedError> {
        let answer = self.translator.answer().unwrap_or_default();
        let completed = Completed::failure(self.run.engine(), reason, error);
        self.run.emit(completed.answer(answer)).await?;
        Ok(Ending::Over)
    }
}
