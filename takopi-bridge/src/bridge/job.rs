//! One job, from the moment it was taken to its report.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use takopi_core::approvals::channel;
use takopi_core::runner::{SteerSender, steer_channel};
use takopi_core::{Completed, ResumeToken, RunRequest, Runner, TakopiEvent};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::core::Core;
use super::{FollowUp, Incoming};
use crate::handler::{Notice, Shown, Spot, Unsaid};
use crate::post::Post;
use crate::scheduler::{JobId, Standing, Step, Ticket};
use crate::transport::{MessageId, MessageRef, Place, Transport};

/// How many questions of one run may wait to be asked.
const QUESTIONS: usize = 16;

/// A job that was taken.
#[derive(Debug)]
pub struct Job {
    /// The job.
    pub id: JobId,
    pub(super) report: oneshot::Receiver<Report>,
}

impl Job {
    /// A message that was the answer to what this job's agent asked.
    pub(super) fn answered(id: JobId) -> Self {
        let (sender, report) = oneshot::channel();
        let _ = sender.send(Report { job: id, end: End::Answered, messages: vec![], unsaid: None });
        Self { id, report }
    }

    /// Waits for its end.
    pub async fn report(self) -> Report {
        let lost = || Report { job: self.id, end: End::Lost, messages: Vec::new(), unsaid: None };
        self.report.await.unwrap_or_else(|_| lost())
    }
}

/// What became of a job, said once.
#[derive(Debug)]
#[non_exhaustive]
pub struct Report {
    /// The job.
    pub job: JobId,
    /// How it ended.
    pub end: End,
    /// The messages with its last word, in order.
    pub messages: Vec<MessageId>,
    /// What could not be said of it in the chat.
    pub unsaid: Option<Unsaid>,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum End {
    /// It ran: well, badly, or until it was cancelled.
    Ran(Box<Completed>),
    /// It was cancelled before its turn came.
    CancelledInLine,
    /// The running turn of this job took it in.
    Steered(JobId),
    /// It was no job of its own: it answered what this job's agent asked.
    Answered,
    /// The runtime went down under it.
    Lost,
}

/// What the jobs of one line have in common.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    /// The session, once it is known.
    pub(super) session: OnceLock<ResumeToken>,
}

impl Conversation {
    /// The conversation of a session.
    pub(super) fn of(session: ResumeToken) -> Arc<Self> {
        Arc::new(Self { session: session.into() })
    }
}

/// What is known of a job.
pub(super) struct Record {
    pub(super) job: JobId,
    pub(super) place: Place,
    pub(super) message: MessageRef,
    pub(super) runner: Arc<dyn Runner>,
    pub(super) conversation: Arc<Conversation>,
    /// A word for its last message.
    pub(super) remark: Arc<OnceLock<String>>,
    /// The way into its running turn.
    steer: Mutex<Option<SteerSender>>,
}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Record")
            .field("job", &self.job)
            .field("conversation", &self.conversation)
            .finish_non_exhaustive()
    }
}

impl Record {
    pub(super) fn new(
        job: JobId,
        incoming: &Incoming,
        runner: Arc<dyn Runner>,
        conversation: Arc<Conversation>,
    ) -> Self {
        Self {
            job,
            place: incoming.place.clone(),
            message: incoming.message.clone().at(&incoming.place.chat),
            runner,
            conversation,
            remark: Arc::default(),
            steer: Mutex::default(),
        }
    }

    /// Its session, once it is known.
    pub(super) fn session(&self) -> Option<&ResumeToken> {
        self.conversation.session.get()
    }

    fn steer(&self) -> Option<SteerSender> {
        self.steer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_steer(&self, steer: Option<SteerSender>) {
        *self.steer.lock().unwrap_or_else(PoisonError::into_inner) = steer;
    }
}

/// A job and all it needs.
pub(super) struct Work<T> {
    pub(super) core: Arc<Core<T>>,
    pub(super) record: Arc<Record>,
    pub(super) follow_up: FollowUp,
    /// All but the session, and what the bridge adds to any request.
    pub(super) request: RunRequest,
}

/// A job is known to be under way for as long as this lives.
struct UnderWay<'a, T: Transport> {
    core: &'a Core<T>,
    job: JobId,
}

impl<T: Transport> Drop for UnderWay<'_, T> {
    fn drop(&mut self) {
        self.core.memory().end(self.job);
    }
}

impl<T: Transport> Work<T> {
    pub(super) async fn run(self, ticket: Ticket) -> Report {
        let job = self.record.job;
        let _under_way = UnderWay { core: &self.core, job };
        let mut spot = Spot::new(self.record.place.clone());
        spot.reply_to = Some(self.record.message.message.clone());
        spot.job = Some(job);
        spot.remark = self.record.remark.clone();
        let (end, messages, unsaid) = self.work(ticket, &spot).await;
        Report { job, end, messages, unsaid }
    }

    async fn work(&self, mut ticket: Ticket, spot: &Spot) -> (End, Vec<MessageId>, Option<Unsaid>) {
        let begun = Instant::now();
        let mut post = self.core.handler.post(spot);
        if let Some(into) = self.steered(&ticket, &mut post, begun, spot).await {
            drop(ticket);
            let posted = |message: &MessageId| self.posted_for(message, &into);
            let (messages, unsaid) = self.core.handler.end_steered(post, spot, posted).await;
            return (End::Steered(into.job), messages, unsaid);
        }
        let Some(session) = self.wait(&mut ticket, &mut post, begun, spot).await else {
            drop(ticket);
            let by = self.record.remark.get().map_or("cancelled", String::as_str);
            let why = format!("{by}; it had not begun");
            let why = (begun.elapsed(), why.as_str());
            let session = self.record.session();
            let line = session.map(|session| self.record.runner.format_resume(session));
            let posted = |message: &MessageId| self.posted(message);
            let end = self.core.handler.end_unrun(post, why, line.as_deref(), spot, posted);
            let (messages, unsaid) = end.await;
            return (End::CancelledInLine, messages, unsaid);
        };
        let shown = self.show(ticket, post, session, spot).await;
        (End::Ran(Box::new(shown.completed)), shown.messages, shown.unsaid)
    }

    /// Tries to say it into the running turn of its session, if that is wanted, and gives the job
    /// that took it. The wait is as visible as that in line, and the place in line is kept meanwhile.
    async fn steered(
        &self,
        ticket: &Ticket,
        post: &mut Post<T>,
        begun: Instant,
        spot: &Spot,
    ) -> Option<Arc<Record>> {
        let core = &self.core;
        if self.follow_up != FollowUp::Steer {
            return None;
        }
        let into = core.scheduler.running_before(self.record.job)?;
        let running = core.memory().live(into)?;
        let steer = running.steer()?;
        let say = steer.send(&self.request.prompt);
        tokio::pin!(say);
        let draft = || core.handler.steering(&*self.record.runner, begun.elapsed(), spot);
        post.changed();
        let said = loop {
            tokio::select! {
                biased;
                said = &mut say => break said,
                () = ticket.cancelled().cancelled() => return None,
                message = post.keep(draft) => self.posted(&message),
            }
        };
        said.ok()?;
        let mut memory = core.memory();
        memory.put_message(self.record.message.clone(), &running);
        memory.put_place(&running);
        drop(memory);
        Some(running)
    }

    /// Waits in line, visibly; `None` if it was cancelled there.
    async fn wait(
        &self,
        ticket: &mut Ticket,
        post: &mut Post<T>,
        begun: Instant,
        spot: &Spot,
    ) -> Option<Option<ResumeToken>> {
        let mut standing = Standing::Behind(0);
        loop {
            let draft = || {
                let session = self.record.session();
                let waits = (begun.elapsed(), standing);
                self.core.handler.queued(&*self.record.runner, session, waits, spot)
            };
            tokio::select! {
                biased;
                step = ticket.next() => match step {
                    Step::Moved(now) => {
                        standing = now;
                        post.changed();
                    }
                    Step::Begin(session) => return Some(session),
                    Step::Cancelled => return None,
                },
                message = post.keep(draft) => self.posted(&message),
            }
        }
    }

    /// A message shows this job.
    fn posted(&self, message: &MessageId) {
        self.posted_for(message, &self.record);
    }

    /// A message that is where this job was asked shows that one.
    fn posted_for(&self, message: &MessageId, record: &Arc<Record>) {
        let message = message.clone().at(&self.record.place.chat);
        self.core.memory().put_message(message, record);
    }

    async fn show(
        &self,
        ticket: Ticket,
        post: Post<T>,
        session: Option<ResumeToken>,
        spot: &Spot,
    ) -> Shown {
        let (core, record) = (&self.core, &self.record);
        let (ask, questions) = channel(QUESTIONS);
        let (steer, steered) = steer_channel();
        let mut request = self.request.clone();
        request.resume = session;
        request.cancel = ticket.cancelled().clone();
        request.approvals = Some((core.settings.approvals)(ask));
        request.steering = Some(steered);
        record.set_steer(Some(steer));
        let over = CancellationToken::new();
        let mut ticket = Some(ticket);
        let notice = |notice: Notice<'_>| match notice {
            Notice::Posted(message) | Notice::Said(message) => self.posted(message),
            Notice::Event(TakopiEvent::Started(started)) => {
                self.learn(&started.resume, ticket.as_ref());
            }
            Notice::Event(TakopiEvent::Completed(completed)) => {
                if let Some(session) = &completed.resume {
                    self.learn(session, ticket.as_ref());
                }
                record.set_steer(None);
                over.cancel();
                // The next of the session may begin while the last word of this one is said.
                ticket = None;
            }
            Notice::Event(_) => {}
        };
        let asked = |question| core.memory().put_message(question, record);
        let show = core.handler.show(post, &*record.runner, request, spot, notice);
        let ask = core.approvals.serve(questions, spot, &over, asked);
        tokio::join!(show, ask).0
    }

    fn learn(&self, session: &ResumeToken, ticket: Option<&Ticket>) {
        let _ = self.record.conversation.session.set(session.clone());
        if let Some(ticket) = ticket {
            ticket.learn(session);
        }
    }
}
