//! The lines, as plain state: no clock, no tasks.

use std::collections::{BTreeMap, HashMap, VecDeque};

use takopi_core::ResumeToken;
use tokio_util::sync::CancellationToken;

use super::{Cancelled, JobId, Limits, Line, Refused, Standing};

/// A line is named after the job that opened it.
type LineId = JobId;

#[derive(Debug)]
pub(super) struct Queue {
    limits: Limits,
    /// The number of the next job.
    next: u64,
    closed: bool,
    jobs: BTreeMap<JobId, Entry>,
    lines: HashMap<LineId, LineState>,
    sessions: HashMap<ResumeToken, LineId>,
    /// The heads of the lines in which nobody runs. Lowest first, which is first come, first served.
    ready: BTreeMap<JobId, LineId>,
    running: usize,
}

#[derive(Debug)]
struct Entry {
    line: LineId,
    running: bool,
    cancel: CancellationToken,
}

#[derive(Debug, Default)]
struct LineState {
    session: Option<ResumeToken>,
    waiting: VecDeque<JobId>,
    /// One, but for a moment: two lines that turn out to be one session are joined.
    running: Vec<JobId>,
}

/// What a job in line sees.
pub(super) enum Look {
    Waiting(Standing),
    Begin(Option<ResumeToken>),
    Over,
}

impl Queue {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            next: 1,
            closed: false,
            jobs: BTreeMap::new(),
            lines: HashMap::new(),
            sessions: HashMap::new(),
            ready: BTreeMap::new(),
            running: 0,
        }
    }

    pub(super) fn submit(&mut self, line: Line) -> Result<(JobId, CancellationToken), Refused> {
        if self.closed {
            return Err(Refused::Closed);
        }
        let job = JobId(self.next);
        let found = match &line {
            Line::New => None,
            Line::Session(session) => self.sessions.get(session).copied(),
            Line::Behind(other) => {
                Some(self.jobs.get(other).map(|entry| entry.line).ok_or(Refused::Over(*other))?)
            }
        };
        // A line that exists is busy, or it would be gone.
        let waits = found.is_some() || self.running >= self.limits.workers;
        let waiting = self.jobs.len() - self.running;
        if waits && waiting >= self.limits.waiting {
            return Err(Refused::Full(waiting));
        }
        self.next += 1;
        let id = found.unwrap_or(job);
        let state = self.lines.entry(id).or_default();
        if let Line::Session(session) = line {
            self.sessions.insert(session.clone(), id);
            state.session = Some(session);
        }
        state.waiting.push_back(job);
        let cancel = CancellationToken::new();
        self.jobs.insert(job, Entry { line: id, running: false, cancel: cancel.clone() });
        self.move_up(id);
        Ok((job, cancel))
    }

    pub(super) fn cancel(&mut self, job: JobId) -> Option<Cancelled> {
        let entry = self.jobs.get(&job)?;
        entry.cancel.cancel();
        let was_running = entry.running;
        if !was_running {
            self.leave(job);
        }
        Some(Cancelled { job, was_running })
    }

    /// The session that a running job works on is known.
    pub(super) fn learn(&mut self, job: JobId, session: &ResumeToken) {
        let Some(entry) = self.jobs.get(&job) else { return };
        let id = entry.line;
        let Some(line) = self.lines.get_mut(&id) else { return };
        if line.session.is_some() {
            return;
        }
        line.session = Some(session.clone());
        match self.sessions.get(session).copied() {
            None => {
                self.sessions.insert(session.clone(), id);
            }
            Some(other) => self.join(id, other),
        }
    }

    /// Two lines are one session's: whoever stands in `from` stands in `into`, in order of
    /// submission.
    fn join(&mut self, from: LineId, into: LineId) {
        let Some(from) = self.lines.remove(&from) else { return };
        let Some(line) = self.lines.get_mut(&into) else { return };
        for job in from.waiting.iter().chain(&from.running) {
            if let Some(entry) = self.jobs.get_mut(job) {
                entry.line = into;
            }
        }
        for job in from.waiting.iter().chain(&line.waiting) {
            self.ready.remove(job);
        }
        line.waiting.extend(from.waiting);
        line.waiting.make_contiguous().sort_unstable();
        line.running.extend(from.running);
        self.move_up(into);
    }

    /// The job is over, or leaves the line.
    pub(super) fn leave(&mut self, job: JobId) {
        let Some(entry) = self.jobs.remove(&job) else { return };
        if let Some(line) = self.lines.get_mut(&entry.line) {
            if entry.running {
                line.running.retain(|other| *other != job);
                self.running -= 1;
            } else {
                line.waiting.retain(|other| *other != job);
                self.ready.remove(&job);
            }
        }
        self.move_up(entry.line);
    }

    /// Sees who may begin now that something changed in this line.
    fn move_up(&mut self, id: LineId) {
        if let Some(line) = self.lines.get(&id)
            && line.running.is_empty()
        {
            match line.waiting.front() {
                Some(head) => {
                    self.ready.insert(*head, id);
                }
                None => {
                    if let Some(session) = self.lines.remove(&id).and_then(|line| line.session) {
                        self.sessions.remove(&session);
                    }
                }
            }
        }
        while self.running < self.limits.workers
            && let Some((job, id)) = self.ready.pop_first()
        {
            if let (Some(entry), Some(line)) = (self.jobs.get_mut(&job), self.lines.get_mut(&id)) {
                entry.running = true;
                line.waiting.pop_front();
                line.running.push(job);
                self.running += 1;
            }
        }
    }

    pub(super) fn look(&self, job: JobId) -> Look {
        match self.standing(job) {
            Standing::Over => Look::Over,
            Standing::Running => {
                Look::Begin(self.line_of(job).and_then(|line| line.session.clone()))
            }
            standing => Look::Waiting(standing),
        }
    }

    pub(super) fn standing(&self, job: JobId) -> Standing {
        let (Some(entry), Some(line)) = (self.jobs.get(&job), self.line_of(job)) else {
            return Standing::Over;
        };
        if entry.running {
            return Standing::Running;
        }
        let waiting = line.waiting.iter().take_while(|other| **other != job).count();
        match waiting + line.running.len() {
            0 => Standing::NoWorker(self.ready.range(..job).count()),
            ahead => Standing::Behind(ahead),
        }
    }

    pub(super) fn running_before(&self, job: JobId) -> Option<JobId> {
        self.line_of(job)?.running.iter().copied().find(|other| *other != job)
    }

    fn line_of(&self, job: JobId) -> Option<&LineState> {
        self.lines.get(&self.jobs.get(&job)?.line)
    }

    pub(super) fn jobs(&self) -> Vec<JobId> {
        self.jobs.keys().copied().collect()
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }
}
