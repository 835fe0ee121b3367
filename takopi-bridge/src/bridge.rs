//! The bridge: what ties a chat to engines.
//!
//! An author implements [`Transport`], makes a `Bridge`, and hands on what comes in: messages to
//! [`Bridge::receive`], presses to [`Bridge::press`]. A message is routed, stands in the line of its
//! session, is run, and is shown. Promises:
//! - nothing here waits for the chat or the engine but [`Bridge::drain`] and [`Bridge::shutdown`],
//!   so one loop can hand on everything;
//! - every job that was taken ends in exactly one [`Report`], and its message says how;
//! - a message that is not taken is an error, and the chat is told why;
//! - waiting is visible: a job in line has a silent message, which becomes its progress message;
//! - what is kept of the past is bounded: the job of the last [`REMEMBERED`] messages and places.
//!
//! **Dropping** the bridge cancels everything, queued and running, as [`Bridge::shutdown`] does, but
//! waits for nothing: the ends are still said for as long as the runtime lives. Methods must be
//! called inside a tokio runtime. To share a bridge, put it into an `Arc`.
//!
//! ```
//! use std::sync::Arc;
//! use takopi_bridge::testing::Room;
//! use takopi_bridge::{Bridge, End, Incoming, Place, Router, Settings};
//! use takopi_core::demo::Demo;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let room = Room::new();
//! let router = Router::new(Arc::new(Demo::new().runner()));
//! let bridge = Bridge::new(room.clone(), router, Settings::default());
//!
//! let job = bridge.receive(Incoming::new(Place::new("general"), "1", "hello").by("alice"))?;
//! // The demo asks for approval, in a message with choices.
//! let question = room.question().await;
//! bridge.choose(&question, takopi_core::Decision::Accept, "alice")?;
//! let report = job.report().await;
//! assert!(matches!(report.end, End::Ran(completed) if completed.ok));
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

use takopi_core::runner::Reply;
use takopi_core::{EngineId, ResumeToken};
use thiserror::Error;

pub use incoming::{FollowUp, Incoming, ReplyTo};
pub use job::{End, Job, Report};
pub use memory::REMEMBERED;
pub use settings::{Continuity, Settings};

use self::core::Core;
use crate::approvals::NoQuestion;
use crate::handler::Spot;
use crate::router::{RouteError, Router};
use crate::scheduler::{Cancelled, JobId, Refused, Standing};
use crate::transport::{MessageRef, Place, Press, Transport};

/// Ties a chat to engines. See the [module](self).
#[derive(Debug)]
pub struct Bridge<T: Transport> {
    core: Arc<Core<T>>,
}

/// Why a message was not taken. The chat is told, but for [`NotTaken::Twice`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NotTaken {
    /// It does not say clearly where it goes.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// It is for an engine that this bridge does not have.
    #[error("there is no engine {0} here")]
    NoEngine(EngineId),
    /// There is no room for it.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// Too many jobs of this chat are over but not answered yet: the chat is slow or hangs.
    #[error("this chat is behind: the last words of {0} jobs are still on their way; try later")]
    Unsaid(usize),
    /// It was received before, and belongs to this job. Chats deliver a message twice now and then;
    /// nobody is told.
    #[error("this message was received before, for {0}")]
    Twice(JobId),
}

/// What to cancel.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// The job that a message belongs to: the one that asked, or one of those that show it.
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

/// What a press did. Displayed it is a word for whoever pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pressed {
    /// It cancelled this.
    Cancelled(Cancelled),
    /// It decided a question.
    Decided,
    /// Nothing: what it was for is over.
    Nothing,
    /// Nothing: it is not among what the message offers.
    NotOffered,
    /// Nothing: the message is not known. It may be so new that the chat has not said yet what it is
    /// called, or older than what is [kept](REMEMBERED).
    Unknown,
}

impl fmt::Display for Pressed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cancelled(cancelled) => cancelled.fmt(f),
            Self::Decided => f.write_str("decided"),
            Self::Nothing => f.write_str("this is over already"),
            Self::NotOffered => f.write_str("this cannot be chosen here"),
            Self::Unknown => f.write_str("this message is not known; try again in a moment"),
        }
    }
}

/// A job that waits or runs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listed {
    /// The job.
    pub job: JobId,
    /// The message that asked for it.
    pub message: MessageRef,
    /// Where it was asked.
    pub place: Place,
    /// Where it stands; over if only its last word is still on its way.
    pub standing: Standing,
    /// Its session, once that is known.
    pub session: Option<ResumeToken>,
}

impl<T: Transport> Bridge<T> {
    /// A bridge between this chat and these engines.
    pub fn new(transport: T, router: Router, settings: Settings) -> Self {
        Self { core: Arc::new(Core::new(transport, router, settings)) }
    }

    /// Takes a message: it is routed, queued, run and shown. What becomes of it is in the job's
    /// [report](Job::report); whoever does not care lets the job go.
    ///
    /// A reply to a question that wants words is its answer. Of any other message, the session it
    /// goes on with is, first of these: [`Incoming::resume`]; a resume line in it; the session of the
    /// job that the replied-to message belongs to; if that is not known, a resume line in its text;
    /// with [`Continuity::Place`] the last session of the place, unless another engine is named; none.
    pub fn receive(&self, incoming: Incoming) -> Result<Job, NotTaken> {
        self.core.take(&incoming).inspect_err(|why| {
            if matches!(why, NotTaken::Twice(_)) {
                return;
            }
            let spot = Spot::new(incoming.place).reply_to(incoming.message);
            self.core.tell(&spot, why.to_string());
        })
    }

    /// Cancels what waits or runs, all at once, and says what that was. `by` is said in its last
    /// message. The list is empty if there was nothing.
    pub fn cancel(&self, target: impl Into<Target>, by: Option<&str>) -> Vec<Cancelled> {
        let records: Vec<_> = match target.into() {
            Target::Message(message) => {
                self.core.memory().of_message(&message).into_iter().collect()
            }
            Target::Place(place) => self.core.memory().live_in(&place),
            Target::Job(job) => self.core.memory().live(job).into_iter().collect(),
        };
        let remark = by.map(|by| format!("cancelled by {by}"));
        self.core.cancel(&records, remark.as_deref())
    }

    /// Decides the question that this message asks: with a [`Decision`](takopi_core::Decision), or a
    /// [`Reply`] that says more.
    pub fn choose(
        &self,
        question: &MessageRef,
        reply: impl Into<Reply>,
        by: &str,
    ) -> Result<(), NoQuestion> {
        self.core.approvals.choose(question, reply.into().by(by))
    }

    /// Answers the question that this message asks in words, as a reply to it does: for chats where
    /// people do not reply to a message.
    pub fn answer(&self, question: &MessageRef, words: &str, by: &str) -> Result<(), NoQuestion> {
        self.core.approvals.answer(question, words, by)
    }

    /// Does what a press on a message is for. Who may press what is for the author to say, before.
    pub fn press(&self, message: &MessageRef, press: Press, by: &str) -> Pressed {
        if self.job_of(message).is_none() {
            return Pressed::Unknown;
        }
        match press {
            Press::Cancel => {
                let cancelled = self.cancel(message.clone(), Some(by));
                cancelled.first().map_or(Pressed::Nothing, |first| Pressed::Cancelled(*first))
            }
            Press::Choose(decision) => match self.choose(message, decision, by) {
                Ok(()) => Pressed::Decided,
                Err(NoQuestion::NotOffered) => Pressed::NotOffered,
                Err(NoQuestion::Over) => Pressed::Nothing,
            },
        }
    }

    /// Lets the place begin anew: with [`Continuity::Place`] its next message is for a new session.
    pub fn forget(&self, place: &Place) {
        self.core.memory().forget(place);
    }

    /// The job that a message belongs to, even one that is over.
    pub fn job_of(&self, message: &MessageRef) -> Option<JobId> {
        self.core.memory().of_message(message).map(|record| record.job)
    }

    /// The jobs that wait or run, oldest first.
    pub fn jobs(&self) -> Vec<Listed> {
        let records = self.core.memory().all_live();
        let list = |record: Arc<job::Record>| Listed {
            job: record.job,
            message: record.message.clone(),
            place: record.place.clone(),
            standing: self.core.scheduler.standing(record.job),
            session: record.session().cloned(),
        };
        records.into_iter().map(list).collect()
    }

    /// Takes nothing new, and waits until everything that was taken is done and said. May be dropped
    /// at any time.
    pub async fn drain(&self) {
        self.core.scheduler.close();
        self.core.tasks.close();
        self.core.tasks.wait().await;
    }

    /// Takes nothing new, cancels what waits and what runs, waits until all ends are said, and shuts
    /// the runners down. Says what it cancelled.
    ///
    /// It takes as long as the engines take to stop, and as the chat may take for the last words
    /// ([`Pace`](crate::Pace)). If it is dropped, what it began goes on.
    pub async fn shutdown(&self) -> Vec<Cancelled> {
        let cancelled = self.core.cancel_everything();
        self.drain().await;
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
