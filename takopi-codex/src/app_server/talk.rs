//! One turn of a run: the prompt goes out, and what comes of it goes to the consumer.
//!
//! The end is not said here: `Completed` comes back to the engine, which knows what must become of
//! the server first.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::future::try_join;
use serde_json::Value;
use takopi_core::RunRequest;
use takopi_core::model::{Completed, Reason, TakopiEvent};
use takopi_core::runner::{EngineRun, FollowUp, Refusal, Stopped};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::approvals::{Desk, Next};
use super::conversation::Record;
use super::engine::{Ended, refusal_of, unless_stopped};
use super::error::ClientError;
use super::limits::{TurnClock, TurnLimits};
use super::message::Notification;
use super::translator::{TurnTranslator, interrupted};
use super::turn::{TurnEvent, TurnOptions, TurnStream, interrupt, steer};
use super::warm::Session;
use crate::CODEX;

/// How long codex may take to end a turn that was interrupted.
const INTERRUPT_LIMIT: Duration = Duration::from_secs(5);

/// How a turn ended.
pub(super) struct End {
    pub(super) completed: Completed,
    pub(super) server: Fitness,
    /// What was said last, to be passed on ahead of `completed`. It may wait for the consumer, which
    /// the server need not: the turn is over.
    pub(super) last_words: Vec<TakopiEvent>,
}

/// What the turn has left its server as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fitness {
    /// It can go on.
    Well,
    /// The turn was interrupted, and the server said so; what its commands started may be left.
    CutShort,
    /// It is dead, silent, or not logged in.
    Broken,
}

/// One turn on a session.
pub(super) struct Talk<'a> {
    pub(super) run: &'a EngineRun,
    pub(super) session: &'a Session,
    pub(super) directory: PathBuf,
    pub(super) translator: TurnTranslator,
    pub(super) desk: Desk,
    pub(super) limits: TurnLimits,
    /// How long the consumer may take nothing, if others wait for the server.
    pub(super) patience: Option<Duration>,
    /// Where the turn of a conversation is recorded.
    pub(super) record: Option<&'a Record>,
    pub(super) events: Vec<TakopiEvent>,
}

impl Talk<'_> {
    /// Confirms the session, sends the prompt, and passes on what comes of it, up to the end.
    pub(super) async fn speak(&mut self) -> Result<(), Broken> {
        let id = self.session.thread.id();
        self.translator.thread_started(id, &mut self.events);
        self.pass_on().await?;
        if let Some(recorded) = self.elsewhere() {
            self.run.note(format!("the session was recorded in {recorded}")).await?;
        }
        let mut options = turn_options(&self.run.request, &self.directory).await?;
        if let Some(record) = self.record {
            options = record.settings(options);
        }
        let prompt = &self.run.request.prompt;
        let start = unless_stopped(self.run, self.session.thread.start_turn(prompt, &options));
        let mut stream = match start.await {
            Ok(stream) => stream,
            Err(Ended::Fault(error @ ClientError::Refused { .. })) => {
                return Err(Broken::Refused(refusal_of(&error)));
            }
            Err(Ended::Fault(error)) => return Err(Broken::Fault(error)),
            Err(_) => return Err(Broken::Stopped(None)),
        };
        self.translator.named(stream.id(), stream.usage_before());
        if let Some(record) = self.record {
            record.begun(&self.session.client, self.session.thread.id(), &stream);
        }
        match self.listen(&mut stream).await {
            Err(Broken::Stopped(_)) => Err(Broken::Stopped(Some(stream))),
            Err(Broken::Overdue(_, refusal)) => Err(Broken::Overdue(Some(stream), refusal)),
            Err(Broken::Stalled(_) | Broken::Fault(ClientError::Stalled { .. })) => {
                Err(Broken::Stalled(Some(stream)))
            }
            other => other,
        }
    }

    async fn listen(&mut self, stream: &mut TurnStream) -> Result<(), Broken> {
        let run = self.run;
        let mut clock = TurnClock::new(self.limits, Instant::now());
        let mut follow_ups = run.follow_ups();
        while !self.translator.is_over() {
            let deadline = clock.deadline(self.desk.is_busy());
            tokio::select! {
                biased;
                () = run.stop().cancelled() => return Err(Broken::Stopped(None)),
                settled = self.desk.settled() => {
                    clock.still_here(Instant::now());
                    if self.desk.settle(settled, &mut self.events)? == Next::EndTurn {
                        self.interrupt_soon(stream);
                    }
                }
                follow_up = follow_ups.next() => self.steer_soon(stream, follow_up),
                event = stream.next() => {
                    run.heard();
                    let mut next = event.map_err(Broken::Fault)?;
                    while let Some(event) = next {
                        self.hear(event, &mut clock);
                        next = stream.try_next().map_err(Broken::Fault)?;
                    }
                    self.translator.flush(&mut self.events);
                }
                () = moment(deadline) => {
                    return Err(Broken::Overdue(None, clock.refusal(Instant::now())));
                }
            }
            if self.translator.is_over() {
                break;
            }
            self.pass_on_in_time(stream).await?;
            if !self.translator.tool_at_work() {
                run.no_tool_at_work();
            }
        }
        self.desk.close(&mut self.events);
        Ok(())
    }

    /// Passes on what was heard. A consumer that does not take it ends the turn, unless the server is
    /// there for this run alone: then it is the server that waits.
    async fn pass_on_in_time(&mut self, stream: &TurnStream) -> Result<(), Broken> {
        let Some(patience) = self.patience else { return self.pass_on().await };
        tokio::select! {
            biased;
            passed = self.pass_on() => passed,
            () = stream.overflowed() => Err(Broken::Stalled(None)),
            () = sleep(patience) => Err(Broken::Stalled(None)),
        }
    }

    fn hear(&mut self, event: TurnEvent, clock: &mut TurnClock) {
        match event {
            TurnEvent::Told(told) => {
                clock.hear(&told, Instant::now());
                self.desk.hear(&told, &mut self.events);
                self.tell(&told);
            }
            TurnEvent::Asked(request) => self.desk.take(request, &mut self.events),
        }
    }

    fn tell(&mut self, told: &Notification) {
        if let Some(record) = self.record {
            record.told(told);
        }
        self.translator.told(told, &mut self.events);
    }

    /// Ends the turn, whose end is then heard like any other.
    fn interrupt_soon(&self, stream: &TurnStream) {
        let client = self.session.client.clone();
        let (thread, turn) = (self.session.thread.id().to_owned(), stream.id().to_owned());
        self.run.host().track(async move {
            if let Err(error) = interrupt(&client, &thread, &turn, INTERRUPT_LIMIT).await {
                tracing::debug!(%error, "a turn that was to end did not");
            }
        });
    }

    /// Hands a follow-up to the turn; what the server does not take goes back to who said it.
    fn steer_soon(&self, stream: &TurnStream, follow_up: FollowUp) {
        let client = self.session.client.clone();
        let (thread, turn) = (self.session.thread.id().to_owned(), stream.id().to_owned());
        self.run.host().track(async move {
            match steer(&client, &thread, &turn, follow_up.text()).await {
                Ok(()) => follow_up.taken(),
                Err(error) => tracing::debug!(%error, "a turn did not take a follow-up"),
            }
        });
    }

    async fn pass_on(&mut self) -> Result<(), Broken> {
        let events = std::mem::take(&mut self.events).into_iter();
        // The end is said by the engine, when it is known what becomes of the server.
        let (end, events) = events.partition(|event| matches!(event, TakopiEvent::Completed(_)));
        self.events = end;
        self.run.emit_all(events).await?;
        Ok(())
    }

    /// What the turn ended with.
    pub(super) async fn end(&mut self, spoken: Result<(), Broken>) -> End {
        let (completed, server) = match spoken {
            Ok(()) => {
                let completed = self.completed(interrupted);
                let server = fitness_after(&completed);
                let last_words = std::mem::take(&mut self.events);
                return End { completed, server, last_words };
            }
            Err(Broken::Refused(refusal)) => {
                let completed = self.refused(refusal);
                let server = fitness_after(&completed);
                (completed, server)
            }
            Err(Broken::Stalled(stream)) => {
                let server = match stream {
                    Some(stream) => self.interrupt(stream).await,
                    None => Fitness::Broken,
                };
                let stalled = ClientError::Stalled { thread: self.session.thread.id().to_owned() };
                (self.cut_short(refusal_of(&stalled)), server)
            }
            Err(Broken::Fault(error)) => (self.refused(refusal_of(&error)), Fitness::Broken),
            Err(Broken::Stopped(Some(stream))) => {
                let server = self.interrupt(stream).await;
                (self.completed(interrupted), server)
            }
            Err(Broken::Overdue(stream, refusal)) => {
                if let Some(stream) = stream {
                    self.interrupt(stream).await;
                }
                (self.cut_short(refusal), Fitness::Broken)
            }
            // Whether a turn was begun is not known.
            Err(Broken::Stopped(None)) => (self.completed(interrupted), Fitness::Broken),
        };
        End { completed, server, last_words: Vec::new() }
    }

    /// Interrupts the turn and reads it to its end, for the answer so far.
    async fn interrupt(&mut self, mut stream: TurnStream) -> Fitness {
        let session = self.session;
        let turn = stream.id().to_owned();
        let ask = interrupt(&session.client, session.thread.id(), &turn, INTERRUPT_LIMIT);
        // Read meanwhile: a server that waits for its reader does not hear the request.
        let rest = async {
            loop {
                match stream.next().await {
                    Ok(Some(TurnEvent::Told(told))) => self.tell(&told),
                    // The end is told even so.
                    Ok(Some(TurnEvent::Asked(_))) | Err(ClientError::Stalled { .. }) => {}
                    Ok(None) | Err(_) => return Ok(()),
                }
            }
        };
        match timeout(INTERRUPT_LIMIT, try_join(ask, rest)).await {
            Ok(Ok(_)) => Fitness::CutShort,
            Ok(Err(_)) | Err(_) => Fitness::Broken,
        }
    }

    /// The `Completed` of a turn that was ended for this. Its own end, if it came to one, was not
    /// what ended the run.
    fn cut_short(&mut self, refusal: Refusal) -> Completed {
        let turn = self.completed(interrupted);
        Completed::failure(CODEX, refusal.reason, refusal.error)
            .answer(turn.answer)
            .usage(turn.usage)
            .resume(turn.resume)
    }

    fn refused(&mut self, refusal: Refusal) -> Completed {
        self.completed(|| Completed::failure(CODEX, refusal.reason, refusal.error))
    }

    /// The `Completed` of the turn; one is made if the turn did not say any.
    fn completed(&mut self, otherwise: impl FnOnce() -> Completed) -> Completed {
        if !self.translator.is_over() {
            self.translator.finish(otherwise(), &mut self.events);
        }
        let is_end = |event: &mut TakopiEvent| matches!(event, TakopiEvent::Completed(_));
        match self.events.extract_if(.., is_end).next() {
            Some(TakopiEvent::Completed(completed)) => completed,
            _ => interrupted(),
        }
    }

    /// Where the session was recorded, if that is not where it is run.
    fn elsewhere(&self) -> Option<String> {
        self.run.resume.as_ref()?;
        let recorded = self.session.thread.opened().get("thread")?.get("cwd")?.as_str()?;
        let same = Path::new(recorded) == self.directory
            || self.directory.canonicalize().is_ok_and(|here| here == Path::new(recorded));
        (!same).then(|| recorded.to_owned())
    }
}

/// The settings of the turn.
async fn turn_options(request: &RunRequest, directory: &Path) -> Result<TurnOptions, Broken> {
    let output_schema = match &request.settings.output_schema {
        Some(file) => Some(read_schema(file).await?),
        None => None,
    };
    Ok(TurnOptions {
        cwd: Some(directory.to_owned()),
        model: request.settings.model.clone(),
        effort: request.settings.effort.clone(),
        images: request.settings.images.clone(),
        output_schema,
        sandbox_policy: request.settings.sandbox.as_deref().and_then(sandbox_policy),
        ..TurnOptions::default()
    })
}

/// A server that lost its login is of no further use.
fn fitness_after(completed: &Completed) -> Fitness {
    if completed.reason == Some(Reason::Auth) { Fitness::Broken } else { Fitness::Well }
}

/// A sandbox mode in the form in which a turn takes it.
fn sandbox_policy(mode: &str) -> Option<Value> {
    let kind = match mode {
        "read-only" => "readOnly",
        "workspace-write" => "workspaceWrite",
        "danger-full-access" => "dangerFullAccess",
        _ => return None,
    };
    Some(serde_json::json!({ "type": kind }))
}

async fn read_schema(file: &Path) -> Result<Value, Broken> {
    let text = tokio::fs::read(file).await.map_err(|error| error.to_string());
    let schema =
        text.and_then(|text| serde_json::from_slice(&text).map_err(|error| error.to_string()));
    schema.map_err(|error| {
        let error = format!("the output schema {} cannot be used: {error}", file.display());
        Broken::Refused(Refusal::new(Reason::InvalidRequest, error))
    })
}

/// Why a turn was not heard to its end.
pub(super) enum Broken {
    /// The run was stopped; the turn, if it was started.
    Stopped(Option<TurnStream>),
    Refused(Refusal),
    /// A limit of the turn was reached; the turn, if it was started.
    Overdue(Option<TurnStream>, Refusal),
    /// The consumer did not take what was told; the turn, if it was started.
    Stalled(Option<TurnStream>),
    Fault(ClientError),
}

impl Broken {
    /// Whether the server was gone before it said that it begins the turn.
    pub(super) fn is_before_the_turn(&self) -> bool {
        matches!(self, Self::Fault(ClientError::Closed { method, .. }) if method == "turn/start")
    }
}

impl From<Stopped> for Broken {
    fn from(_: Stopped) -> Self {
        Self::Stopped(None)
    }
}

/// Resolves at this moment; never without one.
async fn moment(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
