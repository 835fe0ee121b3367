//! What every board promises, over each of them.

use serde_json::json;
use std::time::Duration;
use takopi_fleet::board::{
    Bell, ControlKind, ControlRequest, ControlState, Enqueued, Held, JobRow, Listener, OnLoss,
    Opened, Retention, Ring, SessionRef,
};
use uuid::Uuid;

use crate::homes::{
    a_job_that_did_not_begin_leaves_its_session_where_it_is,
    a_session_is_found_by_every_name_it_had, a_session_never_reaches_an_older_engine,
    a_session_that_stays_is_stranded_without_its_machine_until_released,
    a_worker_prefers_the_sessions_whose_files_it_has, an_imported_session_can_be_resumed,
    files_are_stored_with_the_result_and_only_for_who_holds_the_session,
};
use crate::lab::{LEASE, Lab, completion, ids, job, over_every_board, session, worker};
use crate::lost::a_job_whose_worker_is_lost_is_cancelled_without_another_one;
use crate::submitters::{
    jobs_of_a_submitter_that_could_not_reach_the_board_are_not_cancelled,
    jobs_of_a_submitter_that_is_gone_are_cancelled,
};

over_every_board!(
    jobs_of_a_session_run_one_at_a_time_in_order,
    the_same_key_is_the_same_job,
    a_claim_asked_again_answers_the_same,
    a_completion_asked_again_answers_the_same_and_a_late_one_is_refused,
    a_lost_worker_gives_its_jobs_back_at_their_place,
    a_job_ends_as_lost_when_it_may_not_be_tried_again,
    a_worker_whose_lease_is_over_gets_nothing,
    a_restart_buries_its_predecessor,
    a_registration_asked_again_says_what_holds_now,
    a_worker_of_a_name_that_another_one_has_is_refused_while_that_one_lives,
    events_are_read_behind_a_cursor_and_the_result_is_last,
    a_fenced_worker_writes_nothing,
    a_session_is_found_by_every_name_it_had,
    a_queued_job_is_cancelled_without_a_worker,
    a_request_reaches_the_worker_and_ends_with_the_job,
    requests_to_two_jobs_may_have_one_name,
    only_workers_that_offer_what_is_needed_get_a_job,
    a_session_never_reaches_an_older_engine,
    files_are_stored_with_the_result_and_only_for_who_holds_the_session,
    a_session_that_stays_is_stranded_without_its_machine_until_released,
    a_job_that_did_not_begin_leaves_its_session_where_it_is,
    a_worker_prefers_the_sessions_whose_files_it_has,
    a_job_that_is_handed_back_keeps_its_place,
    a_turn_that_was_begun_and_is_handed_back_was_lost,
    a_job_that_is_handed_back_before_its_turn_began_loses_no_attempt,
    a_job_that_was_cancelled_is_not_begun_again,
    a_job_whose_worker_is_lost_is_cancelled_without_another_one,
    jobs_of_a_submitter_that_is_gone_are_cancelled,
    jobs_of_a_submitter_that_could_not_reach_the_board_are_not_cancelled,
    an_imported_session_can_be_resumed,
    what_is_over_is_removed_and_nothing_else,
    bells_reach_those_they_are_for,
    the_status_counts_what_is_there,
);

pub(crate) async fn enqueue(lab: &Lab, ids: &[(&str, u64)]) {
    for (id, number) in ids {
        let outcome = lab.board().enqueue(vec![job(id, session(*number))]).await.unwrap();
        assert_eq!(outcome, [Enqueued::New], "{id}");
    }
}

pub(crate) async fn workers(lab: &Lab, ids: &[&str]) {
    for id in ids {
        lab.board().register(worker(id), LEASE).await.unwrap();
    }
}

async fn jobs_of_a_session_run_one_at_a_time_in_order(lab: &Lab) {
    let board = lab.board();
    workers(lab, &["a/1", "b/1"]).await;
    enqueue(lab, &[("1", 1), ("2", 1), ("3", 2)]).await;
    let first = board.claim("a/1", "c1", 10).await.unwrap();
    assert_eq!(ids(&first), ["1", "3"]);
    assert!(board.claim("b/1", "c1", 10).await.unwrap().is_empty(), "both sessions are in use");
    assert!(board.complete("a/1", completion(first[0].held.clone(), "a")).await.unwrap());
    let second = board.claim("a/1", "c2", 10).await.unwrap();
    assert_eq!(ids(&second), ["2"]);
    assert!(second[0].held.token > first[0].held.token);
}

async fn the_same_key_is_the_same_job(lab: &Lab) {
    let board = lab.board();
    workers(lab, &["a/1"]).await;
    enqueue(lab, &[("1", 1)]).await;
    let again = || vec![job("1", session(2))];
    assert_eq!(board.enqueue(again()).await.unwrap(), [Enqueued::Known]);
    let claimed = board.claim("a/1", "c1", 10).await.unwrap();
    assert_eq!(ids(&claimed), ["1"]);
    assert_eq!(board.enqueue(again()).await.unwrap(), [Enqueued::Known]);
    board.complete("a/1", completion(claimed[0].held.clone(), "a")).await.unwrap();
    assert_eq!(board.enqueue(again()).await.unwrap(), [Enqueued::Known]);
    assert!(board.claim("a/1", "c2", 10).await.unwrap().is_empty(), "it ran once");
    let unknown = job("2", SessionRef::Known("demo-none".to_owned()));
    assert_eq!(board.enqueue(vec![unknown]).await.unwrap(), [Enqueued::NoSession]);
}

async fn a_claim_asked_again_answers_the_same(lab: &Lab) {
    let board = lab.board();
    workers(lab, &["a/1"]).await;
    enqueue(lab, &[("1", 1), ("2", 2)]).await;
    let first = board.claim("a/1", "c1", 1).await.unwrap();
    assert_eq!(board.claim("a/1", "c1", 1).await.unwrap(), first);
    assert_eq!(first[0].attempt, 1);
    assert_eq!(ids(&board.claim("a/1", "c2", 1).await.unwrap()), ["2"]);
}

async fn a_completion_asked_again_answers_the_same_and_a_late_one_is_refused(lab: &Lab) {
    let board = lab.board();
    workers(lab, &["a/1", "b/1"]).await;
    enqueue(lab, &[("1", 1)]).await;
    let late = board.claim("a/1", "c1", 1).await.unwrap().remove(0);
    lab.expire("a/1").await;
    board.reap().await.unwrap();
    let held = board.claim("b/1", "c1", 1).await.unwrap().remove(0).held;
    assert!(!board.complete("a/1", completion(late.held.clone(), "a")).await.unwrap(), "fenced");
    assert!(board.complete("b/1", completion(held.clone(), "b")).await.unwrap());
    assert!(board.complete("b/1", completion(held, "b")).await.unwrap(), "asked again");
    assert!(!board.complete("a/1", completion(late.held, "a")).await.unwrap(), "still fenced");
}

async fn a_lost_worker_gives_its_jobs_back_at_their_place(lab: &Lab) {
    let board = lab.board();
    workers(lab, &["a/1", "b/1"]).await;
    enqueue(lab, &[("1", 1), ("2", 1)]).await;
    let lost = board.claim("a/1", "c1", 1).await.unwrap().remove(0);
    assert_eq!(board.reap().await.unwrap().again, 0, "it lives");
    lab.expire("a/1").await;
    assert_eq!(board.reap().await.unwrap().again, 1);
    let next = board.claim("b/1", "c1", 9).await.unwrap();
    assert_eq!(ids(&next), ["1"]);
    assert_eq!((next[0].attempt, next[0].lost.as_deref()), (2, Some("a/1")));
    assert!(next[0].held.token > lost.held.token);
    assert_eq!(board.beat("a/1", LEASE, 0, false).await.unwrap(), None, "dead is dead");
}

async fn a_job_ends_as_lost_when_it_may_not_be_tried_again(lab: &Lab) {
    let board = lab.board();
    let mut once = job("once", session(1));
    once.on_loss = OnLoss::Fail;
    board.enqueue(vec![once, job("many", session(2))]).await.unwrap();
    for attempt in 1..=3 {
        let id = format!("a/{attempt}");
        workers(lab, &[&id]).await;
        board.claim(&id, "c", 9).await.unwrap();
        lab.expire(&id).await;
        board.reap().await.unwrap();
    }
    for id in ["once", "many"] {
        let rows = board.follow(vec![(id.to_owned(), 0)], 9).await.unwrap();
        assert_eq!(rows.last().unwrap().body["event"]["reason"], "worker_lost", "{id}");
    }
    assert_eq!(board.status().await.unwrap().queued, 0);
}

async fn a_worker_whose_lease_is_over_gets_nothing(lab: &Lab) {
    let board = lab.board();
    workers(lab, &["a/1"]).await;
    enqueue(lab, &[("1", 1)]).await;
    lab.expire("a/1").await;
    assert!(board.claim("a/1", "c1", 1).await.unwrap().is_empty());
    assert!(board.claim("nobody", "c1", 1).await.unwrap().is_empty());
    assert_eq!(board.beat("a/1", LEASE, 0, false).await.unwrap(), None);
}

async fn a_restart_buries_its_predecessor(lab: &Lab) {
    let board = lab.board();
    workers(lab, &["a/1"]).await;
    enqueue(lab, &[("1", 1)]).await;
    let held = board.claim("a/1", "c1", 1).await.unwrap().remove(0).held;
    workers(lab, &["a/2"]).await;
    assert!(!board.complete("a/1", completion(held, "a")).await.unwrap(), "it is dead at once");
    assert_eq!(board.reap().await.unwrap().again, 1, "without waiting for the lease");
    assert_eq!(ids(&board.claim("a/2", "c1", 1).await.unwrap()), ["1"]);
}

async fn a_registration_asked_again_says_what_holds_now(lab: &Lab) {
    let board = lab.board();
    let mut info = worker("a/1");
    board.register(info.clone(), LEASE).await.unwrap();
    lab.expire("a/1").await;
    info.offers.push("label:gpu".to_owned());
    board.register(info, LEASE).await.unwrap();
    let mut special = job("1", session(1));
    special.needs = vec!["engine:demo".to_owned(), "label:gpu".to_owned()];
    board.enqueue(vec![special]).await.unwrap();
    assert_eq!(ids(&board.claim("a/1", "c1", 1).await.unwrap()), ["1"]);
    assert_eq!(board.status().await.unwrap().workers.len(), 1);
}

async fn a_worker_of_a_name_that_another_one_has_is_refused_while_that_one_lives(lab: &Lab) {
    let board = lab.board();
    workers(lab, &["a/1"]).await;
    enqueue(lab, &[("1", 1)]).await;
    let held = board.claim("a/1", "c1", 1).await.unwrap().remove(0).held;
    let mut other = worker("a/2");
    other.instance = Uuid::from_u64_pair(0, 2);
    let error = board.register(other.clone(), LEASE).await.unwrap_err();
    assert!(!error.is_passing() && error.to_string().contains("another worker named a"), "{error}");
    assert!(board.complete("a/1", completion(held, "a")).await.unwrap(), "it is not disturbed");
    lab.expire("a/1").await;
    board.register(other, LEASE).await.unwrap();
    assert!(board.register(worker("a/3"), LEASE).await.is_err(), "nor is the other one now");
}

fn row(job: &str, seq: i64) -> JobRow {
    JobRow { job: job.to_owned(), seq, body: json!({ "n": seq }) }
}

async fn events_are_read_behind_a_cursor_and_the_result_is_last(lab: &Lab) {
    let board = lab.board();
    workers(lab, &["a/1"]).await;
    enqueue(lab, &[("1", 1)]).await;
    let held = board.claim("a/1", "c1", 1).await.unwrap().remove(0).held;
    let rows = vec![row("1", 10), row("1", 11), row("1", 12)];
    let fenced = board.events("a/1", vec![held.clone()], rows.clone()).await.unwrap();
    assert!(fenced.is_empty());
    board.events("a/1", vec![held.clone()], rows).await.unwrap();
    let seqs = |after: i64, max: u32| {
        let board = board.clone();
        async move {
            let rows = board.follow(vec![("1".to_owned(), after)], max).await.unwrap();
            rows.iter().map(|row| row.seq).collect::<Vec<_>>()
        }
    };
    assert_eq!(seqs(0, 9).await, [10, 11, 12], "written twice, there once");
    assert_eq!(seqs(10, 1).await, [11]);
    board.complete("a/1", completion(held, "a")).await.unwrap();
    let last = board.follow(vec![("1".to_owned(), 12)], 9).await.unwrap();
    assert_eq!(last.len(), 1);
    assert_eq!(last[0].body["event"]["answer"], "1");
    assert!(seqs(last[0].seq, 9).await.is_empty());
    assert!(board.follow(vec![("none".to_owned(), 0)], 9).await.unwrap().is_empty());
}

async fn a_fenced_worker_writes_nothing(lab: &Lab) {
    let board = lab.board();
    workers(lab, &["a/1", "b/1"]).await;
    enqueue(lab, &[("1", 1)]).await;
    let old = board.claim("a/1", "c1", 1).await.unwrap().remove(0).held;
    lab.expire("a/1").await;
    board.reap().await.unwrap();
    board.claim("b/1", "c1", 1).await.unwrap();
    let fenced = board.events("a/1", vec![old.clone()], vec![row("1", 10)]).await.unwrap();
    assert_eq!(fenced, ["1"]);
    assert_eq!(board.opened("a/1", old.clone(), "demo-x").await.unwrap(), Opened::Fenced);
    assert!(!board.hand_back("a/1", old, true).await.unwrap());
    assert!(board.follow(vec![("1".to_owned(), 0)], 9).await.unwrap().is_empty());
}

pub(crate) fn request(id: &str, job: &str, kind: ControlKind) -> ControlRequest {
    ControlRequest { id: id.to_owned(), job: job.to_owned(), kind, body: json!({ "text": id }) }
}

async fn a_queued_job_is_cancelled_without_a_worker(lab: &Lab) {
    let board = lab.board();
    enqueue(lab, &[("1", 1), ("2", 1), ("3", 1)]).await;
    for id in ["1", "2"] {
        let cancel = request(&format!("x{id}"), id, ControlKind::Cancel);
        assert_eq!(board.control(cancel).await.unwrap(), ControlState::Taken);
        let rows = board.follow(vec![(id.to_owned(), 0)], 9).await.unwrap();
        assert_eq!(rows[0].body["event"]["reason"], "interrupted");
    }
    workers(lab, &["a/1"]).await;
    assert_eq!(ids(&board.claim("a/1", "c1", 9).await.unwrap()), ["3"]);
    let unknown = request("x", "none", ControlKind::Cancel);
    assert_eq!(board.control(unknown).await.unwrap(), ControlState::Unknown);
    assert_eq!(board.waiting("none").await.unwrap(), None);
}

async fn a_request_reaches_the_worker_and_ends_with_the_job(lab: &Lab) {
    let board = lab.board();
    workers(lab, &["a/1"]).await;
    enqueue(lab, &[("1", 1)]).await;
    let steer = request("s", "1", ControlKind::Steer);
    assert_eq!(board.control(steer.clone()).await.unwrap(), ControlState::Waiting);
    assert!(board.controls("a/1").await.unwrap().is_empty(), "not its job yet");
    let held = board.claim("a/1", "c1", 9).await.unwrap().remove(0).held;
    assert_eq!(
        board.control(request("x", "1", ControlKind::Cancel)).await.unwrap(),
        ControlState::Waiting
    );
    let pending = board.controls("a/1").await.unwrap();
    let kinds: Vec<_> = pending.iter().map(|pending| pending.kind).collect();
    assert_eq!(kinds, [ControlKind::Steer, ControlKind::Cancel]);
    assert_eq!((&pending[0].held, &pending[0].body), (&held, &steer.body));
    board.settle("a/1", held.clone(), "s", true).await.unwrap();
    assert_eq!(board.control(steer.clone()).await.unwrap(), ControlState::Taken);
    assert_eq!(board.controls("a/1").await.unwrap().len(), 1);
    board.complete("a/1", completion(held, "a")).await.unwrap();
    assert_eq!(
        board.control(request("x", "1", ControlKind::Cancel)).await.unwrap(),
        ControlState::Refused
    );
    assert_eq!(
        board.control(request("late", "1", ControlKind::Steer)).await.unwrap(),
        ControlState::Refused
    );
}

async fn requests_to_two_jobs_may_have_one_name(lab: &Lab) {
    let board = lab.board();
    workers(lab, &["a/1"]).await;
    enqueue(lab, &[("1", 1), ("2", 2)]).await;
    assert_eq!(board.claim("a/1", "c1", 9).await.unwrap().len(), 2);
    for job in ["1", "2"] {
        let cancel = request("x", job, ControlKind::Cancel);
        assert_eq!(board.control(cancel).await.unwrap(), ControlState::Waiting);
    }
    let mut pending = board.controls("a/1").await.unwrap();
    pending.sort_unstable_by(|one, other| one.held.cmp(&other.held));
    let jobs: Vec<_> = pending.iter().map(|pending| pending.held.job.as_str()).collect();
    assert_eq!(jobs, ["1", "2"]);
    // What becomes of the one is nothing to the other.
    let settled = pending[0].held.clone();
    board.settle("a/1", settled.clone(), "x", true).await.unwrap();
    let left = board.controls("a/1").await.unwrap();
    assert_eq!(left, pending[1..]);
    let late = Held { token: left[0].held.token - 1, ..left[0].held.clone() };
    board.settle("a/1", late, "x", true).await.unwrap();
    assert_eq!(board.controls("a/1").await.unwrap(), left, "it is not held under that token");
    assert!(board.complete("a/1", completion(settled, "a")).await.unwrap());
}

async fn only_workers_that_offer_what_is_needed_get_a_job(lab: &Lab) {
    let board = lab.board();
    let mut special = job("1", session(1));
    special.needs = vec!["engine:demo".to_owned(), "label:gpu".to_owned()];
    board.enqueue(vec![special]).await.unwrap();
    workers(lab, &["a/1"]).await;
    assert!(board.claim("a/1", "c1", 9).await.unwrap().is_empty());
    let waiting = board.waiting("1").await.unwrap().unwrap();
    assert_eq!((waiting.offered, waiting.missing), (false, vec!["label:gpu".to_owned()]));
    let mut able = worker("b/1");
    able.offers.push("label:gpu".to_owned());
    board.register(able, LEASE).await.unwrap();
    assert!(board.waiting("1").await.unwrap().unwrap().offered);
    assert_eq!(ids(&board.claim("b/1", "c1", 9).await.unwrap()), ["1"]);
}

async fn a_job_that_is_handed_back_keeps_its_place(lab: &Lab) {
    let board = lab.board();
    workers(lab, &["a/1", "b/1"]).await;
    enqueue(lab, &[("1", 1), ("2", 1)]).await;
    let held = board.claim("a/1", "c1", 1).await.unwrap().remove(0).held;
    assert!(board.hand_back("a/1", held, true).await.unwrap());
    assert_eq!(ids(&board.claim("b/1", "c1", 9).await.unwrap()), ["1"]);
}

/// How a job ended.
pub(crate) async fn reason(lab: &Lab, job: &str) -> serde_json::Value {
    let rows = lab.board().follow(vec![(job.to_owned(), 0)], 9).await.unwrap();
    rows.last().map(|row| row.body["event"]["reason"].clone()).unwrap_or_default()
}

async fn a_turn_that_was_begun_and_is_handed_back_was_lost(lab: &Lab) {
    let board = lab.board();
    workers(lab, &["a/1"]).await;
    let mut once = job("once", session(1));
    once.on_loss = OnLoss::Fail;
    board.enqueue(vec![once, job("many", session(2))]).await.unwrap();
    for attempt in 1..=3 {
        let claimed = board.claim("a/1", &format!("c{attempt}"), 9).await.unwrap();
        let expected: &[&str] = if attempt == 1 { &["once", "many"] } else { &["many"] };
        assert_eq!(ids(&claimed), expected, "attempt {attempt}");
        for one in claimed {
            assert!(board.hand_back("a/1", one.held, true).await.unwrap());
        }
    }
    for id in ["once", "many"] {
        assert_eq!(reason(lab, id).await, "worker_lost", "{id}");
    }
    assert!(board.claim("a/1", "c4", 9).await.unwrap().is_empty());
}

async fn a_job_that_is_handed_back_before_its_turn_began_loses_no_attempt(lab: &Lab) {
    let board = lab.board();
    workers(lab, &["a/1"]).await;
    let mut once = job("once", session(1));
    once.on_loss = OnLoss::Fail;
    board.enqueue(vec![once, job("many", session(2))]).await.unwrap();
    for round in 1..=5 {
        let claimed = board.claim("a/1", &format!("c{round}"), 9).await.unwrap();
        assert_eq!(ids(&claimed), ["once", "many"], "round {round}");
        for one in claimed {
            assert_eq!((one.attempt, one.lost), (1, None));
            assert!(board.hand_back("a/1", one.held, false).await.unwrap());
        }
    }
}

async fn a_job_that_was_cancelled_is_not_begun_again(lab: &Lab) {
    let board = lab.board();
    workers(lab, &["a/1"]).await;
    enqueue(lab, &[("lost", 1), ("back", 2), ("unbegun", 3), ("next", 3)]).await;
    let claimed = board.claim("a/1", "c1", 9).await.unwrap();
    assert_eq!(ids(&claimed), ["lost", "back", "unbegun"]);
    for id in ids(&claimed) {
        let cancel = request(&format!("x{id}"), id, ControlKind::Cancel);
        assert_eq!(board.control(cancel).await.unwrap(), ControlState::Waiting);
    }
    board.hand_back("a/1", claimed[1].held.clone(), true).await.unwrap();
    board.hand_back("a/1", claimed[2].held.clone(), false).await.unwrap();
    lab.expire("a/1").await;
    let reaped = board.reap().await.unwrap();
    assert_eq!((reaped.again, reaped.ended.len()), (0, 1));
    for id in ["lost", "back", "unbegun"] {
        assert_eq!(reason(lab, id).await, "interrupted", "{id}");
    }
    workers(lab, &["b/1"]).await;
    assert_eq!(ids(&board.claim("b/1", "c1", 9).await.unwrap()), ["next"]);
}

async fn what_is_over_is_removed_and_nothing_else(lab: &Lab) {
    let board = lab.board();
    workers(lab, &["a/1"]).await;
    enqueue(lab, &[("1", 1), ("2", 2), ("3", 2)]).await;
    for claimed in board.claim("a/1", "c1", 9).await.unwrap() {
        board
            .events("a/1", vec![claimed.held.clone()], vec![row(&claimed.held.job, 5)])
            .await
            .unwrap();
        board.complete("a/1", completion(claimed.held, "a")).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(5)).await;
    let nothing = board.gc(Retention::default(), false).await.unwrap();
    assert_eq!((nothing.events, nothing.results, nothing.sessions), (0, 0, 0));
    let zero = Duration::ZERO;
    let all = Retention { events: zero, results: zero, sessions: zero };
    let counted = board.gc(all, true).await.unwrap();
    assert_eq!((counted.events, counted.results, counted.sessions), (2, 2, 1));
    board.gc(all, false).await.unwrap();
    assert_eq!(board.waiting("1").await.unwrap(), None);
    assert_eq!(ids(&board.claim("a/1", "c2", 9).await.unwrap()), ["3"], "its session has work");
}

async fn bells_reach_those_they_are_for(lab: &Lab) {
    let board = lab.board();
    let mut worker = board.listen(Listener::Worker("a/1".to_owned()));
    let mut submitter = board.listen(Listener::Submitter("s1".to_owned()));
    assert_eq!(worker.recv().await, Some(Ring::Everything), "what was rung before was missed");
    assert_eq!(submitter.recv().await, Some(Ring::Everything));
    board.ring(Bell::Submitter { id: "s2".to_owned(), job: "0".to_owned() });
    board.ring(Bell::Worker("b/1".to_owned()));
    board.ring(Bell::Submitter { id: "s1".to_owned(), job: "1".to_owned() });
    assert_eq!(submitter.recv().await, Some(Ring::Jobs(vec!["1".to_owned()])));
    board.ring(Bell::Work);
    assert_eq!(worker.recv().await, Some(Ring::Work));
    board.ring(Bell::Worker("a/1".to_owned()));
    assert_eq!(worker.recv().await, Some(Ring::Control));
}

async fn the_status_counts_what_is_there(lab: &Lab) {
    let board = lab.board();
    workers(lab, &["a/1"]).await;
    enqueue(lab, &[("1", 1), ("2", 1), ("3", 3)]).await;
    let claimed = board.claim("a/1", "c1", 1).await.unwrap().remove(0);
    let held = vec![Held { job: "1".to_owned(), token: claimed.held.token }];
    assert_eq!(board.beat("a/1", LEASE, 1, true).await.unwrap(), Some(held));
    let status = board.status().await.unwrap();
    assert_eq!((status.queued, status.running, status.sessions), (2, 1, 2));
    assert_eq!((status.workers[0].busy, status.workers[0].held), (1, 1));
    assert!(status.workers[0].draining && status.workers[0].alive);
    assert_eq!((status.lines.len(), status.lines[0].sessions_ready), (1, 1));
    assert!(board.claim("a/1", "c2", 9).await.unwrap().is_empty(), "it takes no more");
    let jobs = board.jobs(9).await.unwrap();
    let states: Vec<_> = jobs.iter().map(|job| (job.id.as_str(), job.state.as_str())).collect();
    assert_eq!(states, [("3", "queued"), ("2", "queued"), ("1", "running")]);
}
