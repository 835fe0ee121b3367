//! The queue, as a few verbs.
//!
//! A *job* is one run. It belongs to a *session*, in which one job at a time is running; the others wait in the order they were
//! enqueued. A *worker* holds one lease, and with it every session it claimed.
//!
//! Promises of every implementation (`tests/it/suite.rs` runs the same tests over all of them):
//! - at most one worker is inside a session, and its token is larger than that of all before it;
//! - jobs of a session are claimed in the order they were enqueued; one that is retried keeps its place;
//! - a job has exactly one result, written only under the token of its last claim;
//! - a session is held by a worker that lives, or has the oldest of its waiting jobs as its head, or has none waiting;
//! - every call can be repeated: the answer to the first may have been lost.
//!
//! Only the board's clock decides whose lease is over.

mod figures;
pub mod memory;
pub mod pg;
mod types;

use std::time::Duration;

use futures::future::BoxFuture;
use thiserror::Error;
use uuid::Uuid;

pub use figures::{JobLine, Line, Status, WorkerLine};
pub use types::{
    Bell, Claimed, Completion, ControlKind, ControlRequest, ControlState, Enqueued, Held, Import,
    JobRow, NewJob, OnGone, OnLoss, Opened, PendingControl, Piece, Reaped, Removed, Retention,
    Ring, SessionRef, Waiting, WorkerInfo,
};

/// How often a job is tried when workers are lost with it.
pub const MAX_ATTEMPTS: u32 = 3;
/// The rows of an attempt have places from its number times this.
pub(crate) const ATTEMPT: i64 = 1_000_000_000;
/// How long a session waits for the machine that has its files before any other may take it.
pub const HOME_PATIENCE: Duration = Duration::from_secs(2);
/// A submitter is gone when it was silent for so long, and could have been heard: for as long a worker was heard all the time.
pub const SUBMITTER_LEASE: Duration = Duration::from_secs(30);
/// A worker was heard all the time if its beats were not further apart than this.
pub(crate) const STEADY: Duration = Duration::from_secs(15);

/// Why the board did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BoardError {
    /// It could not be reached, or the connection broke: whether it did it is not known. Ask again.
    #[error("the fleet's database cannot be reached: {0}")]
    Unreachable(String),
    /// It refused.
    #[error("the fleet's database refused the request: {0}")]
    Refused(String),
    /// The database has no queue, or one of another version.
    #[error("{0}")]
    Schema(String),
}

impl BoardError {
    /// Whether asking again can help.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Unreachable(_))
    }
}

/// What a call resolves to.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, BoardError>>;

/// The rings that a listener hears. A ring is a hint: whoever listens also looks by itself now and then.
pub type Rings = tokio::sync::mpsc::Receiver<Ring>;

/// The queue.
pub trait Board: Send + Sync + 'static {
    /// Enqueues jobs; one whose id is known is attached to instead. The outcomes are in the order of the jobs.
    fn enqueue(&self, jobs: Vec<NewJob>) -> Answer<'_, Vec<Enqueued>>;

    /// What happened in these jobs behind the caller's cursors, in order, at most `max` rows of each. The row of the result is the last.
    fn follow(&self, cursors: Vec<(String, i64)>, max: u32) -> Answer<'_, Vec<JobRow>>;

    /// How a job waits; `None` if there is no such job.
    fn waiting(&self, job: &str) -> Answer<'_, Option<Waiting>>;

    /// Cancels, answers or steers a job. One that is cancelled while it is queued, or its worker is lost, ends at once.
    fn control(&self, request: ControlRequest) -> Answer<'_, ControlState>;

    /// The submitter lives, for this long at least.
    fn submitter_beat(&self, submitter: &str, lease: Duration) -> Answer<'_, ()>;

    /// A worker comes; the same again renews what it said, and its lease. Those that were on its machine before are gone, whatever their lease. Refused while a worker of the same
    /// machine's name lives that is another instance.
    fn register(&self, worker: WorkerInfo, lease: Duration) -> Answer<'_, ()>;

    /// Claims up to `max` sessions, in the name of `claim`: the same name again gets the same answer.
    fn claim(&self, worker: &str, claim: &str, max: u32) -> Answer<'_, Vec<Claimed>>;

    /// Renews the lease. What the worker holds; `None` if its lease is over.
    fn beat(
        &self,
        worker: &str,
        lease: Duration,
        busy: u32,
        draining: bool,
    ) -> Answer<'_, Option<Vec<Held>>>;

    /// The engine confirmed the session's id.
    fn opened(&self, worker: &str, held: Held, value: &str) -> Answer<'_, Opened>;

    /// Writes events of jobs that the worker holds. The jobs that it does not hold any more.
    fn events(&self, worker: &str, held: Vec<Held>, rows: Vec<JobRow>) -> Answer<'_, Vec<String>>;

    /// Ends a job: its result and the files of its session, or nothing. `false` if the worker does not hold it any more.
    fn complete(&self, worker: &str, completion: Completion) -> Answer<'_, bool>;

    /// Gives a job back, which keeps its place. If its turn was `begun` that is a loss of its worker: it may end, as
    /// [`NewJob::on_loss`] and [`MAX_ATTEMPTS`] say. If not, the attempt does not count. `false` if the worker does not hold it
    /// any more.
    fn hand_back(&self, worker: &str, held: Held, begun: bool) -> Answer<'_, bool>;

    /// The requests of submitters for the jobs that the worker holds, unless they are settled.
    fn controls(&self, worker: &str) -> Answer<'_, Vec<PendingControl>>;

    /// Settles a request to a job that the worker holds: it was taken or not.
    fn settle(&self, worker: &str, held: Held, control: &str, taken: bool) -> Answer<'_, ()>;

    /// Whether the submitter of a job that the worker runs is gone ([`SUBMITTER_LEASE`]): nobody answers what the job asks.
    fn is_abandoned(&self, worker: &str, job: &str) -> Answer<'_, bool>;

    /// The stored files of a session that the worker holds, in pieces in order.
    fn files(&self, worker: &str, session: Uuid) -> Answer<'_, Vec<Piece>>;

    /// Frees what dead workers held, and ends the jobs that are not to go on without their submitter if it is gone
    /// ([`SUBMITTER_LEASE`]).
    fn reap(&self) -> Answer<'_, Reaped>;

    /// Brings a session into the fleet that was made outside. `false` if it is there.
    fn import(&self, session: Import) -> Answer<'_, bool>;

    /// Gives up the home of a session, so that any worker may take it. `false` if there is none of that name.
    fn release(&self, engine: &str, value: &str) -> Answer<'_, bool>;

    /// Removes what is over, a bounded number of rows: again as long as there is [`Removed::more`]. With `dry` only counts it.
    fn gc(&self, retention: Retention, dry: bool) -> Answer<'_, Removed>;

    /// Figures of the whole fleet.
    fn status(&self) -> Answer<'_, Status>;

    /// The caller's newest jobs.
    fn jobs(&self, max: u32) -> Answer<'_, Vec<JobLine>>;

    /// Wakes others. May be lost, and never waits.
    fn ring(&self, bell: Bell);

    /// Hears the bells of a worker, or of a submitter.
    fn listen(&self, listener: types::Listener) -> Rings;
}

pub use types::Listener;
