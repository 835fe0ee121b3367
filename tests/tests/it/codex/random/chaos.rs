//! Chaos: random faults on a few shared sessions, thousands of runs, both transports and the pool of
//! shared servers.
//!
//! Whatever happens, every run ends with exactly one `Completed`, last; no session is open in two
//! processes at once; a fault in one run never changes the result of another, on the same server or beside it; and
//! behind it all no process, descriptor or lock is left.
//!
//! The settings are those of `takopi_tests::chaos`. Of the runs (1,500) half are over exec, a quarter over app-server with a
//! process per session, a quarter on shared servers.
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use futures::future::{join, join_all};
use futures::{StreamExt, stream};
use takopi_codex::app_server::{CodexAppServer, PoolLimits};
use takopi_core::{EngineRunner, ResumeToken, RunRequest, Runner};
use takopi_tests::chaos::{self, ANSWER, Done, HEALTHY, Rounds, read};
use takopi_tests::codex::chaos::{
    Case, app_server_case, exec_case, guilty_case, held, innocent_case, server, shared_server,
};
use takopi_tests::codex::fake::{Script, app_server, exec};
use takopi_tests::codex::lab::Lab;
use takopi_tests::dice::Dice;
use takopi_tests::model::{PATIENCE, within};
use takopi_tests::runs::{finish, is_started, run, until};
use tokio_util::sync::CancellationToken;

/// Runs of a round.
const ROUND: usize = 150;
/// Runs at once.
const AT_ONCE: usize = 16;
/// Rounds at once, each on a takopi of its own: most of their time they wait for processes to end.
const LANES: usize = 4;
/// Runs of a shared server that are held while others run beside them, in each batch.
const HELD: usize = 4;
/// Runs of a batch on a shared server.
const BATCH: usize = 15;
/// Sessions they share.
const SESSIONS: usize = 6;
/// The longest run so far, in milliseconds.
static LONGEST: AtomicU64 = AtomicU64::new(0);

fn session(lab: &Lab, n: usize) -> ResumeToken {
    chaos::session("codex", &lab.home, n)
}

#[test]
fn whatever_happens_every_run_ends_once_and_nothing_is_left() {
    chaos::in_a_process_of_its_own(module_path!());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by the test above, in a process of its own"]
async fn rounds() {
    let lanes: Vec<Lab> = (0..LANES).map(|_| Lab::new(Script::default())).collect();
    let all = Rounds { what: "codex", round: ROUND as u64, runs: 1500 };
    let settled = async |lane: &Lab| lane.assert_nothing_left().await;
    let Done { text, .. } = all.run(&lanes, one_round, settled).await;
    let longest = Duration::from_millis(LONGEST.load(Relaxed));
    let _ = writeln!(std::io::stdout(), "chaos over codex: {text}, the longest {longest:?}");
}

/// The seed chooses the transport.
async fn one_round(all: &Lab, seed: u64) {
    match seed % 4 {
        0 | 1 => exec_round(all, seed).await,
        2 => shared_round(all, seed).await,
        _ => app_server_round(all, seed).await,
    }
}

async fn exec_round(all: &Lab, seed: u64) {
    let mut dice = Dice::new(seed);
    let cases: Vec<Case> = (0..ROUND).map(|_| exec_case(&mut dice, SESSIONS)).collect();
    let lab = Lab::beside(all, exec::hello("healthy"));
    let runner = lab.exec().buffer(8, 64 * 1024);
    round(&lab, &runner, cases, &exec::hello(HEALTHY)).await;
}

async fn app_server_round(all: &Lab, seed: u64) {
    let mut dice = Dice::new(seed);
    let servers: Vec<Script> = (0..4).map(|_| server(&mut dice)).collect();
    let warm = dice.pick(&[Duration::ZERO, Duration::from_millis(20), Duration::from_mins(10)]);
    let cases: Vec<Case> =
        (0..ROUND).map(|_| app_server_case(&mut dice, SESSIONS, &servers)).collect();
    let lab = Lab::beside(all, exec::hello("healthy"));
    let runner = lab.app_server(warm).buffer(8, 64 * 1024);
    round(&lab, &runner, cases, &app_server::hello(HEALTHY)).await;
}

/// Batches on shared servers: some runs are held while others, innocent and guilty, run beside them.
async fn shared_round(all: &Lab, seed: u64) {
    let mut dice = Dice::new(seed);
    let batches = ROUND / BATCH;
    let script = shared_server(&mut dice, batches);
    let lab = Lab::beside(all, exec::hello("healthy"));
    let env = lab.control.env(&script);
    let warm = dice.pick(&[Duration::from_millis(20), Duration::from_mins(10)]);
    // One server for each run that is held, should all be drained, and some to run on.
    let limits = PoolLimits::new(8, 40, 2 * HELD).response(Duration::from_secs(10));
    let engine = CodexAppServer::new(lab.codex()).keep_warm(warm).shared(limits);
    let runner = EngineRunner::new(engine).on(lab.host.clone());
    for batch in 0..batches {
        let case = |n| match n % 4 {
            0 => innocent_case(&mut dice, &script),
            _ => guilty_case(&mut dice, SESSIONS, &script),
        };
        let cases: Vec<Case> = (HELD..BATCH).map(case).collect();
        let (lab, runner, env) = (&lab, &runner, &env);
        let held_runs = join_all((0..HELD).map(|_| async {
            let request = with_env(takopi_tests::runs::request(&lab.home, &held(batch)), env);
            let mut stream = runner.run(request);
            let events = until(&mut stream, "Started", is_started).await;
            (stream, events)
        }))
        .await;
        // A run that resumes a session of a drained server waits until nothing runs there any more, the
        // held ones included: they are let go when all others are over.
        let (resumed, fresh): (Vec<&Case>, Vec<&Case>) =
            cases.iter().partition(|case| case.session.is_some());
        let resumed = join_all(resumed.into_iter().map(|case| one(lab, runner, case, env)));
        let fresh = join_all(fresh.into_iter().map(|case| one(lab, runner, case, env)));
        let held_and_fresh = async {
            fresh.await;
            lab.control.open(&held(batch));
            for (stream, events) in held_runs {
                assert_eq!(finish(stream, events).await.ok().answer, ANSWER, "a run that was held");
            }
        };
        join(resumed, held_and_fresh).await;
    }
    settled(&lab, &runner).await;
}

/// Runs the cases, and beside them runs without faults on sessions of their own.
async fn round(lab: &Lab, runner: &dyn Runner, cases: Vec<Case>, healthy: &Script) {
    let environments = environments(lab, &cases);
    let runs = cases.iter().zip(&environments).map(|(case, env)| one(lab, runner, case, env));
    let is_over = AtomicBool::new(false);
    let faulty = async {
        stream::iter(runs).for_each_concurrent(AT_ONCE, |run| run).await;
        is_over.store(true, Relaxed);
    };
    let (env, own) = (lab.control.env(healthy), session(lab, SESSIONS));
    let request = || with_env(takopi_tests::runs::request(&lab.home, "hi"), &env);
    join(faulty, chaos::healthy_until(&is_over, runner, &own, request)).await;
    settled(lab, runner).await;
}

/// Nothing is left of a round.
async fn settled(lab: &Lab, runner: &dyn Runner) {
    assert_eq!(lab.control.overlaps(), Vec::<String>::new(), "two writers on one session");
    // Every session can be had at once: no lock is left, and no run that holds one.
    within(PATIENCE, "the runs to settle", runner.shutdown()).await;
    lab.home.assert_no_processes().await;
    for n in 0..SESSIONS {
        let request = lab.request("hi").resume(session(lab, n)).wait(Duration::ZERO);
        assert_eq!(run(&lab.exec(), request).await.ok().answer, "healthy");
    }
}

type Env = Vec<(String, String)>;

fn with_env(request: RunRequest, env: &Env) -> RunRequest {
    env.iter().fold(request, |request, (name, value)| request.env(name, value))
}

/// One environment a script: runs of one script can share a server.
fn environments(lab: &Lab, cases: &[Case]) -> Vec<Env> {
    let mut known: Vec<(&Script, Env)> = Vec::new();
    let mut environments = Vec::new();
    for case in cases {
        let found = known.iter().find(|(script, _)| **script == case.script);
        let env = found.map_or_else(|| lab.control.env(&case.script), |(_, env)| env.clone());
        known.push((&case.script, env.clone()));
        environments.push(env);
    }
    environments
}

async fn one(lab: &Lab, runner: &dyn Runner, case: &Case, env: &Env) {
    let cancel = CancellationToken::new();
    let request = with_env(takopi_tests::runs::request(&lab.home, &case.prompt), env)
        .resume(case.session.map(|n| session(lab, n)))
        .wait(case.wait)
        .idle_timeout(case.idle)
        .wall_timeout(case.wall)
        .cancel(cancel.clone());
    let begun = Instant::now();
    let seen = read(runner.run(request), case.wish, &cancel, &lab.control, case).await;
    let Some(seen) = seen else { return };
    LONGEST.fetch_max(begun.elapsed().as_millis().try_into().unwrap(), Relaxed);
    let end = seen.completed();
    assert!(end.ok || !case.innocent, "changed by a neighbour: {case:?}: {:#?}", seen.events);
    if let Some(session) = case.session.map(|n| session(lab, n)) {
        assert_eq!(end.resume, Some(session), "{case:?}: {:#?}", seen.events);
    }
    if end.ok {
        let answer = case.answer.unwrap_or_default();
        assert!(end.answer == answer || case.answer.is_none(), "{case:?}: {:#?}", seen.events);
    } else {
        assert!(end.reason.is_some() && end.error.is_some(), "{case:?}: {end:?}");
    }
}

#[test]
fn a_seed_gives_the_same_cases_every_time() {
    let cases = |seed| {
        let mut dice = Dice::new(seed);
        let servers = [server(&mut dice), app_server::hello("x")];
        let exec = exec_case(&mut dice, SESSIONS);
        format!("{exec:?} {:?}", app_server_case(&mut dice, SESSIONS, &servers))
    };
    assert_eq!(cases(7), cases(7));
    assert_ne!(cases(7), cases(8));
}
