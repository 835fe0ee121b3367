//! Chaos: random faults, cancels and drops on a few sessions that several runners share, on the fake of an agent.
//!
//! Whatever happens, every run ends with exactly one `Completed`, last; no session is open in two processes at once; every
//! follow-up is taken or handed back; healthy runs beside the faulty ones, on sessions of their own, end as they do alone; and
//! behind it all no process, descriptor or lock is left.
//!
//! The same seed gives the same scripts and the same wishes of the host; what the scheduler makes of them differs, and is not
//! to matter.
//!
//! - `TAKOPI_CHAOS_SEED`: the first round's seed; a failure prints the seed of its round, with which that round then comes
//!   first.
//! - `TAKOPI_CHAOS_RUNS`: how many runs.
//! - `TAKOPI_SOAK`: for how many minutes to go on, each round with the next seed.
//!
//! An agent with one process a session implements [`Chaos`] for its home and calls [`rounds`]. [`Rounds`], [`read`] and
//! [`in_a_process_of_its_own`] are for drivers that differ.

use std::fmt::Debug;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use futures::future::{join, join_all};
use futures::{FutureExt, StreamExt, stream};
use takopi_core::runner::steer_channel;
use takopi_core::{EventStream, Host, ResumeToken, RunRequest, Runner, TakopiEvent};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::dice::Dice;
use crate::fake::{Control, Grandchild, Place, Step};
use crate::home::Home;
use crate::lab::{FakeHome, Lab};
use crate::model::{PATIENCE, within};
use crate::runs::{Seen, finish, run};

/// The answer of healthy turns.
pub const ANSWER: &str = "the answer";

/// Runs of a round.
const ROUND: usize = 60;
/// Runs at once.
const AT_ONCE: usize = 24;
/// Rounds at once, each on a takopi of its own: most of their time they wait for processes to end.
const LANES: usize = 3;
/// Runners that share the sessions: two in one process, and one with locks of another.
const RUNNERS: usize = 3;
const SESSIONS: usize = 8;
const SCRIPTS: usize = 4;
/// What the agent without faults answers.
pub const HEALTHY: &str = "healthy";

/// What the host does with a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Reads it to its end.
    Read,
    /// Drops the stream after this many events.
    Drop(u64),
    /// Cancels it after this many events, and reads on.
    Cancel(u64),
}

/// An agent with one process a session, whose turns go by their prompts.
pub trait Chaos: FakeHome<Script: Debug + Send + Sync> {
    /// The name of the engine.
    const ENGINE: &'static str;
    /// The prompts whose turns come to an end by themselves. One is `plain` and is answered with [`ANSWER`].
    const TURNS: &'static [&'static str];
    /// The prompts whose turns do not.
    const HANGS: &'static [&'static str];

    /// An agent with faults of its own.
    fn script(dice: &mut Dice) -> Self::Script;

    /// Whether its process hangs before it reads anything.
    fn hangs_at_start(script: &Self::Script) -> bool;

    /// One without, that answers with this.
    fn answering(answer: &str) -> Self::Script;

    /// A runner on this host that keeps sessions warm for this long, with a small buffer.
    fn runner(lab: &Lab<Self>, host: &Host, keep_warm: Duration) -> Box<dyn Runner>;

    /// Makes a session that can be resumed.
    fn store(&self, session: &str) {
        let _ = session;
    }
}

/// One run.
#[derive(Clone, Debug)]
struct Case {
    /// Which of the round's runners runs it.
    runner: usize,
    /// Which of the round's sessions it goes on with; none begins a new one.
    session: Option<usize>,
    /// Which of the round's scripts its process plays.
    script: usize,
    prompt: &'static str,
    /// Whether a follow-up is sent.
    steers: bool,
    wish: Wish,
    /// How long it waits for the session.
    wait: Option<Duration>,
    /// How long the agent may be silent.
    idle: Option<Duration>,
    /// How long the run may take; none for one that ends by itself, if its process starts.
    wall: Option<Duration>,
}

impl Case {
    fn new<H: Chaos>(dice: &mut Dice) -> Self {
        let hangs = dice.chance(15);
        let prompt = if hangs { dice.pick(H::HANGS) } else { dice.pick(H::TURNS) };
        let limit = Duration::from_millis(20) + dice.millis(150);
        let is_limited = hangs || dice.chance(5);
        Self {
            runner: dice.index(RUNNERS),
            session: dice.chance(80).then(|| dice.index(SESSIONS)),
            script: dice.index(SCRIPTS),
            prompt,
            steers: dice.chance(15),
            wish: match dice.below(10) {
                0..=6 => Wish::Read,
                7 => Wish::Drop(dice.below(5)),
                _ => Wish::Cancel(dice.below(5)),
            },
            wait: dice.chance(10).then(|| dice.millis(50)),
            idle: (is_limited && dice.chance(50)).then_some(limit),
            wall: is_limited.then_some(limit * 2),
        }
    }
}

/// A process of the agent's, in any place that it may get to.
pub fn grandchild(dice: &mut Dice) -> Step {
    let place = dice.pick(&[Place::SameGroup, Place::OwnGroup, Place::OwnSession, Place::Detached]);
    let child = Grandchild::new("grandchild").at(place);
    if dice.chance(30) { child.holding_stdout().spawn() } else { child.spawn() }
}

/// Runs the test `rounds` of a module in a process of its own, because it counts the process's descriptors.
pub fn in_a_process_of_its_own(module: &str) {
    let (_, module) = module.split_once("::").expect("a module of a test");
    let rounds = format!("{module}::rounds");
    let mut chaos = std::process::Command::new(std::env::current_exe().expect("this test"));
    let output = chaos.args(["--exact", &rounds, "--ignored", "--nocapture"]).output();
    let output = output.expect("the test's program");
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {text}\n{errors}", output.status);
    assert!(text.contains("1 passed"), "{rounds} was not found: {text}");
}

/// Rounds of runs, each from a seed, several at once on lanes that have nothing in common.
#[derive(Debug)]
pub struct Rounds {
    /// What runs, in reports.
    pub what: &'static str,
    /// Runs of a round.
    pub round: u64,
    /// Runs in all, unless `TAKOPI_CHAOS_RUNS` says otherwise.
    pub runs: u64,
}

/// What came of rounds.
#[derive(Debug)]
pub struct Done {
    /// How many runs there were.
    pub runs: u64,
    /// How long they took, and the first seed, for a report.
    pub text: String,
}

impl Rounds {
    /// Runs the rounds. `settled` is called for a lane when no more rounds run on it.
    pub async fn run<L>(
        &self,
        lanes: &[L],
        round: impl AsyncFn(&L, u64),
        settled: impl AsyncFn(&L),
    ) -> Done {
        let first = setting("TAKOPI_CHAOS_SEED").unwrap_or(1);
        let runs = setting("TAKOPI_CHAOS_RUNS").unwrap_or(self.runs);
        let soak = setting("TAKOPI_SOAK").map(|minutes| Duration::from_secs(60 * minutes));
        let begun = Instant::now();
        let rounds = runs.div_ceil(self.round).max(1);
        let goes_on = |seed: u64| match soak {
            Some(soak) => begun.elapsed() < soak,
            None => seed < first + rounds,
        };
        let (next, done) = (AtomicU64::new(first), AtomicU64::new(0));
        let reported = async |lane: &L, seed: u64| {
            if let Err(panic) = AssertUnwindSafe(round(lane, seed)).catch_unwind().await {
                eprintln!("chaos over {}: seed {seed} failed", self.what);
                std::panic::resume_unwind(panic);
            }
            done.fetch_add(1, Relaxed);
        };
        // The first rounds open what stays open: runtimes, epoll.
        join_all(lanes.iter().map(|lane| reported(lane, next.fetch_add(1, Relaxed)))).await;
        let before = descriptors();
        let all = lanes.iter().map(async |lane| {
            loop {
                let seed = next.fetch_add(1, Relaxed);
                if !goes_on(seed) {
                    return settled(lane).await;
                }
                reported(lane, seed).await;
            }
        });
        join_all(all).await;
        let now = descriptors();
        assert!(
            now <= before + 8,
            "{now} descriptors are open, {before} were after the first rounds"
        );
        let runs = done.load(Relaxed) * self.round;
        let took = begun.elapsed();
        Done { runs, text: format!("{runs} runs in {took:?} from seed {first}") }
    }
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("a Linux").count()
}

/// A session of a round; rounds share a takopi, not their sessions.
pub fn session(engine: &'static str, home: &Home, n: usize) -> ResumeToken {
    let round = Uuid::new_v5(&Uuid::NAMESPACE_OID, home.root().as_os_str().as_encoded_bytes());
    ResumeToken::new(engine, Uuid::new_v5(&round, &n.to_be_bytes()).to_string())
}

/// Reads a run as the host wishes; `None` if it was dropped. One that takes too long fails with its events so far and the
/// processes that are alive.
pub async fn read(
    mut stream: EventStream,
    wish: Wish,
    cancel: &CancellationToken,
    control: &Control,
    case: &impl Debug,
) -> Option<Seen> {
    let is_over = |events: &[TakopiEvent]| matches!(events.last(), Some(TakopiEvent::Completed(_)));
    let deadline = (Instant::now() + PATIENCE).into();
    let mut events = Vec::new();
    loop {
        match wish {
            Wish::Drop(after) if events.len() as u64 >= after && !is_over(&events) => return None,
            Wish::Cancel(after) if events.len() as u64 >= after => cancel.cancel(),
            _ => {}
        }
        if is_over(&events) {
            return Some(finish(stream, events).await);
        }
        let Ok(event) = tokio::time::timeout_at(deadline, stream.next()).await else {
            let alive = control.alive();
            panic!("no end: {case:?}\nevents so far: {events:#?}\nalive: {alive:?}");
        };
        match event {
            Some(event) => events.push(event),
            None => return Some(finish(stream, events).await),
        }
    }
}

/// A takopi, another one on the same state directory, and how many runs went well.
struct Lane<H> {
    lab: Lab<H>,
    other: Host,
    well: AtomicU64,
}

/// Rounds on an agent with one process a session: 360 runs, unless `TAKOPI_CHAOS_RUNS` says otherwise.
pub async fn rounds<H: Chaos>() {
    let lane = |_| {
        let lab = Lab::<H>::new(H::answering(HEALTHY));
        let other = lab.another_host();
        Lane { lab, other, well: AtomicU64::new(0) }
    };
    let lanes: Vec<Lane<H>> = (0..LANES).map(lane).collect();
    let all = Rounds { what: H::ENGINE, round: ROUND as u64, runs: 360 };
    let settled = async |lane: &Lane<H>| lane.lab.assert_nothing_left().await;
    let Done { runs, text } = all.run(&lanes, round::<H>, settled).await;
    let well: u64 = lanes.iter().map(|lane| lane.well.load(Relaxed)).sum();
    println!("chaos over {}: {text}, {well} went well", H::ENGINE);
    assert!(well > runs / 10, "too few runs went well to prove anything: {well} of {runs}");
}

async fn round<H: Chaos>(lane: &Lane<H>, seed: u64) {
    let mut dice = Dice::new(seed);
    let scripts: Vec<H::Script> = (0..SCRIPTS).map(|_| H::script(&mut dice)).collect();
    let mut cases: Vec<Case> = (0..ROUND).map(|_| Case::new::<H>(&mut dice)).collect();
    for case in &mut cases {
        if H::hangs_at_start(&scripts[case.script]) {
            case.wall.get_or_insert(Duration::from_secs(2));
        }
    }
    let lab = Lab::beside(&lane.lab, H::answering(HEALTHY));
    let sessions: Vec<ResumeToken> =
        (0..SESSIONS).map(|n| session(H::ENGINE, lab.home.home(), n)).collect();
    // One more for each runner: no faulty run touches them.
    let own: Vec<ResumeToken> =
        (0..RUNNERS).map(|n| session(H::ENGINE, lab.home.home(), SESSIONS + n)).collect();
    for session in sessions.iter().chain(&own) {
        lab.home.store(&session.value);
    }
    let environments: Vec<Env> = scripts.iter().map(|script| lab.control.env(script)).collect();
    let runners: Vec<Box<dyn Runner>> = (0..RUNNERS)
        .map(|n| {
            let warm =
                dice.pick(&[Duration::ZERO, Duration::from_millis(20), Duration::from_mins(10)]);
            H::runner(&lab, if n == 0 { &lane.other } else { &lab.host }, warm)
        })
        .collect();
    let runs = cases.iter().map(async |case| {
        let session = case.session.map(|n| sessions[n].clone());
        if one(&lab, &*runners[case.runner], case, session, &environments[case.script]).await {
            lane.well.fetch_add(1, Relaxed);
        }
    });
    let is_over = AtomicBool::new(false);
    let faulty = async {
        stream::iter(runs).for_each_concurrent(AT_ONCE, |run| run).await;
        is_over.store(true, Relaxed);
    };
    let request = || lab.request("hi");
    let beside = runners
        .iter()
        .zip(&own)
        .map(|(runner, session)| healthy_until(&is_over, &**runner, session, request));
    join(faulty, join_all(beside)).await;
    assert_eq!(lab.control.overlaps(), Vec::<String>::new(), "two writers on one session");
    let settle = join_all(runners.iter().map(|runner| runner.shutdown()));
    within(PATIENCE, "the runs to settle", settle).await;
    lab.home.home().assert_no_processes().await;
    // Every session can be had at once: no lock is left, and no run that holds one.
    let last = H::runner(&lab, &lab.host, Duration::ZERO);
    for session in sessions.into_iter().chain(own) {
        let request = lab.request("hi").resume(session).wait(Duration::ZERO);
        assert_eq!(run(&*last, request).await.ok().answer, HEALTHY);
    }
}

/// Runs prompts of an agent without faults, on one session and on new ones, until the runs beside them are over: they
/// end as they do alone.
pub async fn healthy_until(
    is_over: &AtomicBool,
    runner: &dyn Runner,
    session: &ResumeToken,
    request: impl Fn() -> RunRequest,
) {
    loop {
        for session in [Some(session), None] {
            let seen = run(runner, request().resume(session.cloned())).await;
            let end = seen.completed();
            let is_same = end.ok && end.answer == HEALTHY && end.error.is_none();
            assert!(is_same, "changed by a run beside it: {:#?}", seen.events);
            assert!(session.is_none() || end.resume.as_ref() == session, "{:#?}", seen.events);
        }
        if is_over.load(Relaxed) {
            return;
        }
    }
}

type Env = Vec<(String, String)>;

/// Runs a case; whether it went well.
async fn one<H: Chaos>(
    lab: &Lab<H>,
    runner: &dyn Runner,
    case: &Case,
    session: Option<ResumeToken>,
    env: &Env,
) -> bool {
    let cancel = CancellationToken::new();
    let (steer, steering) = steer_channel();
    // The variables of the script come last, and win.
    let request = env
        .iter()
        .fold(lab.request(case.prompt), |request, (name, value)| request.env(name, value))
        .resume(session.clone())
        .wait(case.wait)
        .idle_timeout(case.idle)
        .wall_timeout(case.wall)
        .steering(steering)
        .cancel(cancel.clone());
    let stream = runner.run(request);
    let follow_up = case.steers.then(|| tokio::spawn(async move { steer.send("plain").await }));
    let seen = read(stream, case.wish, &cancel, &lab.control, case).await;
    if let Some(follow_up) = follow_up {
        let settled = within(PATIENCE, "a follow-up to be taken or handed back", follow_up).await;
        let _ = settled.expect("no panic");
    }
    let Some(seen) = seen else { return false };
    let end = seen.completed();
    if session.is_some() {
        assert_eq!(end.resume, session, "{case:?}: {:#?}", seen.events);
    }
    if end.ok {
        assert_eq!(end.answer, ANSWER, "{case:?}: {:#?}", seen.events);
    } else {
        assert!(end.reason.is_some() && end.error.is_some(), "{case:?}: {end:?}");
    }
    end.ok
}

/// What a seed makes of an agent: the same every time.
pub fn cases_of<H: Chaos>(seed: u64) -> String {
    let mut dice = Dice::new(seed);
    format!("{:?} {:?}", H::script(&mut dice), Case::new::<H>(&mut dice))
}

/// The tests of an agent, in a module of its own.
#[macro_export]
macro_rules! chaos_tests {
    ($home:ty) => {
        #[test]
        fn whatever_happens_every_run_ends_once_and_nothing_is_left() {
            $crate::chaos::in_a_process_of_its_own(module_path!());
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        #[ignore = "run by the test above, in a process of its own"]
        async fn rounds() {
            $crate::chaos::rounds::<$home>().await;
        }

        #[test]
        fn a_seed_gives_the_same_cases_every_time() {
            let cases = $crate::chaos::cases_of::<$home>;
            assert_eq!(cases(7), cases(7));
            assert_ne!(cases(7), cases(8));
        }
    };
}
