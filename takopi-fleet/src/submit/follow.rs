//! One run that happens elsewhere: enqueues it, follows it to its end, and passes on what its consumer wants.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use serde_json::{Value, json};
use takopi_core::RunRequest;
use takopi_core::model::{Completed, Reason, ResumeToken, TakopiEvent};
use takopi_core::runner::{EngineRun, Reply, RunError, SteerMessage, StoppedError};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::lines::{Lines, Member, Place};
use crate::board::{
    ATTEMPT, Bell, Board, ControlKind, ControlRequest, ControlState, Enqueued, JobRow, NewJob,
    OnLoss, Waiting,
};
use crate::frame::{AnswerBody, Frame, SteerBody};

/// How often a run looks by itself: a bell may be lost.
const LOOK: Duration = Duration::from_secs(1);
/// A wait that is shorter is not reported.
const WAIT_UNREPORTED: Duration = Duration::from_millis(300);
/// A job that wrote nothing for so long may wait again: its worker was lost.
const QUIET: Duration = Duration::from_secs(3);
/// How long a job may take to be claimed although nobody is before it, whatever the request's `wait`.
const CLAIM_TIME: Duration = Duration::from_secs(2);
/// How many rows are read at once.
const ROWS: u32 = 256;

/// One run that happens elsewhere.
pub(super) struct Follow<'a> {
    pub(super) run: EngineRun,
    pub(super) board: Arc<dyn Board>,
    pub(super) job: Arc<NewJob>,
    pub(super) lines: &'a Lines,
    /// Its place among the runs of its session, once that is known.
    pub(super) member: Option<Member<'a>>,
    /// The session as the consumer knows it.
    pub(super) told: Option<ResumeToken>,
    pub(super) cursor: i64,
    /// Messages into the turn that are not settled.
    pub(super) steers: HashMap<String, SteerMessage>,
    /// Questions that wait for an answer, each with what withdraws it.
    pub(super) asked: HashMap<String, Arc<Notify>>,
    /// Whether a worker has it.
    pub(super) begun: bool,
    /// When it was last known to run: it wrote something, or the board says so.
    pub(super) heard: Instant,
    /// Since when it waits.
    pub(super) waits_since: Instant,
}

impl Follow<'_> {
    /// Enqueues it from its place in the line of its session, and follows it.
    pub(super) async fn until_the_end(mut self, place: Option<Place<'_>>, rung: &Notify) {
        let run = self.run.clone();
        match self.enqueue(&self.job).await {
            None => return,
            Some(Err(refused)) => return run.fail(refused).await,
            Some(Ok(_)) => {}
        }
        if let Some(session) = &self.told {
            self.member = Some(self.lines.add(&session.value, self.job.clone()));
        }
        drop(place);
        if run.stop().is_cancelled() {
            return self.cancelled(rung).await;
        }
        self.board.ring(Bell::Work);
        let mut messages = run.steer_messages();
        let mut replies = FuturesUnordered::new();
        self.waits_since = Instant::now();
        let mut look_at_wait = Box::pin(sleep(first_look(&run.request)));
        loop {
            if self.member.as_ref().is_some_and(Member::was_enqueued_again) {
                self.begin_again(0).await;
            }
            match self.read(&mut replies).await {
                Ok(true) => return,
                Ok(false) => {}
                Err(StoppedError) => return self.cancelled(rung).await,
            }
            tokio::select! {
                biased;
                () = run.stop().cancelled() => return self.cancelled(rung).await,
                message = messages.next() => self.steer(message).await,
                Some((id, reply)) = replies.next() => self.answer(id, reply).await,
                () = rung.notified() => {}
                () = &mut look_at_wait => {
                    if self.look_at_wait().await {
                        return;
                    }
                    let next = next_look(&run.request, self.waits_since);
                    look_at_wait.as_mut().reset(Instant::now() + next);
                }
                () = sleep(LOOK) => {}
            }
        }
    }

    /// Enqueues, as often as it takes to know that it was; `None` if the run was stopped before. A call is never left alone: it
    /// could be done after the job was cancelled, and nobody would follow that job.
    async fn enqueue(&self, job: &NewJob) -> Option<Result<Enqueued, RunError>> {
        if self.run.stop().is_cancelled() {
            return None;
        }
        loop {
            match self.board.enqueue(vec![job.clone()]).await {
                Ok(outcomes) => return Some(accepted(outcomes.first().copied())),
                Err(error) if error.is_passing() => {
                    self.run.waiting(format!("waiting: {error}"));
                    sleep(LOOK).await;
                }
                Err(error) => {
                    return Some(Err(RunError::new(Reason::SpawnFailed, error.to_string())));
                }
            }
        }
    }

    async fn rows(&self) -> Vec<JobRow> {
        match self.board.follow(vec![(self.job.id.clone(), self.cursor)], ROWS).await {
            Ok(rows) => rows,
            Err(error) => {
                tracing::debug!("cannot read the rows of a job: {error}");
                Vec::new()
            }
        }
    }

    /// Passes on what is new; `true` at the end of the run.
    async fn read(
        &mut self,
        replies: &mut FuturesUnordered<BoxFuture<'static, (String, Option<Reply>)>>,
    ) -> Result<bool, StoppedError> {
        loop {
            let rows = self.rows().await;
            let more = rows.len() >= ROWS as usize;
            if !rows.is_empty() {
                self.heard = Instant::now();
            }
            for row in rows {
                self.cursor = row.seq;
                let Some(frame) = frame(row.body) else { continue };
                if !self.begun
                    && !matches!(&frame, Frame::Event(event) if matches!(**event, TakopiEvent::Completed(_)))
                {
                    self.begun = true;
                    self.run.wait_over().await?;
                }
                match frame {
                    Frame::Event(event) => {
                        if let Some(completed) = self.pass(*event).await? {
                            self.steers.clear();
                            let _ = self.run.emit(completed).await;
                            return Ok(true);
                        }
                    }
                    Frame::Ask { id, request } => {
                        let withdrawn = Arc::new(Notify::new());
                        self.asked.insert(id.clone(), withdrawn.clone());
                        let run = self.run.clone();
                        replies.push(Box::pin(async move {
                            let reply = tokio::select! {
                                biased;
                                () = withdrawn.notified() => None,
                                reply = run.request_approval(*request) => reply.ok().flatten(),
                            };
                            (id, reply)
                        }));
                    }
                    Frame::Withdrawn { id } => {
                        if let Some(withdrawn) = self.asked.remove(&id) {
                            withdrawn.notify_one();
                        }
                    }
                    Frame::Settled { id, taken } => {
                        if let Some(message) = self.steers.remove(&id)
                            && taken
                        {
                            message.taken();
                        }
                    }
                    Frame::TakenOver { lost } => {
                        // Nobody waits for the answers to what the lost one asked.
                        self.asked.drain().for_each(|(_, withdrawn)| withdrawn.notify_one());
                        let title =
                            format!("the worker {lost} was lost; another one runs this again");
                        self.run.note(title).await?;
                    }
                }
            }
            if !more {
                return Ok(false);
            }
        }
    }

    /// Passes an event on, under the id that the consumer knows; gives back the last one.
    async fn pass(&mut self, event: TakopiEvent) -> Result<Option<Completed>, StoppedError> {
        match event {
            TakopiEvent::Started(mut started) => {
                let told = self.told.get_or_insert(started.resume).clone();
                // Before anybody can continue the session.
                self.member.get_or_insert_with(|| self.lines.add(&told.value, self.job.clone()));
                started.resume = told;
                self.run.emit(started).await?;
            }
            TakopiEvent::Completed(completed) => {
                let resume = self.told.clone().or_else(|| completed.resume.clone());
                return Ok(Some(completed.resume(resume)));
            }
            other => self.run.emit(other).await?,
        }
        Ok(None)
    }

    /// The run is stopped: cancels the job and waits for its end.
    async fn cancelled(mut self, rung: &Notify) {
        self.steers.clear();
        if let Some(member) = self.member.take() {
            // Not while another run enqueues it again: it would be there behind its cancel.
            let _front = member.front().await;
            drop(member);
        }
        loop {
            // Again at each look: meanwhile its worker may be lost, and nobody else may be there to notice.
            let id = format!("cancel:{}", self.job.id);
            let state = self.control(ControlKind::Cancel, id, json!({})).await;
            if state == Some(ControlState::Unknown) {
                return;
            }
            let rows = self.rows().await;
            let is_over = matches!(state, Some(ControlState::Taken | ControlState::Refused));
            if rows.is_empty() && is_over {
                // The board is one of an earlier time: its result is not behind what was read.
                self.cursor = 0;
            }
            let more = rows.len() >= ROWS as usize;
            for row in rows {
                self.cursor = row.seq;
                if let Some(Frame::Event(event)) = frame(row.body)
                    && let TakopiEvent::Completed(completed) = *event
                {
                    let resume = self.told.clone().or_else(|| completed.resume.clone());
                    let _ = self.run.emit(completed.resume(resume)).await;
                    return;
                }
            }
            if more {
                continue;
            }
            tokio::select! {
                () = rung.notified() => {}
                () = sleep(LOOK) => {}
            }
        }
    }

    async fn control(&self, kind: ControlKind, id: String, body: Value) -> Option<ControlState> {
        let request = ControlRequest { id, job: self.job.id.clone(), kind, body };
        match self.board.control(request).await {
            Ok(state) => Some(state),
            Err(error) => {
                tracing::debug!("a request to a job failed: {error}");
                None
            }
        }
    }

    async fn steer(&mut self, message: SteerMessage) {
        let id = Uuid::new_v4().to_string();
        let body = json!(SteerBody { text: message.text().to_owned() });
        // Without an answer it is handed back, as a run that is over does.
        if self.control(ControlKind::Steer, id.clone(), body).await == Some(ControlState::Waiting) {
            self.steers.insert(id, message);
        }
    }

    async fn answer(&mut self, ask: String, reply: Option<Reply>) {
        // Withdrawn meanwhile: nobody waits for it.
        if self.asked.remove(&ask).is_none() {
            return;
        }
        let Some(reply) = reply else { return };
        let body = json!(AnswerBody { ask: ask.clone(), reply });
        while self
            .control(ControlKind::Answer, format!("answer:{}:{ask}", self.job.id), body.clone())
            .await
            .is_none()
        {
            sleep(LOOK).await;
        }
    }

    /// The board's database is one of an earlier time: it does not know the job, or not all its attempts. The job is enqueued again,
    /// unless it may run only once: it may have begun, also if nothing of that was seen. `true` if the run was ended.
    async fn forgotten(&mut self, known: Option<Waiting>) -> bool {
        let run = self.run.clone();
        let is_done = known.as_ref().is_some_and(|known| known.state == "done");
        if self.job.on_loss == OnLoss::Fail && !is_done {
            let id = format!("cancel:{}", self.job.id);
            self.control(ControlKind::Cancel, id, json!({})).await;
            let error = "the fleet's database lost this job, which may have begun: it is not enqueued again";
            run.fail(RunError::new(Reason::WorkerLost, error)).await;
            return true;
        }
        match self.enqueue_again().await {
            None => return false,
            Some(Err(refused)) => {
                run.fail(refused).await;
                return true;
            }
            Some(Ok(())) => self.board.ring(Bell::Work),
        }
        self.begin_again(known.and_then(|known| known.attempts).unwrap_or(0)).await;
        false
    }

    /// Enqueues the jobs of the session again, as the first run of it that notices, in the order of all that are followed here. `None` if
    /// nothing is known of this one's yet.
    async fn enqueue_again(&self) -> Option<Result<(), RunError>> {
        let Some(member) = &self.member else {
            return Some(self.enqueue(&self.job).await?.map(drop));
        };
        let _front = tokio::select! {
            biased;
            () = self.run.stop().cancelled() => return None,
            front = member.front() => front,
        };
        if member.was_enqueued_again() {
            return Some(Ok(()));
        }
        let mut own = None;
        for (number, job) in member.jobs() {
            match self.enqueue(&job).await? {
                Ok(_) if member.is(number) => own = Some(Ok(())),
                Ok(Enqueued::New) => member.enqueued_again(number),
                Ok(_) => {}
                Err(refused) if member.is(number) => return Some(Err(refused)),
                // None overtakes it: its own run reports that, and is out of the way then.
                Err(_) => break,
            }
        }
        own
    }

    /// Nothing comes any more of what was followed so far. Attempts before this one were read.
    async fn begin_again(&mut self, attempt: u32) {
        self.cursor = (i64::from(attempt) * ATTEMPT - 1).max(0);
        self.steers.clear();
        self.asked.drain().for_each(|(_, withdrawn)| withdrawn.notify_one());
        (self.begun, self.waits_since) = (false, Instant::now());
        let _ = self.run.note("the fleet's database lost this job: it is enqueued again").await;
    }

    /// Whether more attempts were followed than the board knows of.
    fn is_ahead_of(&self, known: &Waiting) -> bool {
        known.attempts.is_some_and(|attempts| i64::from(attempts) < self.cursor / ATTEMPT)
    }

    /// Looks whether the job waits, and reports for what; `true` if it waited for too long, and was ended.
    async fn look_at_wait(&mut self) -> bool {
        if self.begun && self.heard.elapsed() < QUIET {
            return false;
        }
        let waiting = match self.board.waiting(&self.job.id).await {
            Ok(Some(waiting)) if self.is_ahead_of(&waiting) => {
                return self.forgotten(Some(waiting)).await;
            }
            Ok(Some(waiting)) => waiting,
            Ok(None) => return self.forgotten(None).await,
            Err(_) => return false,
        };
        if waiting.state != "queued" {
            // Not asked about all the time, as long as it runs.
            self.heard = Instant::now();
            return false;
        }
        if self.begun {
            (self.begun, self.waits_since) = (false, Instant::now());
        }
        let limit = self
            .run
            .request
            .settings
            .wait
            .map(|wait| if waiting.ahead > 0 { wait } else { wait.max(CLAIM_TIME) });
        if limit.is_none_or(|limit| self.waits_since.elapsed() < limit) {
            self.run.waiting(describe(&waiting));
            return false;
        }
        let id = format!("cancel:{}", self.job.id);
        if self.control(ControlKind::Cancel, id, json!({})).await != Some(ControlState::Taken) {
            return false;
        }
        let reason = if waiting.ahead > 0 { Reason::SessionBusy } else { Reason::NoWorker };
        self.run.fail(RunError::new(reason, describe(&waiting))).await;
        true
    }
}

/// What became of a job, or why it was not enqueued.
fn accepted(outcome: Option<Enqueued>) -> Result<Enqueued, RunError> {
    let (reason, error) = match outcome {
        Some(outcome @ (Enqueued::New | Enqueued::Known)) => return Ok(outcome),
        Some(Enqueued::NoSession) => (
            Reason::SessionNotFound,
            "the fleet knows no such session: import it from the machine that has it",
        ),
        Some(Enqueued::QueueFull) => {
            (Reason::QueueFull, "too many jobs of this user wait in the fleet: try again later")
        }
        Some(Enqueued::Foreign) => {
            (Reason::InvalidRequest, "the key of this request is another user's")
        }
        None => (Reason::SpawnFailed, "the database did not say what became of the job"),
    };
    Err(RunError::new(reason, error))
}

/// When a run first looks whether it waits.
fn first_look(request: &RunRequest) -> Duration {
    request.settings.wait.map_or(WAIT_UNREPORTED, |wait| wait.min(WAIT_UNREPORTED))
}

fn next_look(request: &RunRequest, since: Instant) -> Duration {
    let left = request.settings.wait.map(|wait| wait.saturating_sub(since.elapsed()));
    let left = left.filter(|left| !left.is_zero());
    left.map_or(LOOK, |left| left.min(LOOK))
}

/// What a job waits for, for people.
fn describe(waiting: &Waiting) -> String {
    if waiting.ahead > 0 {
        let inside =
            waiting.holder.as_ref().map(|holder| format!(" (on {holder})")).unwrap_or_default();
        return format!("waiting: {} before this one in the session{inside}", waiting.ahead);
    }
    if let Some(home) = &waiting.stranded {
        return format!(
            "waiting: the session cannot leave {home}, which is gone: start its worker again, or release the session"
        );
    }
    if !waiting.missing.is_empty() {
        return format!("waiting: no worker offers {}", waiting.missing.join(", "));
    }
    if !waiting.offered {
        return format!(
            "waiting: no worker offers {} together, with an engine that is new enough",
            waiting.needs.join(", ")
        );
    }
    "waiting: every worker is busy".to_owned()
}

/// A row that this version does not know is passed over.
fn frame(body: Value) -> Option<Frame> {
    serde_json::from_value(body)
        .map_err(|error| tracing::warn!("a row of a job cannot be read: {error}"))
        .ok()
}
