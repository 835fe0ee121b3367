//! One Claude Code process, and the conversation with it.
//!
//! A reader routes what the process prints: responses to the requests that wait for them, everything
//! else to the run that has the process. Promises:
//! - while no run has it, whatever the agent asks is declined, and the calls of host tools fail;
//! - the process waits for a run that is behind: nothing is dropped, and memory is bounded;
//! - the end of the process fails everything pending at once;
//! - a request that is not answered in time fails; a late response is dropped.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use takopi_core::Host;
use takopi_core::jsonl::ProcessLines;
use takopi_core::peer::{Peer, PendingRequests, Wire};
use takopi_core::process::{Frame, Output, SpawnError, StartCutoff};
use takopi_core::redact::redacted;
use takopi_core::tools::HostTools;
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::control::{ControlRequest, refuse_unreadable};
use crate::launch::{ClaudeLaunch, SessionArg};
use crate::tools;
use crate::wire::{Message, State};

/// How many lines wait for the run. A line may be large, so they are few.
const LINES_WAITING: usize = 8;
/// How long `end_session` may take to be answered.
const END_LIMIT: Duration = Duration::from_secs(3);

/// A request failed.
#[derive(Debug, Error)]
pub(crate) enum ControlError {
    #[error("Claude Code is gone")]
    Gone,
    #[error("no response within {0:?}")]
    Timeout(Duration),
    #[error("{0}")]
    Refused(String),
}

/// What a run receives.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// A line.
    Message(Message),
    /// The agent asks something.
    Request(ControlRequest),
    /// A line that could not be read; with the warning for it, unless enough were shown.
    Unreadable(Option<String>),
    /// A request was declined for what it is.
    Warning(String),
}

/// A running Claude Code. Clones are the same process; dropping the last one ends it.
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
    /// Whether it can be asked to end its session.
    ends_session: bool,
}

/// Where lines go.
struct Routes {
    state: Mutex<RoutesState>,
    tools: HostTools,
    wire: Wire,
}

#[derive(Default)]
struct RoutesState {
    pending: PendingRequests<String, Result<Box<RawValue>, String>>,
    run: Option<mpsc::Sender<Incoming>>,
    lines: ProcessLines,
    /// Whether the process reports what it does.
    reports_state: bool,
    /// Whether tasks live in the background.
    background: bool,
    /// The permission mode that it reported first.
    first_mode: Option<String>,
    /// Whether the one that it reported last is another.
    mode_changed: bool,
}

impl RoutesState {
    fn has_mode(&mut self, mode: Option<&String>) {
        let Some(mode) = mode else { return };
        self.mode_changed = self.first_mode.get_or_insert_with(|| mode.clone()) != mode;
    }
}

impl Client {
    /// Starts a process.
    pub(crate) async fn start(
        host: &Host,
        launch: &ClaudeLaunch,
        session: SessionArg<'_>,
        tools: HostTools,
    ) -> Result<Self, SpawnError> {
        let (peer, output) = Peer::start(host, launch.launch(session)).await?;
        let wire = peer.wire();
        let state = Mutex::new(RoutesState::default());
        let routes = Arc::new(Routes { state, tools, wire: wire.clone() });
        let (end, ended) = watch::channel(false);
        let reader = routes.clone();
        host.track(async move {
            reader.read(output).await;
            let _ = end.send(true);
        });
        let (next_id, ends_session) = (AtomicU64::new(1), launch.ends_session);
        let inner = Inner { peer, wire, routes, next_id, ended, ends_session };
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
        (receiver, state.lines.begin())
    }

    /// No run has the process any more. Returns warnings for the lines that could not be read and were
    /// not shown.
    pub(crate) fn leave(&self) -> Vec<String> {
        let mut state = self.inner.routes.state();
        state.run = None;
        state.lines.end()
    }

    /// Whether the process has reported what it does, so that its states can be waited for.
    pub(crate) fn reports_state(&self) -> bool {
        self.inner.routes.state().reports_state
    }

    /// Whether the process left the permission mode in which it began, as when a person accepts a plan.
    pub(crate) fn mode_changed(&self) -> bool {
        self.inner.routes.state().mode_changed
    }

    /// Sends a line; `false` if the process no longer reads.
    pub(crate) async fn send(&self, line: &impl serde::Serialize) -> bool {
        self.inner.wire.send(line).await
    }

    /// Sends a request and waits for its response.
    pub(crate) async fn control(
        &self,
        request: Value,
        limit: Duration,
    ) -> Result<Box<RawValue>, ControlError> {
        let id = format!("takopi-{}", self.inner.next_id.fetch_add(1, Ordering::Relaxed));
        let response = self.inner.routes.state().pending.register(id.clone(), ());
        let response = response.ok_or(ControlError::Gone)?;
        let _forget = Forget { routes: &self.inner.routes, id: id.clone() };
        let line = json!({ "type": "control_request", "request_id": id, "request": request });
        let exchange = async {
            if !self.send(&line).await {
                return Err(ControlError::Gone);
            }
            response.await.map_err(|_| ControlError::Gone)?.map_err(ControlError::Refused)
        };
        timeout(limit, exchange).await.map_err(|_| ControlError::Timeout(limit))?
    }

    /// Ends the running turn; its end is still to be read. Returns whether messages are left that the
    /// process runs next.
    pub(crate) async fn interrupt(&self, limit: Duration) -> Result<bool, ControlError> {
        let response = self.control(json!({ "subtype": "interrupt" }), limit).await?;
        let response: Value = serde_json::from_str(response.get()).unwrap_or_default();
        Ok(response["still_queued"].as_array().is_some_and(|queued| !queued.is_empty()))
    }

    /// Whether the process is gone.
    pub(crate) fn is_closed(&self) -> bool {
        *self.inner.ended.borrow()
    }

    /// The end of its stderr.
    pub(crate) async fn stderr_tail(&self) -> String {
        self.inner.peer.stderr_tail().await
    }

    /// Asks the process to end its background work and to exit; `false` if it does not answer,
    /// or is a release that would not.
    pub(crate) async fn end_session(&self) -> bool {
        self.inner.ends_session
            && self.control(json!({ "subtype": "end_session" }), END_LIMIT).await.is_ok()
    }

    /// Ends the session and its background work, and waits until the process is gone. What the agent
    /// detached on purpose stays.
    pub(crate) async fn close(&self) {
        let background = self.inner.routes.state().background;
        if !self.end_session().await && background {
            // Releases without `end_session` leave background commands running.
            return self.kill_sparing(StartCutoff::default()).await;
        }
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

/// Forgets a request however its caller goes away.
struct Forget<'a> {
    routes: &'a Routes,
    id: String,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.routes.state().pending.take(&self.id);
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
                    Frame::Skipped { head, bytes } => {
                        tracing::warn!(bytes, "a line of Claude Code was too long and is skipped");
                        if let Some(Message::UnreadableRequest { id }) = Message::parse_head(head) {
                            refuse_unreadable(&id, self.wire.clone());
                        }
                        self.unreadable(|lines| lines.too_long(bytes))
                    }
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
        let text = String::from_utf8_lossy(line);
        let Ok(message) = Message::parse(&text) else {
            return self.unreadable(|lines| lines.not_json(line));
        };
        match message {
            Message::ControlResponse { id, outcome } => {
                let caller = self.state().pending.take(&id);
                if caller.is_none_or(|(caller, ())| caller.send(outcome).is_err()) {
                    tracing::debug!(id = %redacted(&id), "a late response of Claude Code");
                }
                None
            }
            Message::ControlRequest { id, subtype, request } => {
                let request = ControlRequest::new(id, subtype, request, self.wire.clone());
                tools::handshake(request, &self.tools).map(Incoming::Request)
            }
            Message::UnreadableRequest { id } => {
                refuse_unreadable(&id, self.wire.clone());
                let warning = "declined: a request of Claude Code cannot be read";
                tracing::warn!("{warning}");
                Some(Incoming::Warning(warning.to_owned()))
            }
            Message::KeepAlive => None,
            message => {
                let mut state = self.state();
                match &message {
                    Message::State(State::Running | State::Idle) => state.reports_state = true,
                    Message::BackgroundTasks(tasks) => state.background = !tasks.is_empty(),
                    Message::Init(init) => state.has_mode(init.permission_mode.as_ref()),
                    Message::Status(status) => state.has_mode(status.permission_mode.as_ref()),
                    _ => {}
                }
                Some(Incoming::Message(message))
            }
        }
    }

    /// A line that could not be read. Without a run it is a warning of the next one.
    fn unreadable(
        &self,
        warn: impl FnOnce(&mut ProcessLines) -> Option<String>,
    ) -> Option<Incoming> {
        let mut state = self.state();
        let warning = warn(&mut state.lines);
        state.run.is_some().then_some(Incoming::Unreadable(warning))
    }

    /// Gives a line to the run that has the process. Without a run it is dropped, and a request among
    /// such lines is declined by that.
    async fn deliver(&self, incoming: Incoming) {
        let run = self.state().run.clone();
        let Some(run) = run else {
            if let Incoming::Request(request) = &incoming {
                let subtype = redacted(request.subtype());
                tracing::warn!(%subtype, "declined: no run has the process");
            }
            return;
        };
        // The run may be over meanwhile.
        let _ = run.send(incoming).await;
    }
}
