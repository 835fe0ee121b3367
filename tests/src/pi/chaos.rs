//! Random faults of the fake pi: see [`chaos`](crate::chaos).

use std::time::Duration;

use serde_json::json;
use takopi_core::{Host, Runner};

use super::fake::{
    Process, Script, Signal, Step, answer, ask, command, line, message, run, settled, store,
};
use super::home::TestHome;
use super::lab::Lab;
use crate::chaos::{ANSWER, Chaos, grandchild};
use crate::dice::Dice;

impl Chaos for TestHome {
    const ENGINE: &'static str = "pi";
    const TURNS: &'static [&'static str] = &[
        "plain", "worked", "asked", "noisy", "retried", "failed", "login", "refused", "aborted",
        "wordless", "dies", "exits",
    ];
    const HANGS: &'static [&'static str] = &["silent", "mute", "closes"];

    fn script(dice: &mut Dice) -> Script {
        let mut process = Process::new();
        if dice.chance(20) {
            let fault = dice.pick(&[
                vec![Step::Exit(1)],
                vec![Step::Reply, Step::Die(Signal::Kill)],
                vec![Step::fail(0, "no")],
            ]);
            process = process.once("get_state", fault);
        }
        process = turns(dice, process);
        // Those that take seconds to end are rare.
        match dice.below(60) {
            0 => process = process.stubborn(),
            1 => process = process.first([Step::SleepForever]),
            2 => process = process.unguarded(),
            3..7 => process = process.first([Step::stderr("no"), Step::Exit(1)]),
            7..10 => process = process.always("abort", []),
            10..18 => process = process.always("steer", [Step::fail(0, "no")]),
            _ => {}
        }
        process.into()
    }

    fn hangs_at_start(script: &Script) -> bool {
        script.starts.iter().any(|process| process.first.contains(&Step::SleepForever))
    }

    fn answering(text: &str) -> Script {
        Process::new().always("prompt", answer(text)).into()
    }

    fn runner(lab: &Lab, host: &Host, keep_warm: Duration) -> Box<dyn Runner> {
        let runner = lab.pi().keep_warm(keep_warm).runner().on(host.clone());
        Box::new(runner.buffer(8, 64 * 1024))
    }

    fn store(&self, session: &str) {
        store(&self.config(), session, &self.workspace());
    }
}

/// The turns of a process, by their prompts.
fn turns(dice: &mut Dice, process: Process) -> Process {
    let ends = |text: &str, reason: &str| [message(text, reason), settled(false)];
    let good = || ends(ANSWER, "stop");
    let work = (0..20).flat_map(|n| [command(&format!("c{n}"), "ls"), message("Hm.", "toolUse")]);
    let asks = [command("t", "ls"), ask("q", "bash", &json!({ "command": "ls" }))];
    let noise = [
        Step::line("not JSON"),
        Step::raw(*b"\xff\n\n"),
        line(&json!({ "type": "from_the_future" })),
        line(&json!({ "type": "message_end", "message": null })),
    ];
    let retry = line(&json!({
        "type": "auto_retry_start", "attempt": 1, "maxAttempts": 3, "errorMessage": "429",
    }));
    let retries = [message("", "error"), retry, line(&json!({ "type": "agent_start" }))];
    process
        .when("prompt", "plain", run(good()))
        .when("prompt", "worked", run(work.chain(good())))
        .when("prompt", "asked", run(asks.into_iter().chain(good())))
        .when("prompt", "noisy", run(noise.into_iter().chain(good())))
        .when("prompt", "retried", run(retries.into_iter().chain(good())))
        .when("prompt", "failed", run(ends("", "error")))
        .when("prompt", "login", run(ends("401 Invalid API key", "error")))
        .when("prompt", "refused", [Step::fail(0, "busy")])
        .when("prompt", "aborted", run([message("half", "aborted"), settled(true)]))
        .when("prompt", "wordless", run([settled(false)]))
        .when("prompt", "dies", run([grandchild(dice), Step::Die(Signal::Kill)]))
        .when("prompt", "exits", [Step::Exit(1)])
        .when("prompt", "silent", run([grandchild(dice), Step::SleepForever]))
        .when("prompt", "mute", [Step::SleepForever])
        .when("prompt", "closes", run([Step::CloseStdout, Step::SleepForever]))
}
