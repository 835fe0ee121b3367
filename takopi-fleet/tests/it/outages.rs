//! A database that is killed and comes back.

use std::sync::Arc;

use takopi_core::demo::Demo;
use takopi_core::{Host, RunRequest, Runner};
use takopi_fleet::PgBoard;
use takopi_fleet::board::{Board, Enqueued};
use takopi_fleet::work::WorkerOptions;
use takopi_tests::postgres::{self, Postgres};
use takopi_tests::runs::{finish, is_started, until};
use tokio_util::sync::CancellationToken;

use crate::contract::{Approval, demo_worker, fleet_runner};
use crate::lab::{Lab, execute, job, session};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_go_on_while_the_database_is_killed_and_started_again() {
    if postgres::shared_or_skip().is_none() {
        return;
    }
    let mut server = Postgres::start(&[]).unwrap();
    let url: takopi_fleet::board::pg::Url = server.url("takopi", "postgres").parse().unwrap();
    PgBoard::init(&url).await.unwrap();
    let board: Arc<dyn Board> = Arc::new(PgBoard::connect(url).await.unwrap());
    let dir = tempfile::tempdir().unwrap();
    let stop = CancellationToken::new();
    let options = WorkerOptions::new("m1", dir.path().join("m1"));
    let worker = demo_worker(board.clone(), options, Demo::new(), stop.clone());
    let host = Host::builder().state_directory(dir.path().join("submitter")).build().unwrap();
    let runner = fleet_runner(&board, &host);
    let gate = Approval::default();
    let mut stream = runner.run(RunRequest::new("hello").approvals(Arc::new(gate.clone())));
    let seen = until(&mut stream, "Started", is_started).await;
    gate.asked.cancelled().await;
    // The answer, the events behind it and the result meet a database that is away.
    let server = tokio::task::spawn_blocking(move || {
        server.kill();
        server
    });
    let mut server = server.await.unwrap();
    gate.open.cancel();
    let queued = runner.run(RunRequest::new("meanwhile"));
    let server = tokio::task::spawn_blocking(move || {
        server.up().unwrap();
        server
    });
    let _server = server.await.unwrap();
    let seen = finish(stream, seen).await;
    assert!(seen.ok().answer.contains("hello"));
    assert!(finish(queued, Vec::new()).await.ok().answer.contains("meanwhile"));
    let jobs = board.jobs(9).await.unwrap();
    assert_eq!(
        jobs.iter().map(|job| job.attempts).collect::<Vec<_>>(),
        [1, 1],
        "no turn was repeated"
    );
    stop.cancel();
    tokio::task::spawn_blocking(move || worker.join().unwrap()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_takes_no_writes_is_waited_for() {
    let Some(lab) = Lab::pg().await else { return };
    let Lab::Pg { url, .. } = &lab else { return };
    // As a server that became a standby.
    let name = lab.sql("select current_database()").await;
    let set = |on: bool| format!("alter database {name} set default_transaction_read_only = {on}");
    lab.sql(&set(true)).await;
    let refused = PgBoard::connect(url.parse().unwrap()).await.err().unwrap();
    assert!(refused.is_passing(), "{refused}");
    let writable = url.clone() + " options='-c default_transaction_read_only=off'";
    execute(&writable, &set(false)).await;
    let board = PgBoard::connect(url.parse().unwrap()).await.unwrap();
    assert_eq!(board.enqueue(vec![job("1", session(1))]).await.unwrap(), [Enqueued::New]);
}
