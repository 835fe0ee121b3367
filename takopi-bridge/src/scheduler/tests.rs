//! The promises of the scheduler.

use super::{JobId, JobStatus, Limits, QueueStep, QueueTarget, Scheduler, SubmitError, Ticket};
use futures::FutureExt;
use proptest::prelude::*;
use takopi_core::ResumeToken;

fn session(id: &str) -> ResumeToken {
    ResumeToken::new("lab", id.to_owned())
}

fn scheduler(workers: usize, waiting: usize) -> Scheduler {
    Scheduler::new(Limits::new(workers, waiting))
}

fn step(ticket: &mut Ticket) -> Option<QueueStep> {
    ticket.next().now_or_never()
}

/// The next step of a job that is not a move.
fn turn(ticket: &mut Ticket) -> Option<QueueStep> {
    std::iter::from_fn(|| step(ticket)).find(|step| !matches!(step, QueueStep::Moved(_)))
}

#[test]
fn a_second_job_of_a_session_waits_for_the_first() {
    let scheduler = scheduler(4, 4);
    let mut first = scheduler.submit(QueueTarget::Session(session("a"))).unwrap();
    let mut second = scheduler.submit(QueueTarget::Session(session("a"))).unwrap();
    let mut other = scheduler.submit(QueueTarget::Session(session("b"))).unwrap();
    assert_eq!(step(&mut first), Some(QueueStep::Start(Some(session("a")))));
    assert_eq!(step(&mut second), Some(QueueStep::Moved(JobStatus::Behind(1))));
    assert_eq!(step(&mut second), None, "what was said is not said again");
    assert_eq!(
        step(&mut other),
        Some(QueueStep::Start(Some(session("b")))),
        "sessions do not wait for each other"
    );
    drop(first);
    assert_eq!(step(&mut second), Some(QueueStep::Start(Some(session("a")))));
}

#[test]
fn a_new_session_is_busy_as_soon_as_its_token_is_known() {
    let scheduler = scheduler(4, 4);
    let mut first = scheduler.submit(QueueTarget::New).unwrap();
    assert_eq!(step(&mut first), Some(QueueStep::Start(None)));
    first.set_session(&session("a"));
    let mut second = scheduler.submit(QueueTarget::Session(session("a"))).unwrap();
    assert_eq!(turn(&mut second), None);
    drop(first);
    assert_eq!(turn(&mut second), Some(QueueStep::Start(Some(session("a")))));
}

#[test]
fn a_job_may_wait_for_a_session_that_is_not_known_yet() {
    let scheduler = scheduler(4, 4);
    let first = scheduler.submit(QueueTarget::New).unwrap();
    let mut second = scheduler.submit(QueueTarget::Behind(first.job())).unwrap();
    assert_eq!(turn(&mut second), None);
    first.set_session(&session("a"));
    let mut third = scheduler.submit(QueueTarget::Session(session("a"))).unwrap();
    assert_eq!(third.status(), JobStatus::Behind(2));
    drop(first);
    assert_eq!(turn(&mut second), Some(QueueStep::Start(Some(session("a")))));
    assert_eq!(turn(&mut third), None);
}

#[test]
fn a_job_behind_one_that_ends_without_a_session_starts_one() {
    let scheduler = scheduler(4, 4);
    let first = scheduler.submit(QueueTarget::New).unwrap();
    let mut second = scheduler.submit(QueueTarget::Behind(first.job())).unwrap();
    let over = first.job();
    drop(first);
    assert_eq!(turn(&mut second), Some(QueueStep::Start(None)));
    assert_eq!(scheduler.submit(QueueTarget::Behind(over)).unwrap_err(), SubmitError::Ended(over));
}

#[test]
fn two_queues_that_turn_out_to_be_one_session_are_joined_in_order() {
    let scheduler = scheduler(4, 8);
    let stranger = scheduler.submit(QueueTarget::New).unwrap();
    let mut behind = scheduler.submit(QueueTarget::Behind(stranger.job())).unwrap();
    let first = scheduler.submit(QueueTarget::Session(session("a"))).unwrap();
    let mut second = scheduler.submit(QueueTarget::Session(session("a"))).unwrap();
    stranger.set_session(&session("a"));
    assert_eq!((behind.status(), second.status()), (JobStatus::Behind(2), JobStatus::Behind(3)));
    drop(first);
    assert_eq!(turn(&mut behind), None, "the stranger still runs");
    drop(stranger);
    assert_eq!(turn(&mut behind), Some(QueueStep::Start(Some(session("a")))));
    assert_eq!(turn(&mut second), None);
    drop(behind);
    assert_eq!(turn(&mut second), Some(QueueStep::Start(Some(session("a")))));
}

#[test]
fn workers_and_waiting_are_bounded_and_a_full_queue_is_an_error() {
    let scheduler = scheduler(1, 2);
    let running = scheduler.submit(QueueTarget::New).unwrap();
    let first = scheduler.submit(QueueTarget::New).unwrap();
    let second = scheduler.submit(QueueTarget::New).unwrap();
    assert_eq!(first.status(), JobStatus::NoWorker(0));
    assert_eq!(second.status().to_string(), "queued: all workers are busy, 1 ahead");
    let refused = scheduler.submit(QueueTarget::New).unwrap_err();
    assert_eq!(refused, SubmitError::Full(2));
    drop(running);
    assert_eq!(first.status(), JobStatus::Running);
    assert!(scheduler.submit(QueueTarget::New).is_ok());
}

#[test]
fn cancel_reports_whether_the_job_was_waiting_or_running() {
    let scheduler = scheduler(1, 4);
    let mut running = scheduler.submit(QueueTarget::New).unwrap();
    let mut waiting = scheduler.submit(QueueTarget::Behind(running.job())).unwrap();
    let mut last = scheduler.submit(QueueTarget::Behind(running.job())).unwrap();
    assert_eq!(turn(&mut running), Some(QueueStep::Start(None)));

    let cancelled = scheduler.cancel(waiting.job()).unwrap();
    assert_eq!(cancelled.to_string(), "cancelled job 2, which was still queued");
    assert_eq!(turn(&mut waiting), Some(QueueStep::Cancelled));
    assert_eq!(last.status(), JobStatus::Behind(1));

    let cancelled = scheduler.cancel(running.job()).unwrap();
    assert_eq!(cancelled.to_string(), "cancelled job 1, which was running");
    assert!(running.cancelled().is_cancelled());
    assert_eq!(turn(&mut last), None, "a job that was told to stop runs until it has");
    let over = running.job();
    drop(running);
    assert_eq!(turn(&mut last), Some(QueueStep::Start(None)));
    assert_eq!(scheduler.cancel(over), None);
}

#[test]
fn jobs_cancelled_together_do_not_start_in_each_others_place() {
    let scheduler = scheduler(1, 4);
    let running = scheduler.submit(QueueTarget::New).unwrap();
    let other = scheduler.submit(QueueTarget::New).unwrap();
    let behind = scheduler.submit(QueueTarget::Behind(running.job())).unwrap();
    let jobs = [running.job(), other.job(), behind.job()];
    // The running job ends as soon as it is cancelled.
    let stop = running.cancelled().clone();
    let ends = std::thread::spawn(move || {
        while !stop.is_cancelled() {
            std::thread::yield_now();
        }
        drop(running);
    });
    let cancelled = scheduler.cancel_all(jobs);
    assert!(cancelled[1..].iter().all(|cancelled| !cancelled.was_running), "{cancelled:?}");
    ends.join().unwrap();
}

#[tokio::test]
async fn a_closed_scheduler_accepts_no_job_and_lets_the_rest_end() {
    let scheduler = scheduler(1, 4);
    let running = scheduler.submit(QueueTarget::New).unwrap();
    let mut waiting = scheduler.submit(QueueTarget::New).unwrap();
    scheduler.close();
    assert_eq!(scheduler.submit(QueueTarget::New).unwrap_err(), SubmitError::Closed);
    drop(running);
    assert_eq!(turn(&mut waiting), Some(QueueStep::Start(None)));
    let idle = scheduler.idle();
    tokio::pin!(idle);
    assert!(idle.as_mut().now_or_never().is_none());
    drop(waiting);
    idle.await;
}

/// An operation on a scheduler; a number picks one of the jobs.
#[derive(Debug, Clone)]
enum Act {
    New,
    Resume(usize),
    Behind(usize),
    SetSession(usize),
    Cancel(usize),
    Drop(usize),
    End(usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        Just(Act::New),
        any::<usize>().prop_map(Act::Resume),
        any::<usize>().prop_map(Act::Behind),
        any::<usize>().prop_map(Act::SetSession),
        any::<usize>().prop_map(Act::Cancel),
        any::<usize>().prop_map(Act::Drop),
        any::<usize>().prop_map(Act::End),
    ];
    proptest::collection::vec(act, 0..120)
}

/// A job, as the test sees it.
struct Seen {
    id: JobId,
    conversation: usize,
    ticket: Option<Ticket>,
    begun: bool,
    cancelled: bool,
}

/// The expected state, in its simplest form.
struct Model {
    scheduler: Scheduler,
    limits: Limits,
    jobs: Vec<Seen>,
    /// The token of each conversation, once it is known.
    tokens: Vec<Option<ResumeToken>>,
}

impl Model {
    fn new(limits: Limits) -> Self {
        Self { scheduler: Scheduler::new(limits), limits, jobs: Vec::new(), tokens: Vec::new() }
    }

    fn live(&self) -> Vec<usize> {
        (0..self.jobs.len()).filter(|at| self.jobs[*at].ticket.is_some()).collect()
    }

    fn running(&self) -> Vec<usize> {
        self.live().into_iter().filter(|at| self.jobs[*at].begun).collect()
    }

    fn submit(&mut self, target: QueueTarget, conversation: usize) {
        let waiting = self.live().len() - self.running().len();
        match self.scheduler.submit(target) {
            Ok(ticket) => self.jobs.push(Seen {
                id: ticket.job(),
                conversation,
                ticket: Some(ticket),
                begun: false,
                cancelled: false,
            }),
            Err(refused) => {
                assert_eq!(refused, SubmitError::Full(self.limits.waiting.min(waiting)));
            }
        }
    }

    fn act(&mut self, act: &Act) {
        let pick = |list: Vec<usize>, n: usize| (!list.is_empty()).then(|| list[n % list.len()]);
        match *act {
            Act::New => {
                self.tokens.push(None);
                self.submit(QueueTarget::New, self.tokens.len() - 1);
            }
            Act::Resume(n) => {
                let known = (0..self.tokens.len()).filter(|at| self.tokens[*at].is_some());
                if let Some(conversation) = pick(known.collect(), n) {
                    let token = self.tokens[conversation].clone().unwrap();
                    self.submit(QueueTarget::Session(token), conversation);
                }
            }
            Act::Behind(n) => {
                if let Some(at) = pick(self.live(), n) {
                    let (id, conversation) = (self.jobs[at].id, self.jobs[at].conversation);
                    self.submit(QueueTarget::Behind(id), conversation);
                }
            }
            Act::SetSession(n) => {
                if let Some(at) = pick(self.running(), n) {
                    let conversation = self.jobs[at].conversation;
                    let fresh = session(&format!("s{conversation}"));
                    let token = self.tokens[conversation].get_or_insert(fresh).clone();
                    self.jobs[at].ticket.as_ref().unwrap().set_session(&token);
                }
            }
            Act::Cancel(n) => {
                if let Some(at) = pick(self.live(), n) {
                    let cancelled = self.scheduler.cancel(self.jobs[at].id).unwrap();
                    assert_eq!(cancelled.was_running, self.jobs[at].begun);
                    self.jobs[at].cancelled = true;
                    if !self.jobs[at].begun {
                        let mut ticket = self.jobs[at].ticket.take().unwrap();
                        assert_eq!(turn(&mut ticket), Some(QueueStep::Cancelled));
                    }
                }
            }
            Act::Drop(n) => {
                if let Some(at) = pick(self.live(), n) {
                    self.jobs[at].cancelled = true;
                    self.jobs[at].ticket = None;
                }
            }
            Act::End(n) => {
                if let Some(at) = pick(self.running(), n) {
                    self.jobs[at].ticket = None;
                }
            }
        }
        self.look();
    }

    /// Checks which jobs started, and that they may.
    fn look(&mut self) {
        for at in self.live() {
            let running = self.scheduler.status(self.jobs[at].id) == JobStatus::Running;
            if running && !self.jobs[at].begun {
                let token = self.tokens[self.jobs[at].conversation].clone();
                let ticket = self.jobs[at].ticket.as_mut().unwrap();
                assert_eq!(turn(ticket), Some(QueueStep::Start(token)));
                self.jobs[at].begun = true;
                let earlier = &self.jobs[..at];
                let ahead = earlier.iter().find(|it| {
                    it.conversation == self.jobs[at].conversation && it.ticket.is_some()
                });
                assert!(ahead.is_none(), "{} overtook {}", self.jobs[at].id, ahead.unwrap().id);
            }
            assert_eq!(running, self.jobs[at].begun, "what runs does not stop by itself");
        }
        let (running, live) = (self.running(), self.live());
        assert!(running.len() <= self.limits.workers);
        assert!(live.len() - running.len() <= self.limits.waiting);
        let busy = |at: &usize| {
            running.iter().any(|it| self.jobs[*it].conversation == self.jobs[*at].conversation)
        };
        for at in live.iter().filter(|at| !self.jobs[**at].begun && !busy(at)) {
            let full = running.len() == self.limits.workers;
            assert!(full, "{} waits for nothing", self.jobs[*at].id);
        }
    }

    /// Ends what runs until nothing is left.
    fn drain(&mut self) {
        while let Some(at) = self.running().first().copied() {
            self.jobs[at].ticket = None;
            self.look();
        }
        assert!(self.live().is_empty(), "a job was lost");
        assert!(self.scheduler.jobs().is_empty());
        assert!(self.jobs.iter().all(|job| job.begun || job.cancelled));
    }
}

proptest! {
    #[test]
    fn one_at_a_time_in_order_and_nothing_lost(
        acts in acts(),
        workers in 1..4_usize,
        waiting in 0..8_usize,
    ) {
        let mut model = Model::new(Limits::new(workers, waiting));
        for act in &acts {
            model.act(act);
        }
        model.drain();
    }
}

#[test]
fn a_job_that_waits_for_a_person_leaves_its_worker_to_another() {
    let scheduler = scheduler(1, 4);
    let mut first = scheduler.submit(QueueTarget::Session(session("a"))).unwrap();
    let mut same = scheduler.submit(QueueTarget::Session(session("a"))).unwrap();
    let mut other = scheduler.submit(QueueTarget::Session(session("b"))).unwrap();
    assert!(turn(&mut first).is_some());
    assert_eq!((turn(&mut same), turn(&mut other)), (None, None));
    let (one, another) = (scheduler.asking(first.job()), scheduler.asking(first.job()));
    assert_eq!(turn(&mut other), Some(QueueStep::Start(Some(session("b")))));
    assert_eq!(turn(&mut same), None, "one at a time on a session");
    // Answered, both run: nothing else starts until one of them has ended.
    drop((one, another));
    let mut third = scheduler.submit(QueueTarget::New).unwrap();
    drop(other);
    assert_eq!(turn(&mut third), None);
    drop(first);
    assert_eq!(turn(&mut same), Some(QueueStep::Start(Some(session("a")))));
    drop(same);
    assert_eq!(turn(&mut third), Some(QueueStep::Start(None)));
}

#[test]
fn jobs_that_wait_for_people_are_bounded() {
    let scheduler = scheduler(2, 100);
    let mut jobs: Vec<_> = (0..20).map(|_| scheduler.submit(QueueTarget::New).unwrap()).collect();
    let mut asking = Vec::new();
    loop {
        let asks = |job: &JobId| asking.iter().any(|(known, _)| known == job);
        let next = jobs.iter().map(Ticket::job);
        let next = next.filter(|job| scheduler.status(*job) == JobStatus::Running);
        let Some(next) = next.into_iter().find(|job| !asks(job)) else { break };
        let guard = scheduler.asking(next);
        asking.push((next, guard));
    }
    assert_eq!(asking.len(), 8, "four for each worker");
    // A job that ends while it waits takes its wait with it.
    jobs.remove(0);
    assert_eq!(jobs.iter().filter(|job| job.status() == JobStatus::Running).count(), 8);
    drop(asking);
    assert_eq!(jobs.iter().filter(|job| job.status() == JobStatus::Running).count(), 8);
}
