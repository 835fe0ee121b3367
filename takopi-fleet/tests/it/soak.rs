//! A queue under load for a long time: what is over is removed, and its space is used again.
//!
//! The load is the same all the time: what is kept for a number of seconds is then the same number of rows,
//! and only what is never removed can make the tables grow.
//!
//! `TAKOPI_FLEET_SOAK=30` runs it for so many minutes; it is not run otherwise.

use std::time::{Duration, Instant};

use serde_json::json;
use takopi_fleet::PgBoard;
use takopi_fleet::board::{Board as _, JobRow, Piece, Retention};
use takopi_tests::postgres::Postgres;
use tokio::time::MissedTickBehavior;

use crate::lab::{LEASE, completion, execute, job, session, worker};

const SIZE: &str = "select sum(pg_total_relation_size(c.oid)) from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'takopi' and c.relkind = 'r'";
/// Jobs of one round, each of another session.
const ROUND: u64 = 100;
/// The time from one round to the next, longer than a round takes.
const PACE: Duration = Duration::from_secs(1);
/// The parts of the time whose sizes are compared; the first is the warm-up.
const PARTS: usize = 6;

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
    let (mut round, mut late, mut sizes) = (0, 0, Vec::new());
    let mut pace = tokio::time::interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while begun.elapsed() < length {
        let due = pace.tick().await;
        late += u32::from(due.elapsed() > PACE / 4);
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
        board.beat("a/1", LEASE, 0, false).await.unwrap();
        let size: u64 = execute(&url, SIZE).await.parse().unwrap();
        sizes.push(size >> 10);
    }
    let by_table = "select string_agg(c.relname || ' ' || pg_total_relation_size(c.oid) / 1024, ', ' order by c.relname) from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'takopi' and c.relkind = 'r'";
    println!("KiB by table: {}", execute(&url, by_table).await);
    println!("{} jobs in {round} rounds, {late} of them late", round * ROUND);
    let parts: Vec<_> = sizes.chunks(sizes.len().div_ceil(PARTS)).map(spread).collect();
    println!("KiB, lowest, median and highest in each part of the time: {parts:?}");
    // A table goes up and down with each vacuum, so medians show what stays.
    let [_, warm, .., last] = &parts[..] else { panic!("too short") };
    assert!(last[1] <= warm[1] + warm[1] / 10, "the median grows: {parts:?}");
    let highest = |parts: &[[u64; 3]]| parts.iter().map(|part| part[2]).max();
    assert!(
        highest(&parts[PARTS / 2..]) <= highest(&parts[..PARTS / 2]).map(|most| most * 5 / 4),
        "{parts:?}"
    );
}

/// The lowest, the median and the highest of some sizes.
fn spread(sizes: &[u64]) -> [u64; 3] {
    let mut sizes = sizes.to_vec();
    sizes.sort_unstable();
    [sizes[0], sizes[sizes.len() / 2], sizes[sizes.len() - 1]]
}
