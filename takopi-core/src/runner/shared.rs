//! The state that the driver and the engine of one run share.
//!
//! Every event of the engine passes here: the contract admits it, a new session's lock is taken
//! before its `Started` goes on, the limits learn of it, the buffer takes it. Whether the engine
//! completed the run or it was stopped before is decided once, under one mutex ([`Ending`]).

mod claim;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, Either, Ready, ready};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::buffer::Sender;
use super::clock::Clock;
use super::contract::{Admission, Contract};
use super::slot::{RunKeep, SessionSlot};
use super::{ResumeCodec, RunError, RunRequest, StoppedError};
use crate::host::Host;
use crate::locks::{LeaseHolder, LostLock, SessionGuard, SessionKey, SessionLease, SessionLocks};
use crate::model::{
    ActionEvent, ActionKind, Completed, EngineId, Level, Reason, ResumeToken, TakopiEvent,
};

use self::claim::Awaited;
pub(super) use self::claim::ClaimError;
pub use self::claim::WAIT_ACTION;

/// Whether an event was passed on, or the run was stopped before.
type Pushed = Result<(), StoppedError>;

pub(super) struct Shared {
    engine: EngineId,
    pub(super) host: Host,
    /// Fires when the run must end.
    pub(super) stop: CancellationToken,
    /// Fires when the engine completed the run by itself, and the consumer has its `Completed`.
    pub(super) done: CancellationToken,
    sender: Sender,
    state: Mutex<State>,
    clock_changed: Notify,
    lock_taken: Notify,
    sessions: Arc<dyn Sessions>,
    locks: Arc<dyn SessionLocks>,
    slot: SessionSlot,
    /// The run's processes, each with a token.
    processes: TaskTracker,
    next_id: AtomicU64,
}

struct State {
    contract: Contract,
    clock: Clock,
    /// How much of the request's `wait` remains.
    patience: Option<Duration>,
    /// What the note about waiting that is open in the stream is about.
    wait_reported: Option<Awaited>,
    /// Resolves when the session's lock is lost, if it can be. Taken by the driver, which waits for it.
    lost: Option<BoxFuture<'static, LostLock>>,
    ending: Ending,
}

/// How the run ends. It moves forward only, and once.
enum Ending {
    /// Nothing has ended it yet.
    Running,
    /// takopi stops it: why, and what the engine still reported at its end.
    Stopping { cause: RunError, report: Option<Box<Completed>> },
    /// The engine completed it, and the consumer has its `Completed`.
    Completed,
}

/// The sessions of an engine: their keys, and what is kept of them between two runs.
pub(super) trait Sessions: LeaseHolder {
    fn key(&self, token: &ResumeToken) -> SessionKey;
}

/// What a run is made of.
pub(super) struct Parts<'a> {
    pub(super) engine: EngineId,
    pub(super) host: Host,
    pub(super) request: &'a RunRequest,
    /// Idle and wall clock.
    pub(super) limits: (Option<Duration>, Option<Duration>),
    pub(super) codec: ResumeCodec,
    pub(super) resume: Option<ResumeToken>,
    pub(super) sessions: Arc<dyn Sessions>,
    pub(super) locks: Arc<dyn SessionLocks>,
    pub(super) sender: Sender,
    pub(super) processes: TaskTracker,
}

impl Shared {
    pub(super) fn new(parts: Parts<'_>) -> Self {
        let Parts { engine, host, request, codec, resume, .. } = parts;
        Self {
            engine,
            host,
            stop: CancellationToken::new(),
            done: CancellationToken::new(),
            sender: parts.sender,
            state: Mutex::new(State {
                contract: Contract::new(codec, resume).ephemeral(request.settings.is_ephemeral()),
                clock: Clock::new(parts.limits.0, parts.limits.1, Instant::now()),
                patience: request.settings.wait,
                wait_reported: None,
                lost: None,
                ending: Ending::Running,
            }),
            clock_changed: Notify::new(),
            lock_taken: Notify::new(),
            sessions: parts.sessions,
            locks: parts.locks,
            slot: SessionSlot::default(),
            processes: parts.processes,
            next_id: AtomicU64::new(0),
        }
    }

    pub(super) fn engine(&self) -> EngineId {
        self.engine.clone()
    }

    /// What a process of the run keeps until it is gone.
    pub(super) fn keep(&self) -> RunKeep {
        RunKeep::new(self.slot.clone(), &self.processes)
    }

    pub(super) fn session(&self) -> Option<ResumeToken> {
        self.state().contract.session()
    }

    pub(super) fn has_lock(&self) -> bool {
        self.slot.is_taken()
    }

    pub(super) fn split_lease(&self) -> Option<SessionLease> {
        self.slot.split_lease()
    }

    pub(super) fn next_id(&self, what: &str) -> String {
        format!("takopi.{what}_{}", self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// The engine is started now: the limits count from here.
    pub(super) fn start_clock(&self) {
        self.state().clock.start(Instant::now());
    }

    pub(super) fn renew_idle(&self) {
        self.state().clock.renew_idle(Instant::now());
    }

    pub(super) fn no_tool_running(&self) {
        if self.state().clock.no_tool_running() {
            self.clock_changed.notify_one();
        }
    }

    /// Stops the idle limit until the guard is dropped.
    pub(super) fn pause_idle(&self) -> IdlePause<'_> {
        self.state().clock.pause_idle();
        IdlePause { shared: self }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn emit(&self, event: TakopiEvent) -> Pushed {
        match self.admit(event) {
            Admission::Pass(event) => self.push(event).await,
            Admission::Start(started) => {
                self.claim_new(&started.resume).await?;
                self.push(started.into()).await?;
                self.state().contract.confirm();
                Ok(())
            }
            Admission::Ignore(what) => {
                tracing::debug!(engine = %self.engine, "ignored {what}");
                Ok(())
            }
            Admission::Break(error) => self.break_off(error),
            Admission::Finish(completed) => {
                self.complete(completed);
                Ok(())
            }
        }
    }

    fn admit(&self, event: TakopiEvent) -> Admission {
        let mut state = self.state();
        if is_activity(&event) {
            state.clock.renew_idle(Instant::now());
        }
        state.contract.admit(event)
    }

    /// The engine completed the run by itself.
    fn complete(&self, completed: Box<Completed>) {
        // Under the mutex, so that a stop comes either before or behind it.
        let mut state = self.state();
        match &mut state.ending {
            Ending::Running => {
                state.ending = Ending::Completed;
                if self.processes.is_empty() {
                    self.slot.clear();
                }
                self.end_stream(&mut state, completed);
                self.done.cancel();
            }
            Ending::Stopping { report, .. } => *report = Some(completed),
            Ending::Completed => {}
        }
    }

    /// Takes the lock of a new session, unless the run has it; ends the run if that fails.
    pub(super) async fn claim_new(&self, session: &ResumeToken) -> Result<(), StoppedError> {
        match self.claim(session).await {
            Ok(()) => Ok(()),
            Err(ClaimError::Stopped) => Err(StoppedError),
            Err(error) => self.break_off(error.cause()),
        }
    }

    pub(super) fn events_read(&self) -> u64 {
        self.sender.yielded()
    }

    /// Passes on many events in one go, as far as they need nothing but room.
    pub(super) async fn emit_all(
        &self,
        events: impl IntoIterator<Item = TakopiEvent>,
    ) -> Result<(), StoppedError> {
        let mut events = events.into_iter();
        while let Some(odd) = self.emit_plain(&mut events) {
            self.emit(odd).await?;
        }
        Ok(())
    }

    /// Passes on actions while there is room; gives back the first event that needs more care.
    fn emit_plain(&self, events: &mut impl Iterator<Item = TakopiEvent>) -> Option<TakopiEvent> {
        let mut state = self.state();
        let now = Instant::now();
        let mut nearer = false;
        let odd = self.sender.push_many(events, |event| match event {
            TakopiEvent::Action(action)
                if !self.stop.is_cancelled() && state.contract.is_open() =>
            {
                if is_activity(event) {
                    state.clock.renew_idle(now);
                    nearer |= state.clock.observe(action);
                }
                true
            }
            _ => false,
        });
        drop(state);
        if nearer {
            self.clock_changed.notify_one();
        }
        odd
    }

    /// Passes an event to the consumer: at once if there is room. What waits for room is boxed, because few events do, and
    /// the future of each would be as large.
    fn push(&self, event: TakopiEvent) -> Either<Ready<Pushed>, BoxFuture<'_, Pushed>> {
        if self.stop.is_cancelled() {
            return Either::Left(ready(Err(StoppedError)));
        }
        if let TakopiEvent::Action(action) = &event
            && is_activity(&event)
            && self.state().clock.observe(action)
        {
            self.clock_changed.notify_one();
        }
        match self.sender.try_push(event) {
            Ok(()) => Either::Left(ready(Ok(()))),
            Err(back) => Either::Right(Box::pin(self.push_into_room(back))),
        }
    }

    async fn push_into_room(&self, mut event: TakopiEvent) -> Pushed {
        // The consumer is slow: the engine is not idle.
        let _pause = self.pause_idle();
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Err(StoppedError),
                () = self.sender.room() => {}
            }
            match self.sender.try_push(event) {
                Ok(()) => return Ok(()),
                Err(back) => event = back,
            }
        }
    }

    /// Stops the run for this cause, unless the engine completed it before.
    pub(super) fn stop_for(&self, cause: RunError) {
        {
            let mut state = self.state();
            match state.ending {
                Ending::Running => state.ending = Ending::Stopping { cause, report: None },
                Ending::Stopping { .. } => {}
                Ending::Completed => return,
            }
        }
        self.stop.cancel();
    }

    /// Ends the run for a reason of takopi's own.
    fn break_off(&self, cause: RunError) -> Result<(), StoppedError> {
        self.stop_for(cause);
        Err(StoppedError)
    }

    /// Keeps the lock, and watches it if it can be lost.
    fn hold(&self, guard: SessionGuard) {
        if let Some(lost) = self.slot.put(guard) {
            self.state().lost = Some(lost);
            self.lock_taken.notify_one();
        }
    }

    /// Resolves when the session's lock is lost: the run must end before another begins.
    pub(super) async fn lock_lost(&self) -> RunError {
        let lost = loop {
            let lost = self.state().lost.take();
            match lost {
                Some(lost) => break lost.await,
                None => self.lock_taken.notified().await,
            }
        };
        RunError::new(Reason::LockLost, format!("the session's lock was lost: {}", lost.cause))
    }

    /// Resolves when a limit is reached.
    pub(super) async fn expiry(&self) -> RunError {
        loop {
            let deadline = {
                let state = self.state();
                if let Some(error) = state.clock.expired(Instant::now()) {
                    return error;
                }
                state.clock.deadline()
            };
            tokio::select! {
                // A deadline only moves on while it is slept for; it is looked at again then.
                () = moment(deadline) => {}
                () = self.clock_changed.notified() => {}
            }
        }
    }

    /// Waits until no process of the run is left, and lets its session go.
    pub(super) async fn release(&self) {
        self.processes.wait().await;
        self.slot.clear();
    }

    /// Why the run was stopped, and what its engine still reported; `None` if it was not stopped.
    pub(super) fn stopped(&self) -> Option<(RunError, Option<Completed>)> {
        match std::mem::replace(&mut self.state().ending, Ending::Completed) {
            Ending::Stopping { cause, report } => Some((cause, report.map(|report| *report))),
            Ending::Running | Ending::Completed => None,
        }
    }

    /// Emits the one `Completed` of a run that the engine did not complete.
    pub(super) fn finish(&self, completed: Completed) {
        let mut state = self.state();
        state.contract.close();
        let resume = state.contract.resume();
        self.end_stream(&mut state, Box::new(completed.resume(resume)));
    }

    /// Emits the one `Completed`. The note about a wait does not stay open.
    fn end_stream(&self, state: &mut State, completed: Box<Completed>) {
        let waited = state.wait_reported.take().map(|awaited| self.wait_abandoned(awaited).into());
        self.sender.finish_after(waited, completed);
    }
}

/// A run whose task is dropped or panics while it waits has no end of its own: see `LastResort` in `drive.rs`, which is
/// dropped behind this.
impl Drop for Shared {
    fn drop(&mut self) {
        let reported = self.state().wait_reported.take();
        if let Some(awaited) = reported {
            let _ = self.sender.try_push(self.wait_abandoned(awaited).into());
        }
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

/// Whether an event shows that the agent does something: a warning, a notice and figures for machines may
/// be about anything.
fn is_activity(event: &TakopiEvent) -> bool {
    !matches!(
        event,
        TakopiEvent::Action(event)
            if matches!(event.action.kind, ActionKind::Warning | ActionKind::Telemetry)
                || is_notice(event)
    )
}

/// Whether it is a remark of the engine, and not of the agent.
fn is_notice(event: &ActionEvent) -> bool {
    event.action.kind == ActionKind::Note && event.level == Some(Level::Info)
}

/// Resolves at this moment; never without one.
async fn moment(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
