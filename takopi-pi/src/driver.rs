//! One run: sends the prompt and emits what comes of it.
//!
//! `Completed` is not emitted here. It goes back to the engine with the health of the process, because
//! the end is reported only when it is known what becomes of the process.
//!
//! Promises:
//! - a stop answers what is asked, aborts the run and waits for its end, within a limit;
//! - a message that pi queued and did not run is run before the run is over;
//! - a run counts as never begun only if the process died before it printed anything of it. Only such a
//!   prompt may be sent again.

use std::time::Duration;

use serde_json::{Value, json};
use takopi_core::model::{Completed, Reason, TakopiEvent};
use takopi_core::redact::redacted;
use takopi_core::runner::{EngineRun, RunError, SteerMessage, SteerMessages, StoppedError};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::PI;
use crate::approvals::RequestHandler;
use crate::client::{Client, CommandError, Incoming, Response};
use crate::engine::interrupted;
use crate::failure;
use crate::prompt::inert;
use crate::translator::Translator;
use crate::wire::Event;

/// How long pi may take to abort a run.
const ABORT_LIMIT: Duration = Duration::from_secs(3);

/// How a run ended.
pub(crate) struct RunEnd {
    pub(crate) completed: Completed,
    pub(crate) health: ProcessHealth,
    /// The last events, to be emitted ahead of `completed`.
    pub(crate) last_events: Vec<TakopiEvent>,
    /// The process died before it printed anything of the run: the prompt may be sent to another.
    pub(crate) never_began: bool,
}

/// What can be done with a process after a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessHealth {
    /// It can go on.
    Usable,
    /// The run did not end by itself: processes of its commands may be left. Or the process is dead.
    Broken,
}

/// Why a run is not followed to its end.
enum FollowError {
    Stopped,
    /// The process is gone.
    Died,
    /// pi refused the prompt, or an approval handler ended the turn.
    Ended(RunError),
}

impl From<StoppedError> for FollowError {
    fn from(_: StoppedError) -> Self {
        Self::Stopped
    }
}

/// A command whose response is to come.
enum Sent {
    Prompt(Response),
    Steer(Response, SteerMessage),
    /// What pi queued and did not run.
    Queue(Response),
}

impl Sent {
    fn response(&mut self) -> &mut Response {
        match self {
            Self::Prompt(response) | Self::Steer(response, _) | Self::Queue(response) => response,
        }
    }
}

/// Drives one run.
pub(crate) struct RunDriver<'a> {
    run: &'a EngineRun,
    client: &'a Client,
    translator: Translator,
    requests: RequestHandler,
    /// The one command that is being answered.
    sent: Option<Sent>,
    /// Whether the run received anything.
    began: bool,
    /// Translated and not emitted yet.
    events: Vec<TakopiEvent>,
}

impl<'a> RunDriver<'a> {
    pub(crate) fn new(
        run: &'a EngineRun,
        client: &'a Client,
        translator: Translator,
        requests: RequestHandler,
    ) -> Self {
        Self { run, client, translator, requests, sent: None, began: false, events: Vec::new() }
    }

    /// Sends the prompt and emits what comes of it. Returns when the run is over, or its process is known
    /// to be of no use.
    pub(crate) async fn run(mut self, prompt: Value) -> RunEnd {
        let (mut lines, earlier) = self.client.open();
        let earlier = earlier.into_iter().map(|warning| self.run.warning(warning)).collect();
        if self.run.stop().is_cancelled() || self.run.emit_all(earlier).await.is_err() {
            // Nothing was sent: there is no run to be aborted.
            return self.end(None, interrupted(), ProcessHealth::Broken);
        }
        let followed = match self.send("prompt", prompt, Sent::Prompt).await {
            // What a process that died printed is still read.
            Ok(()) | Err(FollowError::Died) => self.follow(&mut lines).await,
            Err(error) => Err(error),
        };
        match followed {
            Ok(()) => self.end(None, interrupted(), ProcessHealth::Usable),
            Err(FollowError::Stopped) => {
                self.abort(&mut lines).await;
                self.end(None, interrupted(), ProcessHealth::Broken)
            }
            Err(FollowError::Died) => {
                let died = self.died().await;
                self.end(None, died, ProcessHealth::Broken)
            }
            Err(FollowError::Ended(error)) => {
                self.abort(&mut lines).await;
                self.end(Some(error), interrupted(), ProcessHealth::Broken)
            }
        }
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
        // A process without a login may have read its key before the user changed it.
        let is_refused = completed.reason == Some(Reason::Auth);
        let health = if is_refused { ProcessHealth::Broken } else { health };
        let began = self.began || self.client.printed();
        RunEnd {
            completed,
            health,
            last_events: self.events,
            never_began: health == ProcessHealth::Broken && !began,
        }
    }

    /// Sends a command whose response is read while the run is followed. A process that is only slow to
    /// read holds up no stop.
    async fn send(
        &mut self,
        command: &str,
        fields: Value,
        sent: impl FnOnce(Response) -> Sent,
    ) -> Result<(), FollowError> {
        let response = tokio::select! {
            biased;
            () = self.run.stop().cancelled() => return Err(FollowError::Stopped),
            response = self.client.send(command, fields) => response,
        };
        let response = response.map_err(|_| FollowError::Died)?;
        self.sent = Some(sent(response));
        Ok(())
    }

    async fn follow(&mut self, lines: &mut mpsc::Receiver<Incoming>) -> Result<(), FollowError> {
        let run = self.run;
        let mut follow_ups = None;
        loop {
            if self.translator.is_over()
                && let Some(Sent::Prompt(response)) = &mut self.sent
            {
                // What settles was accepted: a response that is not there by now was lost.
                match response.ready() {
                    Some(response) => self.answered(response).await?,
                    None => self.sent = None,
                }
            }
            if self.translator.is_over() && self.sent.is_none() {
                // pi reports what waits before it answers the message that came too late.
                while let Ok(incoming) = lines.try_recv() {
                    self.receive(incoming);
                }
                if !self.translator.has_waiting() {
                    return Ok(());
                }
                self.send("clear_queue", json!({}), Sent::Queue).await?;
            }
            if self.began && follow_ups.is_none() {
                follow_ups = Some(run.steer_messages());
            }
            // One command at a time, and none into a run that is over.
            let steerable = self.sent.is_none() && !self.translator.is_over();
            let mut cancelled = false;
            tokio::select! {
                biased;
                () = run.stop().cancelled() => return Err(FollowError::Stopped),
                response = answered(self.sent.as_mut()) => self.answered(response).await?,
                settled = self.requests.settled() => {
                    cancelled = self.requests.settle(settled, &mut self.events)?;
                }
                follow_up = next_of(follow_ups.as_mut()), if steerable => {
                    let fields = json!({ "message": inert(follow_up.text()) });
                    self.send("steer", fields, |response| Sent::Steer(response, follow_up)).await?;
                }
                // Also behind the end while an answer is awaited: the answer comes after other lines.
                incoming = lines.recv(), if !self.translator.is_over() || !lines.is_closed() => {
                    match incoming {
                        Some(incoming) => self.receive(incoming),
                        None if self.translator.is_over() => {}
                        None => return Err(FollowError::Died),
                    }
                }
            }
            run.emit_all(std::mem::take(&mut self.events)).await?;
            if cancelled {
                let error = "the approval handler ended the turn";
                return Err(FollowError::Ended(RunError::new(Reason::Interrupted, error)));
            }
            if !self.translator.tool_running() {
                run.no_tool_running();
            }
        }
    }

    fn receive(&mut self, incoming: Incoming) {
        self.began = true;
        match incoming {
            Incoming::Event(event) => {
                if is_activity(&event) {
                    self.run.renew_idle();
                }
                self.translator.event(&event, &mut self.events);
            }
            Incoming::Dialog(dialog) => self.requests.take(dialog, &mut self.events),
            Incoming::Warning(warning) => self.events.push(self.run.warning(warning)),
        }
    }

    /// The command that was sent is answered.
    async fn answered(&mut self, response: Result<Value, CommandError>) -> Result<(), FollowError> {
        let Some(sent) = self.sent.take() else { return Ok(()) };
        let data = match response {
            Ok(data) => data,
            // What the process printed before it died is still read; there its end is seen.
            Err(CommandError::Gone) if !matches!(sent, Sent::Queue(_)) => return Ok(()),
            Err(CommandError::Gone) => return Err(FollowError::Died),
            Err(error) => {
                self.began = true;
                let Sent::Prompt(_) = sent else {
                    tracing::debug!(error = %redacted(&error), "pi refused a message");
                    if matches!(sent, Sent::Queue(_)) {
                        self.translator.nothing_waits();
                    }
                    return Ok(());
                };
                let (reason, message) = failure::of_text(&error.to_string());
                return Err(FollowError::Ended(RunError::new(reason, message)));
            }
        };
        self.began = true;
        match sent {
            Sent::Prompt(_) if data["disposition"] == "handled" => {
                let error = "an extension of pi took the prompt, and no run followed";
                Err(FollowError::Ended(RunError::new(Reason::EngineFailed, error)))
            }
            Sent::Prompt(_) => {
                self.translator.accepted(&mut self.events);
                Ok(())
            }
            Sent::Steer(_, message) => {
                message.taken();
                Ok(())
            }
            Sent::Queue(_) => {
                let left = data["steering"].as_array().into_iter().flatten();
                let left: Vec<&str> = left.filter_map(Value::as_str).collect();
                if left.is_empty() {
                    self.translator.nothing_waits();
                    return Ok(());
                }
                let prompt = json!({ "message": left.join("\n\n") });
                self.translator.goes_on();
                self.send("prompt", prompt, Sent::Prompt).await
            }
        }
    }

    /// Ends the run and reads what comes of that. The process may not answer: it is ended anyway.
    async fn abort(&mut self, lines: &mut mpsc::Receiver<Incoming>) {
        // pi does not abort while a dialog is open.
        self.requests.close(&mut self.events);
        let client = self.client;
        let aborted = async {
            // What is queued would be run behind the abort.
            let _ = client.command("clear_queue", ABORT_LIMIT).await;
            let _ = client.command("abort", ABORT_LIMIT).await;
        };
        let read = async {
            tokio::pin!(aborted);
            let mut is_aborted = false;
            while !(self.translator.is_over() || is_aborted) {
                tokio::select! {
                    biased;
                    incoming = lines.recv() => match incoming {
                        Some(Incoming::Event(event)) => {
                            self.translator.event(&event, &mut self.events);
                        }
                        // A dialog is cancelled by being dropped.
                        Some(Incoming::Dialog(_) | Incoming::Warning(_)) => {}
                        None => return,
                    },
                    () = &mut aborted, if !is_aborted => is_aborted = true,
                }
            }
        };
        let _ = timeout(ABORT_LIMIT, read).await;
    }

    /// The process is gone before the run was over.
    async fn died(&mut self) -> Completed {
        let error = match died(self.client).await {
            // Stderr covers the whole life of the process: behind the beginning of a run, or in an earlier one, it says
            // nothing about this end.
            error if self.began => exited().stderr_tail(error.stderr_tail),
            error => error,
        };
        self.events.extend(self.run.stderr_warning(&error));
        Completed::failure(PI, error.reason, error.message)
    }
}

/// Whether an event shows that the agent does something.
fn is_activity(event: &Event) -> bool {
    !matches!(event, Event::ExtensionError { .. } | Event::Other { .. })
}

/// Why a process is gone.
pub(crate) async fn died(client: &Client) -> RunError {
    let stderr = client.stderr_tail().await;
    let known = failure::on_stderr(&stderr).map(|(reason, error)| RunError::new(reason, error));
    known.unwrap_or_else(exited).stderr_tail(stderr)
}

fn exited() -> RunError {
    RunError::new(Reason::ProcessDied, "pi exited before the run was over")
}

/// The response to the command that was sent, if there is one.
async fn answered(sent: Option<&mut Sent>) -> Result<Value, CommandError> {
    match sent {
        Some(sent) => sent.response().wait().await,
        None => std::future::pending().await,
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
