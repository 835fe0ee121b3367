//! What the bridge and its jobs share: where a message goes, and what is under way.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use takopi_core::{RunRequest, Runner};
use tokio::sync::{Semaphore, oneshot};
use tokio_util::task::TaskTracker;

use super::job::{Conversation, Job, Record, Work};
use super::memory::Memory;
use super::{Continuity, Incoming, NotTaken, Settings};
use crate::approvals::Approvals;
use crate::handler::{Handler, Spot};
use crate::outbox::Outbox;
use crate::router::{Route, RouteError, Router};
use crate::scheduler::{Cancelled, JobId, Line, Refused, Scheduler, Ticket};
use crate::transport::{Content, Kind, Outgoing, Transport};

/// How many words on messages that were not taken are on their way at once. Further ones are not
/// said: the chat is flooded already.
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
    notices: Arc<Semaphore>,
}

impl<T: Transport> Core<T> {
    pub(super) fn new(transport: T, router: Router, settings: Settings) -> Self {
        let handler = Handler::new(transport, settings.look.clone());
        Self {
            router,
            approvals: Approvals::new(&handler, settings.patience),
            handler,
            scheduler: Scheduler::new(settings.limits),
            settings,
            memory: Mutex::default(),
            tasks: TaskTracker::new(),
            notices: Arc::new(Semaphore::new(NOTICES)),
        }
    }

    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn take(self: &Arc<Self>, incoming: &Incoming) -> Result<Job, NotTaken> {
        if let Some(asked) = self.answered(incoming) {
            return Ok(Job::answered(asked));
        }
        // Before the lock: what an author wrote may ask the bridge something.
        let request = RunRequest::new(incoming.text.as_str());
        let mut request = (self.settings.requests)(incoming, request).build();
        // Held until the job is in line, so that the next message finds it there.
        let mut memory = self.memory();
        let limits = self.settings.limits;
        let live = memory.live_count();
        // Those whose last word is still on its way wait for nothing, but take room.
        if live >= limits.workers.saturating_add(limits.waiting) {
            return Err(Refused::Full(live).into());
        }
        let course = self.course(&memory, incoming)?;
        request.prompt = course.prompt;
        let ticket = self.stand_in_line(&memory, &course.conversation)?;
        let record = Record::new(ticket.job(), incoming, course.runner, course.conversation);
        let record = Arc::new(record);
        memory.add(&record);
        drop(memory);
        let (sender, report) = oneshot::channel();
        let job = Job { id: record.job, report };
        let follow_up = incoming.follow_up.unwrap_or(self.settings.follow_up);
        let work = Work { core: self.clone(), record, follow_up, request };
        self.tasks.spawn(async move {
            // Whoever does not care has let the job go.
            let _ = sender.send(work.run(ticket).await);
        });
        Ok(job)
    }

    /// The job whose question the message answers, if it replies to one that wants words.
    fn answered(&self, incoming: &Incoming) -> Option<JobId> {
        let question = incoming.reply_to.as_ref()?.message.clone().at(&incoming.place.chat);
        let asked = self.memory().of_message(&question)?.job;
        let by = incoming.user.as_deref().unwrap_or("somebody");
        self.approvals.answer(&question, incoming.text.trim(), by).ok().map(|()| asked)
    }

    fn stand_in_line(
        &self,
        memory: &Memory,
        conversation: &Arc<Conversation>,
    ) -> Result<Ticket, Refused> {
        if conversation.session.get().is_none()
            && let Some(earlier) = memory.last_of(conversation)
        {
            match self.scheduler.submit(Line::Behind(earlier.job)) {
                // It ended just now. If it learnt its session, then before.
                Err(Refused::Over(_)) => {}
                submitted => return submitted,
            }
        }
        let session = conversation.session.get().cloned();
        self.scheduler.submit(session.map_or(Line::New, Line::Session))
    }

    /// Finds out who runs a message, and on which session.
    fn course(&self, memory: &Memory, incoming: &Incoming) -> Result<Course, NotTaken> {
        let replied_to = incoming.reply_to.as_ref();
        let text = replied_to.and_then(|replied_to| replied_to.text.as_deref());
        let Route { runner, resume, prompt, directive, .. } =
            self.router.route(&incoming.text, text)?;
        let course = |runner, conversation| Course { runner, conversation, prompt };
        if let Some(token) = &incoming.resume {
            let owner = self.router.runner(&token.engine);
            let owner = owner.ok_or_else(|| NotTaken::NoEngine(token.engine.clone()))?;
            return Ok(course(owner.clone(), Conversation::of(token.clone())));
        }
        if let Some(token) = resume {
            return Ok(course(runner, Conversation::of(token)));
        }
        let other_engine = |record: &Record| {
            directive.as_ref().filter(|engine| **engine != record.runner.engine()).cloned()
        };
        if let Some(replied_to) = replied_to
            && let message = replied_to.message.clone().at(&incoming.place.chat)
            && let Some(earlier) = memory.of_message(&message)
        {
            if let Some(directive) = other_engine(&earlier) {
                let session = earlier.runner.engine();
                return Err(RouteError::OtherEngine { directive, session }.into());
            }
            return Ok(course(earlier.runner.clone(), earlier.conversation.clone()));
        }
        if self.settings.continuity == Continuity::Place
            && let Some(earlier) = memory.of_place(&incoming.place)
            && other_engine(&earlier).is_none()
        {
            return Ok(course(earlier.runner.clone(), earlier.conversation.clone()));
        }
        Ok(course(runner, Arc::default()))
    }

    /// Cancels these jobs with this word on it.
    pub(super) fn cancel(&self, records: &[Arc<Record>], remark: Option<&str>) -> Vec<Cancelled> {
        // Said before it is done, so that the last message knows. The first one counts.
        if let Some(remark) = remark {
            for record in records {
                let _ = record.remark.set(remark.to_owned());
            }
        }
        self.scheduler.cancel_all(records.iter().map(|record| record.job))
    }

    pub(super) fn cancel_everything(&self) -> Vec<Cancelled> {
        self.scheduler.close();
        let live = self.memory().all_live();
        self.cancel(&live, Some("cancelled: shutting down"))
    }

    /// Says something beside the jobs, as long as there is not too much to say already.
    pub(super) fn tell(self: &Arc<Self>, spot: &Spot, text: String) {
        let Ok(permit) = self.notices.clone().try_acquire_owned() else { return };
        let content = Content::new(Kind::Notice, text).job(spot.job);
        let message =
            Outgoing::new(spot.place.clone(), content).reply_to(spot.reply_to.clone()).silent(true);
        let core = self.clone();
        self.tasks.spawn(async move {
            let send = |outbox: &Outbox<T>| outbox.send(message.clone());
            if let Err(error) = core.handler.outbox.insist(&message.place.chat, send).await {
                tracing::warn!(%error, "a notice was not shown");
            }
            drop(permit);
        });
    }
}

/// Who runs a message, and in which conversation.
struct Course {
    runner: Arc<dyn Runner>,
    conversation: Arc<Conversation>,
    prompt: String,
}
