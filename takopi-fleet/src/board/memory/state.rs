//! What the board in memory knows, and each verb as one step on it.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use uuid::Uuid;

use crate::board::types::EndedJob;
use crate::board::{
    ATTEMPT, Bell, Claimed, Completion, ControlKind, ControlRequest, ControlState, Enqueued,
    HOME_PATIENCE, Held, Listener, MAX_ATTEMPTS, NewJob, OnGone, OnLoss, Reaped, Ring, STEADY,
    SUBMITTER_LEASE, SessionRef, WorkerInfo,
};

#[derive(Default)]
pub(super) struct State {
    pub(super) next: i64,
    pub(super) workers: BTreeMap<String, Worker>,
    pub(super) sessions: BTreeMap<Uuid, Session>,
    pub(super) names: HashMap<(String, String), Uuid>,
    /// By position.
    pub(super) jobs: BTreeMap<i64, Job>,
    pub(super) by_id: HashMap<String, i64>,
    /// What waits, by what it needs: position of the head and session.
    pub(super) ready: HashMap<Vec<String>, BTreeSet<(i64, Uuid)>>,
    pub(super) submitters: HashMap<String, Instant>,
    pub(super) listeners: Vec<(Listener, mpsc::Sender<Ring>)>,
}

pub(super) struct Worker {
    pub(super) info: WorkerInfo,
    pub(super) lease_until: Instant,
    pub(super) since: Instant,
    /// When it was heard last.
    pub(super) beaten: Instant,
    /// Since when it is heard all the time.
    pub(super) steady: Instant,
    pub(super) busy: u32,
    pub(super) draining: bool,
}

pub(super) struct Session {
    pub(super) engine: String,
    pub(super) value: Option<String>,
    pub(super) place: Option<String>,
    pub(super) queue: VecDeque<i64>,
    pub(super) ready_at: Instant,
    pub(super) worker: Option<String>,
    pub(super) token: i64,
    pub(super) running: Option<i64>,
    pub(super) claim: Option<String>,
    pub(super) home: Option<String>,
    pub(super) generation: i64,
    pub(super) min_version: u64,
    pub(super) stays: Option<String>,
    pub(super) files: BTreeMap<(String, i64), Vec<u8>>,
    pub(super) last_used: Instant,
}

pub(super) struct Job {
    pub(super) new: NewJob,
    pub(super) sid: Uuid,
    pub(super) token: i64,
    pub(super) worker: Option<String>,
    pub(super) lost: Option<String>,
    pub(super) attempts: u32,
    pub(super) rows: BTreeMap<i64, Value>,
    pub(super) result: Option<(i64, Value)>,
    pub(super) controls: Vec<Control>,
    pub(super) enqueued: Instant,
    pub(super) done: Option<Instant>,
}

pub(super) struct Control {
    pub(super) request: ControlRequest,
    pub(super) state: ControlState,
}

impl Job {
    pub(super) fn is_done(&self) -> bool {
        self.result.is_some()
    }

    pub(super) fn finish(&mut self, result: Value) {
        self.result = Some(((i64::from(self.attempts) + 1) * ATTEMPT - 1, result));
        self.done = Some(Instant::now());
        self.new.blobs.clear();
        for control in &mut self.controls {
            if control.state == ControlState::Waiting {
                control.state = ControlState::Refused;
            }
        }
    }

    /// Its worker does not run it any more, and there is no result: it waits again, or ends. Whether it ended.
    pub(super) fn give_up(&mut self, worker: &str, begun: bool) -> bool {
        let over = self.new.on_loss == OnLoss::Fail || self.attempts >= MAX_ATTEMPTS;
        (self.worker, self.token) = (None, 0);
        if begun {
            self.lost = Some(worker.to_owned());
        } else {
            self.attempts -= 1;
        }
        let cancelled = |control: &Control| {
            control.request.kind == ControlKind::Cancel && control.state == ControlState::Waiting
        };
        if self.controls.iter().any(cancelled) {
            self.finish(failure(&self.new.engine, "interrupted", "interrupted"));
            return true;
        }
        if begun && over {
            let error = format!("the worker {worker} was lost while it ran this");
            self.finish(failure(&self.new.engine, "worker_lost", &error));
            return true;
        }
        for control in &mut self.controls {
            if control.request.kind == ControlKind::Steer && control.state == ControlState::Taken {
                control.state = ControlState::Waiting;
            }
        }
        false
    }
}

pub(super) fn failure(engine: &str, reason: &str, error: &str) -> Value {
    json!({ "type": "completed", "engine": engine, "ok": false, "answer": "", "error": error, "reason": reason })
}

impl State {
    pub(super) fn lives(&self, machine: &str) -> bool {
        let now = Instant::now();
        self.workers.values().any(|worker| {
            worker.info.machine == machine && worker.lease_until > now && !worker.draining
        })
    }

    /// The job that the worker holds under this token.
    pub(super) fn held(&self, worker: &str, held: &Held) -> Option<(i64, Uuid)> {
        let pos = *self.by_id.get(&held.job)?;
        let sid = self.jobs.get(&pos)?.sid;
        let session = self.sessions.get(&sid)?;
        let holds = self.workers.contains_key(worker)
            && session.worker.as_deref() == Some(worker)
            && session.token == held.token
            && session.running == Some(pos);
        holds.then_some((pos, sid))
    }

    /// Takes the session off the list of what waits; it is put back by [`Self::line_up`].
    pub(super) fn line_down(&mut self, sid: Uuid) {
        let head = self.sessions.get(&sid).and_then(|session| session.queue.front().copied());
        if let Some(head) = head
            && let Some(job) = self.jobs.get(&head)
            && let Some(line) = self.ready.get_mut(&job.new.needs)
        {
            line.remove(&(head, sid));
        }
    }

    pub(super) fn line_up(&mut self, sid: Uuid) {
        let Some(session) = self.sessions.get(&sid).filter(|session| session.worker.is_none())
        else {
            return;
        };
        if let Some(head) = session.queue.front()
            && let Some(job) = self.jobs.get(head)
        {
            self.ready.entry(job.new.needs.clone()).or_default().insert((*head, sid));
        }
    }

    /// Nobody is in the session any more.
    pub(super) fn leave(&mut self, sid: Uuid) {
        if let Some(session) = self.sessions.get_mut(&sid) {
            (session.worker, session.running, session.claim) = (None, None, None);
            session.ready_at = Instant::now();
        }
        self.line_up(sid);
    }

    /// The worker in the session does not run its job any more: the job waits again at its place, or ends.
    pub(super) fn give_up(&mut self, sid: Uuid, worker: &str, begun: bool) -> Option<EndedJob> {
        let session = self.sessions.get_mut(&sid)?;
        let running = session.running;
        let job = running.and_then(|pos| self.jobs.get_mut(&pos));
        let ended = job.and_then(|job| {
            let (id, submitter) = (job.new.id.clone(), job.new.submitter.clone());
            job.give_up(worker, begun).then_some(EndedJob { job: id, submitter })
        });
        if let (None, Some(pos)) = (&ended, running) {
            session.queue.push_front(pos);
        }
        self.leave(sid);
        ended
    }

    pub(super) fn ring(&mut self, bell: &Bell) {
        self.listeners.retain(|(_, rings)| !rings.is_closed());
        for (listener, rings) in &self.listeners {
            let ring = match (bell, listener) {
                (Bell::Work, Listener::Worker(_)) => Ring::Work,
                (Bell::Worker(id), Listener::Worker(own)) if id == own => Ring::Control,
                (Bell::Submitter { id, job }, Listener::Submitter(own)) if id == own => {
                    Ring::Jobs(vec![job.clone()])
                }
                _ => continue,
            };
            let _ = rings.try_send(ring);
        }
    }

    pub(super) fn enqueue(&mut self, job: NewJob, max_queued: usize) -> Enqueued {
        if let Some(known) = self.by_id.get(&job.id).and_then(|pos| self.jobs.get_mut(pos)) {
            if let SessionRef::Reported(_, value) = job.session {
                self.names.entry((job.engine, value)).or_insert(known.sid);
            }
            known.new.submitter = job.submitter;
            return Enqueued::Known;
        }
        let sid = match &job.session {
            SessionRef::New(sid) | SessionRef::Reported(sid, _) => *sid,
            SessionRef::Known(value) => {
                match self.names.get(&(job.engine.clone(), value.clone())) {
                    Some(sid) => *sid,
                    None => return Enqueued::NoSession,
                }
            }
        };
        if self.sessions.values().map(|session| session.queue.len()).sum::<usize>() >= max_queued {
            return Enqueued::QueueFull;
        }
        if let SessionRef::Reported(_, value) = &job.session {
            self.names.entry((job.engine.clone(), value.clone())).or_insert(sid);
        }
        let now = Instant::now();
        self.next += 1;
        let pos = self.next;
        self.sessions.entry(sid).or_insert_with(|| Session {
            engine: job.engine.clone(),
            value: None,
            place: None,
            queue: VecDeque::new(),
            ready_at: now,
            worker: None,
            token: 0,
            running: None,
            claim: None,
            home: None,
            generation: 0,
            min_version: 0,
            stays: None,
            files: BTreeMap::new(),
            last_used: now,
        });
        if let Some(session) = self.sessions.get_mut(&sid) {
            if session.queue.is_empty() {
                session.ready_at = now;
            }
            session.queue.push_back(pos);
            session.last_used = now;
            if job.place.is_some() {
                session.place.clone_from(&job.place);
            }
        }
        self.by_id.insert(job.id.clone(), pos);
        let job = Job {
            new: job,
            sid,
            token: 0,
            worker: None,
            lost: None,
            attempts: 0,
            rows: BTreeMap::new(),
            result: None,
            controls: Vec::new(),
            enqueued: now,
            done: None,
        };
        self.jobs.insert(pos, job);
        self.line_up(sid);
        Enqueued::New
    }

    /// The sessions that the worker may take, the best first.
    pub(super) fn candidates(&self, worker: &Worker, max: usize) -> Vec<Uuid> {
        let (now, info) = (Instant::now(), &worker.info);
        let mut found: Vec<(u8, i64, Uuid)> = Vec::new();
        for (needs, line) in &self.ready {
            if !needs.iter().all(|need| info.offers.contains(need)) {
                continue;
            }
            let mut of_line = [0; 3];
            for (head, sid) in line {
                let Some(session) = self.sessions.get(sid) else { continue };
                let version = info.versions.get(&session.engine).copied().unwrap_or(0);
                let at_home = session.home.as_deref() == Some(&info.machine);
                if session.min_version > version || (session.stays.is_some() && !at_home) {
                    continue;
                }
                let rank = if now >= session.ready_at + HOME_PATIENCE {
                    0
                } else if at_home {
                    1
                } else if session.home.as_deref().is_none_or(|home| !self.lives(home)) {
                    2
                } else {
                    continue;
                };
                if of_line[usize::from(rank)] < max {
                    of_line[usize::from(rank)] += 1;
                    found.push((rank, *head, *sid));
                }
            }
        }
        found.sort_unstable();
        found.into_iter().take(max).map(|(_, _, sid)| sid).collect()
    }

    pub(super) fn claim(&mut self, worker: &str, claim: &str, max: u32) -> Vec<Claimed> {
        let now = Instant::now();
        let Some(found) = self.workers.get(worker).filter(|found| found.lease_until > now) else {
            return Vec::new();
        };
        let asked_before = self.sessions.values().any(|session| {
            session.worker.as_deref() == Some(worker) && session.claim.as_deref() == Some(claim)
        });
        if !asked_before && !found.draining {
            for sid in self.candidates(found, max as usize) {
                self.line_down(sid);
                let Some(session) = self.sessions.get_mut(&sid) else { continue };
                let Some(head) = session.queue.pop_front() else { continue };
                session.worker = Some(worker.to_owned());
                session.token += 1;
                session.running = Some(head);
                session.claim = Some(claim.to_owned());
                if let Some(job) = self.jobs.get_mut(&head) {
                    job.attempts += 1;
                    job.token = session.token;
                    job.worker = Some(worker.to_owned());
                }
            }
        }
        let mut claimed = Vec::new();
        for (sid, session) in &self.sessions {
            if session.worker.as_deref() != Some(worker) || session.claim.as_deref() != Some(claim)
            {
                continue;
            }
            let Some((pos, job)) =
                session.running.and_then(|pos| Some((pos, self.jobs.get(&pos)?)))
            else {
                continue;
            };
            claimed.push((
                pos,
                Claimed {
                    held: Held { job: job.new.id.clone(), token: session.token },
                    sid: *sid,
                    attempt: job.attempts,
                    submitter: job.new.submitter.clone(),
                    engine: session.engine.clone(),
                    value: session.value.clone(),
                    place: session.place.clone(),
                    home: session.home.clone(),
                    generation: session.generation,
                    lost: job.lost.clone(),
                    spec: job.new.spec.clone(),
                    blobs: job.new.blobs.clone(),
                },
            ));
        }
        claimed.sort_by_key(|(pos, _)| *pos);
        claimed.into_iter().map(|(_, claimed)| claimed).collect()
    }

    pub(super) fn complete(&mut self, worker: &str, completion: Completion) -> bool {
        let Completion { held, result, home, version, stays, files } = completion;
        let Some((pos, sid)) = self.held(worker, &held) else {
            let known = self.by_id.get(&held.job).and_then(|pos| self.jobs.get(pos));
            return known.is_some_and(|job| {
                job.is_done() && job.token == held.token && job.worker.as_deref() == Some(worker)
            });
        };
        if let Some(job) = self.jobs.get_mut(&pos) {
            job.finish(result);
        }
        if let Some(session) = self.sessions.get_mut(&sid) {
            for piece in files {
                if piece.start == 0 {
                    session.files.retain(|(path, _), _| *path != piece.path);
                }
                session.files.insert((piece.path, piece.start), piece.data);
            }
            if home.is_some() {
                session.home = home;
                session.generation = held.token;
                session.min_version = session.min_version.max(version);
                session.stays = stays;
            }
            session.last_used = Instant::now();
        }
        self.leave(sid);
        true
    }

    /// Ends a job that waits.
    pub(super) fn end_queued(&mut self, pos: i64, error: &str) {
        let Some(job) = self.jobs.get(&pos) else { return };
        let sid = job.sid;
        self.line_down(sid);
        let Some(session) = self.sessions.get_mut(&sid) else { return };
        if session.queue.front() == Some(&pos) {
            session.ready_at = Instant::now();
        }
        session.queue.retain(|queued| *queued != pos);
        let result = failure(&session.engine, "interrupted", error);
        if let Some(job) = self.jobs.get_mut(&pos) {
            job.finish(result);
        }
        self.line_up(sid);
    }

    pub(super) fn control(&mut self, request: ControlRequest) -> (ControlState, Option<String>) {
        let Some((pos, job)) =
            self.by_id.get(&request.job).and_then(|pos| Some((*pos, self.jobs.get_mut(pos)?)))
        else {
            return (ControlState::Unknown, None);
        };
        let known = job.controls.iter().find(|control| control.request.id == request.id);
        let known = known.map(|known| (known.state, job.worker.clone()));
        if job.is_done() {
            return known.unwrap_or((ControlState::Refused, None));
        }
        let running = self.sessions.get(&job.sid).filter(|session| session.running == Some(pos));
        let running = running.map(|session| session.worker.clone().unwrap_or_default());
        if request.kind == ControlKind::Cancel {
            let now = Instant::now();
            let lives = |id| self.workers.get(id).is_some_and(|worker| worker.lease_until > now);
            match &running {
                None => {
                    self.end_queued(pos, "interrupted");
                    return (ControlState::Taken, None);
                }
                Some(worker) if !lives(worker) => {
                    let (sid, engine) = (job.sid, job.new.engine.clone());
                    (job.worker, job.lost, job.token) = (None, Some(worker.clone()), 0);
                    job.finish(failure(&engine, "interrupted", "interrupted"));
                    self.leave(sid);
                    return (ControlState::Taken, None);
                }
                Some(_) => {}
            }
        }
        if let Some(known) = known {
            return known;
        }
        job.controls.push(Control { request, state: ControlState::Waiting });
        (ControlState::Waiting, job.worker.clone().filter(|_| running.is_some()))
    }

    pub(super) fn reap(&mut self) -> Reaped {
        let now = Instant::now();
        self.workers.retain(|_, worker| worker.lease_until >= now);
        let dead: Vec<(Uuid, String)> = self
            .sessions
            .iter()
            .filter_map(|(sid, session)| {
                let worker = session.worker.as_ref()?;
                (!self.workers.contains_key(worker)).then(|| (*sid, worker.clone()))
            })
            .collect();
        let mut reaped = Reaped::default();
        for (sid, worker) in dead {
            match self.give_up(sid, &worker, true) {
                Some(ended) => reaped.ended.push(ended),
                None => reaped.again += 1,
            }
        }
        self.cancel_abandoned(now);
        reaped
    }

    /// Whether a submitter that is silent could have been heard.
    fn hears(&self, now: Instant) -> bool {
        let was_there =
            |worker: &Worker| worker.beaten + STEADY > now && worker.steady + SUBMITTER_LEASE < now;
        self.workers.values().any(was_there)
    }

    pub(super) fn is_abandoned(&self, worker: &str, job: &str) -> bool {
        let now = Instant::now();
        let found = self.by_id.get(job).and_then(|pos| self.jobs.get(pos));
        let own = found.filter(|job| job.worker.as_deref() == Some(worker));
        let silent =
            |job: &Job| self.submitters.get(&job.new.submitter).is_none_or(|until| *until < now);
        own.is_some_and(silent) && self.hears(now)
    }

    pub(super) fn cancel_abandoned(&mut self, now: Instant) {
        if !self.hears(now) {
            return;
        }
        let gone: Vec<(i64, String)> = self
            .jobs
            .iter()
            .filter(|(_, job)| !job.is_done() && job.new.on_gone == OnGone::Cancel)
            .filter(|(_, job)| {
                self.submitters.get(&job.new.submitter).is_some_and(|until| *until < now)
            })
            .map(|(pos, job)| (*pos, job.new.id.clone()))
            .collect();
        for (pos, job) in gone {
            let running = self.sessions.values().any(|session| session.running == Some(pos));
            if running {
                let id = format!("gone:{job}");
                self.control(ControlRequest {
                    id,
                    job,
                    kind: ControlKind::Cancel,
                    body: json!({}),
                });
            } else {
                self.end_queued(pos, "interrupted: its submitter is gone");
            }
        }
    }
}
