//! What users of the database may do.

use std::time::Duration;

use takopi_fleet::PgBoard;
use takopi_fleet::board::{
    Board, BoardError, ControlKind, ControlRequest, ControlState, Enqueued, JobRow, Opened, Piece,
    Removed, Retention,
};

use crate::lab::{LEASE, Lab, completion, database, ids, job, session, worker};

pub(crate) async fn board_of(lab: &Lab, user: &str, role: &str) -> PgBoard {
    let Lab::Pg { url, .. } = lab else { panic!("only PostgreSQL has users") };
    // Users are the server's, and shared by its databases.
    let sql = format!(
        "do $$ begin if not exists (select 1 from pg_roles where rolname = '{user}') then create role {user} login; end if; exception when duplicate_object or unique_violation then null; end $$; grant {role} to {user}"
    );
    lab.sql(&sql).await;
    PgBoard::connect(url.replace("user=takopi", &format!("user={user}")).parse().unwrap())
        .await
        .unwrap()
}

fn refused<T: std::fmt::Debug>(answer: &Result<T, BoardError>) {
    assert!(
        matches!(answer, Err(BoardError::Refused(detail)) if detail.contains("permission denied")),
        "{answer:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_submitter_cannot_work_and_a_worker_cannot_submit() {
    let Some(lab) = Lab::pg().await else { return };
    let submitter = board_of(&lab, "alice", "takopi_submit").await;
    let server = board_of(&lab, "wanda", "takopi_work").await;
    assert_eq!(submitter.enqueue(vec![job("1", session(1))]).await.unwrap(), [Enqueued::New]);
    refused(&submitter.register(worker("a/1"), LEASE).await);
    refused(&submitter.claim("a/1", "c", 1).await);
    refused(&submitter.reap().await);
    refused(&server.enqueue(vec![job("2", session(2))]).await);
    refused(&server.follow(vec![("1".to_owned(), 0)], 9).await);
    server.register(worker("a/1"), LEASE).await.unwrap();
    assert_eq!(ids(&server.claim("a/1", "c", 1).await.unwrap()), ["1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_submitter_sees_and_touches_only_what_is_its_own() {
    let Some(lab) = Lab::pg().await else { return };
    let alice = board_of(&lab, "alice", "takopi_submit").await;
    let mallory = board_of(&lab, "mallory", "takopi_submit").await;
    alice.enqueue(vec![job("1", session(1))]).await.unwrap();
    assert_eq!(mallory.enqueue(vec![job("1", session(2))]).await.unwrap(), [Enqueued::Foreign]);
    // A session of somebody else cannot be joined by guessing its name.
    assert_eq!(mallory.enqueue(vec![job("2", session(1))]).await.unwrap(), [Enqueued::NoSession]);
    assert!(mallory.follow(vec![("1".to_owned(), -1)], 9).await.unwrap().is_empty());
    assert_eq!(mallory.waiting("1").await.unwrap(), None);
    assert!(mallory.jobs(9).await.unwrap().is_empty());
    assert_eq!(alice.jobs(9).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_works_in_the_name_of_a_worker_of_another_user() {
    let Some(lab) = Lab::pg().await else { return };
    let wanda = board_of(&lab, "wanda", "takopi_work").await;
    let trudy = board_of(&lab, "trudy", "takopi_work").await;
    lab.board().enqueue(vec![job("1", session(1)), job("2", session(2))]).await.unwrap();
    wanda.register(worker("a/1"), LEASE).await.unwrap();
    let claimed = wanda.claim("a/1", "c1", 1).await.unwrap().remove(0);
    let held = claimed.held;
    let steer = ControlRequest {
        id: "s".to_owned(),
        job: "1".to_owned(),
        kind: ControlKind::Steer,
        body: serde_json::json!({}),
    };
    lab.board().control(steer.clone()).await.unwrap();
    assert!(trudy.claim("a/1", "c1", 9).await.unwrap().is_empty());
    assert_eq!(trudy.beat("a/1", LEASE, 0, true).await.unwrap(), None);
    assert_eq!(trudy.opened("a/1", held.clone(), "demo-x").await.unwrap(), Opened::Fenced);
    let row = JobRow { job: "1".to_owned(), seq: 5, body: serde_json::json!({}) };
    assert_eq!(trudy.events("a/1", vec![held.clone()], vec![row]).await.unwrap(), ["1"]);
    assert!(!trudy.complete("a/1", completion(held.clone(), "a")).await.unwrap());
    assert!(!trudy.hand_back("a/1", held.clone(), true).await.unwrap());
    assert!(trudy.controls("a/1").await.unwrap().is_empty());
    trudy.settle("a/1", held.clone(), "s", true).await.unwrap();
    assert_eq!(lab.board().control(steer).await.unwrap(), ControlState::Waiting);
    assert!(trudy.register(worker("a/2"), LEASE).await.is_err(), "nor takes its place");
    let mut done = completion(held, "a");
    done.files = vec![Piece { path: "p".to_owned(), start: 0, data: b"x".to_vec() }];
    assert!(wanda.complete("a/1", done).await.unwrap(), "it is not disturbed");
    lab.board().enqueue(vec![job("3", session(1))]).await.unwrap();
    wanda.claim("a/1", "c2", 9).await.unwrap();
    assert!(trudy.files("a/1", claimed.sid).await.unwrap().is_empty());
    assert_eq!(wanda.files("a/1", claimed.sid).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_cannot_remove_what_others_still_need() {
    let Some(lab) = Lab::pg().await else { return };
    let wanda = board_of(&lab, "wanda", "takopi_work").await;
    lab.board().enqueue(vec![job("1", session(1))]).await.unwrap();
    wanda.register(worker("a/1"), LEASE).await.unwrap();
    let held = wanda.claim("a/1", "c1", 1).await.unwrap().remove(0).held;
    wanda.complete("a/1", completion(held, "a")).await.unwrap();
    let zero = Duration::ZERO;
    let all = Retention { events: zero, results: zero, sessions: zero };
    assert_eq!(wanda.gc(all, false).await.unwrap(), Removed::default());
    assert_eq!(lab.board().gc(all, false).await.unwrap().results, 1, "its owner can");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_reads_the_tables() {
    let Some(lab) = Lab::pg().await else { return };
    board_of(&lab, "alice", "takopi_submit").await;
    for table in ["job", "event", "session", "file", "worker", "control", "name"] {
        let may = lab.sql(&format!("select has_table_privilege('alice', 'takopi.{table}', 'select, insert, update, delete')")).await;
        assert_eq!(may, "f", "{table}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_without_a_queue_is_named_and_init_is_repeatable() {
    let Some(server) = takopi_tests::postgres::shared_or_skip() else { return };
    let url: takopi_fleet::board::pg::Url = database(server).await.parse().unwrap();
    let error = PgBoard::connect(url.clone()).await.err().unwrap().to_string();
    assert!(error.contains("PgBoard::init"), "{error}");
    let both = futures::future::join(PgBoard::init(&url), PgBoard::init(&url)).await;
    let applied = [both.0.unwrap(), both.1.unwrap()].concat();
    let all: Vec<i32> = (1..=PgBoard::newest_schema()).collect();
    assert_eq!(applied, all, "each once, by one of them");
    assert!(PgBoard::init(&url).await.unwrap().is_empty());
}
