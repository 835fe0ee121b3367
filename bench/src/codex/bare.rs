//! The raw protocol: a client of `codex app-server` that does the least that brings a turn to its end.
//!
//! Replies are found by their id, the end of a turn by its name; nothing else is parsed or kept.

use std::process::Stdio;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// A server and its client.
pub(super) struct Server {
    /// Ends when it is dropped.
    _child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    line: String,
    requests: u64,
}

impl Server {
    pub(super) async fn start(codex: &str) -> anyhow::Result<Self> {
        let mut child = Command::new(codex)
            .arg("app-server")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the app-server")?;
        let stdin = child.stdin.take().context("no input")?;
        let stdout = BufReader::new(child.stdout.take().context("no output")?);
        let mut server = Self { _child: child, stdin, stdout, line: String::new(), requests: 0 };
        let client = json!({ "name": "bare", "title": "bare", "version": "0" });
        let params = json!({ "clientInfo": client, "capabilities": { "experimentalApi": true } });
        server.request("initialize", &params).await?;
        server.send(&json!({ "method": "initialized" })).await?;
        Ok(server)
    }

    /// A new thread in the current directory; its id.
    pub(super) async fn thread(&mut self) -> anyhow::Result<String> {
        let params = json!({ "cwd": std::env::current_dir()? });
        let reply = self.request("thread/start", &params).await?;
        Ok(reply["result"]["thread"]["id"].as_str().context("no thread")?.to_owned())
    }

    pub(super) async fn turn(&mut self, thread: &str) -> anyhow::Result<()> {
        let input = json!([{ "type": "text", "text": "hi" }]);
        self.request("turn/start", &json!({ "threadId": thread, "input": input })).await?;
        self.line_with(r#""method":"turn/completed""#).await?;
        if !self.line.contains(r#""status":"completed""#) {
            bail!("the turn failed: {}", self.line);
        }
        Ok(())
    }

    /// So many new threads at once, each with a turn, to their ends.
    pub(super) async fn many(&mut self, count: usize) -> anyhow::Result<()> {
        let params = json!({ "cwd": std::env::current_dir()? });
        for _ in 0..count {
            self.requests += 1;
            let id = self.requests;
            self.send(&json!({ "id": id, "method": "thread/start", "params": params })).await?;
        }
        let mut completed = 0;
        while completed < count {
            self.line.clear();
            if self.stdout.read_line(&mut self.line).await? == 0 {
                bail!("the app-server ended after {completed} turns");
            }
            if self.line.starts_with(r#"{"id":"#) {
                let reply: Value = serde_json::from_str(&self.line)?;
                let result = reply.get("result").with_context(|| self.line.clone())?;
                if let Some(thread) = result["thread"]["id"].as_str() {
                    self.requests += 1;
                    let input = json!([{ "type": "text", "text": "hi" }]);
                    let params = json!({ "threadId": thread, "input": input });
                    let id = self.requests;
                    self.send(&json!({ "id": id, "method": "turn/start", "params": params }))
                        .await?;
                }
            } else if self.line.contains(r#""method":"turn/completed""#) {
                completed += 1;
            }
        }
        Ok(())
    }

    async fn request(&mut self, method: &str, params: &Value) -> anyhow::Result<Value> {
        self.requests += 1;
        let id = self.requests;
        self.send(&json!({ "id": id, "method": method, "params": params })).await?;
        self.line_with(&format!(r#"{{"id":{id},"#)).await?;
        let reply: Value = serde_json::from_str(&self.line)?;
        if reply.get("result").is_none() {
            bail!("{method} failed: {}", self.line);
        }
        Ok(reply)
    }

    async fn send(&mut self, message: &Value) -> anyhow::Result<()> {
        Ok(self.stdin.write_all(format!("{message}\n").as_bytes()).await?)
    }

    async fn line_with(&mut self, text: &str) -> anyhow::Result<()> {
        loop {
            self.line.clear();
            if self.stdout.read_line(&mut self.line).await? == 0 {
                bail!("the app-server ended without {text}");
            }
            if self.line.contains(text) {
                return Ok(());
            }
        }
    }
}
