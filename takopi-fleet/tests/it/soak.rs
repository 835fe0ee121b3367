//! A queue under load for a long time: what is over is removed, and its space is used again.
//!
//! `TAKOPI_FLEET_SOAK=30` runs it for so many minutes; it is not run otherwise.

use std::time::{Duration, Instant};

use serde_json::json;
use takopi_fleet::PgBoard;
use takopi_fleet::board::{Board as _, JobRow, Piece, Retention};
use takopi_tests::postgres::Postgres;

use crate::lab::{LEASE, completion, execute, job, session, worker};

const SIZE: &str = "select sum(pg_total_relation_size(c.oid)) from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'takopi' and c.relkind = 'r'";
/// Jobs of one round, each of another session.
const ROUND: u64 = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_and_indexes_do_not_grow_under_load() {
    let Ok(minutes) = std::env::var("TAKOPI_FLEET_SOAK") else { return };
    let minutes: f64 = minutes.parse().unwrap();
    let length = Duration::from_secs_f64(60.0 * minutes);
    let server = Postgres::start(&["autovacuum_naptime=5s"]).unwrap();
    let url = server.url("takopi", "postgres");
    PgBoard::init(&url.parse().unwrap()).await.unwrap();
    let board = PgBoard::connect(url.parse().unwrap()).await.unwrap();
    board.register(worker("a/1"), LEASE).await.unwrap();
    // As in a fleet of a month, in seconds.
    let second = Duration::from_secs(1);
    let retention = Retention { events: second, results: second * 5, sessions: second * 20 };
    let begun = Instant::now();
    let (mut round, mut sizes) = (0, Vec::new());
    while begun.elapsed() < length {
        round += 1;
        let jobs =
            (0..ROUND).map(|n| job(&format!("{round}/{n}"), session(n + round / 10 * ROUND)));
        board.enqueue(jobs.collect()).await.unwrap();
        for claimed in board.claim("a/1", &format!("c{round}"), 100).await.unwrap() {
            let held = claimed.held;
            let id = held.job.clone();
            let row = |seq| JobRow { job: id.clone(), seq, body: json!({ "x": "y".repeat(200) }) };
            board.events("a/1", vec![held.clone()], (1..4).map(row).collect()).await.unwrap();
            let mut done = completion(held, "a");
            let data = vec![7; 2000];
            done.files = vec![Piece { path: format!("{id}.log"), start: 0, data }];
            assert!(board.complete("a/1", done).await.unwrap());
        }
        while board.gc(retention, false).await.unwrap() != takopi_fleet::board::Removed::default() {
        }
        if round % 5 == 0 {
            board.beat("a/1", LEASE, 0, false).await.unwrap();
            let size: u64 = execute(&url, SIZE).await.parse().unwrap();
            sizes.push(size >> 10);
        }
    }
    let by_table = "select string_agg(c.relname || ' ' || pg_total_relation_size(c.oid) / 1024, ', ' order by c.relname) from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'takopi' and c.relkind = 'r'";
    println!("KiB by table: {}", execute(&url, by_table).await);
    println!("{} jobs, KiB over time: {sizes:?}", round * ROUND);
    // It goes up and down with each vacuum, so the highest of each part of the time are compared.
    let third = sizes.len() / 3;
    let highest = |sizes: &[u64]| sizes.iter().copied().max().expect("long enough");
    let (warm, last) = (highest(&sizes[third..2 * third]), highest(&sizes[2 * third..]));
    assert!(last <= warm + warm / 2, "{last} KiB at the end, {warm} KiB in the middle");
}
