//! The trait that engines implement, and their view of a run.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use thiserror::Error;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::shared::Shared;
use super::{ApprovalRequest, Decision, Reply, ResumeCodec, RunRequest, SteerMessages};
use crate::host::Host;
use crate::locks::{SessionKey, SessionLease};
use crate::model::{
    Action, ActionEvent, ActionKind, Completed, EngineId, Phase, Reason, ResumeToken, TakopiEvent,
};
use crate::process::{Launch, Output, Process, SpawnError};

/// Where an engine's sessions can be reached from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SessionScope {
    /// From every process of the user: they are locked with files.
    #[default]
    Machine,
    /// From this process only.
    Process,
    /// From other machines, where the run happens: no lock is taken here, and waiting and the time limits are
    /// left to the engine.
    Elsewhere,
}

/// A coding agent that takopi can run.
///
/// Most engines are programs that print JSON lines and are better written as a
/// [`LineEngine`](crate::jsonl::LineEngine); this is the trait under it.
pub trait Engine: Send + Sync + 'static {
    /// Its name.
    fn id(&self) -> EngineId;

    /// How its session ids and resume lines are written.
    fn resume_codec(&self) -> ResumeCodec;

    /// Where its sessions can be reached from.
    fn session_scope(&self) -> SessionScope {
        SessionScope::Machine
    }

    /// The key of a session's lock. An engine that opens the sessions of another one's store names that
    /// store, so that both share the lock.
    fn session_key(&self, token: &ResumeToken) -> SessionKey {
        SessionKey::new(token)
    }

    /// Checks a request before anything is locked or started.
    fn check(&self, request: &RunRequest) -> Result<(), RunError> {
        let _ = request;
        Ok(())
    }

    /// The directory of this machine that a run works in, which is not removed while it runs; `None` if it works in none.
    fn directory<'a>(&self, request: &'a RunRequest) -> Option<&'a Path> {
        Some(request.settings.cwd.as_deref().unwrap_or(Path::new(".")))
    }

    /// Whether it can run without storing the session. If not, requests for that are refused.
    fn can_be_ephemeral(&self) -> bool {
        false
    }

    /// Runs one turn: emits what happens, and `Completed` at its end.
    ///
    /// When [`EngineRun::stop`] fires, end whatever was started, emit a `Completed` with the answer
    /// so far if there is one, and return. A process handle that is dropped is ended too.
    fn run(self: Arc<Self>, run: EngineRun) -> BoxFuture<'static, ()>;

    /// Whether it takes messages into a running turn. If not, they are handed back at once.
    fn is_steerable(&self) -> bool {
        false
    }

    /// Hands over what is kept of a session between two runs. See
    /// [`LeaseHolder::take_lease`](crate::locks::LeaseHolder::take_lease).
    fn take_lease(&self, key: &SessionKey) -> Option<SessionLease> {
        let _ = key;
        None
    }

    /// Ends the processes that are kept between runs.
    fn shutdown(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// Why takopi ends a run as failed: before the engine starts, or in place of its own end.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct RunError {
    /// The reason for programs, as in [`Completed::reason`].
    pub reason: Reason,
    /// The message for people, as in [`Completed::error`].
    pub message: String,
    /// The end of the engine's stderr, if it may explain the failure. It is shown in a warning.
    pub stderr_tail: String,
}

impl RunError {
    /// A failure without stderr.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), stderr_tail: String::new() }
    }

    /// Adds the end of what the engine wrote to stderr.
    pub fn stderr_tail(mut self, stderr_tail: impl Into<String>) -> Self {
        self.stderr_tail = stderr_tail.into();
        self
    }
}

impl From<SpawnError> for RunError {
    fn from(error: SpawnError) -> Self {
        Self::new(error.reason(), error.to_string())
    }
}

/// The run was stopped: further events are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the run was stopped")]
pub struct StoppedError;

/// Why events were not emitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EmitError {
    /// The run was stopped.
    #[error(transparent)]
    Stopped(#[from] StoppedError),
    /// The consumer does not read.
    #[error("the consumer does not read the events")]
    Stalled,
}

/// One run, as its engine sees it. Clones are the same run.
#[derive(Clone)]
pub struct EngineRun {
    /// The request.
    pub request: Arc<RunRequest>,
    /// The session to resume, in canonical form. Its lock is held.
    pub resume: Option<ResumeToken>,
    pub(super) shared: Arc<Shared>,
}

impl EngineRun {
    /// Emits an event; waits while the consumer's buffer is full.
    ///
    /// `Started` of a new session first takes the session's lock. After `Completed`, and once the
    /// run is stopped, further events are dropped. An event whose future is dropped while it waits
    /// is lost, and may be emitted again.
    pub async fn emit(&self, event: impl Into<TakopiEvent>) -> Result<(), StoppedError> {
        self.shared.emit(event.into()).await
    }

    /// Emits many events, as [`Self::emit`] does one after the other, but cheaper.
    pub async fn emit_all(&self, events: Vec<TakopiEvent>) -> Result<(), StoppedError> {
        self.shared.emit_all(events).await
    }

    /// The same, and leaves the memory of the list to the caller.
    pub(crate) async fn emit_drained(
        &self,
        events: &mut Vec<TakopiEvent>,
    ) -> Result<(), StoppedError> {
        self.shared.emit_all(events.drain(..)).await
    }

    /// The same, for as long as the consumer reads: it fails if that takes no event for this long while there is no room.
    pub async fn emit_all_while_read(
        &self,
        events: Vec<TakopiEvent>,
        patience: Duration,
    ) -> Result<(), EmitError> {
        let mut emitted = pin!(self.shared.emit_all(events));
        loop {
            let read = self.shared.events_read();
            match timeout(patience, &mut emitted).await {
                Ok(emitted) => return Ok(emitted?),
                Err(_) if self.shared.events_read() == read => return Err(EmitError::Stalled),
                Err(_) => {}
            }
        }
    }

    /// Ends the run as failed.
    pub async fn fail(&self, error: RunError) {
        if let Some(warning) = self.stderr_warning(&error)
            && self.emit(warning).await.is_err()
        {
            return;
        }
        let completed = Completed::failure(self.shared.engine(), error.reason, error.message);
        let _ = self.emit(completed).await;
    }

    /// The messages sent to the run while it goes on. They can be taken once. An engine that never
    /// takes them returns `false` from [`Engine::is_steerable`].
    pub fn steer_messages(&self) -> SteerMessages {
        SteerMessages::of(self.request.steering.as_ref())
    }

    /// Fires when the run must end.
    pub fn stop(&self) -> &CancellationToken {
        &self.shared.stop
    }

    /// Restarts the idle limit: the engine was active.
    pub fn renew_idle(&self) {
        self.shared.renew_idle();
    }

    /// Resumes the idle limit although a tool's action is open: the engine has moved on without an
    /// event.
    pub fn no_tool_running(&self) {
        self.shared.no_tool_running();
    }

    /// The host of the run.
    pub fn host(&self) -> &Host {
        &self.shared.host
    }

    /// Starts a process of this run. The session's lock is held until it is gone.
    pub fn start(&self, launch: Launch) -> Result<(Process, Output), SpawnError> {
        launch.start(self.shared.host.supervisor(), Box::new(self.shared.keep()))
    }

    /// Takes the lock of a new session whose id the engine chooses itself, before anything of the
    /// session is started. Waits as for a session that is resumed.
    pub async fn claim_session(&self, session: &ResumeToken) -> Result<(), StoppedError> {
        self.shared.claim_new(session).await
    }

    /// The session of the run, if anybody can know it: the requested one, or that of a `Started` that was emitted.
    pub fn session(&self) -> Option<ResumeToken> {
        self.shared.session()
    }

    /// Whether the run has the lock of its session. It has none of a new one before `Started` is emitted, nor if the
    /// lock could not be taken then.
    pub fn has_lock(&self) -> bool {
        self.shared.has_lock()
    }

    /// Splits the session's lease off its lock, for an engine that keeps the session loaded after the
    /// run. To be called before `Completed` is emitted; `None` if no other process can reach the
    /// session.
    pub fn keep_lease(&self) -> Option<SessionLease> {
        self.shared.split_lease()
    }

    /// Reads and drops what a process still prints, so that a full pipe does not keep it from exiting.
    pub fn discard(&self, mut output: Output) {
        self.shared.host.runtime().spawn(async move {
            while output.fill().await {
                while output.pop().is_some() {}
            }
        });
    }

    /// A program outside takopi holds the session: reports that and waits for `pause`.
    ///
    /// `Ok(false)` once the request's `wait` is used up. The time limits do not count meanwhile.
    pub async fn wait_for_session(
        &self,
        holder: &str,
        pause: Duration,
    ) -> Result<bool, StoppedError> {
        self.shared.wait_outside(holder, pause).await
    }

    /// Waits until `free` resolves, because a run of takopi's own keeps the session from being used.
    /// The wait is reported with `holder`, unless it is short.
    ///
    /// `Ok(None)` once the request's `wait` is used up. The time limits do not count meanwhile.
    pub async fn wait_for_session_until<T>(
        &self,
        holder: &str,
        free: impl Future<Output = T>,
    ) -> Result<Option<T>, StoppedError> {
        self.shared.wait_until(holder, free).await
    }

    /// Waits until `room` resolves, because every server is busy. A wait that lasts is reported.
    ///
    /// The time limits do not count meanwhile, nor does the request's `wait`, which is about the session.
    pub async fn wait_for_room<T>(&self, room: impl Future<Output = T>) -> Result<T, StoppedError> {
        self.shared.wait_for_room(room).await
    }

    /// Reports that the run waits, and for what; again with another text to update it. Closed by
    /// [`Self::wait_over`], or by the end of the run.
    pub fn waiting(&self, title: impl Into<String>) {
        self.shared.waiting(title.into());
    }

    /// The run does not wait any more.
    pub async fn wait_over(&self) -> Result<(), StoppedError> {
        self.shared.report_wait_over().await
    }

    /// Passes an approval request to the run's handler; `None` without a handler. The idle limit is
    /// paused meanwhile. A yes that the agent does not offer counts as a no.
    pub async fn request_approval(
        &self,
        request: ApprovalRequest,
    ) -> Result<Option<Reply>, StoppedError> {
        let Some(handler) = self.request.approvals.clone() else { return Ok(None) };
        let _paused = self.shared.pause_idle();
        let decisions = request.decisions.clone();
        let decide = async {
            let reply = handler.reply(request.resolved().await).await;
            if reply.decision.is_yes() && !decisions.contains(&reply.decision) {
                return Reply::from(Decision::Decline)
                    .because("the agent does not offer this decision");
            }
            reply
        };
        tokio::select! {
            biased;
            () = self.shared.stop.cancelled() => Err(StoppedError),
            reply = decide => Ok(Some(reply)),
        }
    }

    /// The engine's name.
    pub fn engine(&self) -> EngineId {
        self.shared.engine()
    }

    /// A warning of takopi's own.
    pub fn warning(&self, title: impl Into<String>) -> TakopiEvent {
        ActionEvent::warning(self.engine(), self.shared.next_id("warning"), title).into()
    }

    /// The warning that shows what the engine wrote to stderr before it failed, if it wrote anything.
    pub fn stderr_warning(&self, error: &RunError) -> Option<TakopiEvent> {
        if error.stderr_tail.trim().is_empty() {
            return None;
        }
        let id = self.shared.next_id("warning");
        let mut warning = ActionEvent::warning(self.engine(), id, error.message.as_str());
        warning.action.detail.insert("stderr_tail", error.stderr_tail.as_str());
        Some(warning.into())
    }

    /// Emits a warning of takopi's own.
    pub async fn warn(&self, title: impl Into<String>) -> Result<(), StoppedError> {
        self.emit(self.warning(title)).await
    }

    /// Emits a note of takopi's own.
    pub async fn note(&self, title: impl Into<String>) -> Result<(), StoppedError> {
        let action = Action::new(self.shared.next_id("note"), ActionKind::Note, title);
        self.emit(ActionEvent::new(self.engine(), action, Phase::Completed).ok(true)).await
    }
}
