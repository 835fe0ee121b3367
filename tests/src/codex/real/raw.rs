//! The real codex with nothing of takopi around it: started, talked to in lines, signalled, and read to its end.
//!
//! Waiting ends in a panic after [`PATIENCE`], and a codex that is dropped is killed.

use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

use super::Codex;
use crate::codex::home::TestHome;
use crate::model::{PATIENCE, within};

/// A codex that is running.
#[derive(Debug)]
pub struct RawCodex {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Lines<BufReader<ChildStdout>>,
    seen: Vec<String>,
}

/// What a codex printed and how it ended.
#[derive(Clone, Debug, Default)]
pub struct RawRun {
    /// All lines of standard output.
    pub lines: Vec<String>,
    /// All of standard error.
    pub stderr: String,
    /// The exit code; none if a signal ended it.
    pub code: Option<i32>,
}

impl RawCodex {
    /// Starts codex in the home's workspace, with its input left open.
    pub fn start(codex: &Codex, home: &TestHome, args: &[&str]) -> Self {
        let mut child = home
            .command(codex)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("start codex");
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().expect("it is piped");
        Self { child, stdin, stdout: BufReader::new(stdout).lines(), seen: Vec::new() }
    }

    /// Starts `codex exec --json` on a prompt.
    pub async fn exec(codex: &Codex, home: &TestHome, prompt: &str) -> Self {
        Self::start(codex, home, &["exec", "--json", "-"]).prompt(prompt).await
    }

    /// Starts `codex exec --json resume` of a session on a prompt.
    pub async fn resume(codex: &Codex, home: &TestHome, thread: &str, prompt: &str) -> Self {
        Self::start(codex, home, &["exec", "--json", "resume", thread, "-"]).prompt(prompt).await
    }

    /// Writes the prompt and closes the input.
    async fn prompt(mut self, prompt: &str) -> Self {
        let mut stdin = self.stdin.take().expect("the input is open");
        // A codex that ended at once gave its reason in its output.
        let _ = stdin.write_all(prompt.as_bytes()).await;
        self
    }

    /// Writes one message as a line.
    pub async fn send(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().expect("the input is open");
        stdin.write_all(format!("{message}\n").as_bytes()).await.expect("write to codex");
    }

    /// Reads up to the first line that contains `text` and returns that line.
    pub async fn line_with(&mut self, text: &str) -> Value {
        let reading = async {
            while let Some(line) = self.stdout.next_line().await.expect("read codex") {
                let found = line.contains(text);
                self.seen.push(line);
                if found {
                    break;
                }
            }
        };
        within(PATIENCE, &format!("a line with {text}"), reading).await;
        match self.seen.last() {
            Some(line) if line.contains(text) => {
                serde_json::from_str(line).expect("a line is JSON")
            }
            _ => panic!("codex ended without a line with {text}: {:#?}", self.seen),
        }
    }

    /// The lines of standard output that were read so far.
    pub fn seen(&self) -> &[String] {
        &self.seen
    }

    /// Sends a signal to codex itself.
    pub fn signal(&self, signal: Signal) {
        let pid = self.child.id().expect("codex has not been waited for");
        let pid = pid.try_into().expect("a pid fits");
        kill(Pid::from_raw(pid), signal).expect("signal codex");
    }

    /// Closes the input and reads codex to its end.
    pub async fn end(mut self) -> RawRun {
        drop(self.stdin.take());
        let mut stderr = String::new();
        let ending = async {
            let mut pipe = self.child.stderr.take().expect("it is piped");
            let stdout = async {
                while let Some(line) = self.stdout.next_line().await.expect("read codex") {
                    self.seen.push(line);
                }
            };
            let ((), read) = tokio::join!(stdout, pipe.read_to_string(&mut stderr));
            read.expect("read codex's standard error");
            self.child.wait().await.expect("wait for codex").code()
        };
        let code = within(PATIENCE, "codex to end", ending).await;
        RawRun { lines: self.seen, stderr, code }
    }
}

impl RawRun {
    /// The lines of standard output as JSON.
    pub fn events(&self) -> Vec<Value> {
        let parse = |line: &String| serde_json::from_str(line).expect("a line is JSON");
        self.lines.iter().map(parse).collect()
    }

    /// The types of the lines of `exec`, each followed by that of its item.
    pub fn kinds(&self) -> Vec<String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let kind =
            |event: &Value| format!("{} {}", text(&event["type"]), text(&event["item"]["type"]));
        self.events().iter().map(|event| kind(event).trim_end().to_owned()).collect()
    }

    /// The thread that the first line of `exec` names.
    pub fn thread(&self) -> String {
        let first = self.events().into_iter().next();
        let thread = first.as_ref().and_then(|first| first["thread_id"].as_str());
        thread.unwrap_or_else(|| panic!("no thread: {self:#?}")).to_owned()
    }

    /// The text of the last agent message that `exec` printed.
    pub fn answer(&self) -> String {
        let events = self.events();
        let last = events.iter().rfind(|event| event["item"]["type"] == "agent_message");
        let text = last.and_then(|event| event["item"]["text"].as_str());
        text.unwrap_or_else(|| panic!("no answer: {self:#?}")).to_owned()
    }

    /// The lines with the thread's id replaced, which differs from one run to the next.
    pub fn neutral(&self) -> Vec<String> {
        let thread = self.thread();
        self.lines.iter().map(|line| line.replace(&thread, "THREAD")).collect()
    }
}
