//! The run handler: one run, shown in a chat from its first word to its last.
//!
//! Promises:
//! - a progress message goes out at once, silently, and follows the run: see [`Pace`] for how often,
//!   and no more often than something changes;
//! - the run never waits for the chat. A chat that fails or hangs costs messages, not the run;
//! - the last word is tried several times. It comes in the place of the progress message or as a
//!   message of its own ([`FinalBy`]), in as many parts as it takes, with the resume line whatever
//!   became of the run; what could not be said is in [`Shown::unsaid`];
//! - dropping the future cancels the run and leaves its message as it is.
//!
//! ```
//! use takopi_bridge::handler::{Handler, Look, Spot};
//! use takopi_bridge::testing::Room;
//! use takopi_bridge::transport::Place;
//! use takopi_core::RunRequest;
//! use takopi_core::demo::Demo;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let room = Room::new();
//! let handler = Handler::new(room.clone(), Look::default());
//! let demo = Demo::new().runner();
//! let request = RunRequest::new("hello");
//! let shown = handler.run(&demo, request, Spot::new(Place::new("general")), |_| {}).await;
//! assert!(shown.completed.ok && shown.unsaid.is_none());
//! assert!(room.last_text().contains("You said: hello"));
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::StreamExt;
use takopi_core::{Completed, Reason, ResumeToken, RunRequest, Runner, TakopiEvent};
use tokio::time::Instant;

pub use crate::outbox::Pace;
pub use crate::post::Unsaid;

use crate::outbox::Outbox;
use crate::post::{Draft, LastWord, Post};
use crate::present::{Chat, Moment};
use crate::progress::Progress;
use crate::scheduler::{JobId, Standing};
use crate::transport::{Content, Kind, MessageId, Place, Press, Transport};

/// How the last word comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FinalBy {
    /// In the place of the progress message. Nobody's phone rings.
    Edit,
    /// As a message of its own, which is not silent; the progress message is deleted.
    #[default]
    NewMessage,
}

/// How runs look in the chat.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Look {
    /// The presenter, which knows how long a message may be.
    pub chat: Chat,
    /// How often the chat is called.
    pub pace: Pace,
    /// How the last word comes.
    pub final_by: FinalBy,
}

impl Look {
    /// Presents with this.
    pub fn chat(mut self, chat: Chat) -> Self {
        self.chat = chat;
        self
    }

    /// Calls the chat so often.
    pub fn pace(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    /// Says the last word so.
    pub fn final_by(mut self, by: FinalBy) -> Self {
        self.final_by = by;
        self
    }
}

/// Where a run is shown.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Spot {
    /// The chat.
    pub place: Place,
    /// The message that asked for the run.
    pub reply_to: Option<MessageId>,
    /// The job that it is, for the buttons.
    pub job: Option<JobId>,
    /// A word on how it ended, such as who cancelled it.
    pub(crate) remark: Arc<OnceLock<String>>,
}

impl Spot {
    /// In this place.
    pub fn new(place: Place) -> Self {
        Self { place, reply_to: None, job: None, remark: Arc::default() }
    }

    /// As a reply to this message.
    pub fn reply_to(mut self, message: impl Into<MessageId>) -> Self {
        self.reply_to = Some(message.into());
        self
    }
}

/// What happened while a run was shown.
#[derive(Debug)]
#[non_exhaustive]
pub enum Notice<'a> {
    /// The run has a new message, which is edited from now on.
    Posted(&'a MessageId),
    /// The last word, or one part of it, is in this message.
    Said(&'a MessageId),
    /// The run said this. `Completed` comes before the last word is said in the chat.
    Event(&'a TakopiEvent),
}

/// How a run ended, and what the chat knows of it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Shown {
    /// How it ended.
    pub completed: Completed,
    /// The messages with the last word, in order.
    pub messages: Vec<MessageId>,
    /// What could not be said of it.
    pub unsaid: Option<Unsaid>,
}

/// Shows runs in a chat. Clones are the same handler.
#[derive(Debug)]
pub struct Handler<T> {
    pub(crate) outbox: Outbox<T>,
    pub(crate) look: Look,
}

impl<T> Clone for Handler<T> {
    fn clone(&self) -> Self {
        Self { outbox: self.outbox.clone(), look: self.look.clone() }
    }
}

impl<T: Transport> Handler<T> {
    /// A handler for this chat.
    pub fn new(transport: T, look: Look) -> Self {
        Self { outbox: Outbox::new(transport, look.pace), look }
    }

    /// Runs this and shows it. `notice` is told what happens, and must not block.
    pub async fn run(
        &self,
        runner: &dyn Runner,
        request: RunRequest,
        spot: Spot,
        notice: impl FnMut(Notice<'_>),
    ) -> Shown {
        self.show(self.post(&spot), runner, request, &spot, notice).await
    }

    pub(crate) fn post(&self, spot: &Spot) -> Post<T> {
        Post::new(self.outbox.clone(), spot.place.clone(), spot.reply_to.clone())
    }

    pub(crate) async fn show(
        &self,
        mut post: Post<T>,
        runner: &dyn Runner,
        request: RunRequest,
        spot: &Spot,
        mut notice: impl FnMut(Notice<'_>),
    ) -> Shown {
        let begun = Instant::now();
        let asked = request.resume.clone();
        let mut progress = Progress::default();
        let mut events = runner.run(request);
        post.changed();
        let completed = loop {
            let draft = || {
                let session = progress.resume().or(asked.as_ref());
                self.draft(
                    Kind::Progress,
                    &progress,
                    (runner, session),
                    begun.elapsed(),
                    None,
                    spot,
                )
            };
            tokio::select! {
                biased;
                // First, so that a flood of events does not drown the message.
                message = post.keep(draft) => notice(Notice::Posted(&message)),
                event = events.next() => {
                    let event = event.unwrap_or_else(|| {
                        let error = "the run ended without saying how";
                        let end = Completed::failure(runner.engine(), Reason::Protocol, error);
                        end.resume(progress.resume().or(asked.as_ref()).cloned()).into()
                    });
                    progress.apply(&event, begun.elapsed());
                    post.changed();
                    notice(Notice::Event(&event));
                    if let TakopiEvent::Completed(completed) = event {
                        break completed;
                    }
                }
            }
        };
        let resume = progress.resume().or(asked.as_ref()).map(|token| runner.format_resume(token));
        let last = self.finished(&progress, begun.elapsed(), resume.as_deref(), spot);
        let said = |message: &MessageId| notice(Notice::Said(message));
        let (messages, unsaid) = post.finish(last, self.look.final_by, said).await;
        Shown { completed, messages, unsaid }
    }

    /// The message of a job that has waited so long for its turn.
    pub(crate) fn queued(
        &self,
        runner: &dyn Runner,
        session: Option<&ResumeToken>,
        (waited, standing): (Duration, Standing),
        spot: &Spot,
    ) -> Draft {
        let draft = |note: &str| {
            let nothing = Progress::default();
            self.draft(Kind::Queued, &nothing, (runner, session), waited, Some(note), spot)
        };
        // Said anew when it has halved: a line of n would make n edits at every step.
        let rough = format!("{:?}", standing.roughly());
        Draft { mark: draft(&rough).mark, ..draft(&standing.to_string()) }
    }

    /// The message of a job that has waited so long for the running turn to take it in.
    pub(crate) fn steering(&self, runner: &dyn Runner, waited: Duration, spot: &Spot) -> Draft {
        let (nothing, note) = (Progress::default(), "waits to go into the running turn");
        self.draft(Kind::Queued, &nothing, (runner, None), waited, Some(note), spot)
    }

    fn draft(
        &self,
        kind: Kind,
        progress: &Progress,
        (runner, session): (&dyn Runner, Option<&ResumeToken>),
        elapsed: Duration,
        note: Option<&str>,
        spot: &Spot,
    ) -> Draft {
        let resume = session.map(|token| runner.format_resume(token));
        let text = |elapsed| {
            let moment = Moment::at(elapsed).resume_line(resume.as_deref()).note(note);
            self.look.chat.progress(progress, &moment)
        };
        let mut content =
            Content::new(kind, text(elapsed)).job(spot.job).resume_line(resume.as_deref());
        if spot.job.is_some() {
            content.buttons.push(Press::Cancel);
        }
        Draft { content, mark: text(Duration::ZERO) }
    }

    /// The last word on a run, in parts.
    fn finished(
        &self,
        progress: &Progress,
        elapsed: Duration,
        resume_line: Option<&str>,
        spot: &Spot,
    ) -> LastWord {
        // A run that ended well before the cancellation reached it was not cancelled.
        let well = progress.outcome().is_some_and(|outcome| outcome.ok);
        let note = spot.remark.get().filter(|_| !well).map(String::as_str);
        self.last_word(progress, Moment::at(elapsed).resume_line(resume_line).note(note), spot)
    }

    fn last_word(&self, progress: &Progress, moment: Moment<'_>, spot: &Spot) -> LastWord {
        let part = |text: String| {
            Content::new(Kind::Final, text).job(spot.job).resume_line(moment.resume_line)
        };
        let instead = |note: &str| {
            let moment = Moment { note: Some(note), ..moment };
            part(self.look.chat.ended(progress, &moment))
        };
        let parts = self.look.chat.finished(progress, &moment).into_iter().map(part).collect();
        LastWord {
            parts,
            if_said_elsewhere: instead("said in a message of its own"),
            if_unsaid: instead("the last word could not be said here"),
        }
    }

    /// Says the last word on a job that waited so long and never ran.
    pub(crate) async fn end_unrun(
        &self,
        post: Post<T>,
        (waited, why): (Duration, &str),
        resume_line: Option<&str>,
        spot: &Spot,
        posted: impl FnMut(&MessageId),
    ) -> Said {
        let moment = Moment::at(waited).resume_line(resume_line).note(why);
        let last = self.last_word(&Progress::default(), moment, spot);
        post.finish(last, FinalBy::Edit, posted).await
    }

    /// Says that the running turn has taken a job in.
    pub(crate) async fn end_steered(
        &self,
        post: Post<T>,
        spot: &Spot,
        posted: impl FnMut(&MessageId),
    ) -> Said {
        let word = Content::new(Kind::Notice, "taken into the running turn").job(spot.job);
        let last = LastWord {
            parts: vec![word.clone()],
            if_said_elsewhere: word.clone(),
            if_unsaid: word,
        };
        post.finish(last, FinalBy::Edit, posted).await
    }
}

/// The messages with the last word, and what could not be said of it.
type Said = (Vec<MessageId>, Option<Unsaid>);
