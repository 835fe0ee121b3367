//! How a turn is started: `Started`, then the prompt, then the response that names the turn.
//!
//! What comes of the turn before the response is emitted as it comes, so that a server that sends much
//! before it responds is read.

use std::path::Path;
use std::time::Duration;

use takopi_core::runner::{RunError, StoppedError};
use tokio::time::{Instant, timeout};

use super::{FollowError, FollowUps, LateTurn, ServerHealth, ServerUse, TurnClock, TurnDriver, at};
use crate::app_server::engine::refusal_of;
use crate::app_server::error::ClientError;
use crate::app_server::settings::turn_options;
use crate::app_server::turn::{StartReply, TurnEvent, TurnOptions, TurnStream};

/// How long the rest of a dead server's output may take to arrive.
const OUTPUT_LIMIT: Duration = Duration::from_secs(5);

/// Why a turn was not started.
pub(super) enum StartError {
    /// The run was stopped, and the server is left like this.
    Stopped(ServerHealth),
    /// Nothing was started: the request is bad, or the server refused it.
    Refused(RunError),
    /// The server failed; whether it had sent something of the turn.
    Failed { error: ClientError, began: bool },
}

/// What came of a request that starts a turn.
struct Answered {
    /// Nothing if it is not waited for any longer.
    reply: Option<Result<String, ClientError>>,
    /// Whether the run was stopped meanwhile.
    stopped: bool,
    /// Whether something of the turn was received, or may have been.
    began: bool,
}

/// A turn that was started, and its clock.
type Started = (TurnStream, TurnClock);

impl TurnDriver<'_> {
    pub(super) async fn start(
        &mut self,
        follow_ups: &mut FollowUps,
    ) -> Result<Started, StartError> {
        self.confirm_in_time().await?;
        let options = self.options().await?;
        self.send(&self.run.request.prompt, &options, follow_ups).await
    }

    /// Starts another turn of the run.
    pub(super) async fn send_again(
        &mut self,
        prompt: &str,
        follow_ups: &mut FollowUps,
    ) -> Result<Started, StartError> {
        let mut options = self.options().await?;
        // The model has them.
        options.images.clear();
        self.send(prompt, &options, follow_ups).await
    }

    async fn options(&mut self) -> Result<TurnOptions, StartError> {
        let mut options = turn_options(&self.run.request).await.map_err(StartError::Refused)?;
        // Only then: codex prepares a turn that names its directory as if it were another one, which takes 3 ms.
        options.cwd = self.moved.then(|| self.directory.clone());
        if let Some(record) = self.record {
            options = record.settings(options);
        }
        Ok(options)
    }

    /// Emits `Started`. On a shared server a consumer that does not take it gives up its place.
    async fn confirm_in_time(&mut self) -> Result<(), StartError> {
        let stalled = ClientError::Stalled { thread: self.thread.id().to_owned() };
        let confirmed = match self.server_use {
            ServerUse::Own => Ok(self.confirm().await),
            ServerUse::Shared { patience, .. } => timeout(patience, self.confirm()).await,
        };
        match confirmed {
            Ok(Ok(())) => Ok(()),
            // Nothing was sent yet: a stop leaves the server as it is.
            Ok(Err(StoppedError)) => Err(StartError::Stopped(ServerHealth::Interrupted)),
            Err(_) => Err(StartError::Refused(refusal_of(&stalled))),
        }
    }

    async fn confirm(&mut self) -> Result<(), StoppedError> {
        self.translator.thread_started(self.thread.id(), &mut self.events);
        self.emit().await?;
        match self.recorded_elsewhere() {
            Some(recorded) => {
                self.run.note(format!("the session was recorded in {recorded}")).await
            }
            None => Ok(()),
        }
    }

    /// Where the session was recorded, if that is not where it is run.
    fn recorded_elsewhere(&self) -> Option<String> {
        self.run.resume.as_ref()?;
        let recorded = self.thread.opened().get("thread")?.get("cwd")?.as_str()?;
        let same = Path::new(recorded) == self.directory
            || self.directory.canonicalize().is_ok_and(|here| here == Path::new(recorded));
        (!same).then(|| recorded.to_owned())
    }

    /// Starts a turn with this prompt.
    async fn send(
        &mut self,
        prompt: &str,
        options: &TurnOptions,
        follow_ups: &mut FollowUps,
    ) -> Result<Started, StartError> {
        if self.run.stop().is_cancelled() {
            // Nothing is sent for it: the server is left as it is.
            return Err(StartError::Stopped(ServerHealth::Interrupted));
        }
        let failed = |error| StartError::Failed { error, began: true };
        let mut turn = TurnStream::open(self.client, self.thread.id()).map_err(failed)?;
        // Nothing was sent yet: these are of the time before the turn.
        let earlier = turn.take_warnings().into_iter();
        self.events.extend(earlier.map(|warning| self.run.warning(warning)));
        let mut clock = TurnClock::new(self.limits, Instant::now());
        let mut reply = turn.start_request(prompt, options);
        let answered = self.until_reply(&mut turn, &mut reply, &mut clock, follow_ups).await;
        let Answered { reply: answer, stopped, began } = answered;
        match answer {
            Some(Ok(id)) => {
                // A stop is seen again where the turn is followed, and the turn is interrupted there.
                turn.named(id);
                Ok((turn, clock))
            }
            Some(Err(error @ ClientError::Refused { .. }))
                if !self.client.routes().has_begun(self.thread.id()) =>
            {
                Err(if stopped {
                    StartError::Stopped(ServerHealth::Interrupted)
                } else {
                    StartError::Refused(refusal_of(&error))
                })
            }
            Some(Err(error @ ClientError::Closed { .. })) if !stopped => {
                let began = self.read_rest(&mut turn).await || began;
                Err(StartError::Failed { error, began })
            }
            answer => {
                if let Some(Err(ClientError::Refused { .. })) = answer {
                    // It has begun all the same.
                    self.read_received(&mut turn);
                }
                if let ServerUse::Shared { response, .. } = self.server_use
                    && !self.client.is_closed()
                {
                    let reply = answer.is_none().then_some(reply);
                    let late = LateTurn::new(self.client, self.thread.id(), turn, reply, response);
                    self.late = Some(late);
                }
                match answer {
                    Some(Err(error)) if !stopped => Err(failed(error)),
                    _ => Err(StartError::Stopped(ServerHealth::Broken)),
                }
            }
        }
    }

    /// Waits for the response to `turn/start`, and emits what comes of the turn meanwhile. A stop does not
    /// drop the request on a shared server: without the response it is unknown whether the turn runs.
    async fn until_reply(
        &mut self,
        turn: &mut TurnStream,
        reply: &mut StartReply,
        clock: &mut TurnClock,
        follow_ups: &mut FollowUps,
    ) -> Answered {
        let run = self.run;
        let (mut began, mut reads) = (false, true);
        let reply = loop {
            // Either is left for where the turn is followed.
            let reads_on = reads && !self.stalled && !turn.has_overflowed();
            tokio::select! {
                biased;
                () = run.stop().cancelled(), if self.give_up_at.is_none() => {
                    self.give_up_at = Some(match self.server_use {
                        ServerUse::Shared { response, .. } => Instant::now() + response,
                        // It is ended with whatever it has begun.
                        ServerUse::Own => Instant::now(),
                    });
                }
                reply = &mut *reply => break Some(reply),
                () = at(self.give_up_at) => break None,
                event = turn.next(), if reads_on => match event {
                    Ok(Some(event)) => {
                        began |= self.belongs_to_turn(&event);
                        self.receive(event, clock, follow_ups);
                        self.translator.flush(&mut self.events);
                        if self.give_up_at.is_none() {
                            // A consumer that stalled ends the turn when it is known.
                            let emitted = self.emit_in_time(turn).await;
                            self.stalled = matches!(emitted, Err(FollowError::Stalled));
                        }
                    }
                    // The server is gone: the response shows that, too.
                    Ok(None) | Err(_) => reads = false,
                },
            }
        };
        Answered { reply, stopped: self.give_up_at.is_some(), began }
    }

    /// Reads what a server sent before it died without an answer to `turn/start`. Returns whether
    /// anything of the turn was among it, or may have been.
    async fn read_rest(&mut self, turn: &mut TurnStream) -> bool {
        // A request can fail before all of the output was read.
        if timeout(OUTPUT_LIMIT, self.client.closed()).await.is_err() {
            return true;
        }
        self.read_received(turn)
    }

    /// Reads what is there of a turn. Returns whether anything of the turn was among it, or may have been.
    fn read_received(&mut self, turn: &mut TurnStream) -> bool {
        let mut began = false;
        loop {
            match turn.try_next() {
                Ok(Some(event)) => {
                    began |= self.belongs_to_turn(&event);
                    match event {
                        TurnEvent::Notification(notification) => {
                            self.handle(&notification, notification.kind());
                        }
                        TurnEvent::Warning(warning) => self.events.push(self.run.warning(warning)),
                        TurnEvent::Subagent(_) | TurnEvent::Request(_) => {}
                    }
                }
                // An end that was too long.
                Err(_) => began = true,
                Ok(None) => break,
            }
        }
        self.translator.flush(&mut self.events);
        began
    }

    /// Whether an event shows that the turn has begun, or may have.
    fn belongs_to_turn(&self, event: &TurnEvent) -> bool {
        match event {
            TurnEvent::Notification(notification) => {
                notification.is_of_a_turn() && notification.thread() == Some(self.thread.id())
            }
            // What could not be read may have been of the turn.
            TurnEvent::Warning(_) | TurnEvent::Subagent(_) | TurnEvent::Request(_) => true,
        }
    }
}
