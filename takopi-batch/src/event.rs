//! What a batch reports while it runs.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use takopi_core::{Reason, ResumeToken, TakopiEvent, Usage};

use crate::job::JobResult;

/// Something happened in a batch. As JSON it is one object with a `type`.
///
/// ```
/// let event = takopi_batch::BatchEvent::Resumed;
/// assert_eq!(serde_json::to_string(&event)?, r#"{"type":"batch_resumed"}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type")]
#[non_exhaustive]
pub enum BatchEvent {
    /// The batch begins; `total` is the number of jobs, if known.
    #[serde(rename = "batch_started")]
    Begun {
        /// Jobs in the input.
        #[serde(skip_serializing_if = "Option::is_none")]
        total: Option<u64>,
    },
    /// Lines were read.
    #[serde(rename = "batch_read")]
    Read {
        /// Jobs that are to be run.
        queued: u64,
        /// Jobs that succeeded before.
        done: u64,
        /// Jobs that failed before.
        failed: u64,
        /// Whether the input is at its end.
        over: bool,
    },
    /// A prompt is sent.
    #[serde(rename = "job_started")]
    Started {
        /// The job.
        job: String,
        /// How often it was sent, with this time.
        attempt: u32,
    },
    /// A job is retried after a while.
    #[serde(rename = "job_retry")]
    Retry {
        /// The job.
        job: String,
        /// Seconds until then.
        #[serde(rename = "after_seconds", serialize_with = "crate::report::seconds")]
        after: Duration,
        /// Why the last attempt failed, for machines.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<Reason>,
        /// Why the last attempt failed.
        error: String,
    },
    /// A job was stopped, or could not be started; it has no result and is run next time.
    #[serde(rename = "job_returned")]
    Returned {
        /// The job.
        job: String,
    },
    /// A job has its result, and the result is on disk.
    #[serde(rename = "job_completed")]
    Finished {
        /// The result; as JSON its id is the `job`, as in other events.
        #[serde(flatten, serialize_with = "with_job")]
        result: JobResult,
        /// Whether it was sent; others fail unsent.
        #[serde(skip)]
        sent: bool,
    },
    /// Fewer jobs run at once from now on: the service is overloaded.
    #[serde(rename = "batch_slowed")]
    Slowed {
        /// How many.
        jobs: usize,
    },
    /// The account is at its limit; nothing is started until then.
    #[serde(rename = "batch_paused")]
    Paused {
        /// When the batch continues.
        until: Timestamp,
        /// Whether the limit ends then; otherwise it is only tried again.
        known: bool,
        /// The engine's message.
        error: String,
    },
    /// The pause is over.
    #[serde(rename = "batch_resumed")]
    Resumed,
    /// Nothing more is started.
    #[serde(rename = "batch_stopping")]
    Stopping {
        /// Why.
        why: Halt,
        /// What still runs.
        running: usize,
    },
    /// An event of a job's run.
    #[serde(untagged)]
    Run {
        /// The job.
        job: String,
        /// The event.
        #[serde(flatten)]
        event: TakopiEvent,
    },
}

/// A result whose id is called as in the other events.
fn with_job<S: Serializer>(result: &JobResult, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Fields<'a> {
        job: &'a str,
        ok: bool,
        answer: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: &'a Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: &'a Option<Reason>,
        #[serde(skip_serializing_if = "Option::is_none")]
        session: &'a Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        resume: &'a Option<ResumeToken>,
        #[serde(skip_serializing_if = "Option::is_none")]
        usage: &'a Option<Usage>,
        #[serde(skip_serializing_if = "Option::is_none")]
        began: &'a Option<Timestamp>,
        started: Timestamp,
        ended: Timestamp,
        attempts: u32,
    }
    // All of its fields are named, so that none is forgotten.
    let JobResult {
        id: job,
        ok,
        answer,
        error,
        reason,
        session,
        resume,
        usage,
        began,
        started,
        ended,
        attempts,
    } = result;
    let (ok, started, ended, attempts) = (*ok, *started, *ended, *attempts);
    let fields = Fields {
        job,
        ok,
        answer,
        error,
        reason,
        session,
        resume,
        usage,
        began,
        started,
        ended,
        attempts,
    };
    fields.serialize(serializer)
}

/// Why a batch ended before its input did.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Halt {
    /// It was cancelled.
    Interrupted,
    /// It reached its time limit.
    TimedOut,
    /// Nothing can run on this engine: it is missing, too old, or not logged in.
    Engine {
        /// Why, for machines.
        reason: Reason,
        /// Why.
        error: String,
    },
    /// The account is at its limit, and [`OnLimit::Stop`](crate::OnLimit::Stop) was set.
    Limit {
        /// When the limit ends, if known.
        until: Option<Timestamp>,
        /// The engine's message.
        error: String,
    },
    /// A job failed, and [`OnFailure::Stop`](crate::OnFailure::Stop) was set.
    Failed {
        /// The job.
        job: String,
    },
    /// A line of the input is invalid.
    Input {
        /// What is wrong with it.
        error: String,
    },
}

/// The progress of a batch, computed from its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Tally {
    /// Jobs in the input, if that is known.
    pub total: Option<u64>,
    /// Jobs that succeeded in an earlier run of the batch.
    pub done_before: u64,
    /// Jobs that failed in an earlier run of the batch.
    pub failed_before: u64,
    /// Jobs that succeeded.
    pub ok: u64,
    /// Jobs that failed.
    pub failed: u64,
    /// Jobs that run.
    pub running: u64,
    /// Jobs that were read and are to be run.
    read: u64,
    /// Jobs that were left for the next time.
    returned: u64,
}

impl Tally {
    /// Applies an event.
    pub fn apply(&mut self, event: &BatchEvent) {
        match event {
            BatchEvent::Begun { total } => self.total = *total,
            BatchEvent::Read { queued, done, failed, over } => {
                self.read += queued;
                self.done_before += done;
                self.failed_before += failed;
                if *over {
                    self.total = Some(self.read + self.done_before + self.failed_before);
                }
            }
            BatchEvent::Started { .. } => self.running += 1,
            BatchEvent::Retry { .. } => self.running = self.running.saturating_sub(1),
            BatchEvent::Returned { .. } => {
                self.running = self.running.saturating_sub(1);
                self.returned += 1;
            }
            BatchEvent::Finished { result, sent } => {
                self.running = self.running.saturating_sub(u64::from(*sent));
                if result.ok { self.ok += 1 } else { self.failed += 1 }
            }
            _ => {}
        }
    }

    /// Jobs that have a result.
    pub fn done(&self) -> u64 {
        self.done_before + self.failed_before + self.ok + self.failed
    }

    /// Jobs that wait, as far as they are known.
    pub fn queued(&self) -> u64 {
        let known = self.total.unwrap_or(self.read + self.done_before + self.failed_before);
        known.saturating_sub(self.done() + self.running)
    }
}
