//! The scheduler: decides which job runs when.
//!
//! A job waits in the queue of its session. Promises:
//! - one job at a time per session, in the order they were submitted; sessions do not wait for each
//!   other;
//! - a job for a new session opens a queue of its own. It becomes the session's queue as soon as the
//!   session is [known](Ticket::set_session): a job that resumes the session then waits behind the job
//!   that started it;
//! - a job may wait behind another whose session is not known yet ([`QueueTarget::Behind`]), and
//!   resumes that session. If the other job ends without a session, the job starts one;
//! - at most [`Limits::workers`] jobs run and at most [`Limits::waiting`] wait; one more is
//!   [`SubmitError::Full`];
//! - a job that [waits for a person](Scheduler::asking) leaves its worker to another job, up to four
//!   started jobs for each worker. It keeps its position in its session and goes on as soon as it is
//!   answered, also if all workers are busy then: no other job starts until fewer are;
//! - [`Scheduler::cancel`] reports whether the job was waiting or running. One that was waiting never
//!   runs.
//!
//! Nothing is spawned here: the owner of a [`Ticket`] is the job. Dropping the ticket, at any time,
//! removes the job from the queue or ends it. The scheduler keeps order inside one process;
//! takopi-core's locks guarantee in any case that no two runs write to one session.

mod queue;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use takopi_core::ResumeToken;
use thiserror::Error;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use queue::Queue;

/// The id of a job. Ids count up in the order of submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(u64);

impl JobId {
    /// The job of this number.
    pub(crate) fn numbered(number: u64) -> Self {
        Self(number)
    }

    /// The id as a number.
    pub fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {}", self.0)
    }
}

/// How many jobs may run and wait at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// How many jobs run at once. Zero counts as one. Jobs that wait for an approval do not count, but
    /// no more than four times as many are started.
    pub workers: usize,
    /// How many jobs may wait.
    pub waiting: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { workers: 8, waiting: 256 }
    }
}

impl Limits {
    /// Limits with this many workers and waiting jobs.
    pub fn new(workers: usize, waiting: usize) -> Self {
        Self { workers, waiting }
    }

    /// Sets how many jobs run at once.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// Sets how many jobs may wait.
    pub fn waiting(mut self, waiting: usize) -> Self {
        self.waiting = waiting;
        self
    }
}

/// The queue that a job waits in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum QueueTarget {
    /// The queue of a session that does not exist yet.
    New,
    /// The queue of this session.
    Session(ResumeToken),
    /// The queue of this job, whatever its session will be.
    Behind(JobId),
}

/// The status of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JobStatus {
    /// This many jobs of its session come first, including the running one.
    Behind(usize),
    /// It is the first of its session, but all workers are busy and this many jobs come first.
    NoWorker(usize),
    /// It is running.
    Running,
    /// It was cancelled or has ended. Its final message may still be on its way to the chat.
    Finished,
}

impl JobStatus {
    /// The position to within a factor of two, for messages that are not edited at every step.
    pub(crate) fn roughly(self) -> impl fmt::Debug {
        match self {
            Self::Behind(ahead) => Some((true, ahead.checked_ilog2())),
            Self::NoWorker(ahead) => Some((false, ahead.checked_ilog2())),
            Self::Running | Self::Finished => None,
        }
    }
}

/// As chats show it: `queued behind 2`.
impl fmt::Display for JobStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Behind(ahead) => write!(f, "queued behind {ahead}"),
            Self::NoWorker(0) => f.write_str("queued: all workers are busy"),
            Self::NoWorker(ahead) => write!(f, "queued: all workers are busy, {ahead} ahead"),
            Self::Running => f.write_str("running"),
            Self::Finished => f.write_str("finished"),
        }
    }
}

/// A job that was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Cancelled {
    /// The job.
    pub job: JobId,
    /// Whether it was running. Otherwise it was waiting, and will never run.
    pub was_running: bool,
}

/// As chats show it: `cancelled job 7, which was running`.
impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let was = if self.was_running { "which was running" } else { "which was still queued" };
        write!(f, "cancelled {}, {was}", self.job)
    }
}

/// Why a job was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum SubmitError {
    /// Too many jobs wait.
    #[error("{0} jobs wait already")]
    Full(usize),
    /// The scheduler is closed.
    #[error("the scheduler is closed")]
    Closed,
    /// The job to wait behind has ended.
    #[error("{0} has ended")]
    Ended(JobId),
}

/// What happened to a job in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum QueueStep {
    /// Its position changed.
    Moved(JobStatus),
    /// It may start, on this session or on a new one.
    Start(Option<ResumeToken>),
    /// It was cancelled while it waited.
    Cancelled,
}

/// Keeps the queues. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Scheduler {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    /// Notified of every change. Waiters read the queue itself.
    changed: watch::Sender<()>,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<R>(&self, change: impl FnOnce(&mut Queue) -> R) -> R {
        let result = change(&mut self.queue());
        self.changed.send_replace(());
        result
    }
}

impl Scheduler {
    /// An empty scheduler.
    pub(crate) fn new(limits: Limits) -> Self {
        let queue = Mutex::new(Queue::new(limits));
        Self { shared: Arc::new(Shared { queue, changed: watch::Sender::new(()) }) }
    }

    /// Adds a job to a queue.
    pub(crate) fn submit(&self, target: QueueTarget) -> Result<Ticket, SubmitError> {
        let changed = self.shared.changed.subscribe();
        let (job, cancel) = self.shared.change(|queue| queue.submit(target))?;
        Ok(Ticket { job, cancel, shared: self.shared.clone(), changed, last: None })
    }

    /// Cancels a job: a waiting one is removed from its queue, a running one is notified by its
    /// [token](Ticket::cancelled). `None` if there is no such job.
    #[cfg(test)]
    pub(crate) fn cancel(&self, job: JobId) -> Option<Cancelled> {
        self.shared.change(|queue| queue.cancel(job))
    }

    /// Cancels all of these at once, so that none of them starts in the place of another. Unknown
    /// jobs are skipped.
    pub(crate) fn cancel_all(&self, jobs: impl IntoIterator<Item = JobId>) -> Vec<Cancelled> {
        self.shared.change(|queue| jobs.into_iter().filter_map(|job| queue.cancel(job)).collect())
    }

    /// The status of a job.
    pub(crate) fn status(&self, job: JobId) -> JobStatus {
        self.shared.queue().status(job)
    }

    /// The other job that runs in the queue of this one, if there is one.
    pub(crate) fn running_before(&self, job: JobId) -> Option<JobId> {
        self.shared.queue().running_before(job)
    }

    /// The jobs that wait or run, in order of submission.
    #[cfg(test)]
    pub(crate) fn jobs(&self) -> Vec<JobId> {
        self.shared.queue().jobs()
    }

    /// A running job waits for a person for as long as the guard lives.
    pub(crate) fn asking(&self, job: JobId) -> Asking {
        self.shared.change(|queue| queue.set_asking(job, true));
        Asking { job, shared: self.shared.clone() }
    }

    /// Accepts no new jobs. Those that wait or run continue.
    pub(crate) fn close(&self) {
        self.shared.change(Queue::close);
    }

    /// Whether it is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.shared.queue().is_closed()
    }

    /// Resolves when no job waits or runs.
    #[cfg(test)]
    pub(crate) async fn idle(&self) {
        let mut changed = self.shared.changed.subscribe();
        // The sender lives in `self`.
        while !self.shared.queue().is_empty() && changed.changed().await.is_ok() {}
    }
}

/// A job waits for a person while this lives.
#[derive(Debug)]
pub(crate) struct Asking {
    job: JobId,
    shared: Arc<Shared>,
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.shared.change(|queue| queue.set_asking(self.job, false));
    }
}

/// A job's position in its queue, and then its permit to run. See the [module](self).
#[derive(Debug)]
pub(crate) struct Ticket {
    job: JobId,
    cancel: CancellationToken,
    shared: Arc<Shared>,
    changed: watch::Receiver<()>,
    last: Option<JobStatus>,
}

impl Ticket {
    /// The job.
    pub(crate) fn job(&self) -> JobId {
        self.job
    }

    /// The status of the job.
    #[cfg(test)]
    pub(crate) fn status(&self) -> JobStatus {
        self.shared.queue().status(self.job)
    }

    /// Waits until the job may start, is cancelled, or moves up. A change that was not reported yet is
    /// reported at once. Nothing is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> QueueStep {
        loop {
            self.changed.mark_unchanged();
            let step = self.shared.queue().step(self.job);
            let QueueStep::Moved(status) = step else { return step };
            if self.last.replace(status) != Some(status) {
                return step;
            }
            if self.changed.changed().await.is_err() {
                return QueueStep::Cancelled;
            }
        }
    }

    /// Reports the session that the job works on: a job that resumes it waits behind this one.
    pub(crate) fn set_session(&self, session: &ResumeToken) {
        self.shared.change(|queue| queue.set_session(self.job, session));
    }

    /// Fires when the job is cancelled.
    pub(crate) fn cancelled(&self) -> &CancellationToken {
        &self.cancel
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.shared.change(|queue| queue.remove(self.job));
    }
}
