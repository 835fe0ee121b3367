//! What is said between the board, submitters and workers.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

/// The session of a new job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionRef {
    /// A new one, with a name of the submitter's choice that no session had before.
    New(Uuid),
    /// A new one that was reported under this id of its engine before the board lost it: it is known by that id, too.
    Reported(Uuid, String),
    /// One that is known by this id of its engine.
    Known(String),
}

/// What happens to a running job when its worker is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnLoss {
    /// It is run again: at least once.
    #[default]
    Retry,
    /// It fails with `worker_lost`: at most once.
    Fail,
}

impl OnLoss {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Fail => "fail",
        }
    }
}

/// What happens to a job when its submitter is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnGone {
    /// It is cancelled.
    #[default]
    Cancel,
    /// It goes on, and its result waits.
    Continue,
}

impl OnGone {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Continue => "continue",
        }
    }
}

/// A job to enqueue.
#[derive(Clone, PartialEq)]
pub struct NewJob {
    /// Its key: the same key again is the same job.
    pub id: String,
    /// Who wants its events.
    pub submitter: String,
    /// The engine that runs it.
    pub engine: String,
    /// Its session.
    pub session: SessionRef,
    /// What a worker must offer, sorted.
    pub needs: Vec<String>,
    /// Where it works.
    pub place: Option<String>,
    /// What to run.
    pub spec: Value,
    /// Files that go with it.
    pub blobs: Vec<Vec<u8>>,
    /// What happens when its worker is lost.
    pub on_loss: OnLoss,
    /// What happens when its submitter is gone.
    pub on_gone: OnGone,
}

// Not derived: the prompt is never logged.
impl fmt::Debug for NewJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewJob").field("id", &self.id).finish_non_exhaustive()
    }
}

/// What became of a job that was to be enqueued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Enqueued {
    /// It waits.
    New,
    /// It was there; the caller is attached to it.
    Known,
    /// The key is another user's.
    Foreign,
    /// The fleet knows no such session.
    NoSession,
    /// Too many jobs of this user wait.
    QueueFull,
}

/// A row that a job wrote.
#[derive(Clone, PartialEq)]
pub struct JobRow {
    /// The job.
    pub job: String,
    /// Its place among the rows of the job.
    pub seq: i64,
    /// A [`Frame`](crate::frame::Frame).
    pub body: Value,
}

impl fmt::Debug for JobRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.job, self.seq)
    }
}

/// How a job waits.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Waiting {
    /// `queued`, `running` or `done`. One that was running when the last worker was lost is `queued`, too: nobody runs it.
    pub state: String,
    /// Its session.
    pub sid: Uuid,
    /// How often it was begun; `None` from a queue that does not say it.
    #[serde(default)]
    pub attempts: Option<u32>,
    /// How many jobs are before it in its session, with the one that is running.
    pub ahead: u64,
    /// The worker that is inside the session.
    pub holder: Option<String>,
    /// The machine that the session cannot leave, if it is gone.
    pub stranded: Option<String>,
    /// The lowest version of the engine that may open the session.
    #[serde(default)]
    pub min_version: u64,
    /// What it needs.
    pub needs: Vec<String>,
    /// Whether a worker that lives can take it.
    pub offered: bool,
    /// What no worker offers.
    pub missing: Vec<String>,
}

/// What a submitter wants of a job that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlKind {
    /// It is to end.
    Cancel,
    /// The answer to an approval request.
    Answer,
    /// A message into the running turn.
    Steer,
}

impl ControlKind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Answer => "answer",
            Self::Steer => "steer",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        [Self::Cancel, Self::Answer, Self::Steer].into_iter().find(|kind| kind.as_str() == name)
    }
}

/// A request to a job.
#[derive(Debug, Clone, PartialEq)]
pub struct ControlRequest {
    /// Its name: the same again is the same request, of this job.
    pub id: String,
    /// The job.
    pub job: String,
    /// What is wanted.
    pub kind: ControlKind,
    /// What goes with it.
    pub body: Value,
}

/// What became of a request to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlState {
    /// There is no such job.
    Unknown,
    /// The job is over, or did not take it.
    Refused,
    /// It was taken.
    Taken,
    /// It waits for the worker.
    Waiting,
}

/// A request that waits for the worker.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingControl {
    /// Its name.
    pub id: String,
    /// The job and the token under which the worker holds it.
    pub held: Held,
    /// What is wanted.
    pub kind: ControlKind,
    /// What goes with it.
    pub body: Value,
}

/// A worker that serves the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerInfo {
    /// New with every start.
    pub id: String,
    /// The same over restarts: who has the files.
    pub machine: String,
    /// The same over restarts, and never another machine's: tells a restart from another worker of that name.
    pub instance: Uuid,
    /// What it offers.
    pub offers: Vec<String>,
    /// The versions of its engines, as [`files::version_number`](crate::files::version_number) makes them.
    pub versions: BTreeMap<String, u64>,
    /// How many jobs it runs at once.
    pub slots: u32,
}

/// A job under the token of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Held {
    /// The job.
    pub job: String,
    /// The token.
    pub token: i64,
}

/// A job that a worker claimed.
#[derive(Clone, PartialEq)]
pub struct Claimed {
    /// The job and its token.
    pub held: Held,
    /// Its session.
    pub sid: Uuid,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// Who wants its events.
    pub submitter: String,
    /// The engine.
    pub engine: String,
    /// The engine's id of the session, if it was confirmed.
    pub value: Option<String>,
    /// Where the session works.
    pub place: Option<String>,
    /// The machine with the newest copy of the session's files.
    pub home: Option<String>,
    /// The token of that copy; 0 if no turn of it was completed in the fleet.
    pub generation: i64,
    /// The worker that was lost with the attempt before.
    pub lost: Option<String>,
    /// What to run.
    pub spec: Value,
    /// Files that go with it.
    pub blobs: Vec<Vec<u8>>,
}

// Not derived: the prompt is never logged.
impl fmt::Debug for Claimed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claimed")
            .field("held", &self.held)
            .field("sid", &self.sid)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

/// What became of a session's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opened {
    /// It is the session's.
    Ok,
    /// The worker does not hold the job any more.
    Fenced,
    /// It is the id of another session.
    Taken,
}

/// A piece of a session's file. One that begins at 0 replaces the file.
#[derive(Clone, PartialEq, Eq)]
pub struct Piece {
    /// The path, relative to the engine's home.
    pub path: String,
    /// Where in the file it begins.
    pub start: i64,
    /// Its bytes.
    pub data: Vec<u8>,
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}: {} bytes", self.path, self.start, self.data.len())
    }
}

/// The end of a job.
#[derive(Clone, PartialEq)]
pub struct Completion {
    /// The job and its token.
    pub held: Held,
    /// The `Completed` event.
    pub result: Value,
    /// The machine that has the session's files now; `None` if the turn did not begin, and everything about them is as before.
    pub home: Option<String>,
    /// The version of the engine that wrote them.
    pub version: u64,
    /// Why the session cannot leave the machine; `None` if it can.
    pub stays: Option<String>,
    /// What was appended to its files.
    pub files: Vec<Piece>,
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion").field("held", &self.held).finish_non_exhaustive()
    }
}

/// What dead workers left.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Reaped {
    /// How many jobs wait again.
    pub again: u64,
    /// The jobs that ended as lost, and who submitted them.
    pub ended: Vec<EndedJob>,
}

/// A job that ended without a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedJob {
    /// The job.
    pub job: String,
    /// Who wants its events.
    pub submitter: String,
}

/// A session that was made outside the fleet.
#[derive(Debug, Clone, PartialEq)]
pub struct Import {
    /// A name that no session had before.
    pub sid: Uuid,
    /// The engine.
    pub engine: String,
    /// The engine's id of the session.
    pub value: String,
    /// Where it works.
    pub place: Option<String>,
    /// The machine that has its files.
    pub machine: String,
    /// The version of the engine that wrote them.
    pub version: u64,
    /// Why it cannot leave the machine; `None` if it can.
    pub stays: Option<String>,
    /// Its files, each in one piece.
    pub files: Vec<Piece>,
}

/// How long things that are over are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Events, after the end of their job.
    pub events: Duration,
    /// Results.
    pub results: Duration,
    /// Sessions, after they were last used.
    pub sessions: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        let day = Duration::from_hours(24);
        Self { events: Duration::from_hours(1), results: 7 * day, sessions: 30 * day }
    }
}

/// What was removed, in rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Removed {
    /// Events.
    pub events: u64,
    /// Results.
    pub results: u64,
    /// Sessions.
    pub sessions: u64,
    /// Whether there is more to remove.
    #[serde(default)]
    pub more: bool,
}

/// A bell to ring.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Bell {
    /// There is work: all workers.
    Work,
    /// There is a request: this worker.
    Worker(String),
    /// There is something new in a job: its submitter.
    Submitter {
        /// The submitter.
        id: String,
        /// The job.
        job: String,
    },
}

/// Whose bells to hear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listener {
    /// A worker's, and those for all workers.
    Worker(String),
    /// A submitter's.
    Submitter(String),
}

/// What a bell said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ring {
    /// There is work.
    Work,
    /// There is a request to a job of this worker.
    Control,
    /// There is something new in these jobs.
    Jobs(Vec<String>),
    /// Bells may have been missed: look at everything.
    Everything,
}
