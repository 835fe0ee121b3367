//! Random faults of the fake Claude Code: see [`chaos`](crate::chaos).

use std::time::Duration;

use serde_json::json;
use takopi_core::{Host, Runner};

use super::fake::{self, Process, Script, Signal, Step, turn};
use super::home::TestHome;
use super::lab::Lab;
use crate::chaos::{ANSWER, Chaos, grandchild};
use crate::dice::Dice;

impl Chaos for TestHome {
    const ENGINE: &'static str = "claude";
    const TURNS: &'static [&'static str] = &[
        "plain", "worked", "asked", "noisy", "foreign", "woken", "unnamed", "failed", "login",
        "reset", "dies", "exits",
    ];
    const HANGS: &'static [&'static str] = &["silent", "mute", "closes"];

    fn script(dice: &mut Dice) -> Script {
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

    fn hangs_at_start(script: &Script) -> bool {
        script.starts.iter().any(|process| process.first.contains(&Step::SleepForever))
    }

    fn answering(answer: &str) -> Script {
        fake::answering(answer)
    }

    fn runner(lab: &Lab, host: &Host, keep_warm: Duration) -> Box<dyn Runner> {
        let runner = lab.claude().keep_warm(keep_warm).runner().on(host.clone());
        Box::new(runner.buffer(8, 64 * 1024))
    }
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
