//! One pi process, and the conversation with it.
//!
//! A reader routes what the process prints: responses to the commands that wait for them, everything
//! else to the run that has the process. Promises:
//! - while no run has it, whatever an extension asks is cancelled;
//! - the process waits for a run that is behind: nothing is dropped, and memory is bounded;
//! - the end of the process fails everything pending at once;
//! - a command that is not answered in time fails, and so does the only one that waits if pi reports a failure of a
//!   command that it does not name; a late response is dropped;
//! - whatever the process prints behind a prompt counts as a beginning of its run, also what no run receives.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use takopi_core::Host;
use takopi_core::jsonl::ProcessLines;
use takopi_core::peer::{Peer, PendingRequests, Wire};
use takopi_core::process::{Frame, Output, SpawnError, StartCutoff};
use takopi_core::redact::redacted;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::dialog::Dialog;
use crate::extension::STATUS_KEY;
use crate::launch::{PiLaunch, SessionArg};
use crate::wire::{Event, Line};

/// How many lines wait for the run. A line may be large, so they are few.
const LINES_WAITING: usize = 8;

/// A command failed.
#[derive(Debug, Error)]
pub(crate) enum CommandError {
    #[error("pi is gone")]
    Gone,
    #[error("pi did not answer within {0:?}")]
    Timeout(Duration),
    #[error("{0}")]
    Refused(String),
}

/// What a run receives.
#[derive(Debug)]
pub(crate) enum Incoming {
    Event(Event),
    /// An extension asks something.
    Dialog(Dialog),
    /// A line that could not be read.
    Warning(String),
}

/// The response to a command, to come.
pub(crate) struct Response {
    routes: Arc<Routes>,
    id: String,
    outcome: oneshot::Receiver<Result<Value, String>>,
}

impl Response {
    /// Waits for it. Cancel-safe.
    pub(crate) async fn wait(&mut self) -> Result<Value, CommandError> {
        let outcome = (&mut self.outcome).await;
        outcome.map_err(|_| CommandError::Gone)?.map_err(CommandError::Refused)
    }

    /// The response, if it is there.
    pub(crate) fn ready(&mut self) -> Option<Result<Value, CommandError>> {
        match self.outcome.try_recv() {
            Ok(outcome) => Some(outcome.map_err(CommandError::Refused)),
            Err(oneshot::error::TryRecvError::Empty) => None,
            Err(oneshot::error::TryRecvError::Closed) => Some(Err(CommandError::Gone)),
        }
    }
}

impl Drop for Response {
    fn drop(&mut self) {
        self.routes.state().pending.take(&self.id);
    }
}

/// A running pi. Clones are the same process; dropping the last one ends it.
#[derive(Clone)]
pub(crate) struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    peer: Peer,
    wire: Wire,
    routes: Arc<Routes>,
    next_id: AtomicU64,
    ended: watch::Receiver<bool>,
}

/// Where lines go.
struct Routes {
    state: Mutex<RoutesState>,
    wire: Wire,
    /// By which takopi's extension reports that it is loaded.
    sign: String,
}

#[derive(Default)]
struct RoutesState {
    pending: PendingRequests<String, Result<Value, String>>,
    run: Option<mpsc::Sender<Incoming>>,
    lines: ProcessLines,
    /// Whether takopi's extension is loaded.
    is_guarded: bool,
    /// Whether the process printed anything but responses since the last run got it, also what is dropped here.
    printed: bool,
}

impl Client {
    /// Starts a process.
    pub(crate) async fn start(
        host: &Host,
        launch: &PiLaunch,
        session: SessionArg<'_>,
    ) -> Result<Self, SpawnError> {
        let (peer, output) = Peer::start(host, launch.launch(session)).await?;
        let wire = peer.wire();
        let state = Mutex::new(RoutesState::default());
        let sign = launch.sign.clone();
        let routes = Arc::new(Routes { state, wire: wire.clone(), sign });
        let (end, ended) = watch::channel(false);
        let reader = routes.clone();
        host.track(async move {
            reader.read(output).await;
            let _ = end.send(true);
        });
        let inner = Inner { peer, wire, routes, next_id: AtomicU64::new(1), ended };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Receives what the process prints from now on. Returns also the warnings for lines of the time before that could
    /// not be read.
    pub(crate) fn open(&self) -> (mpsc::Receiver<Incoming>, Vec<String>) {
        let (sender, receiver) = mpsc::channel(LINES_WAITING);
        let mut state = self.inner.routes.state();
        if !state.pending.is_closed() {
            state.run = Some(sender);
        }
        state.printed = false;
        (receiver, state.lines.begin())
    }

    /// No run has the process any more. Returns warnings for the lines that could not be read and were
    /// not shown.
    pub(crate) fn leave(&self) -> Vec<String> {
        let mut state = self.inner.routes.state();
        state.run = None;
        state.lines.end()
    }

    /// Whether the process printed anything since [`Client::open`] that may be of the run. Certain once the lines of
    /// the run have ended.
    pub(crate) fn printed(&self) -> bool {
        self.inner.routes.state().printed
    }

    /// Whether takopi's extension is loaded. Without it nobody is asked about anything.
    pub(crate) fn is_guarded(&self) -> bool {
        self.inner.routes.state().is_guarded
    }

    /// Sends a command. Its response is to be waited for while lines are read.
    pub(crate) async fn send(
        &self,
        command: &str,
        mut fields: Value,
    ) -> Result<Response, CommandError> {
        let id = format!("takopi-{}", self.inner.next_id.fetch_add(1, Ordering::Relaxed));
        let response = self.inner.routes.state().pending.register(id.clone(), ());
        let outcome = response.ok_or(CommandError::Gone)?;
        let response = Response { routes: self.inner.routes.clone(), id, outcome };
        fields["type"] = command.into();
        fields["id"] = response.id.as_str().into();
        if self.inner.wire.send(&fields).await { Ok(response) } else { Err(CommandError::Gone) }
    }

    /// Sends a command and waits for its response.
    pub(crate) async fn command(
        &self,
        command: &str,
        limit: Duration,
    ) -> Result<Value, CommandError> {
        let exchange = async { self.send(command, json!({})).await?.wait().await };
        timeout(limit, exchange).await.map_err(|_| CommandError::Timeout(limit))?
    }

    /// Whether the process is gone.
    pub(crate) fn is_closed(&self) -> bool {
        *self.inner.ended.borrow()
    }

    /// The end of its stderr.
    pub(crate) async fn stderr_tail(&self) -> String {
        self.inner.peer.stderr_tail().await
    }

    /// Closes its input, at which it exits, and waits until it is gone. What the agent detached on
    /// purpose stays.
    pub(crate) async fn close(&self) {
        self.inner.routes.close();
        self.inner.peer.close().await;
    }

    /// Ends the process and everything that came of it but what was started before `spared`, and waits
    /// until nothing is left.
    pub(crate) async fn kill_sparing(&self, spared: StartCutoff) {
        self.inner.routes.close();
        self.inner.peer.kill_sparing(spared).await;
    }
}

impl Routes {
    fn state(&self) -> MutexGuard<'_, RoutesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing is waited for any more.
    fn close(&self) {
        let mut state = self.state();
        state.pending.close();
        state.run = None;
    }

    /// Reads everything the process prints, until it is gone.
    async fn read(&self, mut output: Output) {
        while output.fill().await {
            while let Some(frame) = output.pop() {
                let incoming = match frame {
                    Frame::Line(line) => self.route(line),
                    Frame::Skipped { head, bytes } => self.skip(head, bytes),
                    _ => None,
                };
                if let Some(incoming) = incoming {
                    self.deliver(incoming).await;
                }
            }
        }
        self.close();
    }

    /// Reads one line; what is for the run, if it is not dealt with here.
    fn route(&self, line: &[u8]) -> Option<Incoming> {
        if line.iter().all(u8::is_ascii_whitespace) {
            return None;
        }
        let parsed = Line::parse(line);
        if !matches!(parsed, Ok(Line::Response { .. })) {
            self.state().printed = true;
        }
        let Ok(line) = parsed else {
            return self.state().lines.not_json(line).map(Incoming::Warning);
        };
        match line {
            Line::Response { id, outcome } => {
                self.respond(id, outcome);
                None
            }
            Line::Dialog(line) if line.wants_answer() => {
                Some(Incoming::Dialog(Dialog::new(line, self.wire.clone())))
            }
            Line::Dialog(line) => {
                if line.status.is_some_and(|(key, text)| key == STATUS_KEY && text == self.sign) {
                    self.state().is_guarded = true;
                }
                None
            }
            Line::Event(Event::Quiet) => None,
            Line::Event(event) => Some(Incoming::Event(event)),
        }
    }

    /// A line that was too long to be read, by how it begins. What waits for an answer gets one.
    fn skip(&self, head: &[u8], bytes: u64) -> Option<Incoming> {
        tracing::warn!(bytes, "a line of pi was too long and is skipped");
        let begins = Line::parse_head(head);
        if !matches!(begins, Some(Line::Response { .. })) {
            self.state().printed = true;
        }
        match begins {
            Some(Line::Response { id, .. }) => {
                self.respond(id, Err("the response of pi is too long".to_owned()));
            }
            // Dropped, it is cancelled. Its method may stand behind what is too long.
            Some(Line::Dialog(line)) if line.wants_answer() || line.method.is_empty() => {
                drop(Dialog::new(line, self.wire.clone()));
            }
            _ => {}
        }
        self.state().lines.too_long(bytes).map(Incoming::Warning)
    }

    /// Hands a response to the caller that waits for it. A failure without an id is that of the only command that waits.
    fn respond(&self, id: Option<String>, outcome: Result<Value, String>) {
        let caller = {
            let mut state = self.state();
            let only = || {
                let mut waiting = state.pending.ids();
                let only = waiting.next().filter(|_| outcome.is_err()).cloned();
                only.filter(|_| waiting.next().is_none())
            };
            let answered = id.clone().or_else(only);
            answered.and_then(|id| state.pending.take(&id))
        };
        if caller.is_none_or(|(caller, ())| caller.send(outcome).is_err()) {
            let id = id.unwrap_or_default();
            tracing::debug!(id = %redacted(&id), "a response of pi that nobody waits for");
        }
    }

    /// Gives a line to the run that has the process. Without a run it is dropped, and a dialog among such
    /// lines is cancelled by that.
    async fn deliver(&self, incoming: Incoming) {
        let run = self.state().run.clone();
        if let Some(run) = run {
            // The run may be over meanwhile.
            let _ = run.send(incoming).await;
        }
    }
}
