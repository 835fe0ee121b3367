//! The runs of this process that are followed, by session, in the order they were enqueued; and a line for each session: who is in
//! front of it enqueues, because calls to the board can overtake each other, and be repeated.
//!
//! A board that lost jobs gets them again in that order, whichever of their runs notices it first.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedMutexGuard;

use crate::board::{NewJob, SessionRef};

/// The lines, by session.
#[derive(Default)]
pub(super) struct Lines(Mutex<HashMap<String, Session>>);

#[derive(Default)]
struct Session {
    line: Arc<tokio::sync::Mutex<()>>,
    /// The jobs that are followed, in the order they were enqueued.
    jobs: BTreeMap<u64, Followed>,
    next: u64,
}

struct Followed {
    job: Arc<NewJob>,
    /// Whether another run enqueued it again.
    again: bool,
}

/// The front of a line. Dropped, the next one may go.
pub(super) struct Place<'a> {
    // Dropped in this order: whoever leaves is not counted.
    _front: OwnedMutexGuard<()>,
    _leaving: Leaving<'a>,
}

/// Removes a session with the last one that leaves its line.
struct Leaving<'a> {
    lines: &'a Lines,
    session: String,
}

/// A run that is followed. Dropped, it is not any more.
pub(super) struct Member<'a> {
    lines: &'a Lines,
    session: String,
    number: u64,
}

impl Lines {
    /// Resolves in front of a session's line, in the order of the calls.
    pub(super) async fn join(&self, session: &str) -> Place<'_> {
        let leaving = Leaving { lines: self, session: session.to_owned() };
        let line = self.lock().entry(session.to_owned()).or_default().line.clone();
        Place { _front: line.lock_owned().await, _leaving: leaving }
    }

    /// This job was enqueued as the last one of its session. Called in front of its line, or before anybody else knows the session.
    pub(super) fn add(&self, session: &str, job: Arc<NewJob>) -> Member<'_> {
        let mut sessions = self.lock();
        let found = sessions.entry(session.to_owned()).or_default();
        let number = found.next;
        found.next += 1;
        found.jobs.insert(number, Followed { job, again: false });
        Member { lines: self, session: session.to_owned(), number }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remove_if_empty(sessions: &mut HashMap<String, Session>, session: &str) {
        let is_empty =
            |found: &Session| found.jobs.is_empty() && Arc::strong_count(&found.line) == 1;
        if sessions.get(session).is_some_and(is_empty) {
            sessions.remove(session);
        }
    }
}

impl<'a> Member<'a> {
    /// Resolves in front of the line of its session.
    pub(super) async fn front(&self) -> Place<'a> {
        self.lines.join(&self.session).await
    }

    /// The jobs of its session that are followed, in their order, as they are enqueued again: each with its number.
    pub(super) fn jobs(&self) -> Vec<(u64, NewJob)> {
        let sessions = self.lines.lock();
        let jobs = sessions.get(&self.session).into_iter().flat_map(|found| &found.jobs);
        let again = |(number, followed): (&u64, &Followed)| {
            let mut job = (*followed.job).clone();
            if let SessionRef::New(sid) = job.session {
                job.session = SessionRef::Reported(sid, self.session.clone());
            }
            (*number, job)
        };
        jobs.map(again).collect()
    }

    /// Whether this is its own number.
    pub(super) fn is(&self, number: u64) -> bool {
        self.number == number
    }

    /// Notes that the job of another run was enqueued again.
    pub(super) fn enqueued_again(&self, number: u64) {
        let mut sessions = self.lines.lock();
        let found = sessions.get_mut(&self.session);
        if let Some(followed) = found.and_then(|found| found.jobs.get_mut(&number)) {
            followed.again = true;
        }
    }

    /// Whether another run enqueued its job again, since the last call.
    pub(super) fn was_enqueued_again(&self) -> bool {
        let mut sessions = self.lines.lock();
        let found = sessions.get_mut(&self.session);
        let followed = found.and_then(|found| found.jobs.get_mut(&self.number));
        followed.is_some_and(|followed| std::mem::take(&mut followed.again))
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        Lines::remove_if_empty(&mut self.lines.lock(), &self.session);
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        let mut sessions = self.lines.lock();
        if let Some(found) = sessions.get_mut(&self.session) {
            found.jobs.remove(&self.number);
        }
        Lines::remove_if_empty(&mut sessions, &self.session);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_line_is_there_as_long_as_somebody_is_in_it() {
        let lines = Lines::default();
        let count = || lines.lock().len();
        let first = lines.join("a").await;
        let mut second = Box::pin(lines.join("a"));
        assert!(second.as_mut().now_or_never().is_none());
        let mut third = Box::pin(lines.join("a"));
        assert!(third.as_mut().now_or_never().is_none());
        drop((lines.join("b").await, second));
        assert_eq!(count(), 1);
        drop(first);
        assert_eq!(count(), 1);
        drop(third.await);
        assert_eq!(count(), 0);
    }
}
