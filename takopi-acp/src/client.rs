//! One agent's process, and the conversation with it.
//!
//! A reader routes what the process prints. Promises:
//! - updates, requests and the response to the prompt reach the run in the order in which they came;
//! - while no run has the process, updates are dropped (an agent that loads a session repeats all of it) and whatever
//!   it asks is declined;
//! - a request of a method that is not known is refused at once: agents wait for it;
//! - the process waits for a run that is behind: nothing is dropped, and memory is bounded;
//! - the end of the process fails everything pending at once;
//! - whatever the agent sends behind a prompt counts as a beginning of its turn, also what no run receives.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use takopi_core::Host;
use takopi_core::jsonl::{Object, ProcessLines};
use takopi_core::peer::{Peer, PendingRequests};
use takopi_core::process::{Frame, Launch, Output, SpawnError, StartCutoff};
use takopi_core::redact::redacted;
use takopi_core::rpc::{
    self, CallError, Caller, Dialect, ErrorBody, MessageHead, PeerRequest, RequestId, Response,
    ResponseError, read_line,
};
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::wire::{AgentInfo, PromptReply, SessionUpdate, Update};

/// How many messages wait for the run. One may be large, so they are few.
const WAITING: usize = 16;
/// How long `session/close` may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// A request failed.
#[derive(Debug, Error)]
pub(crate) enum ClientError {
    #[error("the agent is gone")]
    Gone,
    #[error("{method}: no response within {} s", .limit.as_secs())]
    Timeout { method: String, limit: Duration },
    #[error("{}", .0.message)]
    Refused(ErrorBody),
    #[error("{method}: the response is too long")]
    TooLong { method: String },
}

/// What a run receives.
#[derive(Debug)]
pub(crate) enum Incoming {
    Update(Update),
    /// The agent asks for permission.
    Request(PeerRequest),
    /// The agent takes back a request.
    Withdrawn(RequestId),
    /// The response to the prompt: the turn is over.
    Ended(Result<PromptReply, ResponseError>),
    /// A line that could not be read.
    Warning(String),
}

/// A running agent. Clones are the same process; dropping the last one ends it.
#[derive(Clone)]
pub(crate) struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    peer: Peer,
    caller: Caller,
    routes: Arc<Routes>,
    ended: watch::Receiver<bool>,
}

struct Routes {
    state: Mutex<State>,
    wire: takopi_core::peer::Wire,
}

struct State {
    pending: PendingRequests<i64, Response>,
    run: Option<Run>,
    lines: ProcessLines,
    /// Whether any text had a `messageId`.
    uses_ids: bool,
    /// The permission mode that the agent reported last to a run.
    mode: Option<String>,
    /// When the last update came.
    last_update: Instant,
    /// Whether the agent sent anything since the prompt that the run sent, also what is dropped here.
    began: bool,
    drift_logged: bool,
}

impl State {
    /// Which request of ours a response answers.
    fn answered(&self, response: &rpc::Incoming<'_>) -> Option<i64> {
        let prompt = self.run.as_ref().and_then(|run| run.prompt.as_ref());
        response.answers(self.pending.ids().chain(prompt))
    }

    /// A line that is not a response to another request. Behind a prompt it may come of it.
    fn heard(&mut self) {
        self.began |= self.run.as_ref().is_some_and(|run| run.prompted);
    }

    /// An update cannot be attributed; the warning, once in a run.
    fn drifted(&mut self) -> Option<String> {
        if !std::mem::replace(&mut self.drift_logged, true) {
            tracing::warn!("an update of the agent names no session that can be read");
        }
        let reported = std::mem::replace(&mut self.run.as_mut()?.drift_reported, true);
        (!reported).then(|| {
            "the agent's protocol has drifted: `session/update` names no session that can be read, and is ignored"
                .to_owned()
        })
    }
}

/// The run that has the process.
struct Run {
    session: String,
    inbox: mpsc::Sender<Incoming>,
    /// The request whose response ends the turn.
    prompt: Option<i64>,
    /// Whether there was one.
    prompted: bool,
    drift_reported: bool,
}

impl Client {
    /// Starts an agent.
    pub(crate) async fn start(host: &Host, launch: Launch) -> Result<Self, SpawnError> {
        let (peer, output) = Peer::start(host, launch).await?;
        let wire = peer.wire();
        let state = State {
            pending: PendingRequests::default(),
            run: None,
            lines: ProcessLines::default(),
            uses_ids: false,
            mode: None,
            last_update: Instant::now(),
            began: false,
            drift_logged: false,
        };
        let routes = Arc::new(Routes { state: Mutex::new(state), wire: wire.clone() });
        let (end, ended) = watch::channel(false);
        let reader = routes.clone();
        host.track(async move {
            reader.read(output).await;
            let _ = end.send(true);
        });
        let caller = Caller::new(wire, Dialect::Versioned);
        Ok(Self { inner: Arc::new(Inner { peer, caller, routes, ended }) })
    }

    /// Receives what happens in a session from now on. Returns also the warnings for lines of the time before that could
    /// not be read.
    pub(crate) fn open(&self, session: &str) -> (mpsc::Receiver<Incoming>, Vec<String>) {
        let (inbox, receiver) = mpsc::channel(WAITING);
        let mut state = self.inner.routes.state();
        if !state.pending.is_closed() {
            let session = session.to_owned();
            let run = Run { session, inbox, prompt: None, prompted: false, drift_reported: false };
            state.run = Some(run);
        }
        state.began = false;
        (receiver, state.lines.begin())
    }

    /// No run has the process any more. Returns warnings for lines that could not be read and were not shown.
    pub(crate) fn leave(&self) -> Vec<String> {
        let mut state = self.inner.routes.state();
        state.run = None;
        state.lines.end()
    }

    /// Whether the agent sent anything since the prompt of the last run. Certain once the inbox of the run has ended.
    pub(crate) fn began(&self) -> bool {
        self.inner.routes.state().began
    }

    /// Whether any text of the agent had a `messageId`.
    pub(crate) fn uses_ids(&self) -> bool {
        self.inner.routes.state().uses_ids
    }

    /// The permission mode that the agent reported last to a run.
    pub(crate) fn mode(&self) -> Option<String> {
        self.inner.routes.state().mode.clone()
    }

    /// Sends the prompt of the run that has the process; `false` if the process no longer reads.
    pub(crate) async fn prompt(&self, params: &impl Serialize) -> bool {
        let id = self.inner.caller.next_id();
        if let Some(run) = &mut self.inner.routes.state().run {
            run.prompt = Some(id);
            run.prompted = true;
        }
        let sent = self.inner.caller.send(id, "session/prompt", params).await;
        if !sent {
            // Nothing can come of a prompt that never reached the agent.
            let mut state = self.inner.routes.state();
            state.began = false;
            state.run.iter_mut().for_each(|run| run.prompted = false);
        }
        sent
    }

    /// Sends a notification.
    pub(crate) async fn notify(&self, method: &str, params: &Value) -> bool {
        self.inner.caller.notify(method, Some(params)).await
    }

    /// Sends a request and waits for its response.
    pub(crate) async fn call(
        &self,
        method: &str,
        params: &impl Serialize,
        limit: Duration,
    ) -> Result<Box<RawValue>, ClientError> {
        let id = self.inner.caller.next_id();
        let response = self.inner.routes.state().pending.register(id, ());
        let response = response.ok_or(ClientError::Gone)?;
        let _forget = Forget { routes: &self.inner.routes, id };
        let method_name = || method.to_owned();
        let called = self.inner.caller.call(id, method, params, response, limit).await;
        called.map_err(|error| match error {
            CallError::Timeout(limit) => ClientError::Timeout { method: method_name(), limit },
            CallError::Response(ResponseError::Refused(body)) => ClientError::Refused(body),
            CallError::Response(_) => ClientError::TooLong { method: method_name() },
            _ => ClientError::Gone,
        })
    }

    /// Waits until no update came for this long from now on, at most ten times as long.
    pub(crate) async fn quiet(&self, for_this_long: Duration) {
        let begun = Instant::now();
        let end = begun + for_this_long * 10;
        loop {
            let last = self.inner.routes.state().last_update.max(begun);
            let quiet_at = last + for_this_long;
            if quiet_at <= Instant::now() || Instant::now() >= end || self.is_closed() {
                return;
            }
            tokio::time::sleep_until(quiet_at.min(end)).await;
        }
    }

    /// Whether the process is gone.
    pub(crate) fn is_closed(&self) -> bool {
        *self.inner.ended.borrow()
    }

    /// The end of its stderr.
    pub(crate) async fn stderr_tail(&self) -> String {
        self.inner.peer.stderr_tail().await
    }

    /// Ends a session, if the agent can be asked to: it ends the commands of the session.
    pub(crate) async fn close_session(&self, info: &AgentInfo, session: &str) {
        if info.closes {
            let params = json!({ "sessionId": session });
            let closed = self.call("session/close", &params, CLOSE_LIMIT).await;
            if let Err(error) = closed {
                tracing::debug!(error = %redacted(&error), "the session was not closed");
            }
        }
    }

    /// Closes its input and waits until it is gone, with the agent that an adapter runs (for `linger`, then that is killed).
    /// What the agent detached on purpose stays.
    pub(crate) async fn close(&self, linger: Duration) {
        self.inner.routes.close();
        self.inner.peer.close_with_group(linger).await;
    }

    /// Ends the process and everything that came of it but what was started before `spared`, and waits until nothing
    /// is left.
    pub(crate) async fn kill_sparing(&self, spared: StartCutoff) {
        self.inner.routes.close();
        self.inner.peer.kill_sparing(spared).await;
    }
}

/// Forgets a request however its caller goes away.
struct Forget<'a> {
    routes: &'a Routes,
    id: i64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.routes.state().pending.take(&self.id);
    }
}

impl Routes {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing is waited for any more.
    fn close(&self) {
        let mut state = self.state();
        state.pending.close();
        state.run = None;
    }

    /// Reads everything the agent prints, until it is gone.
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
        let routed = read_line(line, |message| self.message(message));
        routed.unwrap_or_else(|| {
            let mut state = self.state();
            state.heard();
            state.lines.not_json(line).map(Incoming::Warning)
        })
    }

    fn message(&self, message: rpc::Incoming<'_>) -> Option<Incoming> {
        if message.method.is_none() {
            let id = self.state().answered(&message)?;
            let response = match message.error {
                Some(error) => Err(ResponseError::Refused(ErrorBody::read(error))),
                None => Ok(message.result.unwrap_or(RawValue::NULL).to_owned()),
            };
            return self.respond(id, response);
        }
        let rpc::Incoming { id, method, params, .. } = message;
        let method = method?;
        self.state().heard();
        let params = params.unwrap_or(RawValue::NULL);
        match id {
            None => self.notification(&method, params),
            Some(id) => {
                let (id, wire) = (RequestId::new(id), self.wire.clone());
                let dialect = Dialect::Versioned;
                let (method, params) = (method.into_owned(), params.to_owned());
                let request = PeerRequest::new(id, method, params, wire, dialect, decline_of);
                if request.method() == PERMISSION {
                    return Some(Incoming::Request(request));
                }
                tracing::debug!(
                    method = %redacted(request.method()),
                    "the agent asks for what takopi does not have"
                );
                request.decline();
                None
            }
        }
    }

    fn notification(&self, method: &str, params: &RawValue) -> Option<Incoming> {
        match method {
            "session/update" => {
                let mut state = self.state();
                let Some(SessionUpdate { session, update }) = SessionUpdate::read(params) else {
                    return state.drifted().map(Incoming::Warning);
                };
                state.last_update = Instant::now();
                if let Update::Message { id, .. } = &update {
                    state.uses_ids |= id.is_some();
                }
                // Updates of another session, such as a sub-agent's, are not of this run.
                if session != state.run.as_ref()?.session {
                    return None;
                }
                if let Update::Mode(mode) = &update {
                    state.mode = Some(mode.clone());
                }
                Some(Incoming::Update(update))
            }
            "$/cancel_request" => {
                let id = Object::of(params).raw("requestId").map(RequestId::new)?;
                Some(Incoming::Withdrawn(id))
            }
            _ => {
                tracing::trace!(method = %redacted(&method), "a notification of the agent");
                None
            }
        }
    }

    /// A response: for the request that waits for it, or for the run if it is that of the prompt.
    fn respond(&self, id: i64, response: Response) -> Option<Incoming> {
        let mut state = self.state();
        if let Some(run) = state.run.as_mut().filter(|run| run.prompt == Some(id)) {
            run.prompt = None;
            state.began = true;
            let reply = response.map(|result| PromptReply::read(&result));
            return Some(Incoming::Ended(reply));
        }
        let caller = state.pending.take(&id);
        if caller.is_none_or(|(caller, ())| caller.send(response).is_err()) {
            tracing::debug!(id, "a late response of the agent");
        }
        None
    }

    /// A line that was too long to be read, by how it begins.
    fn skip(&self, head: &[u8], bytes: u64) -> Option<Incoming> {
        tracing::warn!(bytes, "a line of the agent was too long and is skipped");
        match MessageHead::read(head, "sessionId") {
            MessageHead::Response(id) => return self.respond(id, Err(ResponseError::TooLong)),
            MessageHead::Request { id, method, .. } => {
                let (params, wire) = (RawValue::NULL.to_owned(), self.wire.clone());
                let dialect = Dialect::Versioned;
                PeerRequest::new(id, method, params, wire, dialect, decline_of).decline();
            }
            _ => {}
        }
        let mut state = self.state();
        state.heard();
        state.lines.too_long(bytes).map(Incoming::Warning)
    }

    /// Gives a message to the run that has the process. Without a run it is dropped, and a request is declined by that.
    async fn deliver(&self, incoming: Incoming) {
        let inbox = self.state().run.as_ref().map(|run| run.inbox.clone());
        let Some(inbox) = inbox else {
            if let Incoming::Request(request) = &incoming {
                let method = redacted(request.method());
                tracing::warn!(%method, "declined: no run has the process");
            }
            return;
        };
        // The run may be over meanwhile.
        let _ = inbox.send(incoming).await;
    }
}

/// The request for permission.
pub(crate) const PERMISSION: &str = "session/request_permission";

/// The refusal of each kind of request; `None` for unknown kinds.
fn decline_of(method: &str) -> Option<Value> {
    (method == PERMISSION).then(|| json!({ "outcome": { "outcome": "cancelled" } }))
}
