//! Random faults of the fake ACP agent: see [`chaos`](crate::chaos).

use std::time::Duration;

use serde_json::{Value, json};
use takopi_core::{Host, Runner};

use super::fake::{
    Lab, Process, Script, Signal, Step, answer, command, end, permission, text, thought,
};
use crate::chaos::{ANSWER, Chaos, grandchild};
use crate::dice::Dice;
use crate::home::Home;

impl Chaos for Home {
    const ENGINE: &'static str = "lab";
    const TURNS: &'static [&'static str] = &[
        "plain", "worked", "asked", "vendor", "noisy", "foreign", "failed", "login", "empty",
        "revoked", "future", "dies", "exits",
    ];
    const HANGS: &'static [&'static str] = &["silent", "mute", "closes"];

    fn script(dice: &mut Dice) -> Script {
        let mut process = Process::new();
        if dice.chance(30) {
            // Its sessions are loaded, with a replay.
            process.session_capabilities = json!({});
            process = process.always("session/load", [text("replayed"), Step::Reply]);
        }
        if dice.chance(20) {
            let fault = dice.pick(&[
                vec![Step::Exit(1)],
                vec![Step::Reply, Step::Die(Signal::Kill)],
                vec![Step::fail(-32603, "no")],
            ]);
            let at = dice.pick(&["initialize", "session/new", "session/resume"]);
            process = process.once(at, fault);
        }
        process = turns(dice, process);
        // Those that take seconds to end are rare.
        match dice.below(60) {
            0 => process = process.stubborn(),
            1 => process.first.push(Step::SleepForever),
            2 => process.protocol = 2,
            3..6 => process.first.extend([Step::stderr("no"), Step::Exit(1)]),
            6..8 => process = process.always("session/cancel", []),
            8..10 => process = process.always("session/close", []),
            10..18 => process = process.always("session/close", [Step::fail(-32601, "no")]),
            _ => {}
        }
        process.into()
    }

    fn hangs_at_start(script: &Script) -> bool {
        script.starts.iter().any(|process| process.first.contains(&Step::SleepForever))
    }

    fn answering(text: &str) -> Script {
        Process::new().turns(answer(text)).into()
    }

    fn runner(lab: &Lab, host: &Host, keep_warm: Duration) -> Box<dyn Runner> {
        let runner = lab.acp().keep_warm(keep_warm).runner().on(host.clone());
        Box::new(runner.buffer(8, 64 * 1024))
    }
}

/// The turns of a process, by their prompts.
fn turns(dice: &mut Dice, process: Process) -> Process {
    let good = || answer(ANSWER);
    let work = (0..20).flat_map(|n| {
        let id = format!("c{n}");
        [command(&id, "in_progress", "ls"), command(&id, "completed", "ls"), thought("Hm.")]
    });
    let noise = [
        Step::line("not JSON"),
        Step::raw(*b"\xff\n\n"),
        Step::notify("session/update", Value::Null),
        Step::notify("vendor/news", json!({ "sessionId": "$SESSION" })),
    ];
    let piece = json!({
        "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": "no" },
    });
    let foreign = Step::notify("session/update", json!({ "sessionId": "other", "update": piece }));
    let vendor = Step::ask("v", "vendor/drain", json!({}));
    process
        .turns_when("plain", good())
        .turns_when("worked", work.chain(good()))
        .turns_when("asked", [permission("q", "t", "ls")].into_iter().chain(good()))
        .turns_when("vendor", [vendor].into_iter().chain(good()))
        .turns_when("noisy", noise.into_iter().chain(good()))
        .turns_when("foreign", [foreign].into_iter().chain(good()))
        .turns_when("failed", [Step::fail(-32603, "boom")])
        .turns_when("login", [Step::fail(-32000, "Authentication required")])
        .turns_when("empty", [end("end_turn")])
        .turns_when("revoked", [text("half"), end("cancelled")])
        .turns_when("future", [text("half"), end("from_the_future")])
        .turns_when("dies", [grandchild(dice), Step::Die(Signal::Kill)])
        .turns_when("exits", [Step::Exit(1)])
        .turns_when("silent", [grandchild(dice), Step::SleepForever])
        .turns_when("mute", [Step::SleepForever])
        .turns_when("closes", [Step::CloseStdout, Step::SleepForever])
}
