//! Chaos over Claude Code: random faults, cancels and drops on a few sessions that several runners share.
//!
//! Whatever happens, every run ends with exactly one `Completed`, last; no session is open in two processes at once; every
//! follow-up is taken or handed back; and behind it all no process, descriptor or lock is left.
//!
//! `TAKOPI_CHAOS_SEED`, `TAKOPI_CHAOS_RUNS` (360) and `TAKOPI_SOAK` are those of the chaos over codex.

use std::io::Write as _;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use futures::future::join_all;
use futures::{FutureExt, StreamExt, stream};
use takopi_claude::ClaudeEngine;
use takopi_core::runner::steer_channel;
use takopi_core::{EngineRunner, Host, ResumeToken, Runner, TakopiEvent};
use takopi_tests::claude::chaos::{ANSWER, Case, Dice, Wish, case, script};
use takopi_tests::claude::fake;
use takopi_tests::claude::lab::Lab;
use takopi_tests::model::{PATIENCE, within};
use takopi_tests::runs::{finish, run};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Runs of a round.
const ROUND: usize = 60;
/// Runs at once.
const AT_ONCE: usize = 24;
/// Rounds at once, each on a takopi of its own: most of their time they wait for processes to end.
const LANES: u64 = 3;
/// Runners that share the sessions: two in one process, and one with locks of another.
const RUNNERS: usize = 3;
const SESSIONS: usize = 8;
const SCRIPTS: usize = 4;

/// How many runs went well.
static WELL: AtomicU64 = AtomicU64::new(0);

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// A session of a round; rounds share a takopi, not their sessions.
fn session(lab: &Lab, n: usize) -> ResumeToken {
    let round = Uuid::new_v5(&Uuid::NAMESPACE_OID, lab.home.root().as_os_str().as_encoded_bytes());
    ResumeToken::new("claude", Uuid::new_v5(&round, &n.to_be_bytes()).to_string())
}

/// In a process of its own, because it counts the process's descriptors.
#[test]
fn whatever_happens_every_run_ends_once_and_nothing_is_left() {
    let (_, module) = module_path!().split_once("::").unwrap();
    let rounds = format!("{module}::rounds");
    let mut chaos = std::process::Command::new(std::env::current_exe().unwrap());
    let output = chaos.args(["--exact", &rounds, "--ignored", "--nocapture"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let _ = write!(std::io::stdout(), "{text}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {text}\n{errors}", output.status);
    assert!(text.contains("1 passed"), "{rounds} was not found: {text}");
}

/// A takopi, and another one on the same state directory.
struct Lane {
    lab: Lab,
    other: Host,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by the test above, in a process of its own"]
async fn rounds() {
    let first = setting("TAKOPI_CHAOS_SEED").unwrap_or(1);
    let runs = setting("TAKOPI_CHAOS_RUNS").unwrap_or(360);
    let soak = setting("TAKOPI_SOAK").map(|minutes| Duration::from_secs(60 * minutes));
    let begun = Instant::now();
    let rounds = runs.div_ceil(ROUND as u64).max(1);
    let goes_on = |seed: u64| match soak {
        Some(soak) => begun.elapsed() < soak,
        None => seed < first + rounds,
    };
    let next = AtomicU64::new(first);
    let lane = |_| {
        let lab = Lab::new(fake::Script::default());
        let other = Host::builder().state_directory(lab.host.state_directory()).build().unwrap();
        Lane { lab, other }
    };
    let lanes: Vec<Lane> = (0..LANES).map(lane).collect();
    // The first rounds open what stays open: runtimes, epoll.
    join_all(lanes.iter().map(|lane| reported_round(lane, next.fetch_add(1, Relaxed)))).await;
    let before = descriptors();
    let done = AtomicU64::new(LANES);
    let all = lanes.iter().map(|lane| async {
        loop {
            let seed = next.fetch_add(1, Relaxed);
            if !goes_on(seed) {
                return lane.lab.assert_nothing_left().await;
            }
            reported_round(lane, seed).await;
            done.fetch_add(1, Relaxed);
        }
    });
    join_all(all).await;
    let now = descriptors();
    assert!(now <= before + 8, "{now} descriptors are open, {before} were after the first rounds");
    let (runs, well) = (done.load(Relaxed) * ROUND as u64, WELL.load(Relaxed));
    let took = begun.elapsed();
    let _ = writeln!(
        std::io::stdout(),
        "chaos over claude: {runs} runs in {took:?} from seed {first}, {well} went well"
    );
    assert!(well > runs / 10, "too few runs went well to prove anything: {well} of {runs}");
}

/// A round that prints its seed if it fails.
async fn reported_round(lane: &Lane, seed: u64) {
    if let Err(panic) = AssertUnwindSafe(round(lane, seed)).catch_unwind().await {
        let _ = writeln!(std::io::stderr(), "chaos over claude: seed {seed} failed");
        std::panic::resume_unwind(panic);
    }
}

async fn round(lane: &Lane, seed: u64) {
    let mut dice = Dice::new(seed);
    let scripts: Vec<fake::Script> = (0..SCRIPTS).map(|_| script(&mut dice)).collect();
    let cases: Vec<Case> =
        (0..ROUND).map(|_| case(&mut dice, RUNNERS, SESSIONS, SCRIPTS)).collect();
    let lab = Lab::beside(&lane.lab, fake::answering("healthy"));
    let environments: Vec<Env> = scripts.iter().map(|script| lab.control.env(script)).collect();
    let runners: Vec<EngineRunner<ClaudeEngine>> = (0..RUNNERS)
        .map(|n| {
            let warm =
                dice.pick(&[Duration::ZERO, Duration::from_millis(20), Duration::from_mins(10)]);
            let host = if n == 0 { &lane.other } else { &lab.host };
            lab.claude().keep_warm(warm).runner().on(host.clone()).buffer(8, 64 * 1024)
        })
        .collect();
    let runs =
        cases.iter().map(|case| one(&lab, &runners[case.runner], case, &environments[case.script]));
    stream::iter(runs).for_each_concurrent(AT_ONCE, |run| run).await;
    assert_eq!(lab.control.overlaps(), Vec::<String>::new(), "two writers on one session");
    let settle = join_all(runners.iter().map(Runner::shutdown));
    within(PATIENCE, "the runs to settle", settle).await;
    lab.home.assert_no_processes().await;
    // Every session can be had at once: no lock is left, and no run that holds one.
    let healthy = lab.runner(Duration::ZERO);
    for n in 0..SESSIONS {
        let request = lab.request("hi").resume(session(&lab, n)).wait(Duration::ZERO);
        assert_eq!(run(&healthy, request).await.ok().answer, "healthy");
    }
}

type Env = Vec<(String, String)>;

async fn one(lab: &Lab, runner: &dyn Runner, case: &Case, env: &Env) {
    let cancel = CancellationToken::new();
    let (steer, steering) = steer_channel();
    let request = lab.home.request(&case.prompt);
    let request = env.iter().fold(request, |request, (name, value)| request.env(name, value));
    let request = request
        .resume(case.session.map(|n| session(lab, n)))
        .wait(case.wait)
        .idle_timeout(case.idle)
        .wall_timeout(case.wall)
        .steering(steering)
        .cancel(cancel.clone());
    let mut stream = runner.run(request);
    let follow_up = case.steers.then(|| tokio::spawn(async move { steer.send("plain").await }));
    let mut events = Vec::new();
    let read = async {
        if let Wish::Drop(after) | Wish::Cancel(after) = case.wish {
            while (events.len() as u64) < after && !is_over(&events) {
                events.extend(stream.next().await);
            }
        }
        if matches!(case.wish, Wish::Drop(_)) && !is_over(&events) {
            drop(stream);
            return None;
        }
        if matches!(case.wish, Wish::Cancel(_)) {
            cancel.cancel();
        }
        Some(finish(stream, events).await)
    };
    let seen = within(PATIENCE, &format!("the end of {case:?}"), read).await;
    if let Some(follow_up) = follow_up {
        let settled = within(PATIENCE, "a follow-up to be taken or handed back", follow_up).await;
        let _ = settled.expect("no panic");
    }
    let Some(seen) = seen else { return };
    let end = seen.completed();
    if let Some(session) = case.session.map(|n| session(lab, n)) {
        assert_eq!(end.resume, Some(session), "{case:?}: {:#?}", seen.events);
    }
    if end.ok {
        WELL.fetch_add(1, Relaxed);
        assert_eq!(end.answer, ANSWER, "{case:?}: {:#?}", seen.events);
    } else {
        assert!(end.reason.is_some() && end.error.is_some(), "{case:?}: {end:?}");
    }
}

fn is_over(events: &[TakopiEvent]) -> bool {
    matches!(events.last(), Some(TakopiEvent::Completed(_)))
}

#[test]
fn a_seed_gives_the_same_cases_every_time() {
    let cases = |seed| {
        let mut dice = Dice::new(seed);
        format!("{:?} {:?}", script(&mut dice), case(&mut dice, RUNNERS, SESSIONS, SCRIPTS))
    };
    assert_eq!(cases(7), cases(7));
    assert_ne!(cases(7), cases(8));
}
