//! `fake-pi`: plays the script in its environment as `pi --mode rpc` or `pi --version`. The scripts are described in
//! `takopi_tests::pi::fake`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test tool: a failure here is a test's failure"
)]

use std::io::BufRead as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use takopi_tests::fake::Step;
use takopi_tests::fake::play::{Begun, Player, Used, aside, begin, complain, nth, output};
use takopi_tests::fake::report::{Mode, Report};
use takopi_tests::pi::fake::{Process, Script, answer, settled, store};

fn main() {
    let Begun { mode, script, fake, link } = begin::<Script>(mode);
    if mode == Mode::Version {
        let version = script.version.unwrap_or_else(|| "1.5.0".to_owned());
        aside(fake, link, None, Step::line(version));
        return;
    }
    let process = nth(script.starts, fake.start);
    let args = fake.args.clone();
    Rpc::run(Player::new(fake, link), process, &args);
}

fn mode(args: &[String]) -> Mode {
    let has = |word: &str| args.iter().any(|arg| arg == word);
    match (has("--version"), has("rpc")) {
        (true, _) => Mode::Version,
        (_, true) => Mode::Duplex,
        _ => complain(&format!("not started with --mode rpc: {args:?}")),
    }
}

struct Rpc {
    script: Process,
    session: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    used: Used,
    /// Counts runs and aborts: steps of an earlier count stop.
    run: usize,
    is_running: bool,
}

/// A command while it is played.
struct Call {
    id: Value,
    command: String,
    /// The run that it began.
    run: Option<usize>,
    player: Player,
}

impl Rpc {
    fn run(mut main: Player, script: Process, args: &[String]) {
        let value = |flag: &str| args.iter().skip_while(|arg| *arg != flag).nth(1).cloned();
        let stem = |path: &String| Path::new(path).file_stem()?.to_str().map(str::to_owned);
        let resumed = value("--session").and_then(|path| stem(&path));
        let resumed = resumed.and_then(|stem| Some(stem.rsplit_once('_')?.1.to_owned()));
        let asked = resumed.or_else(|| value("--session-id")).unwrap_or_default();
        let session = script.session.clone().unwrap_or(asked);
        main.vars.set("SESSION", &session);
        main.vars.set("PROMPT", "");
        main.report(&Report::Holds(session.clone()));
        let extension = value("--extension").map(std::fs::read_to_string);
        let extension = extension.and_then(Result::ok).unwrap_or_default();
        let sign = extension.split(r#""sign":""#).nth(1).and_then(|rest| rest.split('"').next());
        if let Some(sign) = sign.filter(|_| !script.unguarded) {
            let status = json!({
                "type": "extension_ui_request", "id": "s", "method": "setStatus",
                "statusKey": "takopi", "statusText": sign,
            });
            output::line(status.to_string());
        }
        let rpc = Arc::new(Self { script, session, state: Mutex::default() });
        for step in rpc.script.first.clone() {
            main.play(&step);
        }
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = std::io::stdin().lock().read_until(b'\n', &mut line).expect("stdin");
            if read == 0 {
                for step in rpc.script.at_eof.clone() {
                    main.play(&step);
                }
                std::process::exit(0);
            }
            let text = String::from_utf8_lossy(&line).trim().to_owned();
            main.report(&Report::Client(text.clone()));
            let message: Value = serde_json::from_str(&text).unwrap_or_default();
            rpc.receive(&main, &message, &text);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn receive(self: &Arc<Self>, main: &Player, message: &Value, text: &str) {
        let command = message["type"].as_str().unwrap_or_default().to_owned();
        let mut player = main.beside();
        player.vars.set("PROMPT", message["message"].as_str().unwrap_or_default());
        let mut state = self.lock();
        let rule = state.used.rule(&self.script.rules, &command, text);
        let mut run = None;
        if command == "prompt" {
            state.run += 1;
            state.is_running = true;
            run = Some(state.run);
            self.store();
        }
        let default = match command.as_str() {
            "prompt" => answer("Hello from the fake."),
            "abort" if rule.is_none() => {
                state.run += 1;
                let end = std::mem::take(&mut state.is_running).then(|| settled(true));
                end.into_iter().chain([Step::Reply]).collect()
            }
            "extension_ui_response" => Vec::new(),
            _ => vec![Step::Reply],
        };
        drop(state);
        let call = Call { id: message["id"].clone(), command, run, player };
        self.begin(call, rule.unwrap_or(default));
    }

    /// Writes the file by which a session is found again.
    fn store(&self) {
        let Some(agent) = std::env::var_os("PI_CODING_AGENT_DIR").map(PathBuf::from) else {
            return;
        };
        store(&agent, &self.session, &std::env::current_dir().unwrap_or_default());
    }

    fn begin(self: &Arc<Self>, mut call: Call, mut steps: Vec<Step>) {
        let inline = steps.iter().position(Step::blocks).unwrap_or(steps.len());
        let rest = steps.split_off(inline);
        let over = steps.iter().any(|step| !self.play(&mut call, step));
        if !over && !rest.is_empty() {
            let rpc = Arc::clone(self);
            std::thread::spawn(move || {
                let _ = rest.iter().any(|step| !rpc.play(&mut call, step));
            });
        }
    }

    /// Plays a step; `false` if its run was aborted.
    fn play(&self, call: &mut Call, step: &Step) -> bool {
        // What a run prints and what ends it are ordered by the lock; a step that blocks takes it not.
        let state = self.lock();
        if call.run.is_some_and(|run| run != state.run) {
            return false;
        }
        let respond = |success: bool, field: &str, value: &Value, call: &Call| {
            let mut response = json!({
                "id": call.id, "type": "response", "command": call.command, "success": success,
            });
            response[field] = value.clone();
            output::line(call.player.vars.fill(&response.to_string()));
        };
        match step {
            Step::Reply => {
                let data = match call.command.as_str() {
                    "get_state" => json!({ "sessionId": self.session }),
                    "prompt" => json!({ "disposition": "started" }),
                    "steer" => json!({ "disposition": "queued" }),
                    "clear_queue" => json!({ "steering": [], "followUp": [] }),
                    _ => Value::Null,
                };
                respond(true, "data", &data, call);
            }
            Step::ReplyWith(data) => respond(true, "data", data, call),
            Step::Fail { message, .. } => respond(false, "error", &json!(message), call),
            step => {
                if step.blocks() {
                    drop(state);
                }
                call.player.play(step);
            }
        }
        true
    }
}
