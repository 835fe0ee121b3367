//! What every board promises about submitters that are silent: a part of the suite.

use std::time::Duration;

use takopi_fleet::board::{ControlKind, OnGone, SUBMITTER_LEASE};

use crate::lab::{LEASE, Lab, ids, job, session};
use crate::suite::{reason, workers};

pub(crate) async fn jobs_of_a_submitter_that_is_gone_are_cancelled(lab: &Lab) {
    let board = lab.board();
    workers(lab, &["a/1"]).await;
    let of = |id: &str, number, on_gone| {
        let mut job = job(id, session(number));
        (job.on_gone, job.submitter) = (on_gone, "gone".to_owned());
        job
    };
    board.submitter_beat("gone", Duration::ZERO).await.unwrap();
    let jobs = vec![
        of("run", 1, OnGone::Cancel),
        of("wait", 1, OnGone::Cancel),
        of("on", 3, OnGone::Continue),
    ];
    board.enqueue(jobs).await.unwrap();
    assert_eq!(ids(&board.claim("a/1", "c1", 1).await.unwrap()), ["run"]);
    beats_until_done(lab, "a/1", "wait").await;
    let pending = board.controls("a/1").await.unwrap();
    assert_eq!((pending.len(), pending[0].kind), (1, ControlKind::Cancel));
    assert_eq!(board.waiting("wait").await.unwrap().unwrap().state, "done");
    assert_eq!(board.waiting("on").await.unwrap().unwrap().state, "queued");
}

/// How often a worker beats, and nobody else does, until a job is done.
async fn beats_until_done(lab: &Lab, worker: &str, job: &str) -> u32 {
    let board = lab.board();
    for beats in 1..1000 {
        lab.pass(Duration::from_secs(5)).await;
        board.beat(worker, LEASE, 0, false).await.unwrap().unwrap();
        board.reap().await.unwrap();
        if board.waiting(job).await.unwrap().unwrap().state == "done" {
            return beats;
        }
    }
    panic!("{job} does not end");
}

pub(crate) async fn jobs_of_a_submitter_that_could_not_reach_the_board_are_not_cancelled(
    lab: &Lab,
) {
    let board = lab.board();
    // The workers' leases are longer than the time in which nobody reaches the board, or not.
    for (id, number, survives) in [("first", 1, true), ("second", 2, false)] {
        workers(lab, &["a/1"]).await;
        for _ in 0..9 {
            lab.pass(Duration::from_secs(5)).await;
            board.beat("a/1", LEASE, 0, false).await.unwrap().unwrap();
        }
        let mut attended = job(id, session(number));
        attended.on_gone = OnGone::Cancel;
        board.submitter_beat("s1", SUBMITTER_LEASE).await.unwrap();
        board.enqueue(vec![attended]).await.unwrap();
        lab.pass(Duration::from_secs(40)).await;
        if !survives {
            lab.expire("a/1").await;
        }
        let state = async || board.waiting(id).await.unwrap().unwrap().state;
        // Workers are back before the submitter.
        let back = format!("b/{number}");
        workers(lab, &[&back]).await;
        board.reap().await.unwrap();
        assert_eq!(state().await, "queued", "a worker came");
        assert_eq!(board.beat("a/1", LEASE, 0, false).await.unwrap().is_some(), survives);
        board.reap().await.unwrap();
        assert_eq!(state().await, "queued", "a worker is heard again");
        // It does not come back.
        let beats = beats_until_done(lab, &back, id).await;
        if matches!(lab, Lab::Memory(_)) {
            assert_eq!(beats, 7, "its time began anew");
        }
        assert_eq!(reason(lab, id).await, "interrupted");
    }
}
