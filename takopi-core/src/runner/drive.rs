//! Drives one run: lock, engine, limits, and exactly one end.
//!
//! The run is a task on the host's supervisor. It waits for the session's lock, runs the engine and
//! watches it from beside: cancellation, a consumer that is gone, the limits, a broken contract.
//! Whatever ends the run, the engine is told to stop first, and `Completed` is said only when every
//! process of the run is gone, unless the engine said it by itself.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::buffer::{self, Bounds, Sender};
use super::clock::Clock;
use super::contract::{Contract, Verdict};
use super::{
    Engine, EngineRun, EventStream, Refusal, ResumeCodec, RunRequest, Runner, SessionScope, Stopped,
};
use crate::host::{Host, RunKeep, SessionSlot};
use crate::locks::{Holder, LeaseHolder, LockError, SessionKey, SessionLease, SessionLocks};
use crate::model::{
    Action, ActionEvent, ActionKind, Completed, EngineId, Level, Phase, Reason, ResumeToken,
    TakopiEvent,
};

/// How long an engine may take to return once its run is over: longer than any ladder.
const ENGINE_END_LIMIT: Duration = Duration::from_mins(1);
/// A wait shorter than this is not worth a word: the process of the run before is being reaped.
const WAIT_UNSAID: Duration = Duration::from_millis(300);
/// The id of the note that says a session is waited for.
const WAIT_ID: &str = "takopi.wait";

/// Turns an [`Engine`] into a [`Runner`].
///
/// Runners of one process share their sessions' locks, however many there are.
pub struct EngineRunner<E> {
    engine: Arc<E>,
    host: Option<Host>,
    bounds: Bounds,
}

impl<E: Engine> EngineRunner<E> {
    /// A runner on the global host.
    pub fn new(engine: E) -> Self {
        Self { engine: Arc::new(engine), host: None, bounds: Bounds::default() }
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
                host.clone().track(async move { drive(engine, host, request, sender).await });
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
            if let Ok(host) = self.host.clone().map_or_else(Host::global, Ok) {
                host.settle().await;
            }
        })
    }
}

/// What the driver and the engine of one run share.
pub(super) struct Shared {
    engine: EngineId,
    pub(super) host: Host,
    pub(super) stop: CancellationToken,
    /// Fires when the engine said `Completed` by itself.
    done: CancellationToken,
    sender: Sender,
    state: Mutex<State>,
    clock_changed: Notify,
    locks: Arc<dyn SessionLocks>,
    leases: Arc<dyn LeaseHolder>,
    slot: SessionSlot,
    /// The run's processes, each with a token.
    processes: TaskTracker,
    run: u64,
    next_id: AtomicU64,
}

struct State {
    contract: Contract,
    clock: Clock,
    /// What is left of the request's `wait`.
    patience: Option<Duration>,
    /// Whether the note about waiting was said and not yet taken back.
    said_waiting: bool,
    /// Why the run was stopped, if it was.
    cause: Option<(Reason, String)>,
    /// What the engine said at the end of a run that was stopped.
    last_word: Option<Completed>,
}

/// Why a lock was not had.
enum ClaimError {
    Busy(String),
    Fault(LockError),
    Stopped,
}

impl Shared {
    pub(super) fn engine(&self) -> EngineId {
        self.engine.clone()
    }

    pub(super) fn keep(&self) -> RunKeep {
        RunKeep::new(self.run, self.slot.clone(), &self.processes)
    }

    pub(super) fn split_lease(&self) -> Option<SessionLease> {
        self.slot.split_lease()
    }

    pub(super) fn next_id(&self, what: &str) -> String {
        format!("takopi.{what}_{}", self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    pub(super) fn heard(&self) {
        self.state().clock.heard(Instant::now());
    }

    /// Stops the idle limit until the guard is dropped.
    pub(super) fn pause_idle(&self) -> IdlePause<'_> {
        self.state().clock.pause_idle();
        IdlePause { shared: self }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn emit(&self, event: TakopiEvent) -> Result<(), Stopped> {
        let verdict = {
            let mut state = self.state();
            state.clock.heard(Instant::now());
            let verdict = state.contract.admit(event);
            if let Verdict::Finish(completed) = verdict {
                // Under the lock, so that a stop comes either before or behind it.
                if state.cause.is_some() {
                    state.last_word = Some(completed);
                } else {
                    if self.processes.is_empty() {
                        self.slot.clear();
                    }
                    self.sender.finish(completed);
                    self.done.cancel();
                }
                return Ok(());
            }
            verdict
        };
        match verdict {
            Verdict::Pass(event) => self.push(event).await,
            Verdict::Claim(started) => match self.claim(&started.resume).await {
                Ok(()) => self.push(started.into()).await,
                Err(ClaimError::Stopped) => Err(Stopped),
                Err(ClaimError::Busy(error)) => self.break_off(Reason::SessionBusy, error),
                Err(ClaimError::Fault(error)) => {
                    self.break_off(Reason::SpawnFailed, error.to_string())
                }
            },
            Verdict::Ignore(what) => {
                tracing::debug!(engine = %self.engine, "ignored {what}");
                Ok(())
            }
            Verdict::Break(reason, error) => self.break_off(reason, error),
            Verdict::Finish(_) => Ok(()),
        }
    }

    /// Passes an event to the consumer, in its own time.
    async fn push(&self, mut event: TakopiEvent) -> Result<(), Stopped> {
        if self.stop.is_cancelled() {
            return Err(Stopped);
        }
        if let TakopiEvent::Action(action) = &event
            && self.state().clock.observe(action)
        {
            self.clock_changed.notify_one();
        }
        let mut pause = None;
        loop {
            match self.sender.try_push(event) {
                Ok(()) => return Ok(()),
                Err(back) => event = back,
            }
            // It is we who wait: the engine is not idle.
            pause.get_or_insert_with(|| self.pause_idle());
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Err(Stopped),
                () = self.sender.room() => {}
            }
        }
    }

    /// Ends the run for a reason of takopi's own.
    fn break_off(&self, reason: Reason, error: String) -> Result<(), Stopped> {
        self.state().cause.get_or_insert((reason, error));
        self.stop.cancel();
        Err(Stopped)
    }

    /// Takes the lock of a session, waiting visibly for as long as the request allows.
    async fn claim(&self, token: &ResumeToken) -> Result<(), ClaimError> {
        let key = SessionKey::new(token);
        let holder = Holder::here(self.engine.clone());
        if let Some(guard) =
            self.locks.try_lock(&key, &holder, &*self.leases).map_err(ClaimError::Fault)?
        {
            self.slot.put(guard);
            return Ok(());
        }
        let who =
            self.locks.holder(&key).map_or_else(|| "another run".to_owned(), |who| who.to_string());
        let begun = self.begin_wait(&who)?;
        let patience = self.state().patience;
        let lock = self.locks.lock(key, holder, self.leases.clone());
        let worth_a_word = sleep_until(begun + WAIT_UNSAID);
        tokio::pin!(lock, worth_a_word);
        let result = loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break Err(ClaimError::Stopped),
                result = &mut lock => break result.map_err(ClaimError::Fault),
                () = patience_ends(begun, patience) => break Err(busy(&who)),
                () = &mut worth_a_word, if !self.state().said_waiting => self.say_waiting(&who).await?,
            }
        };
        self.end_wait(begun);
        self.slot.put(result?);
        self.say_waiting_is_over().await
    }

    /// Waits because somebody outside takopi holds the session; `false` when patience is at its end.
    pub(super) async fn wait_outside(&self, who: &str, pause: Duration) -> Result<bool, Stopped> {
        let Ok(begun) = self.begin_wait(who) else { return Ok(false) };
        if !self.state().said_waiting {
            self.say_waiting(who).await.map_err(|_| Stopped)?;
        }
        let until = begun + self.state().patience.map_or(pause, |patience| patience.min(pause));
        let result = tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(Stopped),
            () = sleep_until(until) => Ok(true),
        };
        self.end_wait(begun);
        result
    }

    fn begin_wait(&self, who: &str) -> Result<Instant, ClaimError> {
        let now = Instant::now();
        let mut state = self.state();
        if state.patience.is_some_and(|patience| patience.is_zero()) {
            return Err(busy(who));
        }
        state.clock.wait(now);
        Ok(now)
    }

    async fn say_waiting(&self, who: &str) -> Result<(), ClaimError> {
        self.state().said_waiting = true;
        let title = format!("waiting for the session, held by {who}");
        let action = Action::new(WAIT_ID, ActionKind::Note, title);
        let note = ActionEvent::new(self.engine(), action, Phase::Started).level(Level::Info);
        self.push(note.into()).await.map_err(|Stopped| ClaimError::Stopped)
    }

    fn end_wait(&self, begun: Instant) {
        let now = Instant::now();
        let mut state = self.state();
        state.clock.go_on(now);
        state.patience = state.patience.map(|patience| patience.saturating_sub(now - begun));
        drop(state);
        self.clock_changed.notify_one();
    }

    async fn say_waiting_is_over(&self) -> Result<(), ClaimError> {
        if !std::mem::take(&mut self.state().said_waiting) {
            return Ok(());
        }
        let action = Action::new(WAIT_ID, ActionKind::Note, "the session is free");
        let note =
            ActionEvent::new(self.engine(), action, Phase::Completed).ok(true).level(Level::Info);
        self.push(note.into()).await.map_err(|Stopped| ClaimError::Stopped)
    }

    /// Resolves when a limit is reached.
    async fn expiry(&self) -> (Reason, String) {
        loop {
            let deadline = {
                let state = self.state();
                if let Some(expired) = state.clock.expired(Instant::now()) {
                    return expired;
                }
                state.clock.deadline()
            };
            match deadline {
                // A deadline only moves on while it is slept for; it is looked at again then.
                Some(deadline) => tokio::select! {
                    () = sleep_until(deadline) => {}
                    () = self.clock_changed.notified() => {}
                },
                None => self.clock_changed.notified().await,
            }
        }
    }

    /// Says the one `Completed` of a run that did not end by itself.
    fn finish(&self, completed: Completed) {
        let resume = {
            let mut state = self.state();
            state.contract.close();
            state.contract.resume()
        };
        self.sender.finish(completed.resume(resume));
    }

    fn is_over(&self) -> bool {
        self.state().contract.is_over()
    }
}

/// Lets the idle limit run again when dropped.
pub(super) struct IdlePause<'a> {
    shared: &'a Shared,
}

impl Drop for IdlePause<'_> {
    fn drop(&mut self) {
        self.shared.state().clock.resume_idle(Instant::now());
        self.shared.clock_changed.notify_one();
    }
}

fn busy(who: &str) -> ClaimError {
    ClaimError::Busy(format!("the session is held by {who}"))
}

async fn patience_ends(begun: Instant, patience: Option<Duration>) {
    match patience.and_then(|patience| begun.checked_add(patience)) {
        Some(end) => sleep_until(end).await,
        None => std::future::pending().await,
    }
}

async fn drive<E: Engine>(engine: Arc<E>, host: Host, request: RunRequest, sender: Sender) {
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
    let now = Instant::now();
    let shared = Arc::new(Shared {
        engine: engine.id(),
        stop: CancellationToken::new(),
        done: CancellationToken::new(),
        sender: sender.clone(),
        state: Mutex::new(State {
            contract: Contract::new(codec, resume.clone()),
            clock: Clock::new(request.idle_timeout, request.wall_timeout, now),
            patience: request.wait,
            said_waiting: false,
            cause: None,
            last_word: None,
        }),
        clock_changed: Notify::new(),
        locks: locks_of(&host, engine.session_scope()),
        leases: Arc::new(Leases(engine.clone())),
        slot: SessionSlot::default(),
        processes: TaskTracker::new(),
        run: host.next_run(),
        next_id: AtomicU64::new(0),
        host,
    });
    let interruption = async {
        tokio::select! {
            () = request.cancel.cancelled() => (Reason::Interrupted, "interrupted".to_owned()),
            () = sender.dropped().cancelled() => (Reason::Interrupted, "nobody reads any more".to_owned()),
        }
    };
    tokio::pin!(interruption);

    if let Some(token) = &resume {
        let claimed = tokio::select! {
            biased;
            (reason, error) = &mut interruption => return refuse(Refusal::new(reason, error), resume.clone()),
            claimed = shared.claim(token) => claimed,
        };
        match claimed {
            Ok(()) => {}
            Err(ClaimError::Busy(error)) => {
                return refuse(Refusal::new(Reason::SessionBusy, error), resume.clone());
            }
            Err(ClaimError::Fault(error)) => {
                return refuse(
                    Refusal::new(Reason::SpawnFailed, error.to_string()),
                    resume.clone(),
                );
            }
            // Nothing but the interruption above stops a run at this point.
            Err(ClaimError::Stopped) => {
                return refuse(Refusal::new(Reason::Interrupted, "interrupted"), resume.clone());
            }
        }
    }

    shared.state().clock.start(Instant::now());
    let run = EngineRun { request: request.clone(), resume, shared: shared.clone() };
    let engine_run = AssertUnwindSafe(async move { engine.run(run).await }).catch_unwind();
    // Boxed so that it can be dropped, and with it every process handle, before the end is said.
    let mut engine_run = Box::pin(engine_run);
    let stopped_by = tokio::select! {
        biased;
        result = &mut engine_run => Err(result),
        cause = &mut interruption => Ok(cause),
        () = shared.stop.cancelled() => Ok((Reason::Protocol, String::new())),
        () = shared.done.cancelled() => Ok((Reason::Interrupted, String::new())),
        cause = shared.expiry() => Ok(cause),
    };
    let ended_in_panic = match stopped_by {
        Err(result) => result.err(),
        Ok(cause) => {
            if shared.is_over() {
                // It said `Completed`; nothing that happens now changes it. It may still hand its
                // process over.
                let _ = timeout(ENGINE_END_LIMIT, engine_run).await;
                return;
            }
            shared.state().cause.get_or_insert(cause);
            shared.stop.cancel();
            match timeout(ENGINE_END_LIMIT, &mut engine_run).await {
                Ok(result) => result.err(),
                Err(_) => None,
            }
        }
    };
    drop(engine_run);
    conclude(&shared, ended_in_panic).await;
}

/// Says the end of a run whose engine has returned, if the engine did not.
async fn conclude(shared: &Shared, panic: Option<Box<dyn std::any::Any + Send>>) {
    let (cause, last_word) = {
        let mut state = shared.state();
        (state.cause.take(), state.last_word.take())
    };
    if cause.is_none() && shared.is_over() {
        return;
    }
    // Whoever sees the end of a run that was cut short knows that nothing is left of it.
    shared.processes.close();
    shared.processes.wait().await;
    shared.slot.clear();
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
