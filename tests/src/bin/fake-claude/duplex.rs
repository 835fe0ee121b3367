//! `claude -p` with lines in both directions, played by the rules of the script.
//!
//! The main thread reads. A call is played on it up to the first step that blocks and then goes on on a thread of its own. What
//! a turn prints and what ends it are ordered by one lock: nothing of an interrupted turn comes behind its end.

use std::io::BufRead;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use takopi_tests::claude::fake::report::Report;
use takopi_tests::claude::fake::{Ask, Process, Step, turn};
use takopi_tests::fake::play::{Fake, Link, Player, Settled, output};

use crate::defaults::{self, Outcome};
use crate::state::{State, Turn};

/// Whether the steps of a call go on.
#[derive(PartialEq)]
enum Flow {
    On,
    Over,
}

struct Duplex {
    script: Process,
    states: bool,
    state: Mutex<State>,
    changed: Condvar,
}

/// A call of the client, or what happens around calls, while it is played.
struct Call {
    /// The turn it is about; steps of one that was interrupted stop.
    turn: Option<String>,
    /// The id of a control request.
    request: Option<Value>,
    outcome: Outcome,
    player: Player,
}

/// Serves until stdin ends.
pub(crate) fn run(fake: &Arc<Fake>, link: Option<Link>, script: Process) {
    let mut main = Player::new(Arc::clone(fake), link);
    let session = script.session.clone().unwrap_or_else(|| session(&fake.args));
    let cwd = std::env::current_dir().unwrap_or_default();
    main.vars.set("SESSION", &session);
    main.vars.set("CWD", &cwd.to_string_lossy());
    main.vars.set("VERSION", &script.version);
    for name in ["PROMPT", "MESSAGE", "TURN", "REPLY"] {
        main.vars.set(name, "");
    }
    main.vars.set_json("REQUEST", "null".to_owned());
    main.report(&Report::Holds(session));
    let asked = std::env::var("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS").is_ok_and(|it| it == "1");
    let states = script.states.unwrap_or(asked);
    let duplex =
        Arc::new(Duplex { script, states, state: Mutex::default(), changed: Condvar::new() });
    duplex.aside(&main, &duplex.script.first);
    let mut line = Vec::new();
    while !duplex.lock().stopped_reading {
        line.clear();
        let read = std::io::stdin().lock().read_until(b'\n', &mut line).expect("stdin can be read");
        if read == 0 {
            return duplex.at_eof(&main);
        }
        let text = String::from_utf8_lossy(&line);
        if text.trim().is_empty() {
            continue;
        }
        main.report(&Report::Client(text.trim_end().to_owned()));
        let Ok(message) = serde_json::from_str(&text) else {
            output::stderr("Error parsing streaming input line");
            std::process::exit(1);
        };
        duplex.receive(&mut main, &message, &text);
    }
    main.play(&Step::SleepForever);
}

impl Duplex {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plays steps that belong to no call, on this thread.
    fn aside(&self, main: &Player, steps: &[Step]) {
        let mut call = Call { turn: None, request: None, outcome: Ok(None), player: main.beside() };
        for step in steps {
            self.play(&mut call, step);
        }
    }

    fn at_eof(&self, main: &Player) {
        if let Some(steps) = &self.script.at_eof {
            return self.aside(main, steps);
        }
        let running = |state: &mut State| state.turn.is_some();
        let state = self.changed.wait_while(self.lock(), running);
        let state = state.unwrap_or_else(PoisonError::into_inner);
        std::process::exit(i32::from(state.failed));
    }

    fn receive(self: &Arc<Self>, main: &mut Player, message: &Value, text: &str) {
        match message["type"].as_str() {
            Some("user") => self.user(main, message, text),
            Some("control_request") => self.control(main, message, text),
            Some("control_response") => self.answered(main, &message["response"]),
            _ => {}
        }
    }

    fn user(self: &Arc<Self>, main: &Player, message: &Value, text: &str) {
        let mut player = main.beside();
        let uuid = message["uuid"].as_str().unwrap_or_default().to_owned();
        player.vars.set("PROMPT", &prompt(&message["message"]["content"]));
        player.vars.set("MESSAGE", &uuid);
        let mut state = self.lock();
        let running = state.turn.is_some();
        let name = if running { "steer" } else { "user" };
        let rule = state.used.rule(&self.script.rules, name, text);
        let turn = if running {
            if let Some(turn) = state.turn.as_mut().filter(|_| rule.is_none()) {
                turn.uuids.push(uuid);
            }
            None
        } else {
            Some(state.begin(vec![uuid]))
        };
        drop(state);
        player.vars.set("TURN", turn.as_deref().unwrap_or_default());
        let call = Call { turn, request: None, outcome: Ok(None), player };
        self.run(call, rule.unwrap_or_else(|| defaults::steps(name, 0)));
    }

    fn control(self: &Arc<Self>, main: &Player, message: &Value, text: &str) {
        let mut player = main.beside();
        player.vars.set_json("REQUEST", message["request_id"].to_string());
        let request = &message["request"];
        let name = request["subtype"].as_str().unwrap_or_default();
        let mut state = self.lock();
        let running = state.turn.is_some();
        let rule = state.used.rule(&self.script.rules, name, text);
        let code = i32::from(running || state.failed);
        drop(state);
        let outcome = defaults::outcome(request, &self.script.version, running);
        let request = Some(message["request_id"].clone());
        let call = Call { turn: None, request, outcome, player };
        self.run(call, rule.unwrap_or_else(|| defaults::steps(name, code)));
    }

    fn answered(&self, main: &mut Player, response: &Value) {
        let mut state = self.lock();
        let answer = response.get("response").or(response.get("error")).cloned();
        let name = state.asks.answered(&response["request_id"], answer.unwrap_or_default());
        if let Some(name) = name {
            main.report(&Report::Answered { name, message: response.clone() });
        }
        drop(state);
        self.changed.notify_all();
    }

    fn run(self: &Arc<Self>, mut call: Call, mut steps: Vec<Step>) {
        let inline = steps.iter().position(Step::blocks).unwrap_or(steps.len());
        let rest = steps.split_off(inline);
        let over = steps.iter().any(|step| self.play(&mut call, step) == Flow::Over);
        if !over && !rest.is_empty() {
            let duplex = Arc::clone(self);
            std::thread::spawn(move || {
                let _ = rest.iter().any(|step| duplex.play(&mut call, step) == Flow::Over);
            });
        }
    }

    fn play(&self, call: &mut Call, step: &Step) -> Flow {
        if self.lock().is_over(call.turn.as_ref()) {
            return Flow::Over;
        }
        match step {
            Step::Line(text) => return self.line(call, text),
            Step::State(state) => return self.enter(call, state),
            Step::Ask(ask) => return self.ask(call, ask),
            Step::Reply => self.reply(call, &call.outcome.clone()),
            Step::ReplyWith(value) => self.reply(call, &Ok(Some(value.clone()))),
            Step::Fail { message, data, .. } => {
                let code = data.as_ref().and_then(Value::as_str).unwrap_or_default();
                self.reply(call, &Err((message.clone(), code.to_owned())));
            }
            Step::Withdraw(name) => self.withdraw(name),
            Step::Interrupt => self.interrupt(call),
            Step::StopReading => self.lock().stopped_reading = true,
            common => call.player.play(common),
        }
        Flow::On
    }

    fn line(&self, call: &mut Call, text: &str) -> Flow {
        let mut state = self.lock();
        if state.is_over(call.turn.as_ref()) {
            return Flow::Over;
        }
        let running = state.turn.as_ref().filter(|turn| Some(&turn.id) == call.turn.as_ref());
        let turn = running.cloned().unwrap_or_default();
        print(&mut state, call, &turn, text);
        Flow::On
    }

    fn enter(&self, call: &mut Call, name: &str) -> Flow {
        let mut state = self.lock();
        if state.is_over(call.turn.as_ref()) {
            return Flow::Over;
        }
        if name == "running" && state.turn.is_none() {
            call.turn = Some(state.begin(Vec::new()));
        }
        if name == "idle" {
            state.turn = None;
            state.take_tools();
        }
        state.waiting = name == "requires_action";
        self.print_state(call, name);
        drop(state);
        self.changed.notify_all();
        Flow::On
    }

    /// Prints a state, under the lock.
    fn print_state(&self, call: &Call, name: &str) {
        if self.states {
            let line = turn::system("session_state_changed", &json!({"state": name}));
            if let Step::Line(line) = line {
                output::line(call.player.vars.fill(&line));
            }
        }
    }

    fn reply(&self, call: &Call, outcome: &Outcome) {
        let Some(id) = &call.request else { return };
        let mut response = match outcome {
            Ok(Some(value)) => json!({"subtype": "success", "response": value}),
            Ok(None) => json!({"subtype": "success"}),
            Err((text, code)) => json!({"subtype": "error", "error": text, "error_code": code}),
        };
        response["request_id"] = id.clone();
        let line = json!({"type": "control_response", "response": response}).to_string();
        let _ordered = self.lock();
        output::line(call.player.vars.fill(&line));
    }

    fn ask(&self, call: &mut Call, ask: &Ask) -> Flow {
        let mut state = self.lock();
        if state.is_over(call.turn.as_ref()) {
            return Flow::Over;
        }
        state.asked += 1;
        let id = ask.id.clone().unwrap_or_else(|| json!(format!("ask-{}", state.asked)));
        state.asks.ask(&id, &ask.name, "", call.turn.clone());
        let mut request = ask.params.clone();
        request["subtype"] = json!(ask.method);
        let line = json!({"type": "control_request", "request_id": id, "request": request});
        output::line(call.player.vars.fill(&line.to_string()));
        if !ask.wait {
            return Flow::On;
        }
        loop {
            if state.is_over(call.turn.as_ref()) {
                return Flow::Over;
            }
            if let Some((answer, _)) = state.asks.take_answer(&id) {
                call.player.vars.set("REPLY", &answer.to_string());
                return Flow::On;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn withdraw(&self, name: &str) {
        let mut state = self.lock();
        let running = state.turn.as_ref().map(|turn| turn.id.clone());
        let settled = match running {
            Some(turn) if name == "*" => state.asks.withdraw_turn(&turn),
            _ => state.asks.withdraw(name),
        };
        cancelled(settled);
    }

    fn interrupt(&self, call: &mut Call) {
        let mut state = self.lock();
        let Some(turn) = state.interrupt() else { return };
        cancelled(state.asks.withdraw_turn(&turn.id));
        if std::mem::take(&mut state.waiting) {
            self.print_state(call, "running");
        }
        let tools = state.take_tools();
        let mut print = |call: &mut Call, step: Step| {
            if let Step::Line(line) = step {
                print(&mut state, call, &turn, &line);
            }
        };
        for step in defaults::interrupted(&tools) {
            print(call, step);
        }
        for uuid in turn.uuids.iter().filter(|uuid| !uuid.is_empty()) {
            call.player.vars.set("MESSAGE", uuid);
            print(call, turn::lifecycle("cancelled"));
        }
        self.print_state(call, "idle");
        drop(state);
        self.changed.notify_all();
    }
}

/// Prints a line of a turn, under the lock.
fn print(state: &mut State, call: &mut Call, turn: &Turn, text: &str) {
    call.player.vars.set_json("UUIDS", json!(turn.uuids).to_string());
    call.player.vars.set_json("INDEX", state.results.to_string());
    let line = call.player.vars.fill(text);
    state.printed(&line);
    output::line(line);
}

fn cancelled(settled: Vec<Settled>) {
    for Settled { id, .. } in settled {
        output::line(format!(r#"{{"type":"control_cancel_request","request_id":{id}}}"#));
    }
}

/// The text of a message of the user.
fn prompt(content: &Value) -> String {
    if let Some(text) = content.as_str() {
        return text.to_owned();
    }
    let blocks = content.as_array().map(Vec::as_slice).unwrap_or_default();
    let texts: Vec<&str> = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
    texts.join("\n")
}

/// The session that the arguments ask for, or a new one.
fn session(args: &[String]) -> String {
    let flag = |name: &str| {
        let joined = args.iter().find_map(|arg| arg.strip_prefix(name)?.strip_prefix('='));
        let apart = args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1));
        joined.or(apart.map(String::as_str)).map(str::to_owned)
    };
    let forks = args.iter().any(|arg| arg == "--fork-session");
    let resumed = flag("--resume").or_else(|| flag("-r")).filter(|_| !forks);
    let named = flag("--session-id");
    resumed.or(named).unwrap_or_else(|| uuid::Uuid::new_v4().to_string())
}
