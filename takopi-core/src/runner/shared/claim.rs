//! How a run gets its session's lock, and waits for it visibly; and how it waits for a server.
//!
//! Promises: the time limits do not count while a run waits; the request's `wait` does if the session is
//! waited for. A wait that lasts is reported with the session's holder, and the report is closed when the
//! wait is over.

use std::convert::Infallible;
use std::future::{pending, ready};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{Shared, moment};
use crate::locks::{Holder, LockError, SessionKey};
use crate::model::{Action, ActionEvent, ActionKind, Level, Phase, Reason, ResumeToken};
use crate::runner::{RunError, StoppedError};

/// A shorter wait is not reported: the process of the run before is being reaped.
const WAIT_UNREPORTED: Duration = Duration::from_millis(300);
/// The same for a server with room: one that starts or ends takes seconds.
const ROOM_UNREPORTED: Duration = Duration::from_secs(10);
/// How long a lock service may take to name the holder.
const HOLDER_LIMIT: Duration = Duration::from_secs(1);
/// The id of the note about a wait for the session.
pub const WAIT_ACTION: &str = "takopi.wait";

/// What a run waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::runner) enum Awaited {
    Session,
    /// A place on a server.
    Room,
}

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
            return Ok(self.report_wait_over().await?);
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
        if self.state().wait_reported.is_none() {
            self.report_wait(Awaited::Session, holder_title(holder));
        }
        let pause = wait.patience.map_or(pause, |patience| patience.min(pause));
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(StoppedError),
            () = sleep_until(wait.paused.begun + pause) => Ok(true),
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

    /// Waits until `room` resolves, because no server has a place for the run. The request's `wait` is about
    /// the session, and does not count here.
    pub(in crate::runner) async fn wait_for_room<T>(
        &self,
        room: impl Future<Output = T>,
    ) -> Result<T, StoppedError> {
        let paused = self.pause_limits();
        let report = self.report_after(paused.begun + ROOM_UNREPORTED, Awaited::Room, || {
            ready("waiting for an engine process that has room".to_owned())
        });
        let found = tokio::select! {
            biased;
            () = self.stop.cancelled() => return Err(StoppedError),
            found = room => found,
            never = report => match never {},
        };
        // Not awaited, so that what was found is never dropped. Without room it is closed with the start.
        if self.state().wait_reported == Some(Awaited::Room)
            && self.sender.try_push(self.wait_succeeded(Awaited::Room).into()).is_ok()
        {
            self.state().wait_reported = None;
        }
        Ok(found)
    }

    /// Waits until `free` resolves; `None` when the request's `wait` is used up. A wait that lasts is
    /// reported with what `holder` resolves to.
    async fn wait_visibly<T, H: Future<Output = String>>(
        &self,
        wait: &Wait<'_>,
        free: impl Future<Output = T>,
        holder: impl Fn() -> H,
    ) -> Result<Option<T>, StoppedError> {
        let begun = wait.paused.begun;
        let end = wait.patience.and_then(|patience| begun.checked_add(patience));
        let report = self.report_after(begun + WAIT_UNREPORTED, Awaited::Session, || async {
            holder_title(&holder().await)
        });
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(StoppedError),
            freed = free => Ok(Some(freed)),
            () = moment(end) => Ok(None),
            never = report => match never {},
        }
    }

    /// Reports a wait that lasts until then, unless a wait is reported already.
    async fn report_after<T: Future<Output = String>>(
        &self,
        moment: Instant,
        awaited: Awaited,
        title: impl Fn() -> T,
    ) -> Infallible {
        sleep_until(moment).await;
        while self.state().wait_reported.is_none() && !self.report_wait(awaited, title().await) {
            // There was no room for it: the wait does not depend on the consumer.
            sleep(WAIT_UNREPORTED).await;
        }
        pending().await
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
        let patience = self.state().patience;
        if patience.is_some_and(|patience| patience.is_zero()) {
            return None;
        }
        Some(Wait { paused: self.pause_limits(), patience })
    }

    /// The limits stand still until the guard is dropped.
    fn pause_limits(&self) -> LimitsPause<'_> {
        let begun = Instant::now();
        self.state().clock.wait(begun);
        LimitsPause { shared: self, begun }
    }

    /// Reports the wait, if there is room for that; returns whether there was.
    fn report_wait(&self, awaited: Awaited, title: String) -> bool {
        let action = Action::new(WAIT_ACTION, ActionKind::Note, title);
        let note = ActionEvent::new(self.engine(), action, Phase::Started).level(Level::Info);
        let reported = self.sender.try_push(note.into()).is_ok();
        self.state().wait_reported = reported.then_some(awaited);
        reported
    }

    /// Reports a wait that the engine knows more about, or updates the report.
    pub(in crate::runner) fn waiting(&self, title: String) {
        let reported = self.state().wait_reported.is_some();
        let phase = if reported { Phase::Updated } else { Phase::Started };
        let action = Action::new(WAIT_ACTION, ActionKind::Note, title);
        let note = ActionEvent::new(self.engine(), action, phase).level(Level::Info);
        if self.sender.try_push(note.into()).is_ok() {
            self.state().wait_reported = Some(Awaited::Session);
        }
    }

    pub(in crate::runner) async fn report_wait_over(&self) -> Result<(), StoppedError> {
        let reported = self.state().wait_reported;
        let Some(awaited) = reported else { return Ok(()) };
        self.push(self.wait_succeeded(awaited).into()).await?;
        // Only now: a run that is stopped while there is no room closes it at its end.
        self.state().wait_reported = None;
        Ok(())
    }

    fn wait_succeeded(&self, awaited: Awaited) -> ActionEvent {
        let title = match awaited {
            Awaited::Session => "the session is free",
            Awaited::Room => "an engine process has room",
        };
        self.wait_closed(title, true)
    }

    pub(super) fn wait_abandoned(&self, awaited: Awaited) -> ActionEvent {
        let title = match awaited {
            Awaited::Session => "stopped waiting for the session",
            Awaited::Room => "stopped waiting for an engine process that has room",
        };
        self.wait_closed(title, false)
    }

    fn wait_closed(&self, title: &str, ok: bool) -> ActionEvent {
        let action = Action::new(WAIT_ACTION, ActionKind::Note, title);
        ActionEvent::new(self.engine(), action, Phase::Completed).ok(ok).level(Level::Info)
    }
}

fn holder_title(holder: &str) -> String {
    format!("waiting for the session, held by {holder}")
}

/// A time that the limits do not count.
struct LimitsPause<'a> {
    shared: &'a Shared,
    begun: Instant,
}

impl Drop for LimitsPause<'_> {
    fn drop(&mut self) {
        self.shared.state().clock.go_on(Instant::now());
        self.shared.clock_changed.notify_one();
    }
}

/// A time that the limits do not count, and the request's `wait` does.
struct Wait<'a> {
    paused: LimitsPause<'a>,
    /// What was left of it when the wait began.
    patience: Option<Duration>,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let LimitsPause { shared, begun } = self.paused;
        let left = self.patience.map(|patience| patience.saturating_sub(begun.elapsed()));
        shared.state().patience = left;
    }
}
