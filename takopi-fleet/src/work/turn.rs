//! One job on a worker: runs it, writes what happens, and ends it under its token.
//!
//! Rows are gathered for a moment ([`Rows`]); what a submitter waits for (`Started`, questions) is written at once. A database that is away delays rows and the result, as long as the lease holds; then the run is cut, and
//! nothing of it is written.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures::future::FutureExt as _;
use futures::stream::StreamExt as _;
use takopi_core::model::{Completed, Reason, ResumeToken, TakopiEvent};
use takopi_core::runner::{SteerSender, steer_channel};
use takopi_core::{EventStream, RunError, RunRequest, Runner};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::Worker;
use super::ask::{Answers, Remote};
use super::git::GitPlace;
use super::lease::Lease;
use super::rows::{Rows, without_nul};
use super::steering::Steering;
use super::travel::{Brought, Packed};
use crate::board::{Bell, Claimed, Completion, Held, Opened, PendingControl};
use crate::frame::{AnswerBody, Frame, SteerBody};
use crate::spec::JobSpec;

/// The pause before a call is repeated.
pub(super) const AGAIN: Duration = Duration::from_millis(250);
/// How many messages of the worker wait for a turn.
const INBOX: usize = 64;

/// The worker's hold on a turn.
pub(super) struct Handle {
    cancel: CancellationToken,
    /// The job is not to be ended, but given back.
    back: Arc<AtomicBool>,
    /// The job is not held any more: nothing is to be written.
    cut: CancellationToken,
    inbox: mpsc::Sender<PendingControl>,
    since: u64,
}

impl Handle {
    pub(super) fn cancel(&self) {
        self.cancel.cancel();
    }

    pub(super) fn hand_back(&self) {
        self.back.store(true, Ordering::Relaxed);
        self.cancel.cancel();
    }

    pub(super) fn cut(&self) {
        self.cut.cancel();
    }

    pub(super) fn answer(&self, control: PendingControl) {
        let _ = self.inbox.try_send(control);
    }

    pub(super) fn steer(&self, control: PendingControl) {
        let _ = self.inbox.try_send(control);
    }

    /// Whether it was claimed before this moment of [`Lease::now`].
    pub(super) fn is_older_than(&self, moment: u64) -> bool {
        self.since < moment
    }
}

/// How a turn ended, as far as its worker needs to know.
pub(super) struct Ended {
    /// Whether its engine began.
    pub(super) begun: bool,
    /// Whether this machine could not run it: a full disk, a program that is gone.
    pub(super) unfit: bool,
}

/// What the worker said about its engines when it registered.
pub(super) struct Said {
    pub(super) versions: Arc<BTreeMap<String, u64>>,
    /// To be fired if it is not true any more.
    pub(super) changed: CancellationToken,
}

/// A job that is being run.
pub(super) struct Turn {
    pub(super) worker: Arc<Worker>,
    pub(super) id: String,
    pub(super) lease: Arc<Lease>,
    said: Said,
    pub(super) claimed: Claimed,
    pub(super) cancel: CancellationToken,
    back: Arc<AtomicBool>,
    pub(super) cut: CancellationToken,
    inbox: mpsc::Receiver<PendingControl>,
    seen: Vec<String>,
    answers: Answers,
    rows: Rows,
    /// Whether the engine began.
    begun: bool,
}

/// What a run needs.
struct Prepared {
    runner: Arc<dyn Runner>,
    request: RunRequest,
    frames: mpsc::Receiver<Frame>,
    steer: Option<SteerSender>,
}

impl Turn {
    pub(super) fn new(
        worker: Arc<Worker>,
        id: String,
        lease: Arc<Lease>,
        said: Said,
        claimed: Claimed,
        lost: &CancellationToken,
    ) -> (Self, Handle) {
        let (sender, inbox) = mpsc::channel(INBOX);
        // A lease that is lost cuts the turn, and a turn that is cut is cancelled.
        let cut = lost.child_token();
        let cancel = cut.child_token();
        let back = Arc::new(AtomicBool::new(false));
        let handle = Handle {
            cancel: cancel.clone(),
            back: back.clone(),
            cut: cut.clone(),
            inbox: sender,
            since: Lease::now(),
        };
        let rows = Rows::of(&claimed.held.job, claimed.attempt);
        let turn = Self {
            worker,
            id,
            lease,
            said,
            claimed,
            cancel,
            back,
            cut,
            inbox,
            seen: Vec::new(),
            answers: Answers::default(),
            rows,
            begun: false,
        };
        (turn, handle)
    }

    pub(super) async fn run(mut self) -> Ended {
        let nothing = Ended { begun: false, unfit: false };
        // The answer to the claim may have been on its way for longer than the lease.
        if self.is_cut() {
            return nothing;
        }
        let cut = self.cut.clone();
        let _in_use = self.worker.kept.enter(self.claimed.sid);
        let mut brought = Brought::default();
        let prepared = tokio::select! {
            biased;
            () = cut.cancelled() => return nothing,
            prepared = self.prepare(&mut brought) => prepared,
        };
        let completed = match prepared {
            // Files that were placed took their time.
            Ok(_) if self.is_cut() => None,
            Ok(Prepared { runner, request, frames, steer }) => {
                self.begun = true;
                // Not before: the rows of an attempt that does not count would be in the way of the next.
                if let Some(lost) = self.claimed.lost.clone() {
                    self.rows.push(&Frame::TakenOver { lost });
                }
                let stream = runner.run(request);
                self.follow(stream, frames, steer).await
            }
            Err(error) => Some(self.failure(error)),
        };
        let reason = completed.as_ref().and_then(|completed| completed.reason.clone());
        if let Some(completed) = completed {
            tokio::select! {
                biased;
                () = cut.cancelled() => {}
                () = self.end(completed, brought) => {}
            }
        }
        // What is wrong with the job has another reason.
        Ended { begun: self.begun, unfit: reason == Some(Reason::SpawnFailed) }
    }

    /// Whether the job is not held any more, for all that is known here.
    fn is_cut(&self) -> bool {
        self.cut.is_cancelled() || self.lease.is_over()
    }

    fn failure(&self, error: RunError) -> Completed {
        let resume = self
            .claimed
            .value
            .clone()
            .map(|value| ResumeToken::new(self.claimed.engine.clone(), value));
        Completed::failure(self.claimed.engine.clone(), error.reason, error.message).resume(resume)
    }

    /// Everything that the run needs, the session's files included.
    async fn prepare(&self, brought: &mut Brought) -> Result<Prepared, RunError> {
        let unreadable = |error: serde_json::Error| {
            RunError::new(Reason::InvalidRequest, format!("the job cannot be read: {error}"))
        };
        let spec: JobSpec =
            serde_json::from_value(self.claimed.spec.clone()).map_err(unreadable)?;
        let options = &self.worker.options;
        options.ceiling.check(&spec, self.claimed.place.as_deref())?;
        let served = self.worker.engines.get(self.claimed.engine.as_str()).ok_or_else(|| {
            let error = format!("the worker does not serve {}", self.claimed.engine);
            RunError::new(Reason::InvalidRequest, error)
        })?;
        if self.said.versions.get(&self.claimed.engine) != Some(&served.version_now().await) {
            // It was claimed for another version, which may be the only one that can open the session.
            self.said.changed.cancel();
            self.back.store(true, Ordering::Relaxed);
            return Err(RunError::new(Reason::Interrupted, "the engine has another version now"));
        }
        let own = self.worker.kept.scratch(self.claimed.sid);
        let place = self.directory(own.join("work"), brought).await?;
        let mut request = spec.request(&place, &own.join("files"), &self.claimed.blobs)?;
        let cwd = request.settings.cwd.clone().unwrap_or(place);
        if let Some(session) = self.bring(served, cwd, brought).await? {
            request = request.resume(session);
        }
        request = request.cancel(self.cancel.clone()).key(self.claimed.held.job.clone());
        let (sender, frames) = mpsc::channel(INBOX);
        if spec.asks {
            let (answers, board) = (self.answers.clone(), self.worker.board.clone());
            let (worker, job) = (self.id.clone(), self.claimed.held.job.clone());
            let remote = Remote { frames: sender, answers, board, worker, job };
            request = request.approvals(Arc::new(remote));
        }
        let mut steer = None;
        if spec.steers {
            let (sender, receiver) = steer_channel();
            request = request.steering(receiver);
            steer = Some(sender);
        }
        Ok(Prepared { runner: served.runner.clone(), request, frames, steer })
    }

    /// The directory that the session works in; `scratch` if it has no place.
    async fn directory(
        &self,
        scratch: PathBuf,
        brought: &mut Brought,
    ) -> Result<PathBuf, RunError> {
        let options = &self.worker.options;
        let Some(place) = self.claimed.place.as_deref() else {
            std::fs::create_dir_all(&scratch).map_err(|error| {
                let error = format!("cannot create {}: {error}", scratch.display());
                RunError::new(Reason::SpawnFailed, error)
            })?;
            return Ok(scratch);
        };
        if let Some(directory) = options.places.get(place) {
            return Ok(directory.clone());
        }
        if let Some(git) = GitPlace::parse(place).filter(|git| options.serves(git)) {
            return self.tree(&git, brought).await;
        }
        let error = format!("the worker has no place {place}");
        Err(RunError::new(Reason::InvalidRequest, error))
    }

    /// Follows the run to its end; `None` if the job is not held any more.
    async fn follow(
        &mut self,
        mut stream: EventStream,
        mut frames: mpsc::Receiver<Frame>,
        steer: Option<SteerSender>,
    ) -> Option<Completed> {
        let (mut asking, mut refused, mut steering) = (true, None, Steering::default());
        loop {
            tokio::select! {
                biased;
                (id, taken) = steering.next() => {
                    self.settled(id, taken).await;
                    self.flush().await;
                }
                event = stream.next() => match event {
                    Some(TakopiEvent::Completed(completed)) => {
                        // What the run took it took before its end.
                        while let Some((id, taken)) = steering.next().now_or_never() {
                            self.settled(id, taken).await;
                        }
                        let completed = refused.map_or(*completed, |error| self.failure(error));
                        return (!self.cut.is_cancelled()).then_some(completed);
                    }
                    Some(TakopiEvent::Started(started)) => {
                        match self.opened(&started.resume.value).await {
                            Opened::Ok => {}
                            Opened::Fenced => {
                                self.cut.cancel();
                                continue;
                            }
                            Opened::Taken => {
                                let error = "the fleet knows the engine's session as another one";
                                refused = Some(RunError::new(Reason::Protocol, error));
                                self.cancel.cancel();
                                continue;
                            }
                        }
                        self.rows.push(&Frame::Event(Box::new(started.into())));
                        self.flush().await;
                    }
                    Some(event) => self.rows.push(&Frame::Event(Box::new(event))),
                    None => return None,
                },
                frame = frames.recv(), if asking => match frame {
                    Some(frame) => {
                        self.rows.push(&frame);
                        self.flush().await;
                    }
                    None => asking = false,
                },
                Some(control) = self.inbox.recv() => self.control(control, steer.as_ref(), &mut steering).await,
                () = self.rows.due() => self.flush().await,
            }
            if self.rows.is_full() {
                self.flush().await;
            }
        }
    }

    async fn control(
        &mut self,
        control: PendingControl,
        steer: Option<&SteerSender>,
        steering: &mut Steering,
    ) {
        if self.seen.contains(&control.id) {
            return;
        }
        self.seen.push(control.id.clone());
        if let Ok(AnswerBody { ask, reply }) = serde_json::from_value(control.body.clone()) {
            let waiting = self.answers.lock().unwrap_or_else(PoisonError::into_inner).remove(&ask);
            let taken = waiting.is_some_and(|waiting| waiting.send(reply).is_ok());
            self.settle(&control.id, taken).await;
        } else if let Ok(SteerBody { text }) = serde_json::from_value(control.body) {
            let steer = steer.cloned();
            steering.push(control.id, async move {
                match steer {
                    Some(steer) => steer.send(text).await.is_ok(),
                    None => false,
                }
            });
        }
    }

    /// A message was taken into the turn, or not: its sender is to know.
    async fn settled(&mut self, id: String, taken: bool) {
        self.settle(&id, taken).await;
        self.rows.push(&Frame::Settled { id, taken });
    }

    async fn settle(&self, control: &str, taken: bool) {
        if let Err(error) = self.worker.board.settle(&self.id, self.held(), control, taken).await {
            tracing::debug!("cannot settle a request: {error}");
        }
    }

    /// The session is confirmed before anybody hears of it.
    async fn opened(&mut self, value: &str) -> Opened {
        loop {
            let opened = tokio::select! {
                biased;
                () = self.cut.cancelled() => return Opened::Fenced,
                opened = self.worker.board.opened(&self.id, self.held(), value) => opened,
            };
            match opened {
                Ok(opened) => return opened,
                Err(error) if error.is_passing() && !self.is_cut() => sleep(AGAIN).await,
                Err(error) => {
                    tracing::warn!("cannot confirm a session: {error}");
                    return Opened::Fenced;
                }
            }
        }
    }

    pub(super) fn held(&self) -> Held {
        self.claimed.held.clone()
    }

    /// Writes what was gathered. What cannot be written now is written with what follows.
    async fn flush(&mut self) {
        let rows = self.rows.all();
        if rows.is_empty() || self.cut.is_cancelled() {
            return;
        }
        let written = tokio::select! {
            biased;
            () = self.cut.cancelled() => return,
            written = self.worker.board.events(&self.id, vec![self.held()], rows) => written,
        };
        match written {
            Ok(fenced) => {
                self.rows.clear();
                if fenced.is_empty() {
                    self.ring();
                } else {
                    self.cut.cancel();
                }
            }
            Err(error) if error.is_passing() => {
                tracing::debug!("events wait: {error}");
                self.rows.again(Instant::now() + AGAIN);
            }
            Err(error) => {
                tracing::warn!("events are lost: {error}");
                self.rows.clear();
            }
        }
    }

    fn ring(&self) {
        let (id, job) = (self.claimed.submitter.clone(), self.claimed.held.job.clone());
        self.worker.board.ring(Bell::Submitter { id, job });
    }

    /// Ends the job, or gives it back, as often as it takes to know that it was.
    async fn end(&mut self, completed: Completed, brought: Brought) {
        self.flush().await;
        let back =
            self.back.load(Ordering::Relaxed) && completed.reason == Some(Reason::Interrupted);
        let packed = if back || !self.begun {
            Packed::default()
        } else {
            self.pack(completed.resume.as_ref(), brought).await
        };
        let Ok(result) = serde_json::to_value(TakopiEvent::from(completed)) else { return };
        let result = without_nul(result);
        let Packed { version, stays, files, mut stored } = packed;
        let home = self.begun.then(|| self.worker.options.machine.clone());
        let mut completion = Completion { held: self.held(), result, home, version, stays, files };
        let mut is_plain = false;
        let board = self.worker.board.clone();
        while !self.is_cut() {
            // First: behind the end nothing can be written.
            self.flush().await;
            if self.rows.are_waiting() {
                sleep(AGAIN).await;
                continue;
            }
            let ended = if back {
                board.hand_back(&self.id, self.held(), self.begun).await
            } else {
                board.complete(&self.id, completion.clone()).await
            };
            match ended {
                Ok(true) => {
                    self.ring();
                    board.ring(Bell::Work);
                    return stored.committed(self.claimed.held.token).await;
                }
                Ok(false) => {
                    return tracing::warn!("a result was refused: the job is not held any more");
                }
                Err(error) if error.is_passing() => sleep(AGAIN).await,
                // Not its content, but that it ended.
                Err(error) if !back && !is_plain => {
                    tracing::error!("a result could not be stored: {error}");
                    let error = format!("the result could not be stored: {error}");
                    let failure = self.failure(RunError::new(Reason::Protocol, error));
                    completion.result =
                        serde_json::to_value(TakopiEvent::from(failure)).unwrap_or_default();
                    completion.stays = Some("its files could not be stored".to_owned());
                    completion.files = Vec::new();
                    stored.leave_out_files(self.claimed.held.token).await;
                    is_plain = true;
                }
                Err(error) => return tracing::error!("a job could not be ended: {error}"),
            }
        }
    }
}
