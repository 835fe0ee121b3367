//! Drives one run: lock, engine, limits, and exactly one end.
//!
//! The run is a task on the host's supervisor. It waits for the session's lock, runs the engine and
//! watches it from beside: cancellation, a consumer that is gone, the limits, a broken contract.
//! Whatever ends the run, the engine is stopped first, and `Completed` is emitted only when every
//! process of the run is gone, unless the engine emitted it by itself.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::buffer::{self, Bounds, Sender};
use super::shared::{ClaimError, Parts, Sessions, Shared};
use super::{
    Engine, EngineRun, EventStream, ResumeCodec, RunError, RunRequest, Runner, SessionScope,
    SteerMessages, SteerReceiver,
};
use crate::host::Host;
use crate::locks::{
    Holder, LeaseHolder, LocalLocks, LockError, NoLeases, SessionGuard, SessionKey, SessionLease,
    SessionLocks,
};
use crate::model::{Completed, EngineId, Reason, ResumeToken};
use crate::worktree::WorktreeLock;

/// How long an engine may take to return once its run is stopped: longer than any stop sequence. What it
/// still has open then is dropped, which ends its processes.
pub const STOP_LIMIT: Duration = Duration::from_mins(1);

/// Turns an [`Engine`] into a [`Runner`].
///
/// Runners of one process share their sessions' locks, however many there are.
pub struct EngineRunner<E> {
    engine: Arc<E>,
    host: Option<Host>,
    bounds: Bounds,
    /// The runs and their processes. Closed, which only means that they can be waited for.
    tasks: TaskTracker,
}

impl<E: Engine> EngineRunner<E> {
    /// A runner on the global host.
    pub fn new(engine: E) -> Self {
        let tasks = TaskTracker::new();
        tasks.close();
        Self { engine: Arc::new(engine), host: None, bounds: Bounds::default(), tasks }
    }

    /// Lives on this host instead.
    pub fn on(mut self, host: Host) -> Self {
        self.host = Some(host);
        self
    }

    /// How many events, and about how many bytes of them, a run may be ahead of its consumer.
    pub fn buffer(mut self, items: usize, bytes: usize) -> Self {
        self.bounds = Bounds { items: items.max(1), bytes: bytes.max(1) };
        self
    }

    /// The engine.
    pub fn engine_ref(&self) -> &Arc<E> {
        &self.engine
    }
}

impl<E: Engine> Runner for EngineRunner<E> {
    fn engine(&self) -> EngineId {
        self.engine.id()
    }

    fn run(&self, request: RunRequest) -> EventStream {
        let (sender, events) = buffer::channel(self.engine.id(), self.bounds);
        let cancel = request.cancel.clone();
        let request = Arc::new(request);
        match self.host.clone().map_or_else(Host::global, Ok).and_then(Host::checked) {
            Ok(host) => {
                let engine = self.engine.clone();
                let last_resort = LastResort {
                    sender: sender.clone(),
                    engine: engine.id(),
                    resume: request.resume.clone(),
                };
                let processes = TaskTracker::new();
                // Which only means that they can be waited for.
                processes.close();
                host.clone().track(self.tasks.track_future(async move {
                    drive(engine, host, request, sender, processes.clone()).await;
                    drop(last_resort);
                    processes.wait().await;
                }));
            }
            Err(error) => sender.finish(
                Completed::failure(self.engine.id(), Reason::SpawnFailed, error.to_string())
                    .resume(request.resume.clone()),
            ),
        }
        EventStream::new(self.engine.id(), events).cancelled_by(cancel)
    }

    fn resume_codec(&self) -> ResumeCodec {
        self.engine.resume_codec()
    }

    fn hold<'a>(
        &'a self,
        session: &'a ResumeToken,
    ) -> BoxFuture<'a, Result<Option<SessionGuard>, LockError>> {
        Box::pin(async move {
            if self.engine.session_scope() == SessionScope::Elsewhere {
                return Ok(None);
            }
            let host = self.host.clone().map_or_else(Host::global, Ok).and_then(Host::checked);
            let host = host.map_err(|error| LockError::service(error.to_string()))?;
            let locks = locks_of(&host, self.engine.session_scope());
            let (key, holder) = (self.engine.session_key(session), Holder::here(self.engine.id()));
            // Without leases: what keeps the session loaded has to give it up.
            locks.lock(key, holder, Arc::new(NoLeases)).await.map(Some)
        })
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let host = self.host.clone().map_or_else(Host::global, Ok).and_then(Host::checked);
            let Ok(host) = host else { return };
            self.engine.shutdown().await;
            self.tasks.wait().await;
            // What the last runs left warm.
            self.engine.shutdown().await;
            host.tidy().await;
        })
    }
}

/// Emits `Completed` for a run whose task ended without it: it panicked, or its runtime shut down.
struct LastResort {
    sender: Sender,
    engine: EngineId,
    resume: Option<ResumeToken>,
}

impl Drop for LastResort {
    fn drop(&mut self) {
        if self.sender.is_finished() {
            return;
        }
        let (reason, error) = if std::thread::panicking() {
            (Reason::Protocol, "the engine panicked")
        } else {
            (Reason::Interrupted, "the runtime that takopi runs on has shut down")
        };
        let completed = Completed::failure(self.engine.clone(), reason, error);
        self.sender.finish(completed.resume(self.resume.take()));
    }
}

/// Follow-ups that the engine did not ask for, which are handed back when this is dropped.
struct UntakenMessages(Option<SteerReceiver>);

impl Drop for UntakenMessages {
    fn drop(&mut self) {
        drop(SteerMessages::of(self.0.as_ref()));
    }
}

async fn drive<E: Engine>(
    engine: Arc<E>,
    host: Host,
    request: Arc<RunRequest>,
    sender: Sender,
    processes: TaskTracker,
) {
    // Handed back at once by an engine that cannot be steered, and at the latest with the end.
    let mut untaken = Some(UntakenMessages(request.steering.clone()));
    untaken.take_if(|_| !engine.is_steerable());
    let codec = engine.resume_codec();
    let fail = |failure: RunError, resume: Option<ResumeToken>| {
        sender.finish(
            Completed::failure(engine.id(), failure.reason, failure.message).resume(resume),
        );
    };
    let resume = match canonical_resume(&codec, &engine.id(), request.resume.as_ref()) {
        Ok(resume) => resume,
        Err(failure) => return fail(failure, request.resume.clone()),
    };
    let checked = check_ephemeral(&*engine, &request).and_then(|()| engine.check(&request));
    if let Err(failure) = checked {
        return fail(failure, resume);
    }
    // Until the end: nobody removes the directory that an agent works in.
    let _worktree = match engine.directory(&request).map(WorktreeLock::share).transpose() {
        Ok(lock) => lock.flatten(),
        Err(message) => return fail(RunError::new(Reason::InvalidRequest, message), resume),
    };
    let locks = locks_of(&host, engine.session_scope());
    let shared = Arc::new(Shared::new(Parts {
        engine: engine.id(),
        host,
        limits: match engine.session_scope() {
            SessionScope::Elsewhere => (None, None),
            _ => (request.settings.idle_timeout, request.settings.wall_timeout),
        },
        request: &request,
        codec,
        resume: resume.clone(),
        sessions: Arc::new(EngineSessions(engine.clone())),
        locks,
        sender: sender.clone(),
        processes,
    }));
    let interruption = async {
        let error = tokio::select! {
            () = request.cancel.cancelled() => "interrupted",
            () = sender.dropped().cancelled() => "the event stream was dropped",
        };
        RunError::new(Reason::Interrupted, error)
    };
    tokio::pin!(interruption);

    // Checked first: a run that is already cancelled is not started.
    let claimed = tokio::select! {
        biased;
        cause = &mut interruption => Err(cause),
        claimed = claim(&shared, resume.as_ref()) => claimed.map_err(ClaimError::cause),
    };
    if let Err(cause) = claimed {
        let completed = Completed::failure(shared.engine(), cause.reason, cause.message);
        return shared.finish(completed);
    }

    shared.start_clock();
    let run = EngineRun { request: request.clone(), resume, shared: shared.clone() };
    let engine_run = AssertUnwindSafe(async move { engine.run(run).await }).catch_unwind();
    // Boxed so that it can be dropped, and with it every process handle, before the end is emitted.
    let mut engine_run = Box::pin(engine_run);
    let returned = tokio::select! {
        biased;
        result = &mut engine_run => Some(result),
        () = shared.done.cancelled() => None,
        () = shared.stop.cancelled() => None,
        cause = &mut interruption => {
            shared.stop_for(cause);
            None
        }
        cause = shared.expiry() => {
            shared.stop_for(cause);
            None
        }
        cause = shared.lock_lost() => {
            shared.stop_for(cause);
            None
        }
    };
    // Dropped when its time is over, and with it every process handle.
    let return_in_time = async move {
        match returned {
            Some(result) => result.err(),
            None => timeout(STOP_LIMIT, engine_run).await.ok().and_then(Result::err),
        }
    };
    if shared.done.is_cancelled() {
        // The engine emitted `Completed`, and nothing that happens now changes it.
        tokio::join!(return_in_time, shared.release());
        // For whatever of it lives on elsewhere.
        shared.stop.cancel();
    } else {
        let panic = return_in_time.await;
        // The end of a run that was stopped promises that no process of it is left.
        shared.release().await;
        conclude(&shared, panic);
    }
}

async fn claim(shared: &Shared, session: Option<&ResumeToken>) -> Result<(), ClaimError> {
    match session {
        Some(session) => shared.claim(session).await,
        None => Ok(()),
    }
}

/// Emits `Completed` for a run whose engine did not.
fn conclude(shared: &Shared, panic: Option<Box<dyn std::any::Any + Send>>) {
    let (cause, report) = match (shared.stopped(), panic) {
        (Some((cause, report)), _) => (cause, report),
        (None, Some(panic)) => {
            let message = panic
                .downcast_ref::<&str>()
                .map(|message| (*message).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_default();
            let error = format!("the engine's translation panicked: {message}");
            (RunError::new(Reason::Protocol, error), None)
        }
        (None, None) => {
            (RunError::new(Reason::Protocol, "the engine ended without a result"), None)
        }
    };
    let mut completed = Completed::failure(shared.engine(), cause.reason, cause.message);
    if let Some(report) = report {
        completed = completed
            .answer(report.answer)
            .usage(report.usage)
            .rate_limits(report.rate_limits)
            .cost_usd(report.cost_usd);
    }
    shared.finish(completed);
}

/// The sessions of an engine.
struct EngineSessions<E>(Arc<E>);

impl<E: Engine> Sessions for EngineSessions<E> {
    fn key(&self, token: &ResumeToken) -> SessionKey {
        self.0.session_key(token)
    }
}

impl<E: Engine> LeaseHolder for EngineSessions<E> {
    fn take_lease(&self, key: &SessionKey) -> Option<SessionLease> {
        self.0.take_lease(key)
    }
}

fn locks_of(host: &Host, scope: SessionScope) -> Arc<dyn SessionLocks> {
    match scope {
        SessionScope::Machine => host.session_locks().clone(),
        SessionScope::Process => Arc::new(host.local_locks().clone()),
        // Of this run alone: always free.
        SessionScope::Elsewhere => Arc::new(LocalLocks::new()),
    }
}

/// A run whose session is not stored begins a new one, on an engine that can do that.
fn check_ephemeral(engine: &impl Engine, request: &RunRequest) -> Result<(), RunError> {
    if !request.settings.is_ephemeral() {
        return Ok(());
    }
    let error = if request.resume.is_some() {
        "`ephemeral` begins a session that is not stored; it cannot resume one".to_owned()
    } else if engine.can_be_ephemeral() {
        return Ok(());
    } else {
        format!(
            "{} cannot run without storing its session: `ephemeral` is not possible",
            engine.id()
        )
    };
    Err(RunError::new(Reason::InvalidRequest, error))
}

fn canonical_resume(
    codec: &ResumeCodec,
    engine: &EngineId,
    asked: Option<&ResumeToken>,
) -> Result<Option<ResumeToken>, RunError> {
    let Some(asked) = asked else { return Ok(None) };
    if asked.engine != *engine {
        let error = format!("this is a session of {}, not of {engine}", asked.engine);
        return Err(RunError::new(Reason::InvalidRequest, error));
    }
    match codec.token(&asked.value) {
        Some(token) => Ok(Some(token)),
        None => Err(RunError::new(
            Reason::InvalidRequest,
            format!("{:?} is not a session id of {engine}", asked.value),
        )),
    }
}
