//! What a submitter sees when the workers that could run its job are lost.

use std::time::Duration;

use serde_json::json;
use takopi_core::demo::{DEMO, Demo};
use takopi_core::model::{ResumeToken, Started};
use takopi_core::runner::EngineRunner;
use takopi_core::{EventStream, Host, RunRequest, Runner as _, TakopiEvent};
use takopi_fleet::board::{
    Claimed, ControlKind, ControlState, Enqueued, JobRow, NewJob, OnLoss, SessionRef,
};
use takopi_fleet::frame::Frame;
use takopi_fleet::submit::{FleetEngine, FleetOptions};
use takopi_tests::model::{PATIENCE, within};
use takopi_tests::runs::{finish, is_started, until};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::lab::{LEASE, Lab, completion, ids, job, over_every_board, session, worker};
use crate::runs::until_note;
use crate::suite::{reason, request, workers};

over_every_board!(
    runs:
    a_run_whose_worker_was_lost_behind_its_cancel_ends_without_another_one,
    a_run_whose_worker_was_lost_waits_again_and_reports_it,
    a_run_that_lost_the_last_worker_waits_again_for_as_long_as_it_may,
    a_job_that_the_database_lost_is_enqueued_again,
    a_job_that_may_run_once_and_was_lost_by_the_database_is_not_run_again,
    a_job_that_may_run_once_is_not_run_again_though_nothing_of_its_begin_was_seen,
    jobs_of_a_session_that_the_database_lost_are_enqueued_again_in_their_order,
    a_session_is_known_by_the_id_under_which_its_job_is_enqueued_again,
    a_job_of_which_the_database_lost_an_attempt_is_followed_to_its_end,
    a_job_of_which_the_database_lost_an_attempt_can_be_cancelled,
);

/// A part of the suite of all boards.
pub(crate) async fn a_job_whose_worker_is_lost_is_cancelled_without_another_one(lab: &Lab) {
    let board = lab.board();
    workers(lab, &["a/1", "b/1"]).await;
    board
        .enqueue(vec![job("1", session(1)), job("2", session(1)), job("3", session(3))])
        .await
        .unwrap();
    let held = board.claim("a/1", "c1", 1).await.unwrap().remove(0).held;
    let other = board.claim("b/1", "c1", 1).await.unwrap().remove(0).held;
    let cancel = async |job: &str| {
        board.control(request(&format!("x{job}"), job, ControlKind::Cancel)).await.unwrap()
    };
    assert_eq!(cancel("1").await, ControlState::Waiting);
    assert_eq!(cancel("1").await, ControlState::Waiting, "its worker lives");
    // The lease of the one is over; the other has gone.
    lab.expire("a/1").await;
    assert_eq!(cancel("1").await, ControlState::Taken);
    assert_eq!(reason(lab, "1").await, "interrupted");
    assert_ne!(cancel("1").await, ControlState::Waiting, "it is over");
    assert!(!board.complete("a/1", completion(held, "a")).await.unwrap(), "it has its result");
    lab.expire("b/1").await;
    workers(lab, &["b/2"]).await;
    assert_eq!(cancel("3").await, ControlState::Taken);
    assert!(!board.complete("b/1", completion(other, "b")).await.unwrap());
    assert_eq!(ids(&board.claim("b/2", "c1", 9).await.unwrap()), ["2"], "the next in its session");
    board.reap().await.unwrap();
    assert_eq!(board.waiting("2").await.unwrap().unwrap().state, "running");
}

/// A submitter.
struct Submitter<'a> {
    lab: &'a Lab,
    runner: EngineRunner<FleetEngine>,
    _dir: tempfile::TempDir,
}

impl<'a> Submitter<'a> {
    fn new(lab: &'a Lab, options: FleetOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::builder().state_directory(dir.path()).build().unwrap();
        let engine = FleetEngine::new(lab.board(), DEMO, Demo::new().runner().resume_codec());
        Self { lab, runner: engine.options(options).runner().on(host), _dir: dir }
    }

    /// A run that a worker has begun.
    async fn begun(&self, worker: &str, request: RunRequest) -> (EventStream, Vec<TakopiEvent>) {
        let mut stream = self.runner.run(request);
        begin(self.lab, &claim(self.lab, worker).await, worker).await;
        let seen = until(&mut stream, "Started", is_started).await;
        (stream, seen)
    }
}

/// What a worker claims as soon as there is something.
async fn claim(lab: &Lab, worker: &str) -> Claimed {
    let look = async {
        loop {
            let claim = Uuid::new_v4().to_string();
            if let Some(claimed) = lab.board().claim(worker, &claim, 1).await.unwrap().pop() {
                return claimed;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(PATIENCE, "a job", look).await
}

/// Writes that a turn was begun.
async fn begin(lab: &Lab, claimed: &Claimed, worker: &str) {
    let started = Started::new(ResumeToken::new(DEMO, "demo-1"));
    let body = json!(Frame::Event(Box::new(started.into())));
    let seq = i64::from(claimed.attempt) * 1_000_000_000;
    let row = JobRow { job: claimed.held.job.clone(), seq, body };
    let fenced = lab.board().events(worker, vec![claimed.held.clone()], vec![row]).await.unwrap();
    assert!(fenced.is_empty());
}

async fn a_run_whose_worker_was_lost_behind_its_cancel_ends_without_another_one(lab: &Lab) {
    workers(lab, &["a/1"]).await;
    let submitter = Submitter::new(lab, FleetOptions::default());
    let cancel = CancellationToken::new();
    let request = RunRequest::new("hello").cancel(cancel.clone());
    let (stream, seen) = submitter.begun("a/1", request).await;
    cancel.cancel();
    let told = async {
        while lab.board().controls("a/1").await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(PATIENCE, "the cancel", told).await;
    lab.expire("a/1").await;
    finish(stream, seen).await.failed("interrupted");
}

async fn a_run_whose_worker_was_lost_waits_again_and_reports_it(lab: &Lab) {
    let board = lab.board();
    workers(lab, &["a/1"]).await;
    let submitter = Submitter::new(lab, FleetOptions::default());
    let (mut stream, mut seen) = submitter.begun("a/1", RunRequest::new("hello")).await;
    lab.expire("a/1").await;
    let mut unable = worker("b/1");
    unable.offers = vec!["engine:other".to_owned()];
    board.register(unable, LEASE).await.unwrap();
    assert_eq!(board.reap().await.unwrap().again, 1);
    seen.extend(until_note(&mut stream, "no worker offers engine:demo").await);
    // It goes on as if it had not waited.
    workers(lab, &["c/1"]).await;
    let claimed = claim(lab, "c/1").await;
    begin(lab, &claimed, "c/1").await;
    seen.extend(until_note(&mut stream, "the session is free").await);
    board.complete("c/1", completion(claimed.held, "c")).await.unwrap();
    finish(stream, seen).await.ok();
}

async fn a_run_that_lost_the_last_worker_waits_again_for_as_long_as_it_may(lab: &Lab) {
    // It runs before the submitter follows it: that is no wait, however long this machine takes.
    workers(lab, &["a/1"]).await;
    lab.board().enqueue(vec![job("k", session(1))]).await.unwrap();
    begin(lab, &claim(lab, "a/1").await, "a/1").await;
    let submitter = Submitter::new(lab, FleetOptions::default());
    let request = RunRequest::new("hello").key("k".to_owned()).wait(Duration::ZERO);
    let mut stream = submitter.runner.run(request);
    let seen = until(&mut stream, "Started", is_started).await;
    lab.expire("a/1").await;
    let seen = finish(stream, seen).await;
    let error = seen.failed("no_worker").error.clone().unwrap();
    assert!(error.contains("no worker offers engine:demo"), "{error}");
}

async fn a_job_that_the_database_lost_is_enqueued_again(lab: &Lab) {
    let board = lab.board();
    let submitter = Submitter::new(lab, FleetOptions::default());
    // Before anybody has it.
    let request = RunRequest::new("hello").key("k".to_owned());
    let mut stream = submitter.runner.run(request);
    let mut seen = until_note(&mut stream, "no worker offers engine:demo").await;
    lab.forget().await;
    workers(lab, &["a/1"]).await;
    let claimed = claim(lab, "a/1").await;
    assert_eq!(claimed.held.job, "k", "under its key");
    begin(lab, &claimed, "a/1").await;
    seen.extend(until(&mut stream, "Started", is_started).await);
    // And while it runs.
    lab.forget().await;
    let claimed = claim(lab, "a/1").await;
    begin(lab, &claimed, "a/1").await;
    board.complete("a/1", completion(claimed.held, "a")).await.unwrap();
    assert_eq!(finish(stream, seen).await.ok().answer, "k");
}

async fn a_job_that_may_run_once_and_was_lost_by_the_database_is_not_run_again(lab: &Lab) {
    workers(lab, &["a/1"]).await;
    let mut once = FleetOptions::default();
    once.on_loss = OnLoss::Fail;
    let submitter = Submitter::new(lab, once);
    let (stream, seen) = submitter.begun("a/1", RunRequest::new("hello")).await;
    lab.forget().await;
    finish(stream, seen).await.failed("worker_lost");
    assert!(lab.board().jobs(9).await.unwrap().is_empty());
}

async fn a_job_that_may_run_once_is_not_run_again_though_nothing_of_its_begin_was_seen(lab: &Lab) {
    workers(lab, &["a/1"]).await;
    let mut once = FleetOptions::default();
    once.on_loss = OnLoss::Fail;
    let submitter = Submitter::new(lab, once);
    let stream = submitter.runner.run(RunRequest::new("hello"));
    // Its engine starts.
    claim(lab, "a/1").await;
    lab.forget().await;
    finish(stream, Vec::new()).await.failed("worker_lost");
    assert!(lab.board().jobs(9).await.unwrap().is_empty());
}

async fn jobs_of_a_session_that_the_database_lost_are_enqueued_again_in_their_order(lab: &Lab) {
    let board = lab.board();
    workers(lab, &["a/1"]).await;
    let submitter = Submitter::new(lab, FleetOptions::default());
    let request = |key: &str| RunRequest::new("hello").key(key.to_owned());
    let mut first = submitter.runner.run(request("1"));
    let claimed = claim(lab, "a/1").await;
    board.opened("a/1", claimed.held.clone(), "demo-1").await.unwrap();
    begin(lab, &claimed, "a/1").await;
    let mut runs = vec![until(&mut first, "Started", is_started).await];
    let mut streams = vec![first];
    for (key, waits) in [("2", "1 before this one"), ("3", "2 before this one")] {
        let resume = ResumeToken::new(DEMO, "demo-1");
        let mut next = submitter.runner.run(request(key).resume(resume));
        runs.push(until_note(&mut next, waits).await);
        streams.push(next);
    }
    lab.forget().await;
    // The first one is still known by its id, whatever its engine calls it now.
    for (number, (stream, seen)) in streams.into_iter().zip(runs).enumerate() {
        let claimed = claim(lab, "a/1").await;
        assert_eq!(claimed.held.job, (number + 1).to_string());
        board.opened("a/1", claimed.held.clone(), "demo-2").await.unwrap();
        begin(lab, &claimed, "a/1").await;
        assert!(board.complete("a/1", completion(claimed.held, "a")).await.unwrap());
        let resume = finish(stream, seen).await.ok().resume.clone();
        assert_eq!(resume, Some(ResumeToken::new(DEMO, "demo-1")));
    }
}

async fn a_session_is_known_by_the_id_under_which_its_job_is_enqueued_again(lab: &Lab) {
    let board = lab.board();
    let outcome = async |job: NewJob| board.enqueue(vec![job]).await.unwrap()[0];
    let reported =
        |number| SessionRef::Reported(Uuid::from_u64_pair(0, number), format!("demo-{number}"));
    let next = |number| SessionRef::Known(format!("demo-{number}"));
    assert_eq!(outcome(job("1", reported(1))).await, Enqueued::New);
    assert_eq!(outcome(job("2", next(1))).await, Enqueued::New);
    // The database knew the job, but not how its engine called the session.
    assert_eq!(outcome(job("3", session(3))).await, Enqueued::New);
    assert_eq!(outcome(job("4", next(3))).await, Enqueued::NoSession);
    assert_eq!(outcome(job("3", reported(3))).await, Enqueued::Known);
    assert_eq!(outcome(job("4", next(3))).await, Enqueued::New);
    // It takes no name of another session.
    let other = SessionRef::Reported(Uuid::from_u64_pair(0, 5), "demo-1".to_owned());
    assert_eq!(outcome(job("5", other)).await, Enqueued::New);
    assert_eq!(outcome(job("6", next(1))).await, Enqueued::New);
    assert_eq!(board.waiting("6").await.unwrap().unwrap().ahead, 2);
}

/// A run in its second attempt, on a database that is then one of before the first.
async fn in_its_second_attempt(lab: &Lab, request: RunRequest) -> (EventStream, Vec<TakopiEvent>) {
    workers(lab, &["a/1"]).await;
    let submitter = Submitter::new(lab, FleetOptions::default());
    let (mut stream, mut seen) = submitter.begun("a/1", request.key("k".to_owned())).await;
    lab.expire("a/1").await;
    workers(lab, &["b/1"]).await;
    lab.board().reap().await.unwrap();
    let second = claim(lab, "b/1").await;
    assert_eq!(second.attempt, 2);
    let body = json!(Frame::TakenOver { lost: "a/1".to_owned() });
    let row = JobRow { job: "k".to_owned(), seq: 2_000_000_000, body };
    lab.board().events("b/1", vec![second.held], vec![row]).await.unwrap();
    let is_lost = |event: &TakopiEvent| matches!(event, TakopiEvent::Action(it) if it.action.title.contains("a/1 was lost"));
    seen.extend(until(&mut stream, "the second attempt", is_lost).await);
    lab.forget().await;
    lab.board().enqueue(vec![job("k", session(1))]).await.unwrap();
    (stream, seen)
}

async fn a_job_of_which_the_database_lost_an_attempt_is_followed_to_its_end(lab: &Lab) {
    let (stream, seen) = in_its_second_attempt(lab, RunRequest::new("hello")).await;
    let claimed = claim(lab, "b/1").await;
    assert_eq!(claimed.attempt, 1);
    begin(lab, &claimed, "b/1").await;
    lab.board().complete("b/1", completion(claimed.held, "b")).await.unwrap();
    assert_eq!(finish(stream, seen).await.ok().answer, "k");
}

async fn a_job_of_which_the_database_lost_an_attempt_can_be_cancelled(lab: &Lab) {
    let cancel = CancellationToken::new();
    let request = RunRequest::new("hello").cancel(cancel.clone());
    let (stream, seen) = in_its_second_attempt(lab, request).await;
    cancel.cancel();
    finish(stream, seen).await.failed("interrupted");
}
