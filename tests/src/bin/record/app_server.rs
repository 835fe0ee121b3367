//! A client of app-server that records both directions.

use serde_json::{Value, json};
use takopi_tests::codex::home::TestHome;
use takopi_tests::codex::real::Codex;
use takopi_tests::codex::real::raw::RawCodex;
use takopi_tests::model::ModelServer;

use crate::neutral;
use crate::scenes::{Play, SECOND_TURN, Scene};

/// A server, and the lines so far.
struct Tape {
    codex: RawCodex,
    lines: Vec<String>,
    read: usize,
    next: u64,
}

impl Tape {
    async fn start(codex: &Codex, home: &TestHome) -> Self {
        let codex = RawCodex::start(codex, home, &["app-server"]);
        let mut tape = Self { codex, lines: Vec::new(), read: 0, next: 1 };
        let client = json!({"name": "lab", "title": "lab", "version": "0"});
        let hello = json!({"clientInfo": client, "capabilities": {"experimentalApi": true}});
        tape.call("initialize", hello).await;
        tape.send(&json!({"method": "initialized"})).await;
        tape
    }

    async fn send(&mut self, message: &Value) {
        self.lines.push(format!("> {message}"));
        self.codex.send(message).await;
    }

    /// Writes down what was received since.
    fn note(&mut self) {
        let seen = &self.codex.seen()[self.read..];
        self.lines.extend(seen.iter().map(|line| format!("< {line}")));
        self.read += seen.len();
    }

    async fn received(&mut self, text: &str) -> Value {
        let line = self.codex.line_with(text).await;
        self.note();
        line
    }

    async fn ask(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next;
        self.next += 1;
        self.send(&json!({"id": id, "method": method, "params": params})).await;
        id
    }

    async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params).await;
        loop {
            // Errors name the id last, and the server's own requests count from 0 too.
            let line = self.received(&format!(r#""id":{id}"#)).await;
            if line["id"] == id && line.get("method").is_none() {
                return line;
            }
        }
    }

    async fn thread(&mut self, home: &TestHome) -> String {
        let reply = self.call("thread/start", json!({"cwd": home.workspace()})).await;
        reply["result"]["thread"]["id"].as_str().expect("a thread").to_owned()
    }

    async fn turn(&mut self, thread: &str, text: &str) -> String {
        let input = json!([{"type": "text", "text": text}]);
        let reply = self.call("turn/start", json!({"threadId": thread, "input": input})).await;
        reply["result"]["turn"]["id"].as_str().expect("a turn").to_owned()
    }

    /// Reads to the end of the turn; whatever is asked on the way is accepted.
    async fn completed(&mut self) {
        loop {
            // Every message of interest has a method.
            let line = self.received(r#""method":"#).await;
            if line["method"] == "turn/completed" {
                return;
            }
            if let Some(id) = line.get("id") {
                let accept = json!({"id": id, "result": {"decision": "accept"}});
                self.send(&accept).await;
            }
        }
    }

    async fn end(mut self) -> Vec<String> {
        let read = self.read;
        let ended = self.codex.end().await;
        self.lines.extend(ended.lines[read..].iter().map(|line| format!("< {line}")));
        self.lines
    }
}

/// Records one scene.
pub(crate) async fn record(codex: &Codex, scene: &Scene) -> Vec<String> {
    let model = ModelServer::start();
    model.otherwise(scene.script.clone());
    let home = (scene.settings)(TestHome::builder(&model)).build();
    let mut tape = Tape::start(codex, &home).await;
    let thread = tape.thread(&home).await;
    let lines = match &scene.play {
        Play::Turn => {
            tape.turn(&thread, "hi").await;
            tape.completed().await;
            tape.end().await
        }
        Play::Interrupt => {
            let turn = tape.turn(&thread, "hi").await;
            tape.received(r#""type":"commandExecution""#).await;
            home.wait_for_command("sleep 600").await;
            tape.call("turn/interrupt", json!({"threadId": thread, "turnId": turn})).await;
            tape.completed().await;
            tape.end().await
        }
        Play::TwoTurns(gate) => {
            tape.turn(&thread, "one").await;
            gate.reached().await;
            tape.turn(&thread, "two").await;
            gate.open();
            tape.completed().await;
            // A phantom turn has no end: what else comes, comes soon.
            let _ = tokio::time::timeout(SECOND_TURN, tape.completed()).await;
            tape.end().await
        }
        Play::ResumeBusy => {
            tape.turn(&thread, "one").await;
            tape.completed().await;
            let mut other = Tape::start(codex, &home).await;
            other.call("thread/resume", json!({"threadId": thread})).await;
            let first = tape.end().await;
            other.call("thread/resume", json!({"threadId": thread})).await;
            other.turn(&thread, "two").await;
            other.completed().await;
            first.into_iter().chain(other.end().await).collect()
        }
    };
    lines.iter().map(|line| neutral(line, &home, &model)).collect()
}
