//! The queues as plain state, without a clock or tasks.

use std::collections::{BTreeMap, HashMap, VecDeque};

use takopi_core::ResumeToken;
use tokio_util::sync::CancellationToken;

use super::{Cancelled, JobId, JobStatus, Limits, QueueStep, QueueTarget, SubmitError};

/// A session's queue has the id of the job that opened it.
type SessionId = JobId;

/// How many jobs may have started for each worker: those that wait for a person have a process each.
const PER_WORKER: usize = 4;

#[derive(Debug)]
pub(super) struct Queue {
    limits: Limits,
    /// The number of the next job.
    next: u64,
    admission: Admission,
    jobs: BTreeMap<JobId, Entry>,
    queues: HashMap<SessionId, SessionQueue>,
    sessions: HashMap<ResumeToken, SessionId>,
    /// The first job of each session in which none runs. The lowest id starts first.
    ready: BTreeMap<JobId, SessionId>,
    running: usize,
    /// How many of them wait for a person.
    asking: usize,
}

/// Whether new jobs are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admission {
    Open,
    Closed,
}

#[derive(Debug)]
struct Entry {
    session: SessionId,
    state: EntryState,
    /// How many people it waits for.
    asking: usize,
    cancel: CancellationToken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EntryState {
    Waiting,
    Running,
}

#[derive(Debug, Default)]
struct SessionQueue {
    session: Option<ResumeToken>,
    waiting: VecDeque<JobId>,
    /// At most one, except after two queues that turned out to be one session were joined.
    running: Vec<JobId>,
}

impl Queue {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits: limits.workers(limits.workers.max(1)),
            next: 1,
            admission: Admission::Open,
            jobs: BTreeMap::new(),
            queues: HashMap::new(),
            sessions: HashMap::new(),
            ready: BTreeMap::new(),
            running: 0,
            asking: 0,
        }
    }

    pub(super) fn submit(
        &mut self,
        target: QueueTarget,
    ) -> Result<(JobId, CancellationToken), SubmitError> {
        if self.is_closed() {
            return Err(SubmitError::Closed);
        }
        let job = JobId(self.next);
        let found = match &target {
            QueueTarget::New => None,
            QueueTarget::Session(session) => self.sessions.get(session).copied(),
            QueueTarget::Behind(other) => {
                let entry = self.jobs.get(other).ok_or(SubmitError::Ended(*other))?;
                Some(entry.session)
            }
        };
        // A queue that exists has a job in it: an empty one is removed.
        let waits = found.is_some() || !self.has_room();
        let waiting = self.jobs.len() - self.running;
        if waits && waiting >= self.limits.waiting {
            return Err(SubmitError::Full(waiting));
        }
        self.next += 1;
        let id = found.unwrap_or(job);
        let state = self.queues.entry(id).or_default();
        if let QueueTarget::Session(session) = target {
            self.sessions.insert(session.clone(), id);
            state.session = Some(session);
        }
        state.waiting.push_back(job);
        let cancel = CancellationToken::new();
        let state = EntryState::Waiting;
        self.jobs.insert(job, Entry { session: id, state, asking: 0, cancel: cancel.clone() });
        self.start_ready(id);
        Ok((job, cancel))
    }

    pub(super) fn cancel(&mut self, job: JobId) -> Option<Cancelled> {
        let entry = self.jobs.get(&job)?;
        entry.cancel.cancel();
        let was_running = entry.state == EntryState::Running;
        if !was_running {
            self.remove(job);
        }
        Some(Cancelled { job, was_running })
    }

    /// Records the session that a running job works on.
    pub(super) fn set_session(&mut self, job: JobId, session: &ResumeToken) {
        let Some(entry) = self.jobs.get(&job) else { return };
        let id = entry.session;
        let Some(queue) = self.queues.get_mut(&id) else { return };
        if queue.session.is_some() {
            return;
        }
        queue.session = Some(session.clone());
        match self.sessions.get(session).copied() {
            None => {
                self.sessions.insert(session.clone(), id);
            }
            Some(other) => self.join(id, other),
        }
    }

    /// Joins two queues that belong to one session, in order of submission.
    fn join(&mut self, from: SessionId, into: SessionId) {
        let Some(from) = self.queues.remove(&from) else { return };
        let Some(queue) = self.queues.get_mut(&into) else { return };
        for job in from.waiting.iter().chain(&from.running) {
            if let Some(entry) = self.jobs.get_mut(job) {
                entry.session = into;
            }
        }
        for job in from.waiting.iter().chain(&queue.waiting) {
            self.ready.remove(job);
        }
        queue.waiting.extend(from.waiting);
        queue.waiting.make_contiguous().sort_unstable();
        queue.running.extend(from.running);
        self.start_ready(into);
    }

    /// Removes a job that has ended or does not wait any longer.
    pub(super) fn remove(&mut self, job: JobId) {
        let Some(entry) = self.jobs.remove(&job) else { return };
        if let Some(queue) = self.queues.get_mut(&entry.session) {
            match entry.state {
                EntryState::Running => {
                    queue.running.retain(|other| *other != job);
                    self.running -= 1;
                    self.asking -= usize::from(entry.asking > 0);
                }
                EntryState::Waiting => {
                    queue.waiting.retain(|other| *other != job);
                    self.ready.remove(&job);
                }
            }
        }
        self.start_ready(entry.session);
    }

    /// Starts the jobs that may run after a change in this queue.
    fn start_ready(&mut self, id: SessionId) {
        if let Some(queue) = self.queues.get(&id)
            && queue.running.is_empty()
        {
            match queue.waiting.front() {
                Some(head) => {
                    self.ready.insert(*head, id);
                }
                None => {
                    if let Some(session) = self.queues.remove(&id).and_then(|queue| queue.session) {
                        self.sessions.remove(&session);
                    }
                }
            }
        }
        self.start();
    }

    /// Whether one more job may run: one that waits for a person leaves its room to others.
    fn has_room(&self) -> bool {
        let workers = self.limits.workers;
        self.running - self.asking < workers && self.running < workers.saturating_mul(PER_WORKER)
    }

    /// A running job waits for one more person, or for one less.
    pub(super) fn set_asking(&mut self, job: JobId, more: bool) {
        let Some(entry) = self.jobs.get_mut(&job) else { return };
        if entry.state != EntryState::Running {
            return;
        }
        let was = entry.asking > 0;
        entry.asking = if more { entry.asking + 1 } else { entry.asking.saturating_sub(1) };
        let is = entry.asking > 0;
        self.asking = self.asking + usize::from(is) - usize::from(was);
        self.start();
    }

    /// Starts jobs for as long as there is room.
    fn start(&mut self) {
        while self.has_room()
            && let Some((job, id)) = self.ready.pop_first()
        {
            if let (Some(entry), Some(queue)) = (self.jobs.get_mut(&job), self.queues.get_mut(&id))
            {
                entry.state = EntryState::Running;
                queue.waiting.pop_front();
                queue.running.push(job);
                self.running += 1;
            }
        }
    }

    pub(super) fn step(&self, job: JobId) -> QueueStep {
        match self.status(job) {
            JobStatus::Finished => QueueStep::Cancelled,
            JobStatus::Running => {
                QueueStep::Start(self.queue_of(job).and_then(|queue| queue.session.clone()))
            }
            status => QueueStep::Moved(status),
        }
    }

    pub(super) fn status(&self, job: JobId) -> JobStatus {
        let (Some(entry), Some(queue)) = (self.jobs.get(&job), self.queue_of(job)) else {
            return JobStatus::Finished;
        };
        if entry.state == EntryState::Running {
            return JobStatus::Running;
        }
        let waiting = queue.waiting.iter().take_while(|other| **other != job).count();
        match waiting + queue.running.len() {
            0 => JobStatus::NoWorker(self.ready.range(..job).count()),
            ahead => JobStatus::Behind(ahead),
        }
    }

    pub(super) fn running_before(&self, job: JobId) -> Option<JobId> {
        self.queue_of(job)?.running.iter().copied().find(|other| *other != job)
    }

    fn queue_of(&self, job: JobId) -> Option<&SessionQueue> {
        self.queues.get(&self.jobs.get(&job)?.session)
    }

    #[cfg(test)]
    pub(super) fn jobs(&self) -> Vec<JobId> {
        self.jobs.keys().copied().collect()
    }

    pub(super) fn close(&mut self) {
        self.admission = Admission::Closed;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.admission == Admission::Closed
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }
}
