//! What the bridge and its jobs share: routing of messages, and the active jobs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use takopi_core::{RunRequest, Runner};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_util::task::TaskTracker;

use super::job::{Conversation, JobHandle, JobTask, Record};
use super::memory::Memory;
use super::{Continuity, Incoming, ReceiveError, RunContext, Settings};
use crate::approvals::Approvals;
use crate::handler::{Handler, ReplyTarget};
use crate::router::{Route, RouteError, Router};
use crate::scheduler::{Cancelled, JobId, JobStatus, QueueTarget, Scheduler, SubmitError, Ticket};
use crate::transport::{Content, Kind, Outgoing, Transport};

/// How many notices about messages that were not accepted may be on their way to a chat at once.
/// Further ones are dropped: the chat is flooded already.
const NOTICES: usize = 16;

#[derive(Debug)]
pub(super) struct Core<T> {
    pub(super) router: Router,
    pub(super) settings: Settings,
    pub(super) handler: Handler<T>,
    pub(super) approvals: Approvals<T>,
    pub(super) scheduler: Scheduler,
    memory: Mutex<Memory>,
    pub(super) tasks: TaskTracker,
    /// The permits to send such a notice, of the chats where some are on their way.
    notices: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl<T: Transport> Core<T> {
    pub(super) fn new(transport: T, router: Router, settings: Settings) -> Self {
        let handler = Handler::new(transport, settings.handler.clone());
        Self {
            router,
            approvals: Approvals::new(&handler, settings.patience, settings.continuity),
            handler,
            scheduler: Scheduler::new(settings.limits),
            settings,
            memory: Mutex::default(),
            tasks: TaskTracker::new(),
            notices: Mutex::default(),
        }
    }

    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn accept(self: &Arc<Self>, incoming: &Incoming) -> Result<JobHandle, ReceiveError> {
        // It may have been the answer to one question, and must not be that to the next.
        check_new(&self.memory(), incoming)?;
        if let Some(asked) = self.answer(incoming) {
            return Ok(JobHandle::answered(asked));
        }
        // Before the lock: the author's closure may call the bridge.
        let request = RunRequest::new(incoming.text.as_str());
        let mut request = (self.settings.requests)(incoming, request);
        // Held until the job is queued, so that the next message finds it.
        let mut memory = self.memory();
        check_new(&memory, incoming)?;
        self.check_undelivered(&memory, &incoming.place.chat)?;
        let destination = self.destination(&memory, incoming)?;
        request.prompt.clone_from(&destination.prompt);
        let ticket = self.enqueue(&memory, &destination.conversation)?;
        let Destination { runner, conversation, context, .. } = destination;
        if let Some(context) = &context {
            let mut settings = context.settings.clone();
            settings.fill_from(&request.settings);
            request.settings = settings;
        }
        let record = Record::new(ticket.job(), incoming, runner, conversation, context);
        let record = Arc::new(record);
        memory.add(&record);
        drop(memory);
        let (sender, report) = oneshot::channel();
        let job = JobHandle { id: record.job, report };
        let while_busy = incoming.while_busy.unwrap_or(self.settings.while_busy);
        let incoming = incoming.clone();
        let task = JobTask { core: self.clone(), record, incoming, while_busy, request };
        self.tasks.spawn(async move {
            // The handle of the job may have been dropped.
            let _ = sender.send(task.run(ticket).await);
        });
        Ok(job)
    }

    /// Answers a question that takes a text, and returns its job: the one that the message replies to or,
    /// where a place is one conversation, the oldest one of that conversation that it may answer.
    fn answer(&self, incoming: &Incoming) -> Option<JobId> {
        let chat = &incoming.place.chat;
        let replied = incoming.reply_to.as_ref().map(|it| &it.message);
        let (question, asked) = match replied.filter(|message| **message != incoming.message) {
            Some(message) => {
                let question = message.clone().at(chat);
                let asked = self.memory().of_message(&question)?;
                (question, asked)
            }
            None if self.settings.continuity == Continuity::Place => {
                let mut questions = self.approvals.questions_in(&incoming.place);
                if let Some(only) = &incoming.may_answer {
                    questions.retain(|question| question.message == *only);
                }
                let memory = self.memory();
                let current = memory.of_place(&incoming.place)?;
                questions.into_iter().find_map(|question| {
                    let asked = memory.of_message(&question)?;
                    let is_here = Arc::ptr_eq(&asked.conversation, &current.conversation);
                    is_here.then_some((question, asked))
                })?
            }
            None => return None,
        };
        let by = incoming.user.as_deref().unwrap_or("a user");
        self.approvals.answer(&question, incoming.text.trim(), by).ok()?;
        self.memory().put_message(incoming.at(), &asked);
        Some(asked.job)
    }

    /// Jobs whose final message is still on its way block no other job, but they use memory. This
    /// bounds them for each chat, so that a chat that hangs does not affect the others.
    fn check_undelivered(&self, memory: &Memory, chat: &str) -> Result<(), ReceiveError> {
        let limits = self.settings.limits;
        let finished = |job: &JobId| self.scheduler.status(*job) == JobStatus::Finished;
        let undelivered = memory.active_in_chat(chat).filter(finished).count();
        if undelivered >= limits.workers.max(1).saturating_add(limits.waiting) {
            return Err(ReceiveError::ChatBehind(undelivered));
        }
        Ok(())
    }

    fn enqueue(
        &self,
        memory: &Memory,
        conversation: &Arc<Conversation>,
    ) -> Result<Ticket, ReceiveError> {
        if conversation.session.get().is_none() {
            for earlier in memory.jobs_of(conversation) {
                match self.scheduler.submit(QueueTarget::Behind(earlier)) {
                    // It was cancelled or ended just now. If its session became known, then before.
                    Err(SubmitError::Ended(_)) => {}
                    submitted => return submitted.map_err(ReceiveError::from),
                }
            }
        }
        let session = conversation.session.get().cloned();
        Ok(self.scheduler.submit(session.map_or(QueueTarget::New, QueueTarget::Session))?)
    }

    /// Finds the runner and the session of a message.
    fn destination(
        &self,
        memory: &Memory,
        incoming: &Incoming,
    ) -> Result<Destination, ReceiveError> {
        let replied_to = incoming.reply_to.as_ref();
        let earlier = replied_to.and_then(|replied_to| {
            memory.of_message(&replied_to.message.clone().at(&incoming.place.chat))
        });
        // The job of a known message counts before the resume line in its text.
        let text = replied_to.filter(|_| earlier.is_none());
        let text = text.and_then(|replied_to| replied_to.text.as_deref());
        let Route { runner, resume, prompt, is_empty, directive } =
            self.router.route(&incoming.text, text)?;
        let context = incoming.context.clone();
        let destination =
            |runner, conversation| Destination { runner, conversation, prompt, context };
        let other_engine = |runner: &dyn Runner| {
            directive.as_ref().filter(|engine| **engine != runner.engine()).cloned()
        };
        let check = |runner: &dyn Runner| match other_engine(runner) {
            Some(directive) => Err(RouteError::OtherEngine { directive, session: runner.engine() }),
            None => Ok(()),
        };
        if let Some(token) = &incoming.resume {
            let owner = self.router.runner(&token.engine);
            let owner = owner.ok_or_else(|| ReceiveError::UnknownEngine(token.engine.clone()))?;
            check(&**owner)?;
            // In the form the engine writes: two spellings are one session with one queue.
            let canonical = owner.extract_resume(&owner.format_resume(token));
            let token = canonical.unwrap_or_else(|| token.clone());
            return Ok(destination(owner.clone(), memory.conversation_of(&token)));
        }
        if let Some(token) = resume {
            return Ok(destination(runner, memory.conversation_of(&token)));
        }
        if let Some(earlier) = earlier {
            check(&*earlier.runner)?;
            return Ok(destination(earlier.runner.clone(), earlier.conversation.clone())
                .at_place_of(&earlier));
        }
        if self.settings.continuity == Continuity::Place
            && let Some(earlier) = memory.of_place(&incoming.place)
            && other_engine(&*earlier.runner).is_none()
        {
            check_context(&earlier, incoming)?;
            return Ok(destination(earlier.runner.clone(), earlier.conversation.clone())
                .at_place_of(&earlier));
        }
        if is_empty {
            return Err(ReceiveError::Empty);
        }
        let chosen = incoming.engine.as_ref().filter(|_| directive.is_none());
        let runner = match chosen {
            Some(engine) => self
                .router
                .runner(engine)
                .ok_or_else(|| ReceiveError::UnknownEngine(engine.clone()))?
                .clone(),
            None => runner,
        };
        Ok(destination(runner, Arc::default()))
    }

    /// Cancels these jobs. `note` is shown in their final messages.
    pub(super) fn cancel(&self, records: &[Arc<Record>], note: Option<&str>) -> Vec<Cancelled> {
        // Set before the jobs are cancelled, so that the final message has it. The first note counts.
        if let Some(note) = note {
            for record in records {
                let _ = record.end_note.set(note.to_owned());
            }
        }
        self.scheduler.cancel_all(records.iter().map(|record| record.job))
    }

    pub(super) fn cancel_everything(&self) -> Vec<Cancelled> {
        self.scheduler.close();
        let active = self.memory().all_active();
        self.cancel(&active, Some("cancelled: shutting down"))
    }

    /// Sends a notice, unless too many are on their way to the chat already.
    pub(super) fn notify(self: &Arc<Self>, target: &ReplyTarget, text: String) {
        let Some(permit) = self.notice_permit(&target.place.chat) else { return };
        let content = Content::new(Kind::Notice, text).job(target.job);
        let message = Outgoing::new(target.place.clone(), content)
            .reply_to(target.reply_to.clone())
            .silent(true);
        let core = self.clone();
        let send = async move {
            if let Err(error) = core.handler.outbox.deliver(message).await {
                tracing::warn!(%error, "cannot send a notice");
            }
            drop(permit);
        };
        // A closed bridge does not wait for notices: people may go on writing for ever.
        if self.scheduler.is_closed() {
            tokio::spawn(send);
        } else {
            self.tasks.spawn(send);
        }
    }

    fn notice_permit(&self, chat: &str) -> Option<OwnedSemaphorePermit> {
        let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        notices.retain(|_, permits| permits.available_permits() < NOTICES);
        let permits = notices.entry(chat.to_owned());
        let permits = permits.or_insert_with(|| Arc::new(Semaphore::new(NOTICES)));
        permits.clone().try_acquire_owned().ok()
    }
}

/// Refuses a message that is known.
fn check_new(memory: &Memory, incoming: &Incoming) -> Result<(), ReceiveError> {
    let known = memory.of_message(&incoming.at());
    known.map_or(Ok(()), |known| Err(ReceiveError::Duplicate(known.job)))
}

/// A conversation stays where it began. A message that names another place is not run in the wrong one.
fn check_context(earlier: &Record, incoming: &Incoming) -> Result<(), ReceiveError> {
    let line = |context: &Option<RunContext>| context.as_ref().and_then(|it| it.line.clone());
    match (line(&earlier.context), line(&incoming.context)) {
        (begun, Some(named)) if begun.as_ref() != Some(&named) => {
            let begun = begun.unwrap_or_else(|| "no project".to_owned());
            Err(ReceiveError::OtherContext { begun, named })
        }
        _ => Ok(()),
    }
}

/// The runner of a message, and its conversation.
struct Destination {
    runner: Arc<dyn Runner>,
    conversation: Arc<Conversation>,
    prompt: String,
    context: Option<RunContext>,
}

impl Destination {
    /// Runs where an earlier job of its session ran. Images of that job are not sent again.
    fn at_place_of(mut self, earlier: &Record) -> Self {
        let images = self.context.take().map(|context| context.settings.images);
        self.context.clone_from(&earlier.context);
        if images.is_some() || self.context.is_some() {
            let context = self.context.get_or_insert_default();
            context.settings.images = images.unwrap_or_default();
        }
        self
    }
}
