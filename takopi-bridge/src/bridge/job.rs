//! One job, from the moment it was accepted to its report.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use takopi_core::approvals::channel;
use takopi_core::runner::{SteerSender, steer_channel};
use takopi_core::{Completed, ResumeToken, RunRequest, Runner, TakopiEvent};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::core::Core;
use super::{Incoming, RunContext, WhileBusy};
use crate::handler::{ReplyTarget, RunResult, RunUpdate};
use crate::live_message::{Delivered, DeliveryError, LiveMessage};
use crate::scheduler::{JobId, JobStatus, QueueStep, Ticket};
use crate::transport::{MessageId, MessageRef, Place, Transport};

/// How many approval requests of one run may wait to be shown.
const PENDING_REQUESTS: usize = 16;

/// A job that was accepted. Dropping the handle does not affect the job.
#[derive(Debug)]
pub struct JobHandle {
    /// The job.
    pub id: JobId,
    pub(super) report: oneshot::Receiver<JobReport>,
}

impl JobHandle {
    /// The handle of a message that answered a question of this job's agent.
    pub(super) fn answered(id: JobId) -> Self {
        let (sender, report) = oneshot::channel();
        let _ = sender.send(JobReport::without_messages(id, JobEnd::Answered));
        Self { id, report }
    }

    /// Waits for the end of the job.
    pub async fn report(self) -> JobReport {
        let lost = || JobReport::without_messages(self.id, JobEnd::Lost);
        self.report.await.unwrap_or_else(|_| lost())
    }
}

/// How a job ended. There is exactly one for each job.
#[derive(Debug)]
#[non_exhaustive]
pub struct JobReport {
    /// The job.
    pub job: JobId,
    /// How it ended.
    pub end: JobEnd,
    /// The messages with its final message, in order.
    pub messages: Vec<MessageId>,
    /// Set if the final message was not delivered completely.
    pub undelivered: Option<DeliveryError>,
}

impl JobReport {
    fn without_messages(job: JobId, end: JobEnd) -> Self {
        Self { job, end, messages: Vec::new(), undelivered: None }
    }

    fn new(job: JobId, end: JobEnd, delivered: Delivered) -> Self {
        Self { job, end, messages: delivered.messages, undelivered: delivered.error }
    }
}

/// The way a job ended.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum JobEnd {
    /// It ran, and succeeded, failed or was cancelled.
    Ran(Box<Completed>),
    /// It was cancelled before it started.
    CancelledInQueue,
    /// It was added to the running turn of this job.
    Steered(JobId),
    /// The message answered a question of this job's agent and was no job of its own.
    Answered,
    /// The runtime was shut down before the job ended.
    Lost,
}

/// What the jobs of one session have in common.
#[derive(Debug)]
pub(super) struct Conversation {
    /// The session, once it is known.
    pub(super) session: OnceLock<ResumeToken>,
    /// Fires when the final message of its last job is delivered, or never will be.
    delivered: Mutex<CancellationToken>,
}

impl Default for Conversation {
    fn default() -> Self {
        // There is no delivery to wait for yet.
        let delivered = CancellationToken::new();
        delivered.cancel();
        Self { session: OnceLock::new(), delivered: Mutex::new(delivered) }
    }
}

impl Conversation {
    /// The conversation of a session.
    pub(super) fn of(session: ResumeToken) -> Arc<Self> {
        Arc::new(Self { session: session.into(), ..Self::default() })
    }
}

impl Conversation {
    /// The next job delivers its final message after that of the job before: returns what to wait for, and
    /// what to fire.
    fn next_delivery(&self) -> (CancellationToken, DropGuard) {
        let own = CancellationToken::new();
        let mut last = self.delivered.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *last, own.clone());
        (before, own.drop_guard())
    }
}

/// What is known of a job.
pub(super) struct Record {
    pub(super) job: JobId,
    pub(super) place: Place,
    pub(super) message: MessageRef,
    pub(super) runner: Arc<dyn Runner>,
    pub(super) conversation: Arc<Conversation>,
    /// Where it runs.
    pub(super) context: Option<RunContext>,
    /// A note for its final message.
    pub(super) end_note: Arc<OnceLock<String>>,
    /// Sends messages to its running turn.
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
        context: Option<RunContext>,
    ) -> Self {
        Self {
            job,
            place: incoming.place.clone(),
            message: incoming.message.clone().at(&incoming.place.chat),
            runner,
            conversation,
            context,
            end_note: Arc::default(),
            steer: Mutex::default(),
        }
    }

    /// The session, once it is known.
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

/// The task of a job.
pub(super) struct JobTask<T> {
    pub(super) core: Arc<Core<T>>,
    pub(super) record: Arc<Record>,
    /// The message that asked for it.
    pub(super) incoming: Incoming,
    pub(super) while_busy: WhileBusy,
    /// Complete except for the session and what the bridge adds to every request.
    pub(super) request: RunRequest,
}

/// Whether a job may start.
enum Start {
    /// On this session, or on a new one.
    Run(Option<ResumeToken>),
    /// It was cancelled while it waited.
    Cancelled,
}

/// Keeps a job in the list of active jobs for as long as it lives.
struct ActiveGuard<'a, T: Transport> {
    core: &'a Core<T>,
    job: JobId,
}

impl<T: Transport> Drop for ActiveGuard<'_, T> {
    fn drop(&mut self) {
        self.core.memory().end(self.job);
    }
}

impl<T: Transport> JobTask<T> {
    pub(super) async fn run(self, mut ticket: Ticket) -> JobReport {
        let job = self.record.job;
        let _active = ActiveGuard { core: &self.core, job };
        let mut target = ReplyTarget::new(self.record.place.clone());
        target.reply_to = Some(self.record.message.message.clone());
        target.job = Some(job);
        target.context = self.record.context.as_ref().and_then(|it| it.line.clone());
        target.end_note = self.record.end_note.clone();
        let begun = Instant::now();
        let mut message = self.core.handler.message(&target);
        if let Some(running) = self.steer(&ticket, &mut message, begun, &target).await {
            drop(ticket);
            let posted = |message: &MessageId| self.posted_for(message, &running);
            let delivered = self.core.handler.end_steered(message, &target, posted).await;
            return JobReport::new(job, JobEnd::Steered(running.job), delivered);
        }
        match self.wait(&mut ticket, &mut message, begun, &target).await {
            Start::Run(session) => {
                let result = self.show(ticket, message, session, &target).await;
                let RunResult { completed, messages, undelivered } = result;
                JobReport { job, end: JobEnd::Ran(Box::new(completed)), messages, undelivered }
            }
            Start::Cancelled => {
                drop(ticket);
                let delivered = self.end_cancelled(message, begun, &target).await;
                JobReport::new(job, JobEnd::CancelledInQueue, delivered)
            }
        }
    }

    async fn end_cancelled(
        &self,
        message: LiveMessage<T>,
        begun: Instant,
        target: &ReplyTarget,
    ) -> Delivered {
        let by = self.record.end_note.get().map_or("cancelled", String::as_str);
        let why = format!("{by}; it had not started");
        let session = self.record.session();
        let line = session.map(|session| self.record.runner.format_resume(session));
        let posted = |message: &MessageId| self.posted(message);
        let handler = &self.core.handler;
        handler.end_cancelled(message, begun.elapsed(), &why, line.as_deref(), target, posted).await
    }

    /// Tries to add the message to the running turn of its session, if that is wanted, and returns
    /// the job whose turn accepted it. The wait is shown in the chat, and the job keeps its position in
    /// the queue meanwhile.
    async fn steer(
        &self,
        ticket: &Ticket,
        message: &mut LiveMessage<T>,
        begun: Instant,
        target: &ReplyTarget,
    ) -> Option<Arc<Record>> {
        let core = &self.core;
        // Only text can be added to a turn.
        if self.while_busy != WhileBusy::Steer || !self.request.settings.images.is_empty() {
            return None;
        }
        let running = core.scheduler.running_before(self.record.job)?;
        let running = core.memory().active(running)?;
        let steer = running.steer()?;
        let accepted = steer.send(&self.request.prompt);
        tokio::pin!(accepted);
        let draft = || core.handler.steering(&*self.record.runner, begun.elapsed(), target);
        message.changed();
        let accepted = loop {
            tokio::select! {
                biased;
                accepted = &mut accepted => break accepted,
                () = ticket.cancelled().cancelled() => return None,
                message = message.keep(draft) => self.posted(&message),
            }
        };
        accepted.ok()?;
        let mut memory = core.memory();
        memory.put_message(self.record.message.clone(), &running);
        memory.put_place(&running);
        drop(memory);
        Some(running)
    }

    /// Waits in the queue and shows that in the chat.
    async fn wait(
        &self,
        ticket: &mut Ticket,
        message: &mut LiveMessage<T>,
        begun: Instant,
        target: &ReplyTarget,
    ) -> Start {
        let mut status = JobStatus::Behind(0);
        loop {
            let draft = || {
                let (runner, session) = (&*self.record.runner, self.record.session());
                self.core.handler.queued(runner, session, begun.elapsed(), status, target)
            };
            tokio::select! {
                biased;
                step = ticket.next() => match step {
                    QueueStep::Moved(now) => {
                        status = now;
                        message.changed();
                    }
                    QueueStep::Start(session) => return Start::Run(session),
                    QueueStep::Cancelled => return Start::Cancelled,
                },
                message = message.keep(draft) => self.posted(&message),
            }
        }
    }

    /// A message shows this job.
    fn posted(&self, message: &MessageId) {
        self.posted_for(message, &self.record);
    }

    /// A message in this job's chat shows that job.
    fn posted_for(&self, message: &MessageId, record: &Arc<Record>) {
        let message = message.clone().at(&self.record.place.chat);
        self.core.memory().put_message(message, record);
    }

    async fn show(
        &self,
        ticket: Ticket,
        message: LiveMessage<T>,
        session: Option<ResumeToken>,
        target: &ReplyTarget,
    ) -> RunResult {
        let (core, record) = (&self.core, &self.record);
        let (ask, requests) = channel(PENDING_REQUESTS);
        let (steer, steered) = steer_channel();
        let mut request = self.request.clone();
        request.resume = session;
        request.cancel = ticket.cancelled().clone();
        request.approvals = Some((core.settings.approvals)(&self.incoming, ask));
        request.steering = Some(steered);
        record.set_steer(Some(steer));
        let over = CancellationToken::new();
        let mut ticket = Some(ticket);
        let mut target = target.clone();
        let (before, _delivering) = record.conversation.next_delivery();
        target.after = Some(before);
        let target = &target;
        let on_update = |update: RunUpdate<'_>| {
            match update {
                RunUpdate::Posted(message) | RunUpdate::Delivered(message) => self.posted(message),
                RunUpdate::Event(TakopiEvent::Started(started)) => {
                    self.set_session(&started.resume, ticket.as_ref());
                }
                RunUpdate::Event(TakopiEvent::Completed(completed)) => {
                    if let Some(session) = &completed.resume {
                        self.set_session(session, ticket.as_ref());
                    }
                    record.set_steer(None);
                    over.cancel();
                    // The next job of the session may start while this final message is delivered.
                    ticket = None;
                }
                RunUpdate::Event(_) => {}
            }
        };
        let asked = |question| {
            core.memory().put_message(question, record);
            core.scheduler.asking(record.job)
        };
        let show = core.handler.show(message, &*record.runner, request, target, on_update);
        let ask = core.approvals.serve(requests, target, &over, asked);
        tokio::join!(biased; show, ask).0
    }

    fn set_session(&self, session: &ResumeToken, ticket: Option<&Ticket>) {
        let _ = self.record.conversation.session.set(session.clone());
        if let Some(ticket) = ticket {
            ticket.set_session(session);
        }
    }
}
