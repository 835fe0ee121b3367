//! One turn: sends the prompt and emits what comes of it.
//!
//! `Completed` is not emitted here. It goes back to the engine with the health of the process, because the end is reported
//! only when it is known what becomes of the process.
//!
//! Promises:
//! - a stop first answers what the agent asks (some wait for that for ever), then cancels the turn and waits for its end,
//!   within a limit; whatever the agent says to that, the run was interrupted;
//! - an agent that says the same over and over is stopped;
//! - a process whose turn ended in a way that could not be read is not used again;
//! - a message into the running turn is taken only if the agent says that it is part of that turn.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use takopi_core::jsonl::Object;
use takopi_core::model::{Completed, Reason, ResumeToken, Started, TakopiEvent};
use takopi_core::redact::redacted;
use takopi_core::runner::{EngineRun, RunError, SteerMessage, SteerMessages, StoppedError};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::approvals::{Answered, RequestHandler};
use crate::client::{Client, ClientError, Incoming};
use crate::translator::Translator;
use crate::wire::{AgentInfo, Update};
use crate::{Agent, prompt};

/// How long an agent may take to end a turn that was cancelled.
const CANCEL_LIMIT: Duration = Duration::from_secs(5);
/// How long it may take to take a message into the running turn.
const STEER_LIMIT: Duration = Duration::from_secs(10);

/// How a run ended.
pub(crate) struct RunEnd {
    pub(crate) completed: Completed,
    pub(crate) health: ProcessHealth,
    /// The last events, to be emitted ahead of `completed`.
    pub(crate) last_events: Vec<TakopiEvent>,
    /// The process was gone before it sent anything of the turn: the prompt may be sent to another.
    pub(crate) never_began: bool,
}

/// What can be done with a process after a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessHealth {
    /// It can go on.
    Usable,
    /// The turn did not end by itself: processes of its commands may be left.
    Interrupted,
    /// It is dead, or lost its login.
    Broken,
}

/// Why a turn is not followed to its end.
enum FollowError {
    Stopped,
    /// The process is gone.
    Died,
    /// takopi ends it.
    Ended(RunError),
}

impl From<StoppedError> for FollowError {
    fn from(_: StoppedError) -> Self {
        Self::Stopped
    }
}

/// A message on its way into the running turn.
type Steering = BoxFuture<'static, (SteerMessage, Result<bool, ClientError>)>;

/// Drives one turn.
pub(crate) struct RunDriver<'a> {
    pub(crate) run: &'a EngineRun,
    pub(crate) agent: &'a Agent,
    pub(crate) client: &'a Client,
    pub(crate) info: &'a AgentInfo,
    pub(crate) session: &'a ResumeToken,
    pub(crate) translator: Translator,
    pub(crate) requests: RequestHandler,
    /// Whether the agent began a turn that nobody waits for.
    pub(crate) strayed: bool,
    /// Translated and not emitted yet.
    pub(crate) events: Vec<TakopiEvent>,
}

impl RunDriver<'_> {
    /// Sends the prompt and emits what comes of it.
    pub(crate) async fn run(mut self, content: Vec<Value>) -> RunEnd {
        let (mut inbox, earlier) = self.client.open(&self.session.value);
        let started = Started::new(self.session.clone()).title(self.agent.title());
        let earlier = earlier.into_iter().map(|warning| self.run.warning(warning));
        let first = std::iter::once(started.into()).chain(earlier).collect();
        if self.run.stop().is_cancelled() || self.run.emit_all(first).await.is_err() {
            // Nothing was sent: there is no turn to be cancelled.
            let otherwise = self.interrupted();
            return self.end(None, otherwise, ProcessHealth::Interrupted);
        }
        let params = json!({ "sessionId": self.session.value, "prompt": content });
        let sent = tokio::select! {
            biased;
            () = self.run.stop().cancelled() => Err(FollowError::Stopped),
            sent = self.client.prompt(&params) => Ok(sent),
        };
        let followed = match sent {
            Ok(true) => self.follow(&mut inbox).await,
            Ok(false) => Err(FollowError::Died),
            Err(error) => Err(error),
        };
        match followed {
            Ok(()) => {
                let otherwise = self.interrupted();
                let is_stray = self.strayed;
                let health =
                    if is_stray { ProcessHealth::Interrupted } else { ProcessHealth::Usable };
                self.end(None, otherwise, health)
            }
            Err(FollowError::Stopped) => {
                self.cancel(&mut inbox).await;
                let interrupted = RunError::new(Reason::Interrupted, "interrupted");
                let otherwise = self.interrupted();
                self.end(Some(interrupted), otherwise, ProcessHealth::Interrupted)
            }
            Err(FollowError::Died) => self.died().await,
            Err(FollowError::Ended(error)) => {
                self.cancel(&mut inbox).await;
                let otherwise = self.interrupted();
                self.end(Some(error), otherwise, ProcessHealth::Interrupted)
            }
        }
    }

    fn interrupted(&self) -> Completed {
        Completed::failure(self.run.engine(), Reason::Interrupted, "interrupted")
    }

    fn end(
        mut self,
        cut_short: Option<RunError>,
        otherwise: Completed,
        health: ProcessHealth,
    ) -> RunEnd {
        let unread = self.client.leave();
        self.events.extend(unread.into_iter().map(|warning| self.run.warning(warning)));
        self.requests.close(&mut self.events);
        let mut completed = self.translator.finish(otherwise, &mut self.events);
        if let Some(RunError { reason, message, .. }) = cut_short {
            completed.ok = false;
            completed.reason = Some(reason);
            completed.error = Some(message);
        }
        let health = match &completed.reason {
            // A process that lost its login is of no further use.
            Some(Reason::Auth) => ProcessHealth::Broken,
            // The end could not be read: the turn may still run, and the next run would get what comes of it.
            Some(Reason::Protocol) if health == ProcessHealth::Usable => ProcessHealth::Interrupted,
            _ => health,
        };
        RunEnd { completed, health, last_events: self.events, never_began: false }
    }

    async fn follow(&mut self, inbox: &mut mpsc::Receiver<Incoming>) -> Result<(), FollowError> {
        let run = self.run;
        let steers = self.info.steers && self.agent.quirks.steering;
        let mut follow_ups = steers.then(|| run.steer_messages());
        let mut steering: Option<Steering> = None;
        while !self.translator.is_over() {
            tokio::select! {
                biased;
                () = run.stop().cancelled() => return Err(FollowError::Stopped),
                settled = self.requests.settled() => {
                    match self.requests.settle(settled, &mut self.events)? {
                        Answered::Declined(Some(call)) => self.translator.declined(&call),
                        Answered::EndTurn => {
                            let error = "the approval handler ended the turn";
                            return Err(FollowError::Ended(RunError::new(Reason::Interrupted, error)));
                        }
                        Answered::Declined(None) | Answered::Nothing => {}
                    }
                }
                (message, outcome) = next_of(steering.as_mut()) => {
                    steering = None;
                    self.steered(message, outcome);
                }
                message = follow_up(follow_ups.as_mut()), if steering.is_none() => {
                    steering = Some(self.steer(message));
                }
                incoming = inbox.recv() => {
                    let mut incoming = Some(incoming.ok_or(FollowError::Died)?);
                    while let Some(next) = incoming.take() {
                        self.receive(next);
                        if self.translator.is_over() {
                            break;
                        }
                        incoming = inbox.try_recv().ok();
                    }
                }
            }
            if self.translator.is_over() {
                break;
            }
            run.emit_all(std::mem::take(&mut self.events)).await?;
            if !self.translator.tool_running() {
                run.no_tool_running();
            }
            if self.translator.is_repeating() {
                let title = self.agent.title();
                let error = format!(
                    "{title} said the same over and over and was stopped: its model's stream may break off"
                );
                return Err(FollowError::Ended(RunError::new(Reason::EngineFailed, error)));
            }
        }
        // What the agent says to a message that came too late decides about the process. It may be behind others.
        while let Some(late) = &mut steering {
            tokio::select! {
                biased;
                () = run.stop().cancelled() => return Err(FollowError::Stopped),
                (message, outcome) = late => {
                    steering = None;
                    self.steered(message, outcome);
                }
                Some(incoming) = inbox.recv() => self.receive_late(incoming),
            }
        }
        Ok(())
    }

    fn receive(&mut self, incoming: Incoming) {
        match incoming {
            Incoming::Update(update) => {
                if is_activity(&update) {
                    self.run.renew_idle();
                }
                self.translator.update(&update, &mut self.events);
            }
            Incoming::Request(request) => {
                let mut asked = Vec::new();
                if let Some(about) = self.requests.take(request, &mut asked) {
                    self.translator.asked(&about.call, about.is_foreign, &mut self.events);
                }
                self.events.extend(asked);
            }
            Incoming::Withdrawn(id) => self.requests.withdraw(&id, &mut self.events),
            Incoming::Ended(reply) => self.translator.ended(reply),
            Incoming::Warning(warning) => self.events.push(self.run.warning(warning)),
        }
    }

    /// Takes what comes behind the end of the turn.
    fn receive_late(&mut self, incoming: Incoming) {
        match incoming {
            // Dropped, it is answered `cancelled`.
            Incoming::Request(request) => request.decline(),
            Incoming::Warning(warning) => self.events.push(self.run.warning(warning)),
            Incoming::Update(_) | Incoming::Withdrawn(_) | Incoming::Ended(_) => {}
        }
    }

    /// Sends a message into the running turn.
    fn steer(&self, message: SteerMessage) -> Steering {
        let params = json!({
            "sessionId": self.session.value,
            "prompt": [prompt::text(self.agent, message.text())],
        });
        let client = self.client.clone();
        async move {
            let reply = client.call("_session/steering", &params, STEER_LIMIT).await;
            let outcome = reply
                .map(|reply| Object::of(&reply).text("outcome").as_deref() == Some("injected"));
            (message, outcome)
        }
        .boxed()
    }

    fn steered(&mut self, message: SteerMessage, outcome: Result<bool, ClientError>) {
        match outcome {
            Ok(true) => message.taken(),
            Err(ClientError::Refused(error)) => {
                tracing::debug!(error = %redacted(&error.message), "the message was not taken");
            }
            // The turn was over, and the agent began another that no response will end; or it may still do so. Its
            // process is ended.
            Ok(false) | Err(_) => self.strayed = true,
        }
    }

    /// Ends the turn and reads what comes of that. The agent may not answer: its process is ended anyway.
    async fn cancel(&mut self, inbox: &mut mpsc::Receiver<Incoming>) {
        self.requests.close(&mut self.events);
        let client = self.client;
        let cancel = async {
            client.notify("session/cancel", &json!({ "sessionId": self.session.value })).await;
            while !self.translator.is_over() {
                match inbox.recv().await {
                    // Dropped, it is answered `cancelled`.
                    Some(Incoming::Request(request)) => request.decline(),
                    Some(Incoming::Update(update)) => {
                        self.translator.update(&update, &mut self.events);
                    }
                    Some(Incoming::Ended(reply)) => self.translator.ended(reply),
                    Some(_) => {}
                    None => return,
                }
            }
        };
        if timeout(CANCEL_LIMIT, cancel).await.is_err() {
            tracing::debug!("the agent did not end the turn in time");
        }
        let unread = client.leave();
        self.events.extend(unread.into_iter().map(|warning| self.run.warning(warning)));
        client.close_session(self.info, &self.session.value).await;
    }

    /// The process is gone before the turn was over.
    async fn died(mut self) -> RunEnd {
        let stderr = self.client.stderr_tail().await;
        let message = format!("{} exited before the turn was over", self.agent.title());
        let error = RunError::new(Reason::ProcessDied, message).stderr_tail(stderr);
        self.events.extend(self.run.stderr_warning(&error));
        let completed = Completed::failure(self.run.engine(), error.reason, error.message);
        let never_began = !self.client.began();
        RunEnd { never_began, ..self.end(None, completed, ProcessHealth::Broken) }
    }
}

/// Whether an update shows that the agent does something.
fn is_activity(update: &Update) -> bool {
    !matches!(update, Update::Notice { .. } | Update::Mode(_) | Update::Other(_))
}

async fn follow_up(follow_ups: Option<&mut SteerMessages>) -> SteerMessage {
    match follow_ups {
        Some(follow_ups) => follow_ups.next().await,
        None => std::future::pending().await,
    }
}

async fn next_of(steering: Option<&mut Steering>) -> (SteerMessage, Result<bool, ClientError>) {
    match steering {
        Some(steering) => steering.await,
        None => std::future::pending().await,
    }
}
