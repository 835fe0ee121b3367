//! The run handler: shows one run in a chat, from start to end.
//!
//! Promises:
//! - a progress message is sent at once, silently, and follows the run: as often as [`Pace`] allows, and
//!   no more often than something changes;
//! - an answer that is streamed is shown as the chat's [`Streaming`] says;
//! - the run never waits for the chat. A chat that fails or hangs costs messages, not the run;
//! - the final message is tried several times. It replaces the progress message or is a message of its
//!   own ([`FinalBy`]), in as many parts as it takes, with the resume line however the run ended, unless the
//!   engine knows no such session; what could not be delivered is in [`RunResult::undelivered`];
//! - dropping the future cancels the run and does not touch its message.

#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::StreamExt;
use takopi_core::{Completed, Reason, ResumeToken, RunRequest, Runner, TakopiEvent};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::live_message::{Delivered, DeliveryError, Draft, FinalMessage, LiveMessage};
use crate::outbox::{Outbox, Pace};
use crate::present::{Chat, Moment};
use crate::progress::Progress;
use crate::scheduler::{JobId, JobStatus};
use crate::transport::{Attachment, Content, Kind, MessageId, Place, Press, Streaming, Transport};

/// The name of a file with an answer.
const ANSWER_FILE: &str = "answer.md";

/// How the final message is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FinalBy {
    /// By editing the progress message. Chats do not notify of edits.
    Edit,
    /// As a new message that notifies; the progress message is deleted.
    #[default]
    NewMessage,
}

/// How runs are shown.
#[derive(Debug, Clone, Default)]
pub(crate) struct HandlerOptions {
    /// The presenter, which has the limit on the length of a message.
    pub(crate) chat: Chat,
    /// How often the chat is called.
    pub(crate) pace: Pace,
    /// How the final message is delivered.
    pub(crate) final_by: FinalBy,
}

/// Where a run is shown.
#[derive(Debug, Clone)]
pub(crate) struct ReplyTarget {
    /// The chat.
    pub(crate) place: Place,
    /// The message that asked for the run.
    pub(crate) reply_to: Option<MessageId>,
    /// The job, for the buttons.
    pub(crate) job: Option<JobId>,
    /// A note for the final message, such as who cancelled the job.
    pub(crate) end_note: Arc<OnceLock<String>>,
    /// The line that names where the job runs.
    pub(crate) context: Option<String>,
    /// The final message waits for this: the final message of the session's job before.
    pub(crate) after: Option<CancellationToken>,
}

impl ReplyTarget {
    /// A place.
    pub(crate) fn new(place: Place) -> Self {
        Self {
            place,
            reply_to: None,
            job: None,
            end_note: Arc::default(),
            context: None,
            after: None,
        }
    }

    /// As a reply to this message.
    pub(crate) fn reply_to(mut self, message: impl Into<MessageId>) -> Self {
        self.reply_to = Some(message.into());
        self
    }
}

/// What happened while a run was shown.
#[derive(Debug)]
pub(crate) enum RunUpdate<'a> {
    /// The run has a new progress message.
    Posted(&'a MessageId),
    /// The final message, or one part of it, was delivered in this message.
    Delivered(&'a MessageId),
    /// The run emitted this event. `Completed` comes before the final message is delivered.
    Event(&'a TakopiEvent),
}

/// How a run ended, and what the chat shows of it.
#[derive(Debug)]
pub(crate) struct RunResult {
    /// How it ended.
    pub(crate) completed: Completed,
    /// The messages with the final message, in order.
    pub(crate) messages: Vec<MessageId>,
    /// Set if the final message was not delivered completely.
    pub(crate) undelivered: Option<DeliveryError>,
}

/// Shows runs in a chat. Clones share the outbox.
#[derive(Debug)]
pub(crate) struct Handler<T> {
    pub(crate) outbox: Outbox<T>,
    pub(crate) options: HandlerOptions,
}

impl<T> Clone for Handler<T> {
    fn clone(&self) -> Self {
        Self { outbox: self.outbox.clone(), options: self.options.clone() }
    }
}

/// The state that a progress message shows.
struct Snapshot<'a> {
    kind: Kind,
    progress: &'a Progress,
    runner: &'a dyn Runner,
    session: Option<&'a ResumeToken>,
    elapsed: Duration,
    note: Option<&'a str>,
}

impl<T: Transport> Handler<T> {
    /// A handler for this chat.
    pub(crate) fn new(transport: T, options: HandlerOptions) -> Self {
        let mut options = options;
        options.chat = options.chat.streams(transport.streaming() == Streaming::Edits);
        Self { outbox: Outbox::new(transport, options.pace), options }
    }

    /// A message that is not sent yet.
    pub(crate) fn message(&self, target: &ReplyTarget) -> LiveMessage<T> {
        LiveMessage::new(self.outbox.clone(), target.place.clone(), target.reply_to.clone())
    }

    /// Runs this and shows it in the message. `on_update` must not block.
    pub(crate) async fn show(
        &self,
        mut message: LiveMessage<T>,
        runner: &dyn Runner,
        mut request: RunRequest,
        target: &ReplyTarget,
        mut on_update: impl FnMut(RunUpdate<'_>),
    ) -> RunResult {
        let begun = Instant::now();
        let resumed = request.resume.clone();
        request.deltas = self.outbox.streaming() != Streaming::Off;
        let mut progress = Progress::default();
        let mut events = runner.run(request);
        message.changed();
        let shown = |progress: &Progress| {
            let snapshot = Snapshot {
                kind: Kind::Progress,
                progress,
                runner,
                session: progress.resume().or(resumed.as_ref()),
                elapsed: begun.elapsed(),
                note: None,
            };
            self.draft(&snapshot, target)
        };
        let completed = loop {
            let draft = || shown(&progress);
            tokio::select! {
                biased;
                // First, so that many events do not starve the message.
                message = message.keep(draft) => on_update(RunUpdate::Posted(&message)),
                event = events.next() => {
                    let event = event.unwrap_or_else(|| {
                        let error = "the run ended without a completed event";
                        let end = Completed::failure(runner.engine(), Reason::Protocol, error);
                        end.resume(progress.resume().or(resumed.as_ref()).cloned()).into()
                    });
                    progress.apply(&event, begun.elapsed());
                    message.changed();
                    if let Some(job) = target.job {
                        self.outbox.event(&target.place, job, &event);
                    }
                    on_update(RunUpdate::Event(&event));
                    if let TakopiEvent::Completed(completed) = event {
                        break *completed;
                    }
                }
            }
        };
        // What does not exist cannot be resumed.
        let exists = completed.reason != Some(Reason::SessionNotFound);
        let session = progress.resume().or(resumed.as_ref()).filter(|_| exists);
        let resume = session.map(|token| runner.format_resume(token));
        let last = self.finished(&progress, begun.elapsed(), resume.as_deref(), target);
        let mut posted = |message: &MessageId| on_update(RunUpdate::Delivered(message));
        if let Some(after) = &target.after {
            // Answers of a session come in order, unless the chat hangs for longer than is tried.
            let before = timeout(self.options.pace.longest_wait, after.cancelled());
            tokio::pin!(before);
            loop {
                tokio::select! {
                    biased;
                    _ = &mut before => break,
                    // It may hold the permit that the message before waits for.
                    message = message.keep(|| shown(&progress)) => posted(&message),
                }
            }
        }
        let Delivered { messages, error } =
            message.finish(last, self.options.final_by, posted).await;
        RunResult { completed, messages, undelivered: error }
    }

    /// The message of a job that has waited this long in the queue.
    pub(crate) fn queued(
        &self,
        runner: &dyn Runner,
        session: Option<&ResumeToken>,
        waited: Duration,
        status: JobStatus,
        target: &ReplyTarget,
    ) -> Draft {
        let draft = |note: &str| self.waiting(runner, session, waited, note, target);
        // Edited only when the position has halved: a queue of n would cost n edits at every step.
        let rough = format!("{:?}", status.roughly());
        Draft { mark: draft(&rough).mark, ..draft(&status.to_string()) }
    }

    /// The message of a job that has waited this long to be added to the running turn.
    pub(crate) fn steering(
        &self,
        runner: &dyn Runner,
        waited: Duration,
        target: &ReplyTarget,
    ) -> Draft {
        self.waiting(runner, None, waited, "waiting to be added to the running turn", target)
    }

    fn waiting(
        &self,
        runner: &dyn Runner,
        session: Option<&ResumeToken>,
        waited: Duration,
        note: &str,
        target: &ReplyTarget,
    ) -> Draft {
        let snapshot = Snapshot {
            kind: Kind::Queued,
            progress: &Progress::default(),
            runner,
            session,
            elapsed: waited,
            note: Some(note),
        };
        self.draft(&snapshot, target)
    }

    fn draft(&self, snapshot: &Snapshot<'_>, target: &ReplyTarget) -> Draft {
        let Snapshot { kind, progress, runner, session, elapsed, note } = *snapshot;
        let resume = session.map(|token| runner.format_resume(token));
        let footer = footer(target, resume.as_deref());
        let text = |elapsed| {
            let moment = Moment::at(elapsed).resume_line(footer.as_deref()).note(note);
            self.options.chat.progress(progress, &moment)
        };
        let mut content = Content::new(kind, text(elapsed))
            .job(target.job)
            .resume_line(resume.as_deref())
            .footer(footer.as_deref())
            .note(note);
        if target.job.is_some() {
            content.buttons.push(Press::Cancel);
        }
        Draft { content, mark: text(Duration::ZERO) }
    }

    /// The final message of a run, in parts.
    fn finished(
        &self,
        progress: &Progress,
        elapsed: Duration,
        resume_line: Option<&str>,
        target: &ReplyTarget,
    ) -> FinalMessage {
        // A run that succeeded before the cancellation reached it was not cancelled.
        let ok = progress.outcome().is_some_and(|outcome| outcome.ok);
        let note = target.end_note.get().filter(|_| !ok).map(String::as_str);
        let moment = Moment::at(elapsed).resume_line(resume_line).note(note);
        self.final_message(progress, moment, target)
    }

    fn final_message(
        &self,
        progress: &Progress,
        moment: Moment<'_>,
        target: &ReplyTarget,
    ) -> FinalMessage {
        let footer = footer(target, moment.resume_line);
        let resume_line = moment.resume_line;
        let moment = Moment { resume_line: footer.as_deref(), ..moment };
        let part = |text: String| {
            let content = Content::new(Kind::Final, text).job(target.job).note(moment.note);
            content.resume_line(resume_line).footer(footer.as_deref())
        };
        let instead = |note: &str| {
            let moment = Moment { note: Some(note), ..moment };
            part(self.options.chat.ended(progress, &moment))
        };
        let (texts, file) = if self.outbox.sends_files() {
            self.options.chat.finished_with_file(progress, &moment)
        } else {
            (self.options.chat.finished(progress, &moment), None)
        };
        let mut parts: Vec<Content> = texts.into_iter().map(part).collect();
        if let Some(last) = parts.last_mut() {
            last.file = file.map(|answer| Attachment::new(ANSWER_FILE, answer));
        }
        FinalMessage {
            parts,
            if_sent_elsewhere: instead("see the separate final message"),
            if_undelivered: instead("the final message could not be delivered"),
        }
    }

    /// Delivers the final message of a job that waited this long and never ran.
    pub(crate) async fn end_cancelled(
        &self,
        message: LiveMessage<T>,
        waited: Duration,
        why: &str,
        resume_line: Option<&str>,
        target: &ReplyTarget,
        posted: impl FnMut(&MessageId),
    ) -> Delivered {
        let moment = Moment::at(waited).resume_line(resume_line).note(why);
        let last = self.final_message(&Progress::default(), moment, target);
        message.finish(last, FinalBy::Edit, posted).await
    }

    /// Reports that a message was added to the running turn.
    pub(crate) async fn end_steered(
        &self,
        message: LiveMessage<T>,
        target: &ReplyTarget,
        posted: impl FnMut(&MessageId),
    ) -> Delivered {
        let notice = Content::new(Kind::Notice, "added to the running turn").job(target.job);
        let last = FinalMessage {
            parts: vec![notice.clone()],
            if_sent_elsewhere: notice.clone(),
            if_undelivered: notice,
        };
        message.finish(last, FinalBy::Edit, posted).await
    }
}

/// The last lines of a message: where the job runs, and how to resume its session.
fn footer(target: &ReplyTarget, resume_line: Option<&str>) -> Option<String> {
    match (&target.context, resume_line) {
        // A line end of Markdown, not a space.
        (Some(context), Some(resume)) => Some(format!("{context}  \n{resume}")),
        (context, resume) => context.clone().or_else(|| resume.map(str::to_owned)),
    }
}
