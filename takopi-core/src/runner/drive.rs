//! Drives one run: lock, engine, limits, and exactly one end.
//!
//! The run is a task on the host's supervisor. It waits for the session's lock, runs the engine and
//! watches it from beside: cancellation, a consumer that is gone, the limits, a broken contract.
//! Whatever ends the run, the engine is told to stop first, and `Completed` is said only when every
//! process of the run is gone, unless the engine said it by itself.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::buffer::{self, Bounds, Sender};
use super::shared::{ClaimError, Shared};
use super::{
    Engine, EngineRun, EventStream, FollowUps, Refusal, ResumeCodec, RunRequest, Runner,
    SessionScope, Steering,
};
use crate::host::Host;
use crate::locks::{LeaseHolder, SessionKey, SessionLease, SessionLocks};
use crate::model::{Completed, EngineId, Reason, ResumeToken};

/// How long an engine may take to return once its run is over: longer than any ladder.
const ENGINE_END_LIMIT: Duration = Duration::from_mins(1);

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
        let (sender, events) = buffer::channel(self.bounds);
        match self.host.clone().map_or_else(Host::global, Ok) {
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
                    .resume(request.resume),
            ),
        }
        events.boxed()
    }

    fn format_resume(&self, token: &ResumeToken) -> String {
        self.engine.resume_codec().format(token)
    }

    fn extract_resume(&self, text: &str) -> Option<ResumeToken> {
        self.engine.resume_codec().extract(text)
    }

    fn is_resume_line(&self, line: &str) -> bool {
        self.engine.resume_codec().is_line(line)
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.engine.shutdown().await;
            self.tasks.wait().await;
            // What the last runs left warm.
            self.engine.shutdown().await;
            if let Ok(host) = self.host.clone().map_or_else(Host::global, Ok) {
                host.tidy().await;
            }
        })
    }
}

/// Says the end of a run whose task is gone without a word: it panicked, or its runtime is no more.
struct LastResort {
    sender: Sender,
    engine: EngineId,
    resume: Option<ResumeToken>,
}

impl Drop for LastResort {
    fn drop(&mut self) {
        let (reason, error) = if std::thread::panicking() {
            (Reason::Protocol, "the engine panicked")
        } else {
            (Reason::Interrupted, "the runtime that takopi lives on is gone")
        };
        let completed = Completed::failure(self.engine.clone(), reason, error);
        self.sender.finish(completed.resume(self.resume.take()));
    }
}

/// Follow-ups that the engine did not ask for, which are handed back when this is dropped.
struct Unheard(Option<Steering>);

impl Drop for Unheard {
    fn drop(&mut self) {
        drop(FollowUps::of(self.0.as_ref()));
    }
}

async fn drive<E: Engine>(
    engine: Arc<E>,
    host: Host,
    request: RunRequest,
    sender: Sender,
    processes: TaskTracker,
) {
    // Handed back at once by an engine that cannot be steered, and at the latest with the end.
    let mut unheard = Some(Unheard(request.steering.clone()));
    unheard.take_if(|_| !engine.is_steerable());
    let codec = engine.resume_codec();
    let refuse = |refusal: Refusal, resume: Option<ResumeToken>| {
        sender
            .finish(Completed::failure(engine.id(), refusal.reason, refusal.error).resume(resume));
    };
    let resume = match canonical_resume(&codec, &engine.id(), request.resume.as_ref()) {
        Ok(resume) => resume,
        Err(refusal) => return refuse(refusal, request.resume.clone()),
    };
    if let Err(refusal) = engine.check(&request) {
        return refuse(refusal, resume);
    }
    let request = Arc::new(request);
    let locks = locks_of(&host, engine.session_scope());
    let shared = Arc::new(Shared::new(
        engine.id(),
        host,
        &request,
        (codec, resume.clone()),
        (locks, Arc::new(Leases(engine.clone()))),
        sender.clone(),
        processes,
    ));
    let interruption = async {
        tokio::select! {
            () = request.cancel.cancelled() => (Reason::Interrupted, "interrupted".to_owned()),
            () = sender.dropped().cancelled() => (Reason::Interrupted, "nobody reads any more".to_owned()),
        }
    };
    tokio::pin!(interruption);

    // Looked at first: what nobody wants any more is not even begun.
    let claimed = tokio::select! {
        biased;
        cause = &mut interruption => Err(cause),
        claimed = claim(&shared, resume.as_ref()) => claimed.map_err(ClaimError::cause),
    };
    if let Err((reason, error)) = claimed {
        return refuse(Refusal::new(reason, error), resume);
    }

    shared.start_clock();
    let run = EngineRun { request: request.clone(), resume, shared: shared.clone() };
    let engine_run = AssertUnwindSafe(async move { engine.run(run).await }).catch_unwind();
    // Boxed so that it can be dropped, and with it every process handle, before the end is said.
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
    };
    // Dropped when its time is over, and with it every process handle.
    let return_in_time = async move {
        match returned {
            Some(result) => result.err(),
            None => timeout(ENGINE_END_LIMIT, engine_run).await.ok().and_then(Result::err),
        }
    };
    if shared.done.is_cancelled() {
        // It said `Completed`, and nothing that happens now changes it.
        tokio::join!(return_in_time, shared.release());
        // For whatever of it lives on elsewhere.
        shared.stop.cancel();
    } else {
        let panic = return_in_time.await;
        // Whoever sees the end of a run that was cut short knows that nothing is left of it.
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

/// Says the end of a run whose engine did not.
fn conclude(shared: &Shared, panic: Option<Box<dyn std::any::Any + Send>>) {
    let (cause, last_word) = shared.cause();
    let (reason, error) = match (cause, panic) {
        (Some(cause), _) => cause,
        (None, Some(panic)) => {
            let what = panic
                .downcast_ref::<&str>()
                .map(|what| (*what).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_default();
            (Reason::Protocol, format!("the engine's translation panicked: {what}"))
        }
        (None, None) => (Reason::Protocol, "the engine ended without saying how".to_owned()),
    };
    let mut completed = Completed::failure(shared.engine(), reason, error);
    if let Some(last_word) = last_word {
        completed = completed.answer(last_word.answer).usage(last_word.usage);
    }
    shared.finish(completed);
}

/// The leases of an engine.
struct Leases<E>(Arc<E>);

impl<E: Engine> LeaseHolder for Leases<E> {
    fn take_lease(&self, key: &SessionKey) -> Option<SessionLease> {
        self.0.take_lease(key)
    }
}

fn locks_of(host: &Host, scope: SessionScope) -> Arc<dyn SessionLocks> {
    match scope {
        SessionScope::Machine => Arc::new(host.file_locks().clone()),
        SessionScope::Process => Arc::new(host.local_locks().clone()),
    }
}

fn canonical_resume(
    codec: &ResumeCodec,
    engine: &EngineId,
    asked: Option<&ResumeToken>,
) -> Result<Option<ResumeToken>, Refusal> {
    let Some(asked) = asked else { return Ok(None) };
    if asked.engine != *engine {
        let error = format!("this is a session of {}, not of {engine}", asked.engine);
        return Err(Refusal::new(Reason::SessionNotFound, error));
    }
    match codec.token(&asked.value) {
        Some(token) => Ok(Some(token)),
        None => Err(Refusal::new(
            Reason::SessionNotFound,
            format!("{:?} is not a session id of {engine}", asked.value),
        )),
    }
}
