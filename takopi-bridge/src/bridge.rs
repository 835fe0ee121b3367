//! The bridge: connects a chat to engines.
//!
//! A bridge's author implements [`Transport`], creates a `Bridge`, and passes on what comes in: messages
//! to [`Bridge::receive`], button presses to [`Bridge::press`]. A message is routed, queued for its
//! session, run, and shown. Promises:
//! - only [`Bridge::drain`], [`Bridge::shutdown`] and [`Bridge::shutdown_within`] wait for the chat or the engine, so one loop can
//!   pass on everything;
//! - every accepted job ends in exactly one [`JobReport`], and its message shows how it ended;
//! - a message that is not accepted is an error, and the chat shows why;
//! - waiting is visible: a queued job has a silent message, which becomes its progress message;
//! - memory is bounded: the bridge remembers the jobs of the last 10,000 messages and places.
//!
//! **Dropping** the bridge cancels everything, queued and running, as [`Bridge::shutdown`] does, but
//! does not wait: final messages are still delivered for as long as the runtime lives. Methods must be
//! called inside a tokio runtime. To share a bridge, put it into an `Arc`.
//!
//! ```
//! use std::sync::Arc;
//! use takopi_bridge::testing::Room;
//! use takopi_bridge::{Bridge, Incoming, JobEnd, Place, Router, Settings};
//! use takopi_core::demo::Demo;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let room = Room::new();
//! let router = Router::new(Arc::new(Demo::new().runner()));
//! let bridge = Bridge::new(room.clone(), router, Settings::default());
//!
//! let job = bridge.receive(Incoming::new(Place::new("general"), "1", "hello").by("alice"))?;
//! // The demo asks for approval, in a message with buttons.
//! let question = room.question().await;
//! bridge.choose(&question, takopi_core::Decision::Accept, "alice")?;
//! let report = job.report().await;
//! assert!(matches!(report.end, JobEnd::Ran(completed) if completed.ok));
//! bridge.shutdown().await;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })
//! # .map_err(|error| error.to_string())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod core;
mod incoming;
mod job;
mod memory;
mod settings;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use takopi_core::runner::Reply;
use takopi_core::{Decision, EngineId, ResumeToken};
use thiserror::Error;
use tokio::time::timeout;

pub use incoming::{Incoming, ReplyTo, RunContext, WhileBusy};
pub use job::{JobEnd, JobHandle, JobReport};
pub use settings::{Continuity, Settings};

pub use crate::approvals::AnswerError;
pub use crate::handler::FinalBy;
pub use crate::live_message::DeliveryError;
pub use crate::outbox::Pace;
pub use crate::scheduler::{Cancelled, JobId, JobStatus, Limits};

use self::core::Core;
use crate::handler::ReplyTarget;
use crate::router::{RouteError, Router};
use crate::scheduler::SubmitError;
use crate::transport::{MessageRef, Place, Press, Transport};

/// Connects a chat to engines. See the [module](self).
#[derive(Debug)]
pub struct Bridge<T: Transport> {
    core: Arc<Core<T>>,
}

/// Why a message was not accepted. The chat shows it, except for [`ReceiveError::Duplicate`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// Its engine or session is ambiguous.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// It is for an engine that this bridge does not have.
    #[error("engine {0} is not available here")]
    UnknownEngine(EngineId),
    /// It names another place than the one its conversation runs in.
    #[error("this conversation runs in {begun}, not in {named}; begin a new conversation for that")]
    OtherContext {
        /// The line of the conversation's context.
        begun: String,
        /// The line of the message's context.
        named: String,
    },
    /// It would start a session, and says nothing.
    #[error("the message says nothing; write what to do behind the names")]
    Empty,
    /// This many jobs wait already.
    #[error("the queue is full ({0} waiting); try again later")]
    QueueFull(usize),
    /// The bridge is draining or shutting down.
    #[error("shutting down: new messages are not accepted")]
    ShuttingDown,
    /// The final messages of this many jobs in this chat are not delivered yet: the chat is slow or
    /// hangs.
    #[error("this chat is slow: the answers of {0} jobs are not delivered yet; try again later")]
    ChatBehind(usize),
    /// It was received before, and belongs to this job. Chats sometimes deliver a message twice.
    #[error("this message was already received, for {0}")]
    Duplicate(JobId),
}

impl From<SubmitError> for ReceiveError {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::Full(waiting) => Self::QueueFull(waiting),
            // A job is only queued behind another that was active a moment before.
            SubmitError::Closed | SubmitError::Ended(_) => Self::ShuttingDown,
        }
    }
}

/// What to cancel.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// The job that a message belongs to: the message that asked for it, or one that shows it.
    Message(MessageRef),
    /// Every job of a place.
    Place(Place),
    /// This job.
    Job(JobId),
}

impl From<MessageRef> for Target {
    fn from(message: MessageRef) -> Self {
        Self::Message(message)
    }
}

impl From<Place> for Target {
    fn from(place: Place) -> Self {
        Self::Place(place)
    }
}

impl From<JobId> for Target {
    fn from(job: JobId) -> Self {
        Self::Job(job)
    }
}

/// What a press did. Its text is meant for the person who pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PressOutcome {
    /// It cancelled this job.
    Cancelled(Cancelled),
    /// It decided a request.
    Decided,
    /// Nothing: the job or request is already over.
    AlreadyOver,
    /// Nothing: the message does not offer this button.
    NotOffered,
    /// Nothing: the message is unknown. It may be so new that [`Transport::send`] has not returned its
    /// id yet, or too old.
    UnknownMessage,
}

impl fmt::Display for PressOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cancelled(cancelled) => cancelled.fmt(f),
            Self::Decided => f.write_str("decided"),
            Self::AlreadyOver => f.write_str("this is already over"),
            Self::NotOffered => f.write_str("this choice is not offered here"),
            Self::UnknownMessage => f.write_str("unknown message; try again in a moment"),
        }
    }
}

/// A job that waits or runs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobInfo {
    /// The job.
    pub job: JobId,
    /// The message that asked for it.
    pub message: MessageRef,
    /// The place of that message.
    pub place: Place,
    /// Its status; `Finished` if only its final message is still on its way.
    pub status: JobStatus,
    /// Its session, once that is known.
    pub session: Option<ResumeToken>,
}

impl<T: Transport> Bridge<T> {
    /// A bridge between this chat and these engines.
    pub fn new(transport: T, router: Router, settings: Settings) -> Self {
        Self { core: Arc::new(Core::new(transport, router, settings)) }
    }

    /// Accepts a message: it is routed, queued, run and shown. How it ended is in the
    /// [report](JobHandle::report); drop the handle if you do not need it.
    ///
    /// A reply to a question that takes a text is its answer. Any other message resumes the first of
    /// these: [`Incoming::resume`]; a resume line in it; the session of the job that the replied-to
    /// message belongs to; if that is not known, a resume line in the replied-to text; with
    /// [`Continuity::Place`] the last session of the place, unless the message names another engine.
    /// Otherwise it starts a session.
    pub fn receive(&self, incoming: Incoming) -> Result<JobHandle, ReceiveError> {
        self.core.accept(&incoming).inspect_err(|error| {
            if matches!(error, ReceiveError::Duplicate(_)) {
                return;
            }
            let target = ReplyTarget::new(incoming.place).reply_to(incoming.message);
            self.core.notify(&target, error.to_string());
        })
    }

    /// Cancels waiting and running jobs, all at once, and returns them. The final message names `by`.
    /// The list is empty if there was nothing to cancel.
    pub fn cancel(&self, target: impl Into<Target>, by: Option<&str>) -> Vec<Cancelled> {
        let records: Vec<_> = match target.into() {
            Target::Message(message) => {
                self.core.memory().of_message(&message).into_iter().collect()
            }
            Target::Place(place) => self.core.memory().active_in(&place),
            Target::Job(job) => self.core.memory().active(job).into_iter().collect(),
        };
        let note = by.map(|by| format!("cancelled by {by}"));
        self.core.cancel(&records, note.as_deref())
    }

    /// Decides the request that this message shows: with a [`Decision`], or with
    /// a [`Reply`] that has more details.
    pub fn choose(
        &self,
        question: &MessageRef,
        reply: impl Into<Reply>,
        by: &str,
    ) -> Result<(), AnswerError> {
        let reply = reply.into().by(by);
        if self.core.memory().of_message(question).is_none() {
            return self.core.approvals.choose_early(question, reply);
        }
        self.core.approvals.choose(question, reply)
    }

    /// Answers the question that this message shows with a text, as a reply to it does: for chats
    /// without replies.
    pub fn answer(&self, question: &MessageRef, text: &str, by: &str) -> Result<(), AnswerError> {
        self.core.approvals.answer(question, text, by)
    }

    /// Whether a word that is also a decision answers the question that this message shows: it names an
    /// option, or the decision cannot be chosen and a text can be given.
    pub fn is_answer(&self, question: &MessageRef, word: &str, decision: Decision) -> bool {
        self.core.approvals.is_answer(question, word, decision)
    }

    /// Handles a button press. Check that the user may press before you call this.
    pub fn press(&self, message: &MessageRef, press: Press, by: &str) -> PressOutcome {
        if self.job_of(message).is_none() {
            return PressOutcome::UnknownMessage;
        }
        match press {
            Press::Cancel => {
                let cancelled = self.cancel(message.clone(), Some(by));
                let first = cancelled.first().copied();
                first.map_or(PressOutcome::AlreadyOver, PressOutcome::Cancelled)
            }
            Press::Choose(decision) => match self.choose(message, decision, by) {
                Ok(()) => PressOutcome::Decided,
                Err(AnswerError::NotOffered) => PressOutcome::NotOffered,
                Err(AnswerError::NotPending) => PressOutcome::AlreadyOver,
            },
        }
    }

    /// Forgets the session of a place: with [`Continuity::Place`] its next message starts a new one.
    pub fn forget(&self, place: &Place) {
        self.core.memory().forget(place);
    }

    /// The job that a message belongs to, even if it has ended.
    pub fn job_of(&self, message: &MessageRef) -> Option<JobId> {
        self.core.memory().of_message(message).map(|record| record.job)
    }

    /// Where the job of a message ran, if its author set that.
    pub fn context_of(&self, message: &MessageRef) -> Option<RunContext> {
        self.core.memory().of_message(message)?.context.clone()
    }

    /// Where the last job of a place ran: `None` if there was none (since the start, or since
    /// [`Bridge::forget`]), `Some(None)` if its author did not set that.
    pub fn context_in(&self, place: &Place) -> Option<Option<RunContext>> {
        self.core.memory().of_place(place).map(|record| record.context.clone())
    }

    /// The jobs that wait or run, oldest first.
    pub fn jobs(&self) -> Vec<JobInfo> {
        let records = self.core.memory().all_active();
        let info = |record: Arc<job::Record>| JobInfo {
            job: record.job,
            message: record.message.clone(),
            place: record.place.clone(),
            status: self.core.scheduler.status(record.job),
            session: record.session().cloned(),
        };
        records.into_iter().map(info).collect()
    }

    /// Accepts no new messages, and waits until every job has ended and its final message is
    /// delivered. The future may be dropped at any time.
    pub async fn drain(&self) {
        self.core.scheduler.close();
        self.core.tasks.close();
        self.core.tasks.wait().await;
    }

    /// Accepts no new messages, cancels waiting and running jobs, waits until all final messages are
    /// delivered, and shuts the runners down. Returns what it cancelled.
    ///
    /// It takes as long as the engines take to stop and the chat may take for the final messages
    /// ([`Pace`]). If the future is dropped, what it started continues.
    pub async fn shutdown(&self) -> Vec<Cancelled> {
        self.shutdown_within(Duration::MAX).await
    }

    /// The same, but waits at most this long for the jobs and their final messages; then it shuts the
    /// runners down. Final messages that are not delivered by then are tried for as long as the runtime
    /// lives.
    pub async fn shutdown_within(&self, limit: Duration) -> Vec<Cancelled> {
        let cancelled = self.core.cancel_everything();
        if timeout(limit, self.drain()).await.is_err() {
            tracing::warn!(?limit, "the chat did not accept all final messages in time");
        }
        for runner in self.core.router.runners() {
            runner.shutdown().await;
        }
        cancelled
    }
}

impl<T: Transport> Drop for Bridge<T> {
    fn drop(&mut self) {
        self.core.cancel_everything();
    }
}
