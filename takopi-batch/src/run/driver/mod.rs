//! The task that runs a batch: reads the input, starts and retries jobs, decides when it is over.

mod ending;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::FusedFuture as _;
use takopi_core::Reason;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::attempt::{Attempt, Tried};
use super::intake::{self, Chunk};
use super::vet::{self, Todo};
use super::{Batch, BatchError, OnCrash, Outcome, Source};
use crate::digest::Digest;
use crate::event::{BatchEvent, Halt};
use crate::input::{InputError, LineError};
use crate::job::BatchJob;
use crate::journal::{Closing, Journal, JournalError, JournalParts, Line, StateFile, Writer};
use crate::ledger::Ledger;
use crate::order::{Order, Queued};
use crate::pace::Pace;
use crate::report::BatchReport;

/// How many results may be on their way to the disk before nothing more is started.
const UNSETTLED: usize = 1024;
/// The longest id that is part of a key as it is.
const LONGEST_ID: usize = 200;

/// How far the batch is. It starts jobs when it is open or draining.
#[derive(Debug)]
enum Stage {
    /// Jobs are read and started.
    Open,
    /// A line of the input is invalid. Jobs before it are still started.
    Draining(Halt),
    /// A job failed, and that ends the batch. It is not reported yet.
    JobFailed(String),
    /// Nothing more is started. What runs may finish.
    Stopping(Halt),
}

/// What became of a job that was read.
enum Admitted {
    /// It waits for its turn, or has failed without being sent.
    Queued,
    /// It succeeded in an earlier run of the batch.
    Done,
    /// It failed in an earlier run of the batch.
    FailedBefore,
}

pub(super) struct Driver {
    batch: Batch,
    events: mpsc::Sender<BatchEvent>,
    total: Option<u64>,
    /// `None` when all was read.
    intake: Option<mpsc::Receiver<Chunk>>,
    ledger: Ledger,
    /// The ids of this input, and their lines.
    seen: HashMap<Digest, u64>,
    state: Arc<StateFile>,
    writer: Option<Writer>,
    /// Results that are to be written.
    outbox: Vec<Closing>,
    order: Order,
    pace: Pace,
    running: JoinSet<Tried>,
    /// Conversations in which a prompt failed, if later ones are then skipped.
    broken: HashSet<Digest>,
    /// When the account can go on, in seconds since 1970, by the last report of any run.
    resets_at: Option<i64>,
    stage: Stage,
    /// Cuts short what runs.
    cancel: CancellationToken,
    cancel_at: Option<Instant>,
    deadline: Option<Instant>,
    report: BatchReport,
    failed_before: u64,
    left: u64,
}

impl Driver {
    pub(super) fn new(
        batch: Batch,
        source: Source,
        journal: Journal,
        events: mpsc::Sender<BatchEvent>,
    ) -> Result<Self, BatchError> {
        let JournalParts { ledger, state, writer } = journal.split();
        Ok(Self {
            total: source.total,
            intake: Some(
                intake::read(source, batch.prompt_template.clone()).map_err(BatchError::Input)?,
            ),
            ledger,
            seen: HashMap::new(),
            state,
            writer,
            outbox: Vec::new(),
            order: Order::default(),
            pace: Pace::new(batch.jobs),
            running: JoinSet::new(),
            broken: HashSet::new(),
            resets_at: None,
            stage: Stage::Open,
            cancel: CancellationToken::new(),
            cancel_at: None,
            deadline: batch.total_timeout.and_then(|limit| Instant::now().checked_add(limit)),
            report: BatchReport::default(),
            failed_before: 0,
            left: 0,
            batch,
            events,
        })
    }

    pub(super) async fn drive(mut self) -> Result<Outcome, BatchError> {
        self.emit(BatchEvent::Begun { total: self.total }).await;
        let cancelled = self.batch.stop.clone().cancelled_owned().fuse();
        tokio::pin!(cancelled);
        loop {
            self.start_what_may_run().await;
            if let Stage::JobFailed(job) = &mut self.stage {
                let job = std::mem::take(job);
                self.halt(Halt::Failed { job }).await;
            }
            if !self.outbox.is_empty() {
                self.hand_over_results().await;
                // Without a journal that releases their lanes: what waits there may start.
                continue;
            }
            if let Some(fault) = self.state.fault() {
                return Err(BatchError::State(fault));
            }
            if self.is_over() {
                return self.outcome().await;
            }
            let reads = matches!(self.stage, Stage::Open) && self.order.has_room();
            let timer = self.next_timer();
            tokio::select! {
                () = &mut cancelled, if !cancelled.is_terminated() => {
                    self.halt(Halt::Interrupted).await;
                    // A time that no clock will show never comes.
                    self.cancel_at = Instant::now().checked_add(self.batch.grace);
                }
                Some(closed) = committed(self.writer.as_mut()) => self.settle(closed?).await,
                Some(tried) = self.running.join_next() => {
                    let tried = tried.map_err(|error| BatchError::Task(error.to_string()))?;
                    self.tried(tried).await;
                },
                chunk = next(self.intake.as_mut()), if reads && self.intake.is_some() => {
                    self.read(chunk).await;
                }
                () = sleep_until(timer.unwrap_or_else(Instant::now)), if timer.is_some() => {
                    self.timer_fired(Instant::now()).await;
                }
            }
        }
    }

    async fn emit(&self, event: BatchEvent) {
        // The batch goes on without a consumer.
        let _ = self.events.send(event).await;
    }

    fn is_over(&self) -> bool {
        let settled = self.running.is_empty() && self.unsettled() == 0;
        let nothing_left = self.intake.is_none() && self.order.len() == 0;
        settled && (nothing_left || !self.may_start())
    }

    async fn outcome(mut self) -> Result<Outcome, BatchError> {
        if let Some(writer) = self.writer.take() {
            // When the batch has ended, its files can be opened again.
            writer.close().await?;
        }
        self.left += self.order.len() as u64;
        Ok(Outcome {
            report: self.report,
            failed_before: self.failed_before,
            left: self.left,
            halt: self.stage.halt(),
        })
    }

    async fn read(&mut self, chunk: Option<Chunk>) {
        let over = chunk.is_none();
        let (mut queued, mut done, mut failed) = (0, 0, 0);
        for read in chunk.into_iter().flatten() {
            match read.and_then(|job| self.vet(job)) {
                Ok(Admitted::Queued) => queued += 1,
                Ok(Admitted::Done) => done += 1,
                Ok(Admitted::FailedBefore) => failed += 1,
                Err(error) => {
                    // The jobs before the invalid line are finished.
                    self.intake = None;
                    self.failed_before += failed;
                    self.emit(BatchEvent::Read { queued, done, failed, over: true }).await;
                    self.finish_and_stop(Halt::Input { error: error.to_string() }).await;
                    return;
                }
            }
        }
        self.failed_before += failed;
        if over {
            self.intake = None;
        }
        self.emit(BatchEvent::Read { queued, done, failed, over }).await;
    }

    fn vet(&mut self, job: BatchJob) -> Result<Admitted, InputError> {
        let line = job.line;
        self.admit(job).map_err(|fault| InputError { line, fault })
    }

    fn admit(&mut self, job: BatchJob) -> Result<Admitted, LineError> {
        let id = Digest::of(&job.id);
        let token = vet::token(&self.batch, &job)?;
        let lane = match (&job.session, &token) {
            (Some(name), _) => Some(Digest::of_all(&[Some("session"), Some(name)])),
            (_, Some(token)) => Some(Digest::of_all(&[Some("token"), Some(&token.value)])),
            _ => None,
        };
        if let Some(line) = self.seen.insert(id, job.line) {
            return Err(LineError::Duplicate(job.id, line));
        }
        let known = self.ledger.known(id);
        let todo = vet::todo(&self.batch, &job, &self.ledger)?;
        match todo {
            Todo::Done => return Ok(Admitted::Done),
            Todo::FailedBefore => {
                self.breaks_behind(lane);
                return Ok(Admitted::FailedBefore);
            }
            Todo::Crashed | Todo::Run => {}
        }
        let same = known.prompt == Some(job.digest());
        let left_off = self.ledger.tokens.remove(&id).filter(|_| same);
        let token = token.or(left_off);
        let attempts = known.attempts;
        let joins = (same && known.is_in_flight()).then_some(known.keyed);
        let mut queued = Queued { job, lane, token, attempts, joins, retries: 0, began: None };
        if todo == Todo::Crashed {
            self.breaks_behind(lane);
            // It never had the lane.
            queued.lane = None;
            let error = "takopi ended while this prompt was in flight";
            self.fails(queued, Reason::ProcessDied, error.to_owned());
        } else if lane.is_some_and(|lane| self.broken.contains(&lane)) {
            self.skip(queued);
        } else {
            self.order.push(queued);
        }
        Ok(Admitted::Queued)
    }

    async fn start_what_may_run(&mut self) {
        while self.may_start()
            && self.running.len() < self.pace.allowed()
            && self.unsettled() < UNSETTLED
            && let Some(queued) = self.order.next()
        {
            self.start(queued).await;
        }
    }

    /// Whether jobs are started.
    fn may_start(&self) -> bool {
        matches!(self.stage, Stage::Open | Stage::Draining(_))
    }

    async fn start(&mut self, mut queued: Queued) {
        let place = match (queued.job.settings.missing_path(), self.batch.place(&queued.job)) {
            (None, Ok(place)) => place,
            (missing, place) => {
                let fault = place.err().map(|fault| fault.to_string());
                let lane = queued.lane;
                self.breaks(lane);
                let error = missing.or(fault).unwrap_or_default();
                self.fails(queued, Reason::InvalidRequest, error);
                return;
            }
        };
        queued.attempts += 1;
        let (job, prompt) = (Digest::of(&queued.job.id), queued.job.digest());
        let attempt = queued.attempts;
        let joins = queued.joins.take();
        let (over, outdates) = (false, false);
        self.state.append(&Line::Sent { job, prompt, attempt, keyed: joins, over, outdates });
        let must_be_synced = self.batch.on_crash == OnCrash::Fail;
        let writer = self.writer.as_mut().filter(|_| must_be_synced);
        let synced = writer.map(Writer::barrier);
        let engine = self.batch.runner.engine();
        let mut request = queued.job.request(&self.batch.template, place.as_ref(), &engine);
        request.resume = self.conversation(&queued);
        request.key = self.key(&queued.job.id, joins.unwrap_or(attempt));
        request.cancel = self.cancel.child_token();
        self.emit(BatchEvent::Started { job: queued.job.id.clone(), attempt }).await;
        let attempt = Attempt {
            runner: self.batch.runner.clone(),
            request,
            place,
            queued,
            state: self.state.clone(),
            events: self.batch.report_runs.then(|| self.events.clone()),
        };
        self.running.spawn(attempt.run(synced));
    }

    /// The key of an attempt, by which a runner that keeps runs finds it again after a crash of the batch.
    fn key(&self, job: &str, attempt: u32) -> Option<String> {
        // Keys are of bounded length.
        let digest = (job.len() > LONGEST_ID).then(|| Digest::of(job).to_string());
        let job = digest.as_deref().unwrap_or(job);
        self.ledger.batch.map(|batch| format!("{}/{job}/{attempt}", batch.simple()))
    }

    /// The conversation a job goes on with.
    fn conversation(&self, queued: &Queued) -> Option<takopi_core::ResumeToken> {
        let named = queued.job.session.as_ref().and_then(|name| {
            self.ledger.sessions.get(&Digest::of(name)).map(|session| session.token.clone())
        });
        named.or_else(|| queued.token.clone())
    }

    fn next_timer(&self) -> Option<Instant> {
        let starts = self.may_start();
        let retry = self.order.next_due().filter(|_| starts);
        let pause = self.pace.paused().filter(|_| starts);
        [retry, pause, self.cancel_at, self.deadline].into_iter().flatten().min()
    }

    async fn timer_fired(&mut self, now: Instant) {
        if self.deadline.take_if(|deadline| *deadline <= now).is_some() {
            self.halt(Halt::TimedOut).await;
            self.cancel_at = Some(now);
        }
        if self.cancel_at.take_if(|at| *at <= now).is_some() {
            self.cancel.cancel();
        }
        if self.pace.wake(now) {
            self.emit(BatchEvent::Resumed).await;
        }
        self.order.wake(now);
    }

    /// Starts nothing more; what runs may take its time.
    async fn finish_and_stop(&mut self, why: Halt) {
        if self.may_start() {
            self.halt(why).await;
        }
    }

    async fn halt(&mut self, why: Halt) {
        self.stage = match &why {
            Halt::Input { .. } => Stage::Draining(why.clone()),
            _ => Stage::Stopping(why.clone()),
        };
        self.emit(BatchEvent::Stopping { why, running: self.running.len() }).await;
    }
}

impl Stage {
    /// Why the batch ended before its input did.
    fn halt(self) -> Option<Halt> {
        match self {
            Self::Open => None,
            Self::Draining(why) | Self::Stopping(why) => Some(why),
            Self::JobFailed(job) => Some(Halt::Failed { job }),
        }
    }
}

async fn committed(writer: Option<&mut Writer>) -> Option<Result<Vec<Closing>, JournalError>> {
    Some(writer?.committed().await)
}

async fn next(intake: Option<&mut mpsc::Receiver<Chunk>>) -> Option<Chunk> {
    intake?.recv().await
}
