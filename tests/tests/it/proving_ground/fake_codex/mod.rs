//! The fake codex, run directly, follows its scripts: every other test that uses it can rely on
//! that.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failure here is a test's failure"
)]

mod app_server;
mod control;
mod exec;
#[cfg(target_os = "linux")]
mod grandchildren;
mod turns;

use std::process::{ExitStatus, Stdio};

use serde_json::{Value, json};
use takopi_tests::codex::fake::{self, Control, Script};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// The fake with all its streams piped.
fn command(env: Vec<(String, String)>, args: &[&str]) -> Command {
    let mut command = Command::new(fake::binary());
    command
        .args(args)
        .envs(env)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// What a fake that has ended left behind.
struct Ended {
    status: ExitStatus,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Ended {
    fn code(&self) -> Option<i32> {
        self.status.code()
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }

    fn lines(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Runs a fake to its end: its stdin is written while its output is read.
async fn run(env: Vec<(String, String)>, args: &[&str], stdin: &[u8]) -> Ended {
    let mut child = command(env, args).spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let write = async move {
        // A fake that does not read its prompt breaks the pipe.
        let _ = pipe.write_all(stdin).await;
    };
    let ((), output) = tokio::join!(write, child.wait_with_output());
    let output = output.unwrap();
    Ended { status: output.status, stdout: output.stdout, stderr: output.stderr }
}

/// Runs `codex exec -` under a control to its end.
async fn run_exec(control: &Control, script: &Script, stdin: &str) -> Ended {
    run(control.env(script), &["exec", "--json", "-"], stdin.as_bytes()).await
}

/// A process that was started and whose lines are read one by one.
struct Live {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Live {
    fn start(control: &Control, script: &Script, args: &[&str]) -> Self {
        let mut child = command(control.env(script), args).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// An app-server that is initialized.
    async fn server(control: &Control, script: &Script) -> Self {
        let mut live = Self::start(control, script, &["app-server"]);
        live.call(0, "initialize", json!({"clientInfo": {"name": "test", "version": "1"}})).await;
        live.reply(0).await;
        live.send(&json!({"method": "initialized"})).await;
        live
    }

    /// A server with one thread, whose id is returned.
    async fn with_thread(control: &Control, script: &Script) -> (Self, String) {
        let mut live = Self::server(control, script).await;
        let thread = live.thread(1).await;
        (live, thread)
    }

    /// Starts a thread with a request of this id.
    async fn thread(&mut self, id: i64) -> String {
        self.call(id, "thread/start", json!({"cwd": "/workspace"})).await;
        let reply = self.reply(id).await;
        self.until("thread/started").await;
        reply["result"]["thread"]["id"].as_str().unwrap().to_owned()
    }

    /// Asks for a turn, without reading its reply.
    async fn turn(&mut self, id: i64, thread: &str, prompt: &str) {
        let input = json!([{"type": "text", "text": prompt}]);
        self.call(id, "turn/start", json!({"threadId": thread, "input": input})).await;
    }

    async fn call(&mut self, id: i64, method: &str, params: Value) {
        self.send(&json!({"id": id, "method": method, "params": params})).await;
    }

    async fn send(&mut self, message: &Value) {
        let line = format!("{message}\n");
        let stdin = self.child.stdin.as_mut().unwrap();
        stdin.write_all(line.as_bytes()).await.unwrap();
        stdin.flush().await.unwrap();
    }

    /// The next line, `null` at the end of the output.
    async fn next(&mut self) -> Value {
        let line = self.lines.next_line().await.unwrap();
        line.map_or(Value::Null, |line| serde_json::from_str(&line).unwrap())
    }

    /// The reply to a request; what comes before it is skipped.
    async fn reply(&mut self, id: i64) -> Value {
        loop {
            let message = self.next().await;
            assert!(!message.is_null(), "the output ended before the reply to {id}");
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
        }
    }

    /// The next message with this method; what comes before it is skipped.
    async fn until(&mut self, method: &str) -> Value {
        loop {
            let message = self.next().await;
            assert!(!message.is_null(), "the output ended before {method}");
            if message["method"] == method {
                return message;
            }
        }
    }

    /// The methods of everything up to and including this one; of a reply `reply`.
    async fn methods_until(&mut self, method: &str) -> Vec<String> {
        let mut methods = Vec::new();
        loop {
            let message = self.next().await;
            assert!(!message.is_null(), "the output ended before {method}: {methods:?}");
            let seen = message["method"].as_str().unwrap_or("reply").to_owned();
            methods.push(seen.clone());
            if seen == method {
                return methods;
            }
        }
    }

    /// Closes stdin and waits for the end.
    async fn close(mut self) -> Ended {
        drop(self.child.stdin.take());
        self.end().await
    }

    /// Waits for the end.
    async fn end(mut self) -> Ended {
        let mut stdout = Vec::new();
        self.lines.get_mut().read_to_end(&mut stdout).await.unwrap();
        let mut stderr = Vec::new();
        self.child.stderr.take().unwrap().read_to_end(&mut stderr).await.unwrap();
        Ended { status: self.child.wait().await.unwrap(), stdout, stderr }
    }

    fn signal(&self, signal: nix::sys::signal::Signal) {
        kill(self.child.id().unwrap(), signal);
    }
}

fn kill(pid: u32, signal: nix::sys::signal::Signal) {
    let pid = nix::unistd::Pid::from_raw(pid.try_into().unwrap());
    nix::sys::signal::kill(pid, signal).unwrap();
}
