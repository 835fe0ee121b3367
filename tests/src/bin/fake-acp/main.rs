//! `fake-acp`: plays the script in its environment as an agent that speaks the Agent Client Protocol. The scripts are
//! described in `takopi_tests::acp::fake`.
//!
//! The main thread reads. A call is played on it up to the first step that blocks and then goes on on a thread of its own.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test tool: a failure here is a test's failure"
)]

use std::collections::HashSet;
use std::io::BufRead;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use takopi_tests::acp::fake::{Process, Script};
use takopi_tests::fake::play::{Asks, Begun, Fake, Link, Player, Used, aside, begin, nth, output};
use takopi_tests::fake::report::{Mode, Report};
use takopi_tests::fake::{Ask, Step};

fn main() {
    let Begun { mode, script, fake, link } = begin::<Script>(mode);
    if mode == Mode::Version {
        aside(fake, link, None, Step::line("fake-acp 1.2.3"));
    } else {
        let process = nth(script.starts, fake.start);
        run(&fake, link, process);
    }
    std::process::exit(0);
}

fn mode(args: &[String]) -> Mode {
    if args.iter().any(|arg| arg == "--version") { Mode::Version } else { Mode::Duplex }
}

/// What is kept in mind between calls, behind one lock that also orders what is written.
#[derive(Default)]
struct State {
    used: Used,
    asks: Asks,
    asked: u64,
    stopped_reading: bool,
    /// The request whose answer ends the running turn.
    turn: Option<String>,
    /// Turns that are over.
    over: HashSet<String>,
}

impl State {
    /// Whether the call is a prompt whose turn is over.
    fn is_over(&self, call: &Call) -> bool {
        call.method == "session/prompt"
            && call.id.as_ref().is_some_and(|id| self.over.contains(&id.to_string()))
    }
}

struct Agent {
    script: Process,
    state: Mutex<State>,
    changed: Condvar,
}

/// A call of the client while it is played.
struct Call {
    method: String,
    id: Option<Value>,
    player: Player,
}

fn run(fake: &Arc<Fake>, link: Option<Link>, script: Process) {
    let mut main = Player::new(Arc::clone(fake), link);
    for name in ["PROMPT", "REPLY", "SESSION"] {
        main.vars.set(name, "");
    }
    let agent = Arc::new(Agent { script, state: Mutex::default(), changed: Condvar::new() });
    for step in &agent.script.first {
        main.play(step);
    }
    let mut line = Vec::new();
    while !agent.lock().stopped_reading {
        line.clear();
        let read = std::io::stdin().lock().read_until(b'\n', &mut line).expect("stdin can be read");
        if read == 0 {
            for step in agent.script.at_eof.iter().flatten() {
                main.play(step);
            }
            std::process::exit(0);
        }
        let text = String::from_utf8_lossy(&line);
        main.report(&Report::Client(text.trim_end().to_owned()));
        let message: Value = serde_json::from_str(&text).expect("the client sends JSON");
        agent.receive(&mut main, &message, &text);
    }
    main.play(&Step::SleepForever);
}

impl Agent {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn receive(self: &Arc<Self>, main: &mut Player, message: &Value, text: &str) {
        let Some(method) = message["method"].as_str() else {
            return self.answered(main, message);
        };
        let params = &message["params"];
        let mut player = main.beside();
        let new = || format!("lab-{}", uuid::Uuid::new_v4().simple());
        let session = match params["sessionId"].as_str() {
            Some(session) => session.to_owned(),
            None => new(),
        };
        player.vars.set("SESSION", &session);
        player.vars.set("PROMPT", params["prompt"][0]["text"].as_str().unwrap_or_default());
        if matches!(method, "session/new" | "session/load" | "session/resume") {
            main.report(&Report::Holds(session));
        }
        let mut state = self.lock();
        let rule = state.used.rule(&self.script.rules, method, text);
        if method == "session/prompt" {
            state.turn = Some(message["id"].to_string());
        }
        drop(state);
        let call = Call { method: method.to_owned(), id: message.get("id").cloned(), player };
        self.run(call, rule.unwrap_or_else(|| defaults(method)));
    }

    fn answered(&self, main: &mut Player, message: &Value) {
        let answer = message.get("result").or(message.get("error")).cloned().unwrap_or_default();
        let name = self.lock().asks.answered(&message["id"], answer);
        if let Some(name) = name {
            main.report(&Report::Answered { name, message: message.clone() });
        }
        self.changed.notify_all();
    }

    fn run(self: &Arc<Self>, mut call: Call, mut steps: Vec<Step>) {
        let inline = steps.iter().position(Step::blocks).unwrap_or(steps.len());
        let rest = steps.split_off(inline);
        let over = steps.iter().any(|step| !self.play(&mut call, step));
        if !over && !rest.is_empty() {
            let agent = Arc::clone(self);
            std::thread::spawn(move || {
                let _ = rest.iter().any(|step| !agent.play(&mut call, step));
            });
        }
    }

    /// Plays a step; `false` if the turn of the call is over.
    fn play(&self, call: &mut Call, step: &Step) -> bool {
        if self.lock().is_over(call) {
            return false;
        }
        match step {
            Step::Notify { method, params } => {
                let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
                return self.send(call, &message);
            }
            Step::Ask(ask) => return self.ask(call, ask),
            Step::Reply => return self.reply(call, self.result(call)),
            Step::ReplyWith(result) => return self.reply(call, json!({ "result": result })),
            Step::Fail { code, message, data } => {
                let mut error = json!({ "code": code, "message": message });
                if let Some(data) = data {
                    error["data"] = data.clone();
                }
                return self.reply(call, json!({ "error": error }));
            }
            Step::Interrupt => self.interrupt(),
            Step::StopReading => self.lock().stopped_reading = true,
            common => call.player.play(common),
        }
        true
    }

    /// Writes a message, unless the turn is over.
    fn send(&self, call: &Call, message: &Value) -> bool {
        let state = self.lock();
        let over = state.is_over(call);
        if !over {
            output::line(call.player.vars.fill(&message.to_string()));
        }
        !over
    }

    fn result(&self, call: &Call) -> Value {
        let result = match call.method.as_str() {
            "initialize" => json!({
                "protocolVersion": self.script.protocol,
                "agentInfo": { "name": "fake", "version": "1.2.3" },
                "agentCapabilities": {
                    "loadSession": true,
                    "promptCapabilities": { "image": true },
                    "sessionCapabilities": self.script.session_capabilities,
                },
                "authMethods": [],
            }),
            "session/new" => json!({ "sessionId": "$SESSION" }),
            "session/prompt" => json!({ "stopReason": "end_turn" }),
            _ => json!({}),
        };
        json!({ "result": result })
    }

    /// Answers the call. With the answer to a prompt its turn is over.
    fn reply(&self, call: &Call, mut message: Value) -> bool {
        let Some(id) = &call.id else { return true };
        message["jsonrpc"] = json!("2.0");
        message["id"] = id.clone();
        let mut state = self.lock();
        if state.is_over(call) {
            return false;
        }
        if state.turn.as_deref() == Some(&id.to_string()) {
            state.turn = None;
        }
        output::line(call.player.vars.fill(&message.to_string()));
        true
    }

    /// Ends the running turn as cancelled.
    fn interrupt(&self) {
        let mut state = self.lock();
        let Some(turn) = state.turn.take() else { return };
        let id: Value = serde_json::from_str(&turn).expect("an id is JSON");
        state.over.insert(turn);
        let result = json!({ "stopReason": "cancelled" });
        output::line(json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string());
        drop(state);
        self.changed.notify_all();
    }

    fn ask(&self, call: &mut Call, ask: &Ask) -> bool {
        let mut state = self.lock();
        if state.is_over(call) {
            return false;
        }
        let id = ask.id.clone().unwrap_or_else(|| json!(state.asked));
        state.asked += 1;
        state.asks.ask(&id, &ask.name, "", None);
        let message =
            json!({ "jsonrpc": "2.0", "id": id, "method": ask.method, "params": ask.params });
        output::line(call.player.vars.fill(&message.to_string()));
        if !ask.wait {
            return true;
        }
        loop {
            if let Some((answer, _)) = state.asks.take_answer(&id) {
                call.player.vars.set("REPLY", &answer.to_string());
                return true;
            }
            if state.is_over(call) {
                return false;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// What a healthy agent does with a call.
fn defaults(method: &str) -> Vec<Step> {
    match method {
        "session/prompt" => takopi_tests::acp::fake::answer("Hello from the fake."),
        "session/cancel" => vec![Step::Interrupt],
        _ => vec![Step::Reply],
    }
}
