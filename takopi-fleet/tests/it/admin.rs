//! What people who look after the fleet see and may do.

use serde_json::json;
use takopi_fleet::PgBoard;
use takopi_fleet::board::{Board, BoardError, ControlKind, ControlRequest, ControlState};

use crate::lab::{LEASE, Lab, completion, ids, job, session, worker};
use crate::roles::board_of;

fn cancel(job: &str) -> ControlRequest {
    let (id, job) = (format!("cancel:{job}"), job.to_owned());
    ControlRequest { id, job, kind: ControlKind::Cancel, body: json!({}) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_picture_shows_workers_leases_lines_and_what_ended() {
    let Some(lab) = Lab::pg().await else { return };
    let Lab::Pg { board, .. } = &lab else { return };
    assert_eq!(board.schema_version().await.unwrap(), PgBoard::newest_schema());
    let empty = board.overview().await.unwrap();
    assert_eq!((empty.ended.len(), empty.ended.iter().sum::<u64>()), (30, 0));
    board.register(worker("a/1"), LEASE).await.unwrap();
    board.enqueue(vec![job("1", session(1)), job("2", session(2))]).await.unwrap();
    let held = board.claim("a/1", "c", 1).await.unwrap().remove(0).held;
    let now = board.overview().await.unwrap();
    assert_eq!((now.status.running, now.status.queued, now.status.lines.len()), (1, 1, 1));
    assert!(now.lease_of("a/1").is_some_and(|left| left > 500.0), "{now:?}");
    assert!(now.all_bytes > now.file_bytes);
    board.complete("a/1", completion(held, "a")).await.unwrap();
    lab.expire("a/1").await;
    let now = board.overview().await.unwrap();
    assert_eq!(now.ended.last(), Some(&1));
    assert!(now.lease_of("a/1").is_some_and(|left| left < 0.0) && !now.status.workers[0].alive);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_owner_of_the_schema_sees_and_cancels_the_jobs_of_others_and_nobody_else_does() {
    let Some(lab) = Lab::pg().await else { return };
    let Lab::Pg { board: owner, .. } = &lab else { return };
    let alice = board_of(&lab, "alice", "takopi_submit").await;
    let bob = board_of(&lab, "bob", "takopi_submit").await;
    alice.enqueue(vec![job("1", session(1)), job("2", session(2))]).await.unwrap();
    owner.register(worker("a/1"), LEASE).await.unwrap();
    assert_eq!(ids(&owner.claim("a/1", "c", 1).await.unwrap()), ["1"]);

    assert!(
        bob.overview().await.is_ok_and(|now| now.status.running == 1),
        "figures are everybody's"
    );
    assert!(matches!(bob.jobs_of_all(9).await, Err(BoardError::Refused(_))));
    assert_eq!(bob.control(cancel("2")).await.unwrap(), ControlState::Unknown);
    let all = owner.jobs_of_all(9).await.unwrap();
    let seen: Vec<_> = all.iter().map(|job| (job.line.id.as_str(), job.owner.as_deref())).collect();
    assert_eq!(seen, [("2", Some("alice")), ("1", Some("alice"))]);
    assert_eq!(owner.control(cancel("2")).await.unwrap(), ControlState::Taken);
    assert_eq!(owner.control(cancel("1")).await.unwrap(), ControlState::Waiting);
    assert_eq!(owner.controls("a/1").await.unwrap().len(), 1);
}
