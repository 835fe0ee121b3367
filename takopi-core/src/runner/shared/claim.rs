//! How a run gets its session's lock, and waits for it visibly.
//!
//! Promises: the time limits do not count while a run waits; the request's `wait` does. A wait that
//! lasts is reported with the session's holder, and the report is closed when the wait is over.

use std::future::ready;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};

use super::{Shared, moment};
use crate::locks::{Holder, LockError, SessionKey};
use crate::model::{Action, ActionEvent, ActionKind, Level, Phase, Reason, ResumeToken};
use crate::runner::{RunError, StoppedError};

/// A shorter wait is not reported: the process of the run before is being reaped.
const WAIT_UNREPORTED: Duration = Duration::from_millis(300);
/// How long a lock service may take to name the holder.
const HOLDER_LIMIT: Duration = Duration::from_secs(1);
/// The id of the note about a wait for the session.
pub const WAIT_ACTION: &str = "takopi.wait";

/// Why a lock could not be taken.
pub(in crate::runner) enum ClaimError {
    Busy(String),
    Fault(LockError),
    Stopped,
}

impl From<StoppedError> for ClaimError {
    fn from(_: StoppedError) -> Self {
        Self::Stopped
    }
}

impl ClaimError {
    /// How the run ends for it.
    pub(in crate::runner) fn cause(self) -> RunError {
        match self {
            Self::Busy(error) => RunError::new(Reason::SessionBusy, error),
            Self::Fault(error) => RunError::new(Reason::SpawnFailed, error.to_string()),
            Self::Stopped => RunError::new(Reason::Interrupted, "interrupted"),
        }
    }
}

impl Shared {
    /// Takes the lock of a session unless the run has it, waiting visibly for as long as the request
    /// allows.
    pub(in crate::runner) async fn claim(&self, token: &ResumeToken) -> Result<(), ClaimError> {
        if self.slot.is_taken() {
            return Ok(self.report_wait_over().await?);
        }
        let key = self.sessions.key(token);
        let holder = Holder::here(self.engine.clone());
        let at_once = tokio::select! {
            biased;
            () = self.stop.cancelled() => return Err(ClaimError::Stopped),
            at_once = self.locks.try_lock(&key, &holder, &*self.sessions) => at_once,
        };
        if let Some(guard) = at_once.map_err(ClaimError::Fault)? {
            self.hold(guard);
            return Ok(());
        }
        // Boxed: a wait has a large state, and every event of a run could be the one that waits.
        Box::pin(self.claim_in_line(key, holder)).await
    }

    /// Waits for the lock of a session.
    async fn claim_in_line(&self, key: SessionKey, holder: Holder) -> Result<(), ClaimError> {
        let Some(wait) = self.begin_wait() else { return Err(self.busy(&key).await) };
        let lock = self.locks.lock(key.clone(), holder, self.sessions.clone());
        let locked = self.wait_visibly(&wait, lock, || self.holder_of(&key)).await?;
        let Some(guard) = locked else { return Err(self.busy(&key).await) };
        let guard = guard.map_err(ClaimError::Fault)?;
        drop(wait);
        self.hold(guard);
        Ok(self.report_wait_over().await?)
    }

    /// Waits because a program outside takopi holds the session; `false` when the request's `wait` is
    /// used up.
    pub(in crate::runner) async fn wait_outside(
        &self,
        holder: &str,
        pause: Duration,
    ) -> Result<bool, StoppedError> {
        let Some(wait) = self.begin_wait() else { return Ok(false) };
        if !self.state().wait_reported {
            self.report_wait(holder);
        }
        let pause = wait.patience.map_or(pause, |patience| patience.min(pause));
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(StoppedError),
            () = sleep_until(wait.begun + pause) => Ok(true),
        }
    }

    /// Waits until `free` resolves, because another run keeps the session from being used; `None` when
    /// the request's `wait` is used up.
    pub(in crate::runner) async fn wait_until<T>(
        &self,
        holder: &str,
        free: impl Future<Output = T>,
    ) -> Result<Option<T>, StoppedError> {
        let Some(wait) = self.begin_wait() else { return Ok(None) };
        self.wait_visibly(&wait, free, || ready(holder.to_owned())).await
    }

    /// Waits until `free` resolves; `None` when the request's `wait` is used up. A wait that lasts is
    /// reported with what `holder` resolves to.
    async fn wait_visibly<T, H: Future<Output = String>>(
        &self,
        wait: &Wait<'_>,
        free: impl Future<Output = T>,
        holder: impl Fn() -> H,
    ) -> Result<Option<T>, StoppedError> {
        let end = wait.patience.and_then(|patience| wait.begun.checked_add(patience));
        let report = sleep_until(wait.begun + WAIT_UNREPORTED);
        tokio::pin!(free, report);
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Err(StoppedError),
                freed = &mut free => return Ok(Some(freed)),
                () = moment(end) => return Ok(None),
                () = &mut report, if !self.state().wait_reported => {
                    // Without room, later: the wait does not depend on the consumer.
                    if !self.report_wait(&holder().await) {
                        report.as_mut().reset(Instant::now() + WAIT_UNREPORTED);
                    }
                }
            }
        }
    }

    async fn holder_of(&self, key: &SessionKey) -> String {
        // A lock service that does not answer must not hold up the run.
        let holder = timeout(HOLDER_LIMIT, self.locks.holder(key)).await.ok().flatten();
        holder.map_or_else(|| "another run".to_owned(), |holder| holder.to_string())
    }

    async fn busy(&self, key: &SessionKey) -> ClaimError {
        ClaimError::Busy(format!("the session is held by {}", self.holder_of(key).await))
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

    /// Reports the wait and the session's holder, if there is room for it; returns whether there was.
    fn report_wait(&self, holder: &str) -> bool {
        let title = format!("waiting for the session, held by {holder}");
        let action = Action::new(WAIT_ACTION, ActionKind::Note, title);
        let note = ActionEvent::new(self.engine(), action, Phase::Started).level(Level::Info);
        let reported = self.sender.try_push(note.into()).is_ok();
        self.state().wait_reported = reported;
        reported
    }

    /// Reports a wait that the engine knows more about, or updates the report.
    pub(in crate::runner) fn waiting(&self, title: String) {
        let phase = if self.state().wait_reported { Phase::Updated } else { Phase::Started };
        let action = Action::new(WAIT_ACTION, ActionKind::Note, title);
        let note = ActionEvent::new(self.engine(), action, phase).level(Level::Info);
        if self.sender.try_push(note.into()).is_ok() {
            self.state().wait_reported = true;
        }
    }

    pub(in crate::runner) async fn report_wait_over(&self) -> Result<(), StoppedError> {
        if !std::mem::take(&mut self.state().wait_reported) {
            return Ok(());
        }
        self.push(self.wait_closed("the session is free", true).into()).await
    }

    pub(super) fn wait_abandoned(&self) -> ActionEvent {
        self.wait_closed("stopped waiting for the session", false)
    }

    fn wait_closed(&self, title: &str, ok: bool) -> ActionEvent {
        let action = Action::new(WAIT_ACTION, ActionKind::Note, title);
        ActionEvent::new(self.engine(), action, Phase::Completed).ok(ok).level(Level::Info)
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
