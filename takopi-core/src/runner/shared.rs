//! What the driver and the engine of one run share.
//!
//! Every event of the engine passes here: the contract admits it, a new session's lock is taken
//! before its `Started` goes on, the limits learn of it, the buffer takes it. Whether the engine
//! said the end or the run was stopped before is decided once, under one lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::buffer::Sender;
use super::clock::Clock;
use super::contract::{Contract, Verdict};
use super::{ResumeCodec, RunRequest, Stopped};
use crate::host::{Host, RunKeep, SessionSlot};
use crate::locks::{Holder, LeaseHolder, LockError, SessionKey, SessionLease, SessionLocks};
use crate::model::{
    Action, ActionEvent, ActionKind, Completed, EngineId, Level, Phase, Reason, ResumeToken,
    TakopiEvent,
};

/// A wait shorter than this is not worth a word: the process of the run before is being reaped.
const WAIT_UNSAID: Duration = Duration::from_millis(300);
/// The id of the note that says a session is waited for.
pub const WAIT_ACTION: &str = "takopi.wait";

pub(super) struct Shared {
    engine: EngineId,
    pub(super) host: Host,
    /// Fires when the run must end.
    pub(super) stop: CancellationToken,
    /// Fires when the engine said `Completed` by itself, and the consumer has it.
    pub(super) done: CancellationToken,
    sender: Sender,
    state: Mutex<State>,
    clock_changed: Notify,
    locks: Arc<dyn SessionLocks>,
    leases: Arc<dyn LeaseHolder>,
    slot: SessionSlot,
    /// The run's processes, each with a token.
    processes: TaskTracker,
    next_id: AtomicU64,
}

struct State {
    contract: Contract,
    clock: Clock,
    /// What is left of the request's `wait`.
    patience: Option<Duration>,
    /// Whether the note about waiting was said and not yet taken back.
    said_waiting: bool,
    /// Why the run was stopped, if it was. Never set once the engine said the end.
    cause: Option<(Reason, String)>,
    /// What the engine said at the end of a run that was stopped.
    last_word: Option<Completed>,
}

/// Why a lock was not had.
pub(super) enum ClaimError {
    Busy(String),
    Fault(LockError),
    Stopped,
}

impl From<Stopped> for ClaimError {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

impl ClaimError {
    /// How the run ends for it.
    pub(super) fn cause(self) -> (Reason, String) {
        match self {
            Self::Busy(error) => (Reason::SessionBusy, error),
            Self::Fault(error) => (Reason::SpawnFailed, error.to_string()),
            Self::Stopped => (Reason::Interrupted, "interrupted".to_owned()),
        }
    }
}

impl Shared {
    pub(super) fn new(
        engine: EngineId,
        host: Host,
        request: &RunRequest,
        contract: (ResumeCodec, Option<ResumeToken>),
        locks: (Arc<dyn SessionLocks>, Arc<dyn LeaseHolder>),
        sender: Sender,
        processes: TaskTracker,
    ) -> Self {
        Self {
            engine,
            host,
            stop: CancellationToken::new(),
            done: CancellationToken::new(),
            sender,
            state: Mutex::new(State {
                contract: Contract::new(contract.0, contract.1),
                clock: Clock::new(request.idle_timeout, request.wall_timeout, Instant::now()),
                patience: request.wait,
                said_waiting: false,
                cause: None,
                last_word: None,
            }),
            clock_changed: Notify::new(),
            locks: locks.0,
            leases: locks.1,
            slot: SessionSlot::default(),
            processes,
            next_id: AtomicU64::new(0),
        }
    }

    pub(super) fn engine(&self) -> EngineId {
        self.engine.clone()
    }

    pub(super) fn keep(&self) -> RunKeep {
        RunKeep::new(self.slot.clone(), &self.processes)
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

    pub(super) fn heard(&self) {
        self.state().clock.heard(Instant::now());
    }

    pub(super) fn no_tool_at_work(&self) {
        if self.state().clock.no_tool_at_work() {
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
            Verdict::Start(started) => match self.claim(&started.resume).await {
                Ok(()) => {
                    self.push(started.into()).await?;
                    self.state().contract.confirm();
                    Ok(())
                }
                Err(ClaimError::Stopped) => Err(Stopped),
                Err(error) => self.break_off(error.cause()),
            },
            Verdict::Ignore(what) => {
                tracing::debug!(engine = %self.engine, "ignored {what}");
                Ok(())
            }
            Verdict::Break(reason, error) => self.break_off((reason, error)),
            Verdict::Finish(_) => Ok(()),
        }
    }

    /// Passes on many events in one go, as far as they need nothing but room.
    pub(super) async fn emit_all(&self, events: Vec<TakopiEvent>) -> Result<(), Stopped> {
        let mut events = events.into_iter();
        while let Some(odd) = self.emit_plain(&mut events) {
            self.emit(odd).await?;
        }
        Ok(())
    }

    /// Passes on actions while there is room; gives back the first event that needs more care.
    fn emit_plain(&self, events: &mut impl Iterator<Item = TakopiEvent>) -> Option<TakopiEvent> {
        let mut state = self.state();
        state.clock.heard(Instant::now());
        let mut nearer = false;
        let odd = self.sender.push_many(events, |event| match event {
            TakopiEvent::Action(action)
                if !self.stop.is_cancelled() && state.contract.is_open() =>
            {
                nearer |= state.clock.observe(action);
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

    /// Stops the run for this cause; `false` if the engine said its end before.
    pub(super) fn stop_for(&self, cause: (Reason, String)) -> bool {
        {
            let mut state = self.state();
            if self.done.is_cancelled() {
                return false;
            }
            state.cause.get_or_insert(cause);
        }
        self.stop.cancel();
        true
    }

    /// Ends the run for a reason of takopi's own.
    fn break_off(&self, cause: (Reason, String)) -> Result<(), Stopped> {
        self.stop_for(cause);
        Err(Stopped)
    }

    /// Takes the lock of a session unless the run has it, waiting visibly for as long as the request
    /// allows.
    pub(super) async fn claim(&self, token: &ResumeToken) -> Result<(), ClaimError> {
        if self.slot.is_taken() {
            return Ok(self.say_waiting_is_over().await?);
        }
        let key = SessionKey::new(token);
        let holder = Holder::here(self.engine.clone());
        let at_once = self.locks.try_lock(&key, &holder, &*self.leases);
        if let Some(guard) = at_once.map_err(ClaimError::Fault)? {
            self.slot.put(guard);
            return Ok(());
        }
        let Some(wait) = self.begin_wait() else { return Err(self.busy(&key)) };
        let end = wait.patience.and_then(|patience| wait.begun.checked_add(patience));
        let lock = self.locks.lock(key.clone(), holder, self.leases.clone());
        let word = sleep_until(wait.begun + WAIT_UNSAID);
        tokio::pin!(lock, word);
        let guard = loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Err(ClaimError::Stopped),
                result = &mut lock => break result.map_err(ClaimError::Fault)?,
                () = moment(end) => return Err(self.busy(&key)),
                () = &mut word, if !self.state().said_waiting => {
                    // Without room for a word, later: the lock is not to wait for the consumer.
                    if !self.say_waiting(&self.who_holds(&key)) {
                        word.as_mut().reset(Instant::now() + WAIT_UNSAID);
                    }
                }
            }
        };
        drop(wait);
        self.slot.put(guard);
        Ok(self.say_waiting_is_over().await?)
    }

    /// Waits because somebody outside takopi holds the session; `false` when patience is at its end.
    pub(super) async fn wait_outside(&self, who: &str, pause: Duration) -> Result<bool, Stopped> {
        let Some(wait) = self.begin_wait() else { return Ok(false) };
        if !self.state().said_waiting {
            self.say_waiting(who);
        }
        let pause = wait.patience.map_or(pause, |patience| patience.min(pause));
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(Stopped),
            () = sleep_until(wait.begun + pause) => Ok(true),
        }
    }

    fn who_holds(&self, key: &SessionKey) -> String {
        self.locks.holder(key).map_or_else(|| "another run".to_owned(), |who| who.to_string())
    }

    fn busy(&self, key: &SessionKey) -> ClaimError {
        ClaimError::Busy(format!("the session is held by {}", self.who_holds(key)))
    }

    /// The limits stand still until the guard is dropped; `None` if there is no patience left.
    fn begin_wait(&self) -> Option<Wait<'_>> {
        let begun = Instant::now();
        let mut state = self.state();
        let patience = state.patience;
        if patience.is_some_and(|patience| patience.is_zero()) {
            return None;
        }
        state.clock.wait(begun);
        Some(Wait { shared: self, begun, patience })
    }

    /// Says who holds the session, if there is room for a word; says whether it did.
    fn say_waiting(&self, who: &str) -> bool {
        let title = format!("waiting for the session, held by {who}");
        let action = Action::new(WAIT_ACTION, ActionKind::Note, title);
        let note = ActionEvent::new(self.engine(), action, Phase::Started).level(Level::Info);
        let said = self.sender.try_push(note.into()).is_ok();
        self.state().said_waiting = said;
        said
    }

    async fn say_waiting_is_over(&self) -> Result<(), Stopped> {
        if !std::mem::take(&mut self.state().said_waiting) {
            return Ok(());
        }
        let action = Action::new(WAIT_ACTION, ActionKind::Note, "the session is free");
        let note =
            ActionEvent::new(self.engine(), action, Phase::Completed).ok(true).level(Level::Info);
        self.push(note.into()).await
    }

    /// Resolves when a limit is reached.
    pub(super) async fn expiry(&self) -> (Reason, String) {
        loop {
            let deadline = {
                let state = self.state();
                if let Some(expired) = state.clock.expired(Instant::now()) {
                    return expired;
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

    /// Why the run was stopped, and what its engine still had to say.
    pub(super) fn cause(&self) -> (Option<(Reason, String)>, Option<Completed>) {
        let mut state = self.state();
        (state.cause.take(), state.last_word.take())
    }

    /// Says the one `Completed` of a run that did not end by itself.
    pub(super) fn finish(&self, completed: Completed) {
        let resume = {
            let mut state = self.state();
            state.contract.close();
            state.contract.resume()
        };
        self.sender.finish(completed.resume(resume));
    }
}

/// A time that the limits do not count, and the request's `wait` does.
struct Wait<'a> {
    shared: &'a Shared,
    begun: Instant,
    /// What was left of it when the wait began.
    patience: Option<Duration>,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut state = self.shared.state();
        state.clock.go_on(now);
        state.patience = self.patience.map(|patience| patience.saturating_sub(now - self.begun));
        drop(state);
        self.shared.clock_changed.notify_one();
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

/// Resolves at this moment; never without one.
async fn moment(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
