//! What the bridge and its jobs share: where a message goes, and what is under way.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use takopi_core::{RunRequest, Runner};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_util::task::TaskTracker;

use super::job::{Conversation, Job, Record, Work};
use super::memory::Memory;
use super::{Continuity, Incoming, NotTaken, Settings};
use crate::approvals::Approvals;
use crate::handler::{Handler, Spot};
use crate::router::{Route, RouteError, Router};
use crate::scheduler::{Cancelled, JobId, Line, Refused, Scheduler, Standing, Ticket};
use crate::transport::{Content, Kind, Outgoing, Transport};

/// How many words on messages that were not taken are on their way to a chat at once. Further ones
/// are not said: the chat is flooded already.
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
    /// The leave to say such a word, of the chats where some are on their way.
    notices: Mutex<HashMap<String, Arc<Semaphore>>>,
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
            notices: Mutex::default(),
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
        let mut request = (self.settings.requests)(incoming, request);
        // Held until the job is in line, so that the next message finds it there.
        let mut memory = self.memory();
        if let Some(known) = memory.of_message(&incoming.at()) {
            return Err(NotTaken::Twice(known.job));
        }
        self.has_room_for_last_words(&memory, &incoming.place.chat)?;
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
        let asked = self.memory().of_message(&question)?;
        let by = incoming.user.as_deref().unwrap_or("somebody");
        self.approvals.answer(&question, incoming.text.trim(), by).ok()?;
        self.memory().put_message(incoming.at(), &asked);
        Some(asked.job)
    }

    /// Jobs whose last word is still on its way wait for nothing and hold up nobody, but they take
    /// room: a chat that hangs may have so many of them, and no other chat pays for it.
    fn has_room_for_last_words(&self, memory: &Memory, chat: &str) -> Result<(), NotTaken> {
        let limits = self.settings.limits;
        let over = |job: &JobId| self.scheduler.standing(*job) == Standing::Over;
        let unsaid = memory.live_in_chat(chat).filter(over).count();
        if unsaid >= limits.workers.saturating_add(limits.waiting) {
            return Err(NotTaken::Unsaid(unsaid));
        }
        Ok(())
    }

    fn stand_in_line(
        &self,
        memory: &Memory,
        conversation: &Arc<Conversation>,
    ) -> Result<Ticket, Refused> {
        if conversation.session.get().is_none() {
            for earlier in memory.jobs_of(conversation) {
                match self.scheduler.submit(Line::Behind(earlier)) {
                    // It was cancelled, or ended just now. If it learnt its session, then before.
                    Err(Refused::Over(_)) => {}
                    submitted => return submitted,
                }
            }
        }
        let session = conversation.session.get().cloned();
        self.scheduler.submit(session.map_or(Line::New, Line::Session))
    }

    /// Finds out who runs a message, and on which session.
    fn course(&self, memory: &Memory, incoming: &Incoming) -> Result<Course, NotTaken> {
        let replied_to = incoming.reply_to.as_ref();
        let earlier = replied_to.and_then(|replied_to| {
            memory.of_message(&replied_to.message.clone().at(&incoming.place.chat))
        });
        // What is known of a message comes before what it quotes.
        let text = replied_to.filter(|_| earlier.is_none());
        let text = text.and_then(|replied_to| replied_to.text.as_deref());
        let Route { runner, resume, prompt, directive, .. } =
            self.router.route(&incoming.text, text)?;
        let course = |runner, conversation| Course { runner, conversation, prompt };
        let other_engine = |runner: &dyn Runner| {
            directive.as_ref().filter(|engine| **engine != runner.engine()).cloned()
        };
        let agree = |runner: &dyn Runner| match other_engine(runner) {
            Some(directive) => Err(RouteError::OtherEngine { directive, session: runner.engine() }),
            None => Ok(()),
        };
        if let Some(token) = &incoming.resume {
            let owner = self.router.runner(&token.engine);
            let owner = owner.ok_or_else(|| NotTaken::NoEngine(token.engine.clone()))?;
            agree(&**owner)?;
            // As the engine itself writes it: two spellings are one session, and one line.
            let canonical = owner.extract_resume(&owner.format_resume(token));
            let token = canonical.unwrap_or_else(|| token.clone());
            return Ok(course(owner.clone(), Conversation::of(token)));
        }
        if let Some(token) = resume {
            return Ok(course(runner, Conversation::of(token)));
        }
        if let Some(earlier) = earlier {
            agree(&*earlier.runner)?;
            return Ok(course(earlier.runner.clone(), earlier.conversation.clone()));
        }
        if self.settings.continuity == Continuity::Place
            && let Some(earlier) = memory.of_place(&incoming.place)
            && other_engine(&*earlier.runner).is_none()
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

    /// Says why a message was not taken, as long as there is not too much to say already.
    pub(super) fn tell(self: &Arc<Self>, spot: &Spot, text: String) {
        let Some(permit) = self.may_tell(&spot.place.chat) else { return };
        let content = Content::new(Kind::Notice, text).job(spot.job);
        let message =
            Outgoing::new(spot.place.clone(), content).reply_to(spot.reply_to.clone()).silent(true);
        let core = self.clone();
        let tell = async move {
            if let Err(error) = core.handler.outbox.say(message).await {
                tracing::warn!(%error, "a notice was not shown");
            }
            drop(permit);
        };
        // Once nothing new is taken nobody waits for these: people may go on writing for ever.
        if self.scheduler.is_closed() {
            tokio::spawn(tell);
        } else {
            self.tasks.spawn(tell);
        }
    }

    fn may_tell(&self, chat: &str) -> Option<OwnedSemaphorePermit> {
        let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        notices.retain(|_, permits| permits.available_permits() < NOTICES);
        let permits = notices.entry(chat.to_owned());
        let permits = permits.or_insert_with(|| Arc::new(Semaphore::new(NOTICES)));
        permits.clone().try_acquire_owned().ok()
    }
}

/// Who runs a message, and in which conversation.
struct Course {
    runner: Arc<dyn Runner>,
    conversation: Arc<Conversation>,
    prompt: String,
}
