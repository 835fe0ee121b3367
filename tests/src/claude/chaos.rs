//! Random faults, reproducible: what a seed makes of the fake Claude Code and of the host that runs it.
//!
//! The same seed gives the same scripts and the same wishes of the host; what the scheduler makes of them differs, and is not to
//! matter.

use std::time::Duration;

use serde_json::json;

use super::fake::{Grandchild, Place, Process, Script, Signal, Step, turn};
pub use crate::codex::chaos::Wish;
pub use crate::dice::Dice;

/// The answer of healthy turns.
pub const ANSWER: &str = "the answer";

/// One run.
#[derive(Clone, Debug)]
pub struct Case {
    /// Which of the round's runners runs it.
    pub runner: usize,
    /// Which of the round's sessions it goes on with; none begins a new one.
    pub session: Option<usize>,
    /// Which of the round's scripts its process plays.
    pub script: usize,
    /// The prompt, by which the process chooses what its turn does.
    pub prompt: String,
    /// Whether a follow-up is sent.
    pub steers: bool,
    /// What the host does.
    pub wish: Wish,
    /// How long it waits for the session.
    pub wait: Option<Duration>,
    /// How long claude may be silent.
    pub idle: Option<Duration>,
    /// How long the run may take.
    pub wall: Duration,
}

/// The prompts whose turns come to an end by themselves.
const TURNS: [&str; 12] = [
    "plain", "worked", "asked", "noisy", "foreign", "woken", "unnamed", "failed", "login", "reset",
    "dies", "exits",
];
/// The prompts whose turns do not.
const HANGS: [&str; 3] = ["silent", "mute", "closes"];

/// A claude with faults of its own, whose turns go by their prompts.
pub fn script(dice: &mut Dice) -> Script {
    let mut process = Process::new();
    if dice.chance(20) {
        process = process.without_states();
    }
    if dice.chance(30) {
        // The rule that comes first counts: nothing is printed of such a run.
        let fault = dice.pick(&[Step::Die(Signal::Kill), Step::Exit(0)]);
        process = process.when("user", "worked", [fault]);
    }
    let mut process = turns(dice, process);
    // Those that take seconds to end are rare.
    match dice.below(60) {
        0 => process = process.stubborn(),
        1 => process = process.first([Step::SleepForever]),
        2 => process = process.always("end_session", []),
        3..6 => process = process.first([Step::stderr("no"), Step::Exit(1)]),
        6..10 => process = process.always("interrupt", []),
        10..18 => process = process.always("end_session", [Step::fail(0, "unsupported")]),
        _ => {}
    }
    process.script()
}

/// The turns of a process, by their prompts.
fn turns(dice: &mut Dice, process: Process) -> Process {
    let answer = || turn::answer(ANSWER);
    let work = (0..20).flat_map(|n| {
        let id = format!("c{n}");
        [turn::bash(&id, "ls"), turn::tool_result(&id, "out")]
    });
    let asks = [
        turn::bash("t", "ls"),
        turn::requires_action(),
        turn::ask_bash("q", "t", "ls"),
        turn::running(),
    ];
    let noise = [Step::line("not JSON"), Step::raw(*b"\xff\n\n"), turn::flood(50)];
    let foreign =
        [turn::text("no"), turn::result_with("no", &json!({"user_message_uuids": ["x"]}))];
    let origin = json!({"origin": {"kind": "task-notification"}, "user_message_uuids": null});
    let woken = [
        turn::running(),
        turn::init(),
        turn::text("no"),
        turn::result_with("no", &origin),
        turn::idle(),
    ];
    let unnamed = [
        turn::text(ANSWER),
        turn::result_with(ANSWER, &json!({"user_message_uuids": null})),
        turn::lifecycle("completed"),
        turn::idle(),
    ];
    let reset = [turn::reset("01a1e21b-0000-4eb0-9d27-459e98f10b74")];
    process
        .turns_when("plain", answer())
        .turns_when("worked", work.chain(answer()))
        .turns_when("asked", asks.into_iter().chain(answer()))
        .turns_when("noisy", noise.into_iter().chain(answer()))
        .turns_when("foreign", foreign.into_iter().chain(answer()))
        .turns_when("woken", answer().into_iter().chain(woken))
        .turns_when("unnamed", unnamed)
        .turns_when("failed", turn::api_error(500, "server_error", "boom"))
        .turns_when("login", turn::api_error(403, "authentication_failed", "Invalid API key"))
        .turns_when("reset", reset.into_iter().chain(answer()))
        .turns_when("dies", [grandchild(dice), Step::Die(Signal::Kill)])
        .turns_when("exits", [Step::Exit(1)])
        .turns_when("silent", [grandchild(dice), Step::SleepForever])
        .turns_when("closes", [Step::CloseStdout, Step::SleepForever])
        .when("user", "mute", [Step::SleepForever])
}

/// A run on one of these many runners, sessions and scripts.
pub fn case(dice: &mut Dice, runners: usize, sessions: usize, scripts: usize) -> Case {
    let hangs = dice.chance(15);
    let prompt = if hangs { dice.pick(&HANGS) } else { dice.pick(&TURNS) };
    let limit = Duration::from_millis(20) + dice.millis(150);
    let is_limited = hangs || dice.chance(5);
    Case {
        runner: dice.index(runners),
        session: dice.chance(80).then(|| dice.index(sessions)),
        script: dice.index(scripts),
        prompt: prompt.to_owned(),
        steers: dice.chance(15),
        wish: match dice.below(10) {
            0..=6 => Wish::Read,
            7 => Wish::Drop(dice.below(5)),
            _ => Wish::Cancel(dice.below(5)),
        },
        wait: dice.chance(10).then(|| dice.millis(50)),
        idle: (is_limited && dice.chance(50)).then_some(limit),
        wall: if is_limited { limit * 2 } else { Duration::from_secs(2) },
    }
}

fn grandchild(dice: &mut Dice) -> Step {
    let place = dice.pick(&[Place::SameGroup, Place::OwnGroup, Place::OwnSession, Place::Detached]);
    let child = Grandchild::new("grandchild").at(place);
    if dice.chance(30) { child.holding_stdout().spawn() } else { child.spawn() }
}
