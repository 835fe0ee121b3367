//! The board in memory: for one process, and as the plain statement of the protocol that the one on PostgreSQL is compared with.
//!
//! One mutex over everything, so every verb is one step. It knows one user, who owns every row.

mod figures;
mod state;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;
use uuid::Uuid;

use self::state::{Job, Session, State, Worker};
use super::{
    Answer, Bell, Board, BoardError, Claimed, Completion, ControlRequest, ControlState, Enqueued,
    Held, Import, JobLine, JobRow, Listener, NewJob, Opened, PendingControl, Piece, Reaped,
    Removed, Retention, Ring, Rings, STEADY, Status, Waiting, WorkerInfo,
};

/// The board in memory. Clones are the same board.
#[derive(Clone)]
pub struct MemoryBoard {
    state: Arc<Mutex<State>>,
    max_queued: usize,
}

impl Default for MemoryBoard {
    fn default() -> Self {
        Self::new()
    }
}

/// A step on the state, as the answer to a call.
macro_rules! at_once {
    ($self:ident, |$state:ident| $step:expr) => {{
        let mut guard = $self.state();
        let $state = &mut *guard;
        let answer = Ok::<_, BoardError>($step);
        drop(guard);
        Box::pin(std::future::ready(answer))
    }};
}

impl MemoryBoard {
    /// An empty board.
    pub fn new() -> Self {
        Self { state: Arc::default(), max_queued: 100_000 }
    }

    /// How many jobs may wait.
    pub fn max_queued(mut self, max: usize) -> Self {
        self.max_queued = max;
        self
    }

    /// Ends a worker's lease, as if its time were over. For tests.
    pub fn expire(&self, worker: &str) {
        if let Some(worker) = self.state().workers.get_mut(worker) {
            worker.lease_until =
                Instant::now().checked_sub(Duration::from_millis(1)).unwrap_or_else(Instant::now);
        }
    }

    /// Forgets all jobs and sessions, as a database that is restored from before they came. For tests.
    pub fn forget(&self) {
        let mut state = self.state();
        (state.sessions, state.jobs) = Default::default();
        (state.names, state.by_id, state.ready) = Default::default();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Board for MemoryBoard {
    fn enqueue(&self, jobs: Vec<NewJob>) -> Answer<'_, Vec<Enqueued>> {
        let max = self.max_queued;
        at_once!(self, |state| jobs.into_iter().map(|job| state.enqueue(job, max)).collect())
    }

    fn follow(&self, cursors: Vec<(String, i64)>, max: u32) -> Answer<'_, Vec<JobRow>> {
        at_once!(self, |state| {
            let mut rows = Vec::new();
            for (id, after) in cursors {
                let Some(job) = state.by_id.get(&id).and_then(|pos| state.jobs.get(pos)) else {
                    continue;
                };
                let end = job.result.as_ref().map_or(i64::MAX, |(seq, _)| *seq);
                let events =
                    job.rows.range(after.saturating_add(1)..).filter(|(seq, _)| **seq < end);
                let events = events.map(|(seq, body)| (*seq, body.clone()));
                let result = job.result.as_ref().filter(|(seq, _)| *seq > after);
                let result = result.map(|(seq, result)| (*seq, json!({ "event": result })));
                let all = events.chain(result).take(max as usize);
                rows.extend(all.map(|(seq, body)| JobRow { job: id.clone(), seq, body }));
            }
            rows
        })
    }

    fn waiting(&self, job: &str) -> Answer<'_, Option<Waiting>> {
        at_once!(self, |state| {
            let found = state.by_id.get(job).and_then(|pos| Some((*pos, state.jobs.get(pos)?)));
            found.and_then(|(pos, job)| {
                let session = state.sessions.get(&job.sid)?;
                let now = Instant::now();
                let serving = || {
                    state
                        .workers
                        .values()
                        .filter(move |worker| worker.lease_until > now && !worker.draining)
                };
                let offers = |worker: &&Worker, need: &String| worker.info.offers.contains(need);
                let lives = state.workers.values().any(|worker| worker.lease_until > now);
                let needs = &job.new.needs;
                let before = session.queue.iter().filter(|queued| **queued < pos).count() as u64;
                let running = session.running.is_some_and(|running| running < pos);
                Some(Waiting {
                    state: if job.is_done() {
                        "done"
                    } else if session.running == Some(pos) && lives {
                        "running"
                    } else {
                        "queued"
                    }
                    .to_owned(),
                    sid: job.sid,
                    attempts: Some(job.attempts),
                    ahead: before + u64::from(running),
                    holder: session.worker.clone(),
                    stranded: session
                        .home
                        .clone()
                        .filter(|home| session.stays.is_some() && !state.lives(home)),
                    min_version: session.min_version,
                    needs: needs.clone(),
                    offered: serving().any(|worker| {
                        needs.iter().all(|need| offers(&worker, need))
                            && worker.info.versions.get(&session.engine).copied().unwrap_or(0)
                                >= session.min_version
                    }),
                    missing: needs
                        .iter()
                        .filter(|need| !serving().any(|worker| offers(&worker, need)))
                        .cloned()
                        .collect(),
                })
            })
        })
    }

    fn control(&self, request: ControlRequest) -> Answer<'_, ControlState> {
        at_once!(self, |state| {
            let (answer, worker) = state.control(request);
            if let Some(worker) = worker {
                state.ring(&Bell::Worker(worker));
            }
            answer
        })
    }

    fn submitter_beat(&self, submitter: &str, lease: Duration) -> Answer<'_, ()> {
        at_once!(self, |state| {
            state.submitters.insert(submitter.to_owned(), Instant::now() + lease);
        })
    }

    fn register(&self, worker: WorkerInfo, lease: Duration) -> Answer<'_, ()> {
        let now = Instant::now();
        let mut state = self.state();
        let others = |other: &&Worker| other.info.machine == worker.machine;
        let refused = state
            .workers
            .values()
            .filter(others)
            .any(|other| other.lease_until > now && other.info.instance != worker.instance);
        let answer = if refused {
            Err(BoardError::Refused(format!(
                "another worker named {} serves this fleet: give this one a name of its own",
                worker.machine
            )))
        } else {
            state
                .workers
                .retain(|id, other| *id == worker.id || other.info.machine != worker.machine);
            let lease_until = now + lease;
            let found = state.workers.entry(worker.id.clone()).or_insert(Worker {
                info: worker.clone(),
                lease_until,
                since: now,
                beaten: now,
                steady: now,
                busy: 0,
                draining: false,
            });
            (found.info, found.lease_until) = (worker, lease_until);
            Ok(())
        };
        drop(state);
        Box::pin(std::future::ready(answer))
    }

    fn claim(&self, worker: &str, claim: &str, max: u32) -> Answer<'_, Vec<Claimed>> {
        at_once!(self, |state| state.claim(worker, claim, max))
    }

    fn beat(
        &self,
        worker: &str,
        lease: Duration,
        busy: u32,
        draining: bool,
    ) -> Answer<'_, Option<Vec<Held>>> {
        at_once!(self, |state| {
            let now = Instant::now();
            let alive = match state.workers.get_mut(worker) {
                Some(found) if found.lease_until > now => {
                    found.lease_until = now + lease;
                    if found.beaten + STEADY < now {
                        found.steady = now;
                    }
                    found.beaten = now;
                    (found.busy, found.draining) = (busy, draining);
                    true
                }
                _ => false,
            };
            alive.then(|| {
                let mine = state
                    .sessions
                    .values()
                    .filter(|session| session.worker.as_deref() == Some(worker));
                let held = |session: &Session| {
                    let job = state.jobs.get(&session.running?)?.new.id.clone();
                    Some(Held { job, token: session.token })
                };
                mine.filter_map(held).collect()
            })
        })
    }

    fn opened(&self, worker: &str, held: Held, value: &str) -> Answer<'_, Opened> {
        at_once!(self, |state| match state.held(worker, &held) {
            None => Opened::Fenced,
            Some((_, sid)) => {
                let engine = state
                    .sessions
                    .get(&sid)
                    .map(|session| session.engine.clone())
                    .unwrap_or_default();
                let owner = *state.names.entry((engine, value.to_owned())).or_insert(sid);
                if owner == sid {
                    if let Some(session) = state.sessions.get_mut(&sid) {
                        session.value = Some(value.to_owned());
                    }
                    Opened::Ok
                } else {
                    Opened::Taken
                }
            }
        })
    }

    fn events(&self, worker: &str, held: Vec<Held>, rows: Vec<JobRow>) -> Answer<'_, Vec<String>> {
        at_once!(self, |state| {
            let (mine, fenced): (Vec<_>, Vec<_>) =
                held.into_iter().partition(|held| state.held(worker, held).is_some());
            for row in rows {
                if mine.iter().any(|held| held.job == row.job)
                    && let Some(pos) = state.by_id.get(&row.job).copied()
                    && let Some(job) = state.jobs.get_mut(&pos)
                {
                    job.rows.entry(row.seq).or_insert(row.body);
                }
            }
            fenced.into_iter().map(|held| held.job).collect()
        })
    }

    fn complete(&self, worker: &str, completion: Completion) -> Answer<'_, bool> {
        at_once!(self, |state| state.complete(worker, completion))
    }

    fn hand_back(&self, worker: &str, held: Held, begun: bool) -> Answer<'_, bool> {
        at_once!(self, |state| {
            let found = state.held(worker, &held);
            if let Some((_, sid)) = found {
                state.give_up(sid, worker, begun);
            }
            found.is_some()
        })
    }

    fn controls(&self, worker: &str) -> Answer<'_, Vec<PendingControl>> {
        at_once!(self, |state| {
            let mine =
                state.sessions.values().filter(|session| session.worker.as_deref() == Some(worker));
            let mut pending = Vec::new();
            for session in mine {
                let Some(job) = session.running.and_then(|pos| state.jobs.get(&pos)) else {
                    continue;
                };
                let waiting =
                    job.controls.iter().filter(|control| control.state == ControlState::Waiting);
                pending.extend(waiting.map(|control| PendingControl {
                    id: control.request.id.clone(),
                    held: Held { job: job.new.id.clone(), token: session.token },
                    kind: control.request.kind,
                    body: control.request.body.clone(),
                }));
            }
            pending
        })
    }

    fn settle(&self, worker: &str, held: Held, control: &str, taken: bool) -> Answer<'_, ()> {
        at_once!(self, |state| {
            let found = state.held(worker, &held).and_then(|(pos, _)| state.jobs.get_mut(&pos));
            let controls = found.into_iter().flat_map(|job| &mut job.controls);
            for found in controls.filter(|found| found.request.id == control) {
                if found.state == ControlState::Waiting {
                    found.state = if taken { ControlState::Taken } else { ControlState::Refused };
                }
            }
        })
    }

    fn is_abandoned(&self, worker: &str, job: &str) -> Answer<'_, bool> {
        at_once!(self, |state| state.is_abandoned(worker, job))
    }

    fn files(&self, worker: &str, session: Uuid) -> Answer<'_, Vec<Piece>> {
        at_once!(self, |state| {
            let found = state.sessions.get(&session);
            let mine = found.filter(|session| session.worker.as_deref() == Some(worker));
            let pieces = mine.into_iter().flat_map(|session| &session.files);
            let piece = |((path, start), data): (&(String, i64), &Vec<u8>)| Piece {
                path: path.clone(),
                start: *start,
                data: data.clone(),
            };
            pieces.map(piece).collect()
        })
    }

    fn reap(&self) -> Answer<'_, Reaped> {
        at_once!(self, |state| {
            let reaped = state.reap();
            for ended in &reaped.ended {
                let (id, job) = (ended.submitter.clone(), ended.job.clone());
                state.ring(&Bell::Submitter { id, job });
            }
            if reaped != Reaped::default() {
                state.ring(&Bell::Work);
            }
            reaped
        })
    }

    fn import(&self, import: Import) -> Answer<'_, bool> {
        at_once!(self, |state| {
            let name = (import.engine.clone(), import.value.clone());
            let new = !state.names.contains_key(&name);
            if new {
                state.names.insert(name, import.sid);
                let now = Instant::now();
                let files =
                    import.files.into_iter().map(|piece| ((piece.path, 0), piece.data)).collect();
                state.sessions.insert(
                    import.sid,
                    Session {
                        engine: import.engine,
                        value: Some(import.value),
                        place: import.place,
                        queue: VecDeque::new(),
                        ready_at: now,
                        worker: None,
                        token: 0,
                        running: None,
                        claim: None,
                        home: Some(import.machine),
                        generation: 0,
                        min_version: import.version,
                        stays: import.stays,
                        files,
                        last_used: now,
                    },
                );
            }
            new
        })
    }

    fn release(&self, engine: &str, value: &str) -> Answer<'_, bool> {
        at_once!(self, |state| {
            let sid = state.names.get(&(engine.to_owned(), value.to_owned())).copied();
            let session = sid.and_then(|sid| state.sessions.get_mut(&sid));
            session.map(|session| (session.home, session.stays) = (None, None)).is_some()
        })
    }

    fn gc(&self, retention: Retention, dry: bool) -> Answer<'_, Removed> {
        at_once!(self, |state| {
            let now = Instant::now();
            let over =
                |since: Option<Instant>, limit| since.is_some_and(|since| now - since > limit);
            let mut removed = Removed::default();
            for job in state.jobs.values_mut().filter(|job| over(job.done, retention.events)) {
                removed.events += job.rows.len() as u64;
                if !dry {
                    job.rows.clear();
                }
            }
            let old: Vec<i64> = state
                .jobs
                .iter()
                .filter(|(_, job)| over(job.done, retention.results))
                .map(|(pos, _)| *pos)
                .collect();
            removed.results = old.len() as u64;
            let unused: Vec<Uuid> = state
                .sessions
                .iter()
                .filter(|(_, session)| session.queue.is_empty() && session.worker.is_none())
                .filter(|(_, session)| over(Some(session.last_used), retention.sessions))
                .map(|(sid, _)| *sid)
                .collect();
            removed.sessions = unused.len() as u64;
            if !dry {
                for pos in old {
                    if let Some(job) = state.jobs.remove(&pos) {
                        state.by_id.remove(&job.new.id);
                    }
                }
                for sid in unused {
                    state.sessions.remove(&sid);
                    state.names.retain(|_, named| *named != sid);
                }
            }
            removed
        })
    }

    fn status(&self) -> Answer<'_, Status> {
        at_once!(self, |state| state.status())
    }

    fn jobs(&self, max: u32) -> Answer<'_, Vec<JobLine>> {
        at_once!(self, |state| {
            let line = |(pos, job): (&i64, &Job)| {
                let session = state.sessions.get(&job.sid);
                let running = session.is_some_and(|session| session.running == Some(*pos));
                let result = job.result.as_ref().map(|(_, result)| result);
                JobLine {
                    id: job.new.id.clone(),
                    state: if job.is_done() {
                        "done"
                    } else if running {
                        "running"
                    } else {
                        "queued"
                    }
                    .to_owned(),
                    engine: job.new.engine.clone(),
                    session: session.and_then(|session| session.value.clone()),
                    worker: job.worker.clone(),
                    attempts: job.attempts,
                    ok: result.and_then(|result| result["ok"].as_bool()),
                    reason: result.and_then(|result| result["reason"].as_str().map(str::to_owned)),
                    age_seconds: job.enqueued.elapsed().as_secs(),
                }
            };
            state.jobs.iter().rev().take(max as usize).map(line).collect()
        })
    }

    fn ring(&self, bell: Bell) {
        self.state().ring(&bell);
    }

    fn listen(&self, listener: Listener) -> Rings {
        let (rings, heard) = mpsc::channel(256);
        let _ = rings.try_send(Ring::Everything);
        self.state().listeners.push((listener, rings));
        heard
    }
}
