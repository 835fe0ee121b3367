//! One run: sends the message and emits what comes of it.
//!
//! `Completed` is not emitted here. It goes back to the engine with the health of the process, because
//! the end is reported only when it is known what becomes of the process.
//!
//! Promises:
//! - a stop interrupts the turn and waits for its end, within a limit;
//! - the first refusal of the login ends the run: Claude Code itself would try for three minutes;
//! - a run counts as never begun only if the process died before it printed anything of it. Only such a
//!   message may be sent again.

use std::time::Duration;

use takopi_core::model::{Completed, Reason, TakopiEvent};
use takopi_core::runner::{EngineRun, RunError, SteerMessage, SteerMessages, StoppedError};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::CLAUDE;
use crate::approvals::RequestHandler;
use crate::client::{Client, Incoming};
use crate::engine::interrupted;
use crate::failure;
use crate::launch::InertPrompts;
use crate::prompt::UserMessage;
use crate::translator::Translator;
use crate::wire::Message;

/// How long Claude Code may take to end a turn that was interrupted.
const INTERRUPT_LIMIT: Duration = Duration::from_secs(2);

/// How a run ended.
pub(crate) struct RunEnd {
    pub(crate) completed: Completed,
    pub(crate) health: ProcessHealth,
    /// The last events, to be emitted ahead of `completed`.
    pub(crate) last_events: Vec<TakopiEvent>,
    /// The process died before it printed anything of the run: the message may be sent to another.
    pub(crate) never_began: bool,
    /// What the session has cost so far.
    pub(crate) total_cost: Option<f64>,
}

/// What can be done with a process after a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessHealth {
    /// It can go on.
    Usable,
    /// The turn did not end by itself: processes of its commands may be left.
    Interrupted,
    /// It is dead, lost its login, or has another session than it should.
    Broken,
}

/// Why a run is not followed to its end.
enum FollowError {
    Stopped,
    /// The process is gone.
    Died,
    /// takopi ends it: the login was refused, or the process opened another session.
    Ended(RunError, ProcessHealth),
}

impl From<StoppedError> for FollowError {
    fn from(_: StoppedError) -> Self {
        Self::Stopped
    }
}

/// Drives one run.
pub(crate) struct RunDriver<'a> {
    run: &'a EngineRun,
    client: &'a Client,
    translator: Translator,
    requests: RequestHandler,
    inert: InertPrompts,
    /// Whether the process printed anything of the run.
    began: bool,
    /// Whether a line could not be read: it may have been the result.
    unreadable: bool,
    /// Translated and not emitted yet.
    events: Vec<TakopiEvent>,
}

impl<'a> RunDriver<'a> {
    pub(crate) fn new(
        run: &'a EngineRun,
        client: &'a Client,
        translator: Translator,
        requests: RequestHandler,
        inert: InertPrompts,
    ) -> Self {
        Self {
            run,
            client,
            translator,
            requests,
            inert,
            began: false,
            unreadable: false,
            events: Vec::new(),
        }
    }

    /// Sends the message and emits what comes of it. Returns when the run is over, or its process is
    /// known to be of no use.
    pub(crate) async fn run(mut self, message: UserMessage) -> RunEnd {
        if self.client.reports_state() {
            self.translator.reports_state();
        }
        let (mut lines, earlier) = self.client.open();
        let earlier = earlier.into_iter().map(|warning| self.run.warning(warning)).collect();
        if self.run.stop().is_cancelled() || self.run.emit_all(earlier).await.is_err() {
            // Nothing was sent: there is no turn to be ended.
            return self.end(None, interrupted(), ProcessHealth::Interrupted);
        }
        let followed = match self.send(&message).await {
            // What a process that died printed is still read.
            Ok(_) => self.follow(&mut lines).await,
            Err(error) => Err(error),
        };
        let (otherwise, health) = match followed {
            Ok(()) => (self.without_result(), ProcessHealth::Usable),
            Err(FollowError::Stopped) => {
                self.interrupt(&mut lines).await;
                (interrupted(), ProcessHealth::Interrupted)
            }
            Err(FollowError::Died) => (self.died().await, ProcessHealth::Broken),
            Err(FollowError::Ended(error, health)) => {
                if health == ProcessHealth::Interrupted {
                    self.interrupt(&mut lines).await;
                }
                return self.end(Some(error), interrupted(), health);
            }
        };
        self.end(None, otherwise, health)
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
        // A process that lost its login is of no further use.
        let is_refused = completed.reason == Some(Reason::Auth);
        let health = if is_refused { ProcessHealth::Broken } else { health };
        RunEnd {
            completed,
            health,
            last_events: self.events,
            never_began: health == ProcessHealth::Broken && !self.began,
            total_cost: self.translator.total_cost(),
        }
    }

    /// Sends a message; `false` if the process no longer reads. One that is only slow to read holds up
    /// no stop.
    async fn send(&mut self, message: &UserMessage) -> Result<bool, FollowError> {
        let sent = tokio::select! {
            biased;
            () = self.run.stop().cancelled() => return Err(FollowError::Stopped),
            sent = self.client.send(message) => sent,
        };
        if !sent {
            tracing::debug!("Claude Code no longer reads its input");
        }
        Ok(sent)
    }

    async fn follow(&mut self, lines: &mut mpsc::Receiver<Incoming>) -> Result<(), FollowError> {
        let run = self.run;
        let mut follow_ups = None;
        while !self.translator.is_over() {
            if self.began && follow_ups.is_none() {
                follow_ups = Some(run.steer_messages());
            }
            tokio::select! {
                biased;
                () = run.stop().cancelled() => return Err(FollowError::Stopped),
                settled = self.requests.settled() => {
                    self.requests.settle(settled, &mut self.events)?;
                }
                follow_up = next_of(follow_ups.as_mut()) => self.steer(follow_up).await?,
                incoming = lines.recv() => {
                    let mut incoming = Some(incoming.ok_or(FollowError::Died)?);
                    while let Some(next) = incoming.take() {
                        self.receive(next);
                        if self.translator.is_over() {
                            return Ok(());
                        }
                        incoming = lines.try_recv().ok();
                    }
                }
            }
            run.emit_all(std::mem::take(&mut self.events)).await?;
            if !self.translator.tool_running() {
                run.no_tool_running();
            }
            self.check()?;
        }
        Ok(())
    }

    /// Ends a run that cannot come to a good end.
    fn check(&self) -> Result<(), FollowError> {
        if self.translator.authentication_failed() {
            let error = failure::authentication();
            return Err(FollowError::Ended(error, ProcessHealth::Interrupted));
        }
        if let Some(other) = self.translator.session_mismatch() {
            let error = format!("Claude Code opened session {other} in place of the one asked for");
            let error = RunError::new(Reason::Protocol, error);
            return Err(FollowError::Ended(error, ProcessHealth::Interrupted));
        }
        Ok(())
    }

    fn receive(&mut self, incoming: Incoming) {
        match incoming {
            Incoming::Message(Message::ControlCancel { id }) => {
                self.requests.withdraw(&id, &mut self.events);
            }
            Incoming::Message(message) => {
                self.began = true;
                if self.translator.message(&message, &mut self.events) {
                    self.run.renew_idle();
                }
            }
            Incoming::Request(request) => {
                self.began = true;
                if let Some(call) = self.requests.take(request, &mut self.events) {
                    self.translator.asked(&call);
                }
            }
            Incoming::Unreadable(warning) => {
                // What could not be read may have been of the run.
                self.began = true;
                self.unreadable = true;
                self.events.extend(warning.map(|warning| self.run.warning(warning)));
            }
            Incoming::Warning(warning) => {
                self.began = true;
                self.events.push(self.run.warning(warning));
            }
        }
    }

    /// Sends a message into the running turn. The process folds it in, or runs it right behind.
    async fn steer(&mut self, follow_up: SteerMessage) -> Result<(), FollowError> {
        if self.inert == InertPrompts::Escaped {
            // What is folded in is an attachment, and those are off here: the model would never see
            // it. Its sender gets it back.
            tracing::debug!("this release takes no messages into a running turn");
            return Ok(());
        }
        let message = UserMessage::new(follow_up.text(), self.inert);
        if self.send(&message).await? {
            self.translator.steered(message.uuid);
            follow_up.taken();
        }
        Ok(())
    }

    /// Ends the turn and reads what comes of that. The process may not answer: it is ended anyway.
    async fn interrupt(&mut self, lines: &mut mpsc::Receiver<Incoming>) {
        let client = self.client;
        // A message that was queued is run behind the turn that was ended, and must be ended too.
        let interrupt = async { while let Ok(true) = client.interrupt(INTERRUPT_LIMIT).await {} };
        let read = async {
            tokio::pin!(interrupt);
            let mut answered = false;
            while !self.translator.is_over() {
                tokio::select! {
                    biased;
                    incoming = lines.recv() => match incoming {
                        // The agent is not to be told no now: what it asked is withdrawn.
                        Some(Incoming::Request(request)) => request.forget(),
                        Some(Incoming::Message(message)) => {
                            self.translator.message(&message, &mut self.events);
                        }
                        Some(Incoming::Unreadable(_) | Incoming::Warning(_)) => {}
                        None => return,
                    },
                    () = &mut interrupt, if !answered => answered = true,
                }
            }
        };
        let _ = timeout(INTERRUPT_LIMIT, read).await;
    }

    /// How a run ended that is over and of which no result was seen.
    fn without_result(&self) -> Completed {
        if self.unreadable {
            let error = "the turn is over, and its result could not be read";
            return Completed::failure(CLAUDE, Reason::Protocol, error);
        }
        interrupted()
    }

    /// The process is gone before the run was over.
    async fn died(&mut self) -> Completed {
        let stderr = self.client.stderr_tail().await;
        // It covers the whole life of the process: behind the beginning of a turn, or in an earlier
        // one, it says nothing about this end.
        let known = if self.began { None } else { failure::on_stderr(&stderr) };
        let died =
            || RunError::new(Reason::ProcessDied, "Claude Code exited before the turn was over");
        let error = known.unwrap_or_else(died).stderr_tail(stderr);
        self.events.extend(self.run.stderr_warning(&error));
        Completed::failure(CLAUDE, error.reason, error.message)
    }
}

/// The next follow-up. None is taken before the process has begun: a message to one that never does is
/// lost with it.
async fn next_of(follow_ups: Option<&mut SteerMessages>) -> SteerMessage {
    match follow_ups {
        Some(follow_ups) => follow_ups.next().await,
        None => std::future::pending().await,
    }
}
