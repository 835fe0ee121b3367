//! One turn of a run: sends the prompt and emits what comes of it.
//!
//! `Completed` is not emitted here. It goes back to the engine with the health of the server, because
//! the end is reported only when it is known what becomes of the server.
//!
//! Promises:
//! - a stop never leaves a turn in an unknown state on a server that others use: a pending
//!   `turn/start` is waited for, then the turn is interrupted and read to its end, all within one limit. A turn
//!   that begins or ends later than that is interrupted behind the run ([`LateTurn`]);
//! - a run that ends ahead of its turn leaves no turn behind: it is interrupted, or its server is broken;
//! - a server is called broken only if it is dead, does not answer, lost its login, or refused a turn
//!   that it had begun. A refused interrupt is no fault: the turn may have ended a moment before, or not
//!   quite begun;
//! - a turn counts as never begun only if the server died before it sent anything of it. Only such a
//!   turn may be sent again;
//! - a follow-up that the server accepted is answered: in the turn, or in another one of the same run.

mod ending;
mod follow_ups;
mod late;
mod start;

use std::path::PathBuf;
use std::time::Duration;

use takopi_core::model::{Completed, TakopiEvent};
use takopi_core::runner::{EmitError, EngineRun, RunError, StoppedError};
use tokio::time::{Instant, sleep_until};

use self::ending::health_after;
use self::follow_ups::FollowUps;
pub(super) use self::late::LateTurn;
use self::start::StartError;
use super::approvals::{Next as AfterReply, RequestHandler};
use super::client::Client;
use super::conversation::Record;
use super::engine::refusal_of;
use super::error::ClientError;
use super::limits::{TurnClock, TurnLimits};
use super::notification::{Kind, Notification};
use super::thread::Thread;
use super::translator::{TurnTranslator, interrupted};
use super::turn::{TurnEvent, TurnStream};

/// How a turn ended.
pub(super) struct TurnEnd {
    pub(super) completed: Completed,
    pub(super) server: ServerHealth,
    /// The last events, to be emitted ahead of `completed`. They may wait for the consumer, which the
    /// server need not: the turn is over.
    pub(super) last_events: Vec<TakopiEvent>,
    /// The server died before it sent anything of the turn: the prompt may be sent to another.
    pub(super) never_began: bool,
    /// A turn that may still begin or go on, on a shared server.
    pub(super) late: Option<LateTurn>,
}

/// What can be done with a server after a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServerHealth {
    /// It can go on.
    Usable,
    /// No turn runs, but this one did not end by itself: processes of its commands may be left.
    Interrupted,
    /// It is dead, does not answer, or lost its login.
    Broken,
}

/// Which sessions use the server that runs the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServerUse {
    /// This session alone: the server waits for the consumer, and is ended if the turn is stopped.
    Own,
    /// Other sessions too: a consumer that takes nothing for this long ends its turn.
    Shared {
        /// See [`PoolLimits::patience`](super::PoolLimits::patience).
        patience: Duration,
        /// See [`PoolLimits::response`](super::PoolLimits::response): for the beginning and the end of the turn together.
        response: Duration,
    },
}

/// Drives one turn of a thread.
pub(super) struct TurnDriver<'a> {
    pub(super) run: &'a EngineRun,
    pub(super) client: &'a Client,
    pub(super) thread: &'a Thread,
    /// Whether codex has to be told the directory: it may have another one for the thread.
    pub(super) moved: bool,
    pub(super) directory: PathBuf,
    pub(super) translator: TurnTranslator,
    pub(super) requests: RequestHandler,
    pub(super) limits: TurnLimits,
    pub(super) server_use: ServerUse,
    /// Where the turn of a conversation is recorded.
    pub(super) record: Option<&'a Record>,
    /// Translated and not emitted yet.
    pub(super) events: Vec<TakopiEvent>,
    /// Events were dropped because the consumer did not take them in time.
    pub(super) stalled: bool,
    /// Until when a shared server may begin and end the turn, once the run was stopped before the turn was known.
    pub(super) give_up_at: Option<Instant>,
    /// A turn that may still run, though it is not followed any more.
    pub(super) late: Option<LateTurn>,
}

/// What comes after a turn.
enum Next {
    /// The end of the run.
    End,
    /// Another turn, with follow-ups that this one accepted and did not answer.
    Turn(String),
}

/// Why a turn that was started is not followed to its end.
enum FollowError {
    Stopped,
    /// A limit of the turn was reached.
    Overdue(RunError),
    /// The consumer did not take the events.
    Stalled,
    Failed(ClientError),
}

impl TurnDriver<'_> {
    /// Confirms the session, sends the prompt, and emits what comes of it. Returns when the turn is
    /// over, or when its server is known to be broken.
    pub(super) async fn run(mut self) -> TurnEnd {
        let mut follow_ups = FollowUps::default();
        let (mut turn, mut clock) = match self.start(&mut follow_ups).await {
            Ok(started) => started,
            Err(error) => return self.not_started(error),
        };
        follow_ups.listen(self.run.steer_messages());
        self.translator.named(turn.id(), turn.usage_before());
        let followed = loop {
            if let Some(record) = self.record {
                record.begun(self.thread.id(), &turn);
            }
            match self.follow(&mut turn, &mut clock, &mut follow_ups).await {
                Ok(Next::Turn(prompt)) => {
                    drop(turn);
                    (turn, clock) = match self.send_again(&prompt, &mut follow_ups).await {
                        Ok(started) => started,
                        // The turns before have run.
                        Err(error) => {
                            return TurnEnd { never_began: false, ..self.not_started(error) };
                        }
                    };
                    self.translator.goes_on(turn.id());
                }
                Ok(Next::End) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        // However the turn ended: nothing stays open in the stream.
        self.requests.close(&mut self.events);
        let (completed, server) = match followed {
            Ok(()) if turn.is_over() => {
                let completed = self.completed(interrupted);
                let server = health_after(&completed);
                (completed, server)
            }
            // An agent can report a turn as aborted that codex has not ended.
            Ok(()) | Err(FollowError::Stopped) => {
                let server = self.interrupt(turn).await;
                (self.completed(interrupted), server)
            }
            Err(FollowError::Overdue(refusal)) => {
                let server = self.interrupt(turn).await;
                (self.cut_short(refusal), server)
            }
            Err(FollowError::Stalled) => {
                let server = self.interrupt(turn).await;
                let stalled = ClientError::Stalled { thread: self.thread.id().to_owned() };
                let completed = self.cut_short(refusal_of(&stalled));
                // The end does not wait for a consumer that stalled.
                self.events.clear();
                (completed, server)
            }
            Err(FollowError::Failed(error)) => (self.server_failure(&error), ServerHealth::Broken),
        };
        self.end(completed, server)
    }

    /// The end of a run whose turn was not started.
    fn not_started(&mut self, error: StartError) -> TurnEnd {
        self.requests.close(&mut self.events);
        match error {
            StartError::Stopped(server) => {
                let completed = self.completed(interrupted);
                self.end(completed, server)
            }
            StartError::Refused(refusal) => {
                let completed = self.failure(refusal);
                let server = health_after(&completed);
                self.end(completed, server)
            }
            StartError::Failed { error, began } => {
                let gone = matches!(error, ClientError::Closed { .. });
                let completed = self.server_failure(&error);
                let end = self.end(completed, ServerHealth::Broken);
                TurnEnd { never_began: gone && !began, ..end }
            }
        }
    }

    async fn follow(
        &mut self,
        turn: &mut TurnStream,
        clock: &mut TurnClock,
        follow_ups: &mut FollowUps,
    ) -> Result<Next, FollowError> {
        let run = self.run;
        let id = turn.id().to_owned();
        if self.stalled {
            return Err(FollowError::Stalled);
        }
        // The end of the turn, if it may have left a follow-up unanswered.
        let mut end = None;
        while !self.translator.is_over() {
            let deadline = clock.deadline(self.requests.is_busy());
            tokio::select! {
                biased;
                () = run.stop().cancelled() => return Err(FollowError::Stopped),
                settled = self.requests.settled() => {
                    clock.renew_quiet(Instant::now());
                    if self.requests.settle(settled, &mut self.events)? == AfterReply::EndTurn {
                        self.interrupt_in_background(turn);
                    }
                }
                () = follow_ups.pass_on(self.client, self.thread.id(), &id) => {}
                event = turn.next() => {
                    let mut next = event?;
                    while let Some(event) = next {
                        end = self.receive(event, clock, follow_ups);
                        next = if end.is_none() { turn.try_next()? } else { None };
                    }
                    self.translator.flush(&mut self.events);
                }
                () = at(deadline) => {
                    return Err(FollowError::Overdue(clock.refusal(Instant::now())));
                }
            }
            if end.is_some() || self.translator.is_over() {
                break;
            }
            self.emit_in_time(turn).await?;
        }
        self.requests.close(&mut self.events);
        if let Some(end) = end {
            if end.is_successful_end()
                && let Some(prompt) = follow_ups.take_unread().await
            {
                self.translator.turn_ended(&mut self.events);
                self.emit_in_time(turn).await?;
                return Ok(Next::Turn(prompt));
            }
            self.handle(&end, end.kind());
        }
        Ok(Next::End)
    }

    /// Emits what was received. A consumer that does not take it ends the turn, unless the server is
    /// there for this run alone: then the server waits.
    async fn emit_in_time(&mut self, turn: &TurnStream) -> Result<(), FollowError> {
        match self.server_use {
            ServerUse::Own => self.emit().await?,
            ServerUse::Shared { patience, .. } => self.emit_within(patience, turn).await?,
        }
        if !self.translator.tool_running() {
            self.run.no_tool_running();
        }
        Ok(())
    }

    async fn emit_within(
        &mut self,
        patience: Duration,
        turn: &TurnStream,
    ) -> Result<(), FollowError> {
        let events = self.take_actions();
        tokio::select! {
            biased;
            emitted = self.run.emit_all_while_read(events, patience) => match emitted {
                Ok(()) => Ok(()),
                Err(EmitError::Stopped(stopped)) => Err(stopped.into()),
                Err(_) => Err(FollowError::Stalled),
            },
            () = turn.overflowed() => Err(FollowError::Stalled),
        }
    }

    /// Handles an event. Returns the end of the turn if follow-ups may be unanswered: it is not handled yet.
    fn receive(
        &mut self,
        event: TurnEvent,
        clock: &mut TurnClock,
        follow_ups: &mut FollowUps,
    ) -> Option<Notification> {
        if event.is_activity() {
            self.run.renew_idle();
        }
        match event {
            TurnEvent::Notification(notification) => {
                if notification.is_turn_end() && follow_ups.is_busy() {
                    return Some(notification);
                }
                let kind = notification.kind();
                follow_ups.notification(&kind);
                if notification.thread().is_some() {
                    clock.notification(&kind, Instant::now());
                }
                self.requests.notification(&notification, &kind, &mut self.events);
                self.handle(&notification, kind);
            }
            TurnEvent::Subagent(notification) => {
                self.requests.notification(&notification, &notification.kind(), &mut self.events);
            }
            TurnEvent::Request(request) => self.requests.take(request, &mut self.events),
            TurnEvent::Warning(warning) => self.events.push(self.run.warning(warning)),
        }
        None
    }

    fn handle(&mut self, notification: &Notification, kind: Kind<'_>) {
        if let Some(record) = self.record {
            record.notification(notification, &kind);
        }
        self.translator.notification(kind, &mut self.events);
    }

    async fn emit(&mut self) -> Result<(), StoppedError> {
        let events = self.take_actions();
        self.run.emit_all(events).await
    }

    /// What is to be emitted now. The end is emitted by the engine, when it is known what becomes of the server.
    fn take_actions(&mut self) -> Vec<TakopiEvent> {
        let events = std::mem::take(&mut self.events).into_iter();
        let (end, events) = events.partition(|event| matches!(event, TakopiEvent::Completed(_)));
        self.events = end;
        events
    }
}

impl From<StoppedError> for FollowError {
    fn from(_: StoppedError) -> Self {
        Self::Stopped
    }
}

impl From<ClientError> for FollowError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Stalled { .. } => Self::Stalled,
            error => Self::Failed(error),
        }
    }
}

/// Resolves at this moment; never without one.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
