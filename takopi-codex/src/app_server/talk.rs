//! One turn of a run: the prompt goes out, and what comes of it goes to the consumer.
//!
//! The end is not said here: `Completed` comes back to the engine, which knows what must become of
//! the server first.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use serde_json::Value;
use takopi_core::Decision;
use takopi_core::model::{Completed, Reason, TakopiEvent};
use takopi_core::runner::{EngineRun, Refusal, Stopped};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::approvals::{Patches, Question};
use super::engine::{Ended, refusal_of, unless_stopped};
use super::error::ClientError;
use super::message::RequestId;
use super::requests::ServerRequest;
use super::translator::{TurnTranslator, interrupted};
use super::turn::{TurnEvent, TurnOptions, TurnStream, interrupt};
use super::warm::Session;
use crate::CODEX;

/// How long codex may take to end a turn that was interrupted.
const INTERRUPT_LIMIT: Duration = Duration::from_secs(5);

/// How a turn ended.
pub(super) struct End {
    pub(super) completed: Completed,
    pub(super) server: Fitness,
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
    pub(super) patches: Patches,
    pub(super) events: Vec<TakopiEvent>,
}

/// A question that somebody is asked.
type Asked<'a> = BoxFuture<'a, (Question, ServerRequest, Result<Answered, Stopped>)>;

#[derive(Clone, Copy)]
enum Answered {
    Decided(Option<Decision>),
    Withdrawn,
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
        let options = self.turn_options().await?;
        let prompt = &self.run.request.prompt;
        let start = unless_stopped(self.run, self.session.thread.start_turn(prompt, &options));
        let mut stream = match start.await {
            Ok(stream) => stream,
            Err(Ended::Fault(error)) => return Err(Broken::Fault(error)),
            Err(_) => return Err(Broken::Stopped(None)),
        };
        match self.listen(&mut stream).await {
            Err(Broken::Stopped(_)) => Err(Broken::Stopped(Some(stream))),
            Err(Broken::Fault(ClientError::Stalled { .. })) => Err(Broken::Stalled(stream)),
            other => other,
        }
    }

    async fn listen(&mut self, stream: &mut TurnStream) -> Result<(), Broken> {
        let stop = self.run.stop().clone();
        let mut questions: FuturesUnordered<Asked<'_>> = FuturesUnordered::new();
        let mut open: Vec<(RequestId, CancellationToken)> = Vec::new();
        let run = self.run;
        while !self.translator.is_over() {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Err(Broken::Stopped(None)),
                Some((question, request, answered)) = questions.next() => {
                    open.retain(|(id, _)| id != request.id());
                    self.decide(&question, request, answered?);
                }
                event = stream.next() => {
                    run.heard();
                    let mut next = event.map_err(Broken::Fault)?;
                    while let Some(event) = next {
                        if let Some(asked) = self.hear(event, &mut open) {
                            questions.push(asked);
                        }
                        next = stream.try_next().map_err(Broken::Fault)?;
                    }
                    self.translator.flush(&mut self.events);
                }
            }
            self.pass_on().await?;
        }
        Ok(())
    }

    /// Takes in one event; a question comes back as what asks it.
    fn hear<'r>(
        &mut self,
        event: TurnEvent,
        open: &mut Vec<(RequestId, CancellationToken)>,
    ) -> Option<Asked<'r>>
    where
        Self: 'r,
    {
        match event {
            TurnEvent::Told(told) => {
                if told.method == "serverRequest/resolved" {
                    withdraw(&told.parse::<Value>().unwrap_or_default(), open);
                }
                self.patches.hear(&told);
                self.translator.told(&told, &mut self.events);
                None
            }
            TurnEvent::Asked(request) => {
                let Some(question) = Question::read(&request, &self.patches, &self.directory)
                else {
                    let what = format!("declined: nobody here knows `{}`", request.method());
                    self.events.push(self.run.warning(what));
                    request.decline();
                    return None;
                };
                self.events.push(question.waiting().into());
                let withdrawn = CancellationToken::new();
                open.push((request.id().clone(), withdrawn.clone()));
                Some(ask(self.run.clone(), question, request, withdrawn))
            }
        }
    }

    fn decide(&mut self, question: &Question, request: ServerRequest, answered: Answered) {
        match answered {
            Answered::Withdrawn => {
                self.events.push(question.withdrawn().into());
                request.forget();
            }
            Answered::Decided(decision) => {
                self.events.push(question.decided(decision).into());
                request.answer(question.answer(decision.unwrap_or(Decision::Decline)));
            }
        }
    }

    async fn pass_on(&mut self) -> Result<(), Broken> {
        let events = std::mem::take(&mut self.events);
        for event in events {
            match event {
                // Said by the engine, when it is known what becomes of the server.
                TakopiEvent::Completed(completed) => self.events.push(completed.into()),
                event => self.run.emit(event).await?,
            }
        }
        Ok(())
    }

    /// What the turn ended with.
    pub(super) async fn end(&mut self, spoken: Result<(), Broken>) -> End {
        let (completed, server) = match spoken {
            Ok(()) => {
                let completed = self.completed(interrupted);
                let poisoned = completed.reason == Some(Reason::Auth);
                (completed, if poisoned { Fitness::Broken } else { Fitness::Well })
            }
            Err(Broken::Refused(refusal)) => (self.refused(refusal), Fitness::Well),
            Err(Broken::Stalled(stream)) => {
                let stalled = ClientError::Stalled { thread: self.session.thread.id().to_owned() };
                let server = self.interrupt(stream).await;
                (self.refused(refusal_of(&stalled)), server)
            }
            Err(Broken::Fault(error)) => (self.refused(refusal_of(&error)), Fitness::Broken),
            Err(Broken::Stopped(Some(stream))) => {
                let server = self.interrupt(stream).await;
                (self.completed(interrupted), server)
            }
            // Whether a turn was begun is not known.
            Err(Broken::Stopped(None)) => (self.completed(interrupted), Fitness::Broken),
        };
        End { completed, server }
    }

    /// Interrupts the turn and reads it to its end, for the answer so far.
    async fn interrupt(&mut self, mut stream: TurnStream) -> Fitness {
        let (client, thread) = (&self.session.client, self.session.thread.id());
        if interrupt(client, thread, stream.id(), INTERRUPT_LIMIT).await.is_err() {
            return Fitness::Broken;
        }
        let translator = &mut self.translator;
        let events = &mut self.events;
        let rest = async {
            while let Ok(Some(event)) = stream.next().await {
                if let TurnEvent::Told(told) = event {
                    translator.told(&told, events);
                }
            }
        };
        match timeout(INTERRUPT_LIMIT, rest).await {
            Ok(()) => Fitness::CutShort,
            Err(_) => Fitness::Broken,
        }
    }

    fn refused(&mut self, refusal: Refusal) -> Completed {
        self.completed(|| Completed::failure(CODEX, refusal.reason, refusal.error))
    }

    /// The `Completed` of the turn; one is made if the turn did not say any.
    fn completed(&mut self, otherwise: impl FnOnce() -> Completed) -> Completed {
        let mut events = std::mem::take(&mut self.events);
        if !self.translator.is_over() {
            self.translator.finish(otherwise(), &mut events);
        }
        let said = events.into_iter().find_map(|event| match event {
            TakopiEvent::Completed(completed) => Some(completed),
            _ => None,
        });
        said.unwrap_or_else(interrupted)
    }

    /// Where the session was recorded, if that is not where it is run.
    fn elsewhere(&self) -> Option<String> {
        self.run.resume.as_ref()?;
        let recorded = self.session.thread.opened().get("thread")?.get("cwd")?.as_str()?;
        let same = Path::new(recorded) == self.directory
            || self.directory.canonicalize().is_ok_and(|here| here == Path::new(recorded));
        (!same).then(|| recorded.to_owned())
    }

    async fn turn_options(&self) -> Result<TurnOptions, Broken> {
        let request = &self.run.request;
        let output_schema = match &request.output_schema {
            Some(file) => Some(read_schema(file).await?),
            None => None,
        };
        let options = TurnOptions {
            cwd: Some(self.directory.clone()),
            model: request.model.clone(),
            effort: request.effort.clone(),
            images: request.images.clone(),
            output_schema,
            sandbox_policy: request.sandbox.as_deref().and_then(sandbox_policy),
            ..TurnOptions::default()
        };
        Ok(options)
    }
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
        Broken::Refused(Refusal::new(Reason::SpawnFailed, error))
    })
}

/// Why a turn was not heard to its end.
pub(super) enum Broken {
    /// The run was stopped; the turn, if it was started.
    Stopped(Option<TurnStream>),
    Refused(Refusal),
    /// More was told than the consumer took.
    Stalled(TurnStream),
    Fault(ClientError),
}

impl From<Stopped> for Broken {
    fn from(_: Stopped) -> Self {
        Self::Stopped(None)
    }
}

/// Puts a question to whoever may decide, until it is answered or taken back.
fn ask<'r>(
    run: EngineRun,
    question: Question,
    request: ServerRequest,
    withdrawn: CancellationToken,
) -> Asked<'r> {
    Box::pin(async move {
        let answered = tokio::select! {
            biased;
            () = withdrawn.cancelled() => Ok(Answered::Withdrawn),
            decision = run.ask(question.request.clone()) => decision.map(Answered::Decided),
        };
        (question, request, answered)
    })
}

/// The server settled a request by itself.
fn withdraw(told: &Value, open: &[(RequestId, CancellationToken)]) {
    let id =
        told.get("requestId").and_then(|id| serde_json::from_value::<RequestId>(id.clone()).ok());
    if let Some((_, withdrawn)) = open.iter().find(|(open, _)| Some(open) == id.as_ref()) {
        withdrawn.cancel();
    }
}
