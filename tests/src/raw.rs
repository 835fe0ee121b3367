//! A real agent with nothing of takopi around it: started, talked to in lines, signalled, and read to its end.
//!
//! Waiting ends in a panic after [`PATIENCE`], and an agent that is dropped is killed.

use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::model::{PATIENCE, within};

/// An agent that is running.
#[derive(Debug)]
pub struct RawProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Lines<BufReader<ChildStdout>>,
    seen: Vec<String>,
}

/// What an agent printed and how it ended.
#[derive(Clone, Debug, Default)]
pub struct RawRun {
    /// All lines of standard output.
    pub lines: Vec<String>,
    /// All of standard error.
    pub stderr: String,
    /// The exit code; none if a signal ended it.
    pub code: Option<i32>,
}

impl RawProcess {
    /// Starts a command, with its input left open.
    pub fn spawn(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("start the agent");
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().expect("it is piped");
        Self { child, stdin, stdout: BufReader::new(stdout).lines(), seen: Vec::new() }
    }

    /// Writes the prompt and closes the input.
    pub async fn prompt(mut self, prompt: &str) -> Self {
        let mut stdin = self.stdin.take().expect("the input is open");
        // An agent that ended at once gave its reason in its output.
        let _ = stdin.write_all(prompt.as_bytes()).await;
        self
    }

    /// Writes one message as a line.
    pub async fn send(&mut self, message: &Value) {
        self.send_line(&message.to_string()).await;
    }

    /// Writes a line as it stands.
    pub async fn send_line(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("the input is open");
        stdin.write_all(format!("{line}\n").as_bytes()).await.expect("write to the agent");
    }

    /// Reads up to the first line that contains `text` and returns that line.
    pub async fn line_with(&mut self, text: &str) -> Value {
        let reading = async {
            while let Some(line) = self.stdout.next_line().await.expect("read the agent") {
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
            _ => panic!("the agent ended without a line with {text}: {:#?}", self.seen),
        }
    }

    /// Reads one line; none at the end of the output.
    pub async fn next(&mut self) -> Option<Value> {
        let what = format!("a line of the agent behind {:?}", self.seen.last());
        let line = within(PATIENCE, &what, self.stdout.next_line()).await;
        let line = line.expect("read the agent")?;
        let message = serde_json::from_str(&line).expect("a line is JSON");
        self.seen.push(line);
        Some(message)
    }

    /// The process.
    pub fn pid(&self) -> i32 {
        let pid = self.child.id().expect("the agent has not been waited for");
        pid.try_into().expect("a pid fits")
    }

    /// The lines of standard output that were read so far.
    pub fn seen(&self) -> &[String] {
        &self.seen
    }

    /// Sends a signal to the agent itself.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).expect("signal the agent");
    }

    /// Closes the input and reads the agent to its end.
    pub async fn end(mut self) -> RawRun {
        drop(self.stdin.take());
        let mut stderr = String::new();
        let ending = async {
            let mut pipe = self.child.stderr.take().expect("it is piped");
            let stdout = async {
                while let Some(line) = self.stdout.next_line().await.expect("read the agent") {
                    self.seen.push(line);
                }
            };
            let ((), read) = tokio::join!(stdout, pipe.read_to_string(&mut stderr));
            read.expect("read its standard error");
            self.child.wait().await.expect("wait for the agent").code()
        };
        let code = within(PATIENCE, "the agent to end", ending).await;
        RawRun { lines: self.seen, stderr, code }
    }
}

impl RawRun {
    /// The lines of standard output as JSON.
    pub fn events(&self) -> Vec<Value> {
        let parse = |line: &String| serde_json::from_str(line).expect("a line is JSON");
        self.lines.iter().map(parse).collect()
    }
}
