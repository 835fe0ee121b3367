//! Many jobs over few sessions while everything dies now and then: worker processes are killed and suspended, connections cut, the
//! database killed.
//!
//! `TAKOPI_FLEET_CHAOS=10000,1000,100` runs so many jobs over so many sessions with so many kills of workers; without it the test takes
//! some seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use takopi_fleet::PgBoard;
use takopi_fleet::board::{Board, NewJob};
use takopi_tests::dice::Dice;
use takopi_tests::postgres::{self, Postgres};

use crate::lab::{execute, job, session};
use crate::ledger::{LEDGER, Ledger, turns};
use crate::process::{Engine, Plan, WorkerProcess};
use crate::proxy::Proxy;

/// The database is away for less than this.
const OUTAGE: Duration = Duration::from_mins(2);
const WORKERS: usize = 4;
const SLOTS: u32 = 8;

/// What happens, and how often.
#[derive(Clone, Copy)]
struct Faults {
    kills: usize,
    pauses: usize,
    cuts: usize,
    outages: usize,
}

struct Chaos {
    server: Option<Postgres>,
    board: Arc<dyn Board>,
    proxy: Proxy,
    plans: Vec<Plan>,
    workers: Vec<WorkerProcess>,
    /// Workers that are suspended, and until when.
    suspended: BTreeMap<usize, Instant>,
    lease: Duration,
    shared: PathBuf,
    dice: Dice,
    _dir: tempfile::TempDir,
}

impl Chaos {
    async fn new(lease: Duration, work: Duration) -> Option<Self> {
        postgres::shared_or_skip()?;
        let server = Postgres::start(&[]).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let proxy = Proxy::start(dir.path(), server.socket());
        let url = server.url("takopi", "postgres").parse().unwrap();
        PgBoard::init(&url).await.unwrap();
        let board: Arc<dyn Board> =
            Arc::new(PgBoard::connect(proxy.url("postgres").parse().unwrap()).await.unwrap());
        let shared = dir.path().join("shared");
        std::fs::create_dir(&shared).unwrap();
        let plan = |n: usize| {
            let state = dir.path().join(format!("m{n}"));
            let home = state.join("home");
            std::fs::create_dir_all(&home).unwrap();
            let engine = Engine::Ledger { home, shared: shared.clone(), work };
            let (url, machine) = (proxy.url("postgres"), format!("m{n}"));
            Plan { url, machine, state, slots: SLOTS, lease, engine }
        };
        let plans: Vec<Plan> = (0..WORKERS).map(plan).collect();
        let workers = plans.iter().map(|plan| WorkerProcess::start(plan, Vec::new())).collect();
        let (suspended, dice) = (BTreeMap::new(), Dice::new(7));
        let server = Some(server);
        Some(Self {
            server,
            board,
            proxy,
            plans,
            workers,
            suspended,
            lease,
            shared,
            dice,
            _dir: dir,
        })
    }

    async fn enqueue(&self, jobs: usize, sessions: usize) {
        let new = |n: usize| {
            let (number, turn) = (n % sessions, n / sessions);
            let prompt = format!("s{number}:{turn}");
            NewJob {
                engine: LEDGER.to_owned(),
                needs: vec![format!("engine:{LEDGER}")],
                spec: json!({ "prompt": prompt }),
                ..job(&prompt, session(number as u64))
            }
        };
        let all: Vec<NewJob> = (0..jobs).map(new).collect();
        for some in all.chunks(500) {
            // Again if the connection was cut: the keys are the same.
            while self.board.enqueue(some.to_vec()).await.is_err() {}
        }
    }

    /// How many jobs are not done.
    async fn open(&self) -> usize {
        let begun = Instant::now();
        loop {
            match self.board.status().await {
                Ok(status) => return usize::try_from(status.queued + status.running).unwrap(),
                Err(error) => assert!(begun.elapsed() < OUTAGE, "the database is gone: {error}"),
            }
        }
    }

    fn some_worker(&mut self) -> usize {
        loop {
            let worker = self.dice.index(WORKERS);
            if !self.suspended.contains_key(&worker) {
                return worker;
            }
        }
    }

    fn mark(&self, worker: usize) -> PathBuf {
        self.shared.join(format!("suspended-{}", self.workers[worker].id()))
    }

    fn kill_a_worker(&mut self) {
        let worker = self.some_worker();
        self.workers.remove(worker).kill();
        self.workers.insert(worker, WorkerProcess::start(&self.plans[worker], Vec::new()));
    }

    fn suspend_a_worker(&mut self) {
        // One at least goes on.
        if self.suspended.len() + 1 < WORKERS {
            let worker = self.some_worker();
            std::fs::write(self.mark(worker), "").unwrap();
            self.workers[worker].pause();
            self.suspended.insert(worker, Instant::now() + self.lease * 2);
        }
    }

    /// Wakes those whose time has come; their mark stays until they had time to notice.
    fn wake(&mut self) {
        let now = Instant::now();
        let due: Vec<usize> =
            self.suspended.iter().filter(|(_, until)| **until <= now).map(|(n, _)| *n).collect();
        for worker in due {
            self.suspended.remove(&worker);
            self.workers[worker].go_on();
            let mark = self.mark(worker);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(2)).await;
                let _ = std::fs::remove_file(mark);
            });
        }
    }

    async fn kill_the_database(&mut self) {
        let mut server = self.server.take().unwrap();
        let again = tokio::task::spawn_blocking(move || {
            server.kill();
            server.up().unwrap();
            server
        });
        self.server = Some(again.await.unwrap());
    }

    /// Spreads the faults over the jobs.
    async fn rage(&mut self, jobs: usize, faults: Faults) {
        let mut left = faults;
        loop {
            let open = self.open().await;
            if open == 0 {
                break;
            }
            // As much of each is left as of the jobs.
            let due = |count: usize| count * open / jobs;
            if left.kills > due(faults.kills) {
                left.kills -= 1;
                self.kill_a_worker();
            }
            if left.pauses > due(faults.pauses) {
                left.pauses -= 1;
                self.suspend_a_worker();
            }
            if left.cuts > due(faults.cuts) {
                left.cuts -= 1;
                self.proxy.cut();
            }
            if left.outages > due(faults.outages) {
                left.outages -= 1;
                self.kill_the_database().await;
            }
            self.wake();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for worker in std::mem::take(&mut self.suspended).into_keys() {
            self.workers[worker].go_on();
        }
    }

    async fn sql(&self, sql: &str) -> String {
        execute(&self.server.as_ref().unwrap().url("takopi", "postgres"), sql).await
    }

    /// One result each, in order, and what the engine saw.
    async fn check(&self, jobs: usize, sessions: usize) {
        let wrong = std::fs::read_to_string(self.shared.join("wrong")).unwrap_or_default();
        assert_eq!(wrong, "");
        let done = "select count(*) from takopi.job where state = 'done' and (result->>'answer' = spec->>'prompt' or result->>'reason' = 'worker_lost')";
        let others = "select string_agg(state || ' ' || coalesce(result::text, ''), '; ') from takopi.job where not (state = 'done' and (result->>'answer' = spec->>'prompt' or result->>'reason' = 'worker_lost'))";
        assert_eq!(self.sql(done).await, jobs.to_string(), "{}", self.sql(others).await);
        let disorder = "select count(*) from (select done < lag(done) over (partition by sid order by pos) as early from takopi.job) as it where early";
        assert_eq!(self.sql(disorder).await, "0");
        let lost = "select count(*) from takopi.job where result->>'reason' = 'worker_lost'";
        let lost: usize = self.sql(lost).await.parse().unwrap();
        // The newest copy of each session has every turn that succeeded, once.
        let homes =
            self.sql("select string_agg(value || ' ' || home, ',') from takopi.session").await;
        let stored = homes.split(',').map(|line| {
            let (session, machine) = line.split_once(' ').unwrap();
            let home = self.plans.iter().find(|plan| plan.machine == machine).unwrap();
            turns(&Ledger::file(&home.state.join("home"), session)).len()
        });
        let stored: Vec<usize> = stored.collect();
        assert_eq!((stored.len(), stored.iter().sum::<usize>()), (sessions, jobs - lost));
    }

    fn stop(&mut self) {
        self.workers.drain(..).for_each(WorkerProcess::stop);
    }
}

fn wanted(default: (usize, usize, usize)) -> (usize, usize, usize) {
    let Ok(text) = std::env::var("TAKOPI_FLEET_CHAOS") else { return default };
    let numbers: Vec<usize> = text.split(',').map(|number| number.parse().unwrap()).collect();
    (numbers[0], numbers[1], numbers[2])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_job_has_one_result_in_order_whatever_dies() {
    let (jobs, sessions, kills) = wanted((300, 30, 6));
    let (lease, work) = (Duration::from_secs(3), Duration::from_millis(20));
    let Some(mut chaos) = Chaos::new(lease, work).await else { return };
    chaos.enqueue(jobs, sessions).await;
    let begun = Instant::now();
    let faults = Faults { kills, pauses: kills.div_ceil(10), cuts: kills, outages: kills.min(3) };
    chaos.rage(jobs, faults).await;
    let seconds = begun.elapsed().as_secs_f64();
    chaos.check(jobs, sessions).await;
    let again = chaos.sql("select count(*) from takopi.job where attempts > 1").await;
    let lost =
        chaos.sql("select count(*) from takopi.job where result->>'reason' = 'worker_lost'").await;
    println!("{jobs} jobs in {seconds:.1} s, {again} of them tried again, {lost} lost three times");
    chaos.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_turn_is_repeated_when_connections_and_the_database_die() {
    let (jobs, sessions, cuts) = wanted((200, 40, 20));
    let (lease, work) = (Duration::from_mins(1), Duration::from_millis(20));
    let Some(mut chaos) = Chaos::new(lease, work).await else { return };
    chaos.enqueue(jobs, sessions).await;
    chaos.rage(jobs, Faults { kills: 0, pauses: 0, cuts, outages: 3 }).await;
    chaos.check(jobs, sessions).await;
    // Not by attempts: a claim that its worker never heard of is handed back, and was never run.
    let begun = std::fs::read_to_string(chaos.shared.join("begun")).unwrap();
    let turns: BTreeSet<&str> = begun.lines().collect();
    assert_eq!((turns.len(), begun.lines().count()), (jobs, jobs), "each turn was begun once");
    chaos.stop();
}
