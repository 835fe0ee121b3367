//! `codex app-server`: one JSON object a line on stdio, played by the rules of the script.
//!
//! The main thread reads. A call is played on it up to the first step that blocks and then goes on
//! on a thread of its own. What a turn sends and what ends it are ordered by one lock: nothing of an
//! interrupted turn comes behind its end.

use std::io::BufRead;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use takopi_tests::codex::fake::report::Report;
use takopi_tests::codex::fake::{Ask, Server, Step, turn};
use takopi_tests::fake::play::{Fake, Link, Player, Settled, output};

use crate::defaults::Outcome;
use crate::state::State;

/// Whether the steps of a call go on.
#[derive(PartialEq)]
enum Flow {
    On,
    Over,
}

struct AppServer {
    script: Server,
    state: Mutex<State>,
    changed: Condvar,
}

/// A call of the client, or what happens around calls, while it is played.
pub(crate) struct Call {
    /// The method it called.
    pub(crate) method: String,
    /// The thread it is about.
    pub(crate) thread: Option<String>,
    /// The turn it is about.
    pub(crate) turn: Option<String>,
    request: Option<Value>,
    outcome: Outcome,
    player: Player,
}

/// Serves until stdin ends.
pub(crate) fn run(fake: Arc<Fake>, link: Option<Link>, script: Server) {
    let mut main = Player::new(fake, link);
    let (first, at_eof) = (script.first.clone(), script.at_eof.clone());
    let server = Arc::new(AppServer { script, state: Mutex::default(), changed: Condvar::new() });
    server.aside(&main, &first);
    let mut line = Vec::new();
    while !server.lock().stopped_reading {
        line.clear();
        let read = std::io::stdin().lock().read_until(b'\n', &mut line).expect("stdin can be read");
        if read == 0 {
            server.aside(&main, &at_eof);
            return;
        }
        let text = String::from_utf8_lossy(&line);
        main.report(&Report::Client(text.trim_end().to_owned()));
        if let Ok(message) = serde_json::from_str(&text) {
            server.receive(&mut main, &message, &text);
        }
    }
    main.play(&Step::SleepForever);
}

impl AppServer {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plays steps that belong to no call, on this thread.
    fn aside(&self, main: &Player, steps: &[Step]) {
        let mut call = Call {
            method: String::new(),
            request: None,
            thread: None,
            turn: None,
            outcome: Ok(Value::Null),
            player: main.beside(),
        };
        for step in steps {
            self.play(&mut call, step);
        }
    }

    fn receive(self: &Arc<Self>, main: &mut Player, message: &Value, text: &str) {
        let request = message.get("id").cloned();
        match (message["method"].as_str(), request) {
            (Some(method), request) => self.call(main, method, request, message, text),
            (None, Some(id)) => self.answered(main, &id, message),
            (None, None) => {}
        }
    }

    fn call(
        self: &Arc<Self>,
        main: &mut Player,
        method: &str,
        request: Option<Value>,
        message: &Value,
        text: &str,
    ) {
        let params = &message["params"];
        let mut state = self.lock();
        let plan = state.threads.plan(&self.script, method, params);
        let rule =
            if plan.folded { None } else { state.used.rule(&self.script.rules, method, text) };
        let cwd = state.threads.get_mut(plan.thread.as_ref()).map(|thread| thread.cwd.clone());
        drop(state);
        if let ("thread/start" | "thread/resume", Some(thread)) = (method, &plan.thread) {
            main.report(&Report::Holds(thread.clone()));
        }
        let mut player = main.beside();
        player.vars.set("THREAD", plan.thread.as_deref().unwrap_or_default());
        player.vars.set("TURN", plan.turn.as_deref().unwrap_or_default());
        player.vars.set("CWD", cwd.as_deref().unwrap_or_default());
        player.vars.set("PROMPT", &prompt(params));
        player.vars.set("REPLY", "");
        player.vars.set_json("REQUEST", request.clone().unwrap_or_default().to_string());
        let (thread, turn, outcome) = (plan.thread, plan.turn, plan.outcome);
        let call = Call { method: method.to_owned(), request, thread, turn, outcome, player };
        self.run(call, rule.unwrap_or(plan.steps));
    }

    fn run(self: &Arc<Self>, mut call: Call, mut steps: Vec<Step>) {
        let inline = steps.iter().position(Step::blocks).unwrap_or(steps.len());
        let rest = steps.split_off(inline);
        let over = steps.iter().any(|step| self.play(&mut call, step) == Flow::Over);
        if !over && !rest.is_empty() {
            let server = Arc::clone(self);
            std::thread::spawn(move || {
                let _ = rest.iter().any(|step| server.play(&mut call, step) == Flow::Over);
            });
        }
    }

    fn play(&self, call: &mut Call, step: &Step) -> Flow {
        match step {
            Step::Reply => self.reply(call, &call.outcome.clone()),
            Step::ReplyWith(result) => self.reply(call, &Ok(result.clone())),
            Step::Fail { code, message, data } => self.fail(call, *code, message, data.as_ref()),
            Step::Notify { method, params } => self.notify(call, method, params),
            Step::Usage { input, cached, output, reasoning } => {
                self.usage(call, [*input, *cached, *output, *reasoning])
            }
            Step::Ask(ask) => self.ask(call, ask),
            Step::Withdraw(name) => {
                let mut state = self.lock();
                resolved(state.asks.withdraw(name));
                Flow::On
            }
            Step::Interrupt => self.interrupt(call),
            Step::StopReading => {
                self.lock().stopped_reading = true;
                Flow::On
            }
            common => {
                if self.lock().is_over(call) {
                    return Flow::Over;
                }
                call.player.play(common);
                Flow::On
            }
        }
    }

    fn reply(&self, call: &Call, outcome: &Outcome) -> Flow {
        match outcome {
            Ok(result) => self.respond(call, "result", result),
            Err((code, message)) => self.fail(call, *code, message, None),
        }
    }

    fn fail(&self, call: &Call, code: i64, message: &str, data: Option<&Value>) -> Flow {
        let mut error = json!({"code": code, "message": message});
        if let Some(data) = data {
            error["data"] = data.clone();
        }
        if call.method == "turn/start" {
            self.lock().end_turn(call);
        }
        self.respond(call, "error", &error)
    }

    fn respond(&self, call: &Call, member: &str, value: &Value) -> Flow {
        if let Some(request) = &call.request {
            let value = call.player.vars.fill(&value.to_string());
            let _ordered = self.lock();
            output::line(format!(r#"{{"id":{request},"{member}":{value}}}"#));
        }
        Flow::On
    }

    fn notify(&self, call: &Call, method: &str, params: &Value) -> Flow {
        let mut state = self.lock();
        if state.is_over(call) {
            return Flow::Over;
        }
        if method == "turn/completed" && params["turn"]["id"] == "$TURN" {
            state.end_turn(call);
        }
        send(call, None, method, params);
        Flow::On
    }

    fn usage(&self, call: &Call, last: [u64; 4]) -> Flow {
        let mut total = last;
        if let Some(thread) = self.lock().threads.get_mut(call.thread.as_ref()) {
            for (sum, more) in thread.usage.iter_mut().zip(last) {
                *sum += more;
            }
            total = thread.usage;
        }
        let usage =
            json!({"total": tokens(total), "last": tokens(last), "modelContextWindow": 258_400});
        let params = json!({"threadId": "$THREAD", "turnId": "$TURN", "tokenUsage": usage});
        self.notify(call, "thread/tokenUsage/updated", &params)
    }

    fn ask(&self, call: &mut Call, ask: &Ask) -> Flow {
        let mut state = self.lock();
        if state.is_over(call) {
            return Flow::Over;
        }
        let id = state.ask(call, ask);
        send(call, Some(&id), &ask.method, &ask.params);
        if !ask.wait {
            return Flow::On;
        }
        loop {
            if state.is_over(call) {
                return Flow::Over;
            }
            if let Some((answer, settled)) = state.asks.take_answer(&id) {
                resolved(settled);
                call.player.vars.set("REPLY", &answer.to_string());
                return Flow::On;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn answered(&self, main: &mut Player, id: &Value, message: &Value) {
        let mut state = self.lock();
        let answer = message.get("result").or(message.get("error")).cloned().unwrap_or_default();
        if let Some(name) = state.asks.answered(id, answer) {
            main.report(&Report::Answered { name, message: message.clone() });
        }
        drop(state);
        self.changed.notify_all();
    }

    fn interrupt(&self, call: &mut Call) -> Flow {
        let mut state = self.lock();
        let thread = state.threads.get_mut(call.thread.as_ref());
        let Some(running) = thread.and_then(|thread| thread.turn.take()) else {
            return Flow::On;
        };
        call.player.vars.set("TURN", &running);
        state.interrupt(running);
        for step in [turn::status("idle"), turn::ended("interrupted", &Value::Null)] {
            if let Step::Notify { method, params } = step {
                send(call, None, &method, &params);
            }
        }
        drop(state);
        self.changed.notify_all();
        Flow::On
    }
}

/// Reports that requests are settled.
pub(crate) fn resolved(settled: impl IntoIterator<Item = Settled>) {
    for Settled { id, place } in settled {
        let thread = Value::from(place);
        let params = format!(r#"{{"threadId":{thread},"requestId":{id}}}"#);
        output::line(format!(r#"{{"method":"serverRequest/resolved","params":{params}}}"#));
    }
}

/// Sends a notification, or a request if it has an id.
fn send(call: &Call, id: Option<&Value>, method: &str, params: &Value) {
    let method = Value::from(method);
    let id = id.map(|id| format!(r#","id":{id}"#)).unwrap_or_default();
    let params = call.player.vars.fill(&params.to_string());
    output::line(format!(r#"{{"method":{method}{id},"params":{params}}}"#));
}

/// The text that a client sends with a turn.
fn prompt(params: &Value) -> String {
    let inputs = params["input"].as_array().map(Vec::as_slice).unwrap_or_default();
    let texts: Vec<&str> = inputs.iter().filter_map(|input| input["text"].as_str()).collect();
    texts.join("\n")
}

fn tokens([input, cached, output, reasoning]: [u64; 4]) -> Value {
    json!({
        "totalTokens": input + output,
        "inputTokens": input,
        "cachedInputTokens": cached,
        "cacheWriteInputTokens": 0,
        "outputTokens": output,
        "reasoningOutputTokens": reasoning,
    })
}
