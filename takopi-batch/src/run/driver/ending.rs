//! What happens after an attempt: a result, a retry, or the job is returned for the next run.

use std::time::Duration;

use jiff::Timestamp;
use takopi_core::{Completed, Reason};
use tokio::time::Instant;

use super::{Driver, Stage};
use crate::digest::Digest;
use crate::event::{BatchEvent, Halt};
use crate::job::JobResult;
use crate::journal::{Closing, Line, Writer};
use crate::ledger::Session;
use crate::order::Queued;
use crate::retry::{AfterFailure, after_failure, backoff};
use crate::run::attempt::Tried;
use crate::run::{OnFailure, OnLimit};

impl Driver {
    pub(super) async fn tried(&mut self, tried: Tried) {
        let Tried { mut queued, completed, seen, asked, began, started } = tried;
        queued.began.get_or_insert(started);
        // The newest report counts, even if it shows that the account can go on.
        let before = self.resets_at;
        if let Some(limits) = &completed.rate_limits {
            self.resets_at = limits.resets_at;
        }
        let never_stored = completed.reason == Some(Reason::SessionNotFound)
            && asked.is_some()
            && self.forget(&mut queued);
        if !never_stored {
            self.learn(&mut queued, &completed);
        }
        if completed.ok {
            self.pace.succeeded();
            return self.close(queued, completed, started);
        }
        let error = completed.error.clone().unwrap_or_default();
        let cut_short = self.cancel.is_cancelled() && completed.reason == Some(Reason::Interrupted);
        let next = after_failure(&completed, &seen);
        match next {
            AfterFailure::RetrySlower => self.slow_down(began).await,
            AfterFailure::Failed => self.pace.past_limit(),
            _ => {}
        }
        match next {
            _ if cut_short || (never_stored && !self.may_start()) => self.give_back(queued).await,
            _ if never_stored => {
                self.retry(queued, Duration::ZERO, &completed).await;
            }
            AfterFailure::Halt => {
                let reason = completed.reason.clone().unwrap_or(Reason::EngineFailed);
                self.give_back(queued).await;
                self.finish_and_stop(Halt::Engine { reason, error }).await;
            }
            AfterFailure::Limit => self.limit(queued, &completed, before).await,
            AfterFailure::Retry | AfterFailure::RetrySlower
                if queued.retries < self.batch.retries =>
            {
                if self.may_start() {
                    queued.retries += 1;
                    let after = backoff(Digest::of(&queued.job.id), queued.retries);
                    self.retry(queued, after, &completed).await;
                } else {
                    self.give_back(queued).await;
                }
            }
            _ => {
                self.breaks(queued.lane);
                self.close(queued, completed, started);
            }
        }
    }

    /// Keeps the conversation a job is in.
    fn learn(&mut self, queued: &mut Queued, completed: &Completed) {
        let Some(token) = completed.resume.clone() else { return };
        let Some(name) = queued.job.session.as_deref().map(Digest::of) else {
            queued.token = Some(token);
            return;
        };
        if let Some(session) = self.ledger.spoken(name, token, completed.ok) {
            let Session { token, proven } = session.clone();
            self.state.append(&Line::Session { name, resume: token, proven });
        }
    }

    /// Drops a conversation that the batch itself opened and in which no turn ever succeeded: a crash
    /// can come before an engine has stored it. `false` if it is not such a one.
    fn forget(&mut self, queued: &mut Queued) -> bool {
        if queued.job.resume.is_some() {
            return false;
        }
        let Some(name) = queued.job.session.as_deref().map(Digest::of) else {
            return queued.token.take().is_some();
        };
        if self.ledger.sessions.get(&name).is_none_or(|session| session.proven) {
            return false;
        }
        self.state.append(&Line::Forgotten { name });
        self.ledger.sessions.remove(&name).is_some()
    }

    async fn retry(&mut self, queued: Queued, after: Duration, completed: &Completed) {
        let id = Digest::of(&queued.job.id);
        self.state.append(&Line::Returned { job: id });
        let (job, reason) = (queued.job.id.clone(), completed.reason.clone());
        let error = completed.error.clone().unwrap_or_default();
        self.order.put_off(queued, Instant::now() + after);
        self.emit(BatchEvent::Retry { job, after, reason, error }).await;
    }

    /// Returns a job for the next run of the batch.
    async fn give_back(&mut self, queued: Queued) {
        self.state.append(&Line::Returned { job: Digest::of(&queued.job.id) });
        self.left += 1;
        self.emit(BatchEvent::Returned { job: queued.job.id }).await;
    }

    async fn slow_down(&mut self, began: Instant) {
        let before = self.pace.allowed();
        self.pace.overloaded(began, Instant::now());
        let jobs = self.pace.allowed();
        if jobs < before && jobs > 0 {
            self.emit(BatchEvent::Slowed { jobs }).await;
        }
    }

    /// The account is at its limit: for as long as the run itself reported, else as in the last report
    /// of another run.
    async fn limit(&mut self, queued: Queued, completed: &Completed, others: Option<i64>) {
        let error = completed.error.clone().unwrap_or_default();
        let now = Timestamp::now();
        let own = completed.rate_limits.as_ref().and_then(|limits| limits.resets_at);
        let until = [own, others]
            .into_iter()
            .flatten()
            .filter_map(|at| Timestamp::from_second(at).ok())
            .find(|at| *at > now);
        if self.batch.on_limit == OnLimit::Stop || !self.may_start() {
            self.give_back(queued).await;
            return self.finish_and_stop(Halt::Limit { until, error }).await;
        }
        let lasts = until.and_then(|until| Duration::try_from(until.duration_since(now)).ok());
        if let Some(pause) = self.pace.limit(lasts, Instant::now()) {
            let until = now.checked_add(pause).unwrap_or(Timestamp::MAX);
            let known = lasts.is_some();
            self.emit(BatchEvent::Paused { until, known, error: error.clone() }).await;
        }
        let (job, id) = (queued.job.id.clone(), Digest::of(&queued.job.id));
        self.state.append(&Line::Returned { job: id });
        self.order.put_back(queued);
        let after = self.pace.paused().map_or(Duration::ZERO, |until| until - Instant::now());
        let reason = Some(Reason::UsageLimit);
        self.emit(BatchEvent::Retry { job, after, reason, error }).await;
    }

    /// A prompt of the lane failed: what waits in it may have to be skipped.
    pub(super) fn breaks(&mut self, lane: Option<Digest>) {
        if let Some(lane) = lane.filter(|_| self.batch.on_failure == OnFailure::SkipSession) {
            self.broken.insert(lane);
            for waiting in self.order.clear(lane) {
                self.skip(waiting);
            }
        }
    }

    /// A prompt of the lane that was just read failed: what waits in it comes before it and is run.
    pub(super) fn breaks_behind(&mut self, lane: Option<Digest>) {
        let skips = self.batch.on_failure == OnFailure::SkipSession;
        self.broken.extend(lane.filter(|_| skips));
    }

    pub(super) fn skip(&mut self, mut queued: Queued) {
        // It never had the lane.
        queued.lane = None;
        let error = "skipped: an earlier prompt of its session failed";
        self.fails(queued, Reason::from("skipped"), error.to_owned());
    }

    /// Closes a job that was not sent.
    pub(super) fn fails(&mut self, queued: Queued, reason: Reason, error: String) {
        let engine = self.batch.runner.engine();
        let completed = Completed::failure(engine, reason, error);
        let completed = completed.resume(self.conversation(&queued));
        self.put_out(queued, completed, Timestamp::now(), false);
    }

    fn close(&mut self, queued: Queued, completed: Completed, started: Timestamp) {
        self.put_out(queued, completed, started, true);
    }

    fn put_out(&mut self, queued: Queued, completed: Completed, started: Timestamp, sent: bool) {
        if !completed.ok && self.batch.on_failure == OnFailure::Stop {
            // The first failure ends the batch; a stop that has begun keeps its own reason.
            if self.may_start() {
                self.stage = Stage::JobFailed(queued.job.id.clone());
            }
        }
        let lane = queued.lane;
        let result = JobResult::new(queued, completed, started);
        self.outbox.push(Closing { result, lane, sent });
    }

    pub(super) async fn hand_over_results(&mut self) {
        let closed = std::mem::take(&mut self.outbox);
        match &mut self.writer {
            Some(writer) => closed.into_iter().for_each(|closing| writer.write(closing)),
            None => self.settle(closed).await,
        }
    }

    /// How many results are not on disk yet.
    pub(super) fn unsettled(&self) -> usize {
        self.outbox.len() + self.writer.as_ref().map_or(0, Writer::unsettled)
    }

    /// Results are on disk: they are reported, and their lanes go on.
    pub(super) async fn settle(&mut self, closed: Vec<Closing>) {
        for Closing { result, lane, sent } in closed {
            if let Some(lane) = lane {
                self.order.release(lane);
            }
            if sent {
                self.state.append_unsynced(&Line::Returned { job: Digest::of(&result.id) });
            }
            self.report.add(&result);
            self.emit(BatchEvent::Finished { result, sent }).await;
        }
    }
}
