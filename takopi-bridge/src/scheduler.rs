//! The scheduler: who may run when.
//!
//! A job stands in the line of its session. Promises:
//! - one job at a time in a line, first come, first served; lines do not wait for each other;
//! - a job for a new session opens a line of its own, which is the session's as soon as its token is
//!   [learnt](Ticket::learn): whoever resumes the session then stands behind the job that began it;
//! - a job may stand behind another whose session is not known yet ([`Line::Behind`]), and goes on
//!   with that session. If the other ends without one, the job begins one;
//! - no more than [`Limits::workers`] run, no more than [`Limits::waiting`] wait; one more is
//!   [`Refused::Full`];
//! - [`Scheduler::cancel`] says whether the job waited or ran. One that waited never runs.
//!
//! Nothing is spawned here: a job is whoever holds its [`Ticket`]. Dropping the ticket, at any time,
//! leaves the line or ends the job. It keeps order inside one process; that no two runs write to a
//! session is held by takopi-core's locks in any case.
//!
//! ```
//! use takopi_bridge::scheduler::{Limits, Line, Scheduler, Step};
//! use takopi_core::ResumeToken;
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let scheduler = Scheduler::new(Limits::default());
//! let mut first = scheduler.submit(Line::New)?;
//! assert_eq!(first.next().await, Step::Begin(None));
//!
//! let session = ResumeToken::new("codex", "0199…");
//! first.learn(&session);
//! let mut second = scheduler.submit(Line::Session(session.clone()))?;
//! assert_eq!(second.standing().to_string(), "queued behind 1");
//! drop(first);
//! assert_eq!(second.next().await, Step::Begin(Some(session)));
//! # Ok::<(), takopi_bridge::scheduler::Refused>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod queue;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use takopi_core::ResumeToken;
use thiserror::Error;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use queue::Queue;

/// A job. Numbers count up in the order of submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(u64);

impl JobId {
    /// The number.
    pub fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {}", self.0)
    }
}

/// How much may go on at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// How many jobs run at once, at least one.
    pub workers: usize,
    /// How many jobs wait at most.
    pub waiting: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { workers: 8, waiting: 256 }
    }
}

impl Limits {
    /// Limits.
    pub fn new(workers: usize, waiting: usize) -> Self {
        Self { workers: workers.max(1), waiting }
    }
}

/// Where a job stands in line.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Line {
    /// For a session that does not exist yet.
    New,
    /// For this session.
    Session(ResumeToken),
    /// For the session of this job, whichever that will be.
    Behind(JobId),
}

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Standing {
    /// So many jobs of its session come first, the running one included.
    Behind(usize),
    /// It is the first of its session, but all workers are busy, and so many others come first.
    NoWorker(usize),
    /// It runs.
    Running,
    /// It is not there any more: cancelled or over.
    Over,
}

impl Standing {
    /// The place in line to within a factor of two, for those who say it seldom.
    pub(crate) fn roughly(self) -> impl fmt::Debug {
        match self {
            Self::Behind(ahead) => Some((true, ahead.checked_ilog2())),
            Self::NoWorker(ahead) => Some((false, ahead.checked_ilog2())),
            Self::Running | Self::Over => None,
        }
    }
}

/// As it is shown: `queued behind 2`.
impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Behind(ahead) => write!(f, "queued behind {ahead}"),
            Self::NoWorker(0) => f.write_str("queued: all workers are busy"),
            Self::NoWorker(ahead) => write!(f, "queued: all workers are busy, {ahead} ahead"),
            Self::Running => f.write_str("running"),
            Self::Over => f.write_str("over"),
        }
    }
}

/// A job that was cancelled, and what it was doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Cancelled {
    /// The job.
    pub job: JobId,
    /// Whether it ran; otherwise it waited, and never will.
    pub was_running: bool,
}

/// As it is shown: `cancelled job 7, which was running`.
impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let was = if self.was_running { "which was running" } else { "which was still queued" };
        write!(f, "cancelled {}, {was}", self.job)
    }
}

/// Why a job was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refused {
    /// Too many wait.
    #[error("the queue is full: {0} jobs wait already")]
    Full(usize),
    /// Nothing new is taken.
    #[error("shutting down: nothing new is taken")]
    Closed,
    /// The job to stand behind is over.
    #[error("{0} is over")]
    Over(JobId),
}

/// What comes next for a job in line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// It moved up.
    Moved(Standing),
    /// It is its turn, on this session, or on a new one.
    Begin(Option<ResumeToken>),
    /// It was cancelled in line.
    Cancelled,
}

/// Keeps jobs in line. Clones are the same scheduler.
#[derive(Debug, Clone)]
pub struct Scheduler {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    /// Told of every change. Whoever waits looks at the queue itself.
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
    /// A scheduler with nobody in line.
    pub fn new(limits: Limits) -> Self {
        let queue = Mutex::new(Queue::new(limits));
        Self { shared: Arc::new(Shared { queue, changed: watch::Sender::new(()) }) }
    }

    /// Puts a job in line.
    pub fn submit(&self, line: Line) -> Result<Ticket, Refused> {
        let changed = self.shared.changed.subscribe();
        let (job, cancel) = self.shared.change(|queue| queue.submit(line))?;
        Ok(Ticket { job, cancel, shared: self.shared.clone(), changed, last: None })
    }

    /// Cancels a job: one in line leaves it, a running one is told by its
    /// [token](Ticket::cancelled). `None` if there is no such job.
    pub fn cancel(&self, job: JobId) -> Option<Cancelled> {
        self.shared.change(|queue| queue.cancel(job))
    }

    /// Cancels all of these at once, so that none of them begins in the place of another. Those
    /// that are not there are left out.
    pub fn cancel_all(&self, jobs: impl IntoIterator<Item = JobId>) -> Vec<Cancelled> {
        self.shared.change(|queue| jobs.into_iter().filter_map(|job| queue.cancel(job)).collect())
    }

    /// Where a job stands.
    pub fn standing(&self, job: JobId) -> Standing {
        self.shared.queue().standing(job)
    }

    /// The job that runs in the line of this one, if another does.
    pub fn running_before(&self, job: JobId) -> Option<JobId> {
        self.shared.queue().running_before(job)
    }

    /// The jobs that wait or run, in order of submission.
    pub fn jobs(&self) -> Vec<JobId> {
        self.shared.queue().jobs()
    }

    /// Takes nothing new. What is in line goes on.
    pub fn close(&self) {
        self.shared.change(Queue::close);
    }

    /// Whether nothing new is taken.
    pub fn is_closed(&self) -> bool {
        self.shared.queue().is_closed()
    }

    /// Resolves when no job waits or runs.
    pub async fn idle(&self) {
        let mut changed = self.shared.changed.subscribe();
        // The sender lives in `self`.
        while !self.shared.queue().is_empty() && changed.changed().await.is_ok() {}
    }
}

/// A job's place in line, and then its leave to run. See the [module](self).
#[derive(Debug)]
pub struct Ticket {
    job: JobId,
    cancel: CancellationToken,
    shared: Arc<Shared>,
    changed: watch::Receiver<()>,
    last: Option<Standing>,
}

impl Ticket {
    /// The job.
    pub fn job(&self) -> JobId {
        self.job
    }

    /// Where it stands.
    pub fn standing(&self) -> Standing {
        self.shared.queue().standing(self.job)
    }

    /// Waits for what comes next: it begins, was cancelled, or moved up. What was not heard of is
    /// said at once. Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Step {
        loop {
            self.changed.mark_unchanged();
            let standing = match self.shared.queue().look(self.job) {
                queue::Look::Begin(session) => return Step::Begin(session),
                queue::Look::Over => return Step::Cancelled,
                queue::Look::Waiting(standing) => standing,
            };
            if self.last.replace(standing) != Some(standing) {
                return Step::Moved(standing);
            }
            if self.changed.changed().await.is_err() {
                return Step::Cancelled;
            }
        }
    }

    /// The session that the job works on has this token: whoever resumes it stands behind the job.
    pub fn learn(&self, session: &ResumeToken) {
        self.shared.change(|queue| queue.learn(self.job, session));
    }

    /// Fires when the job is cancelled.
    pub fn cancelled(&self) -> &CancellationToken {
        &self.cancel
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.shared.change(|queue| queue.leave(self.job));
    }
}
