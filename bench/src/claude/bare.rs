//! The raw protocol: a client of Claude Code's two-way stream that does the least that brings a turn to its end.
//!
//! The end of a turn is found by its name; nothing is parsed.

use std::process::Stdio;

use anyhow::{Context, bail};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// A process that serves one session.
pub(super) struct Session {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Session {
    pub(super) fn start(claude: &str) -> anyhow::Result<Self> {
        let mut child = Command::new(claude)
            .args(["-p", "--verbose", "--input-format=stream-json", "--output-format=stream-json"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start claude")?;
        let stdin = child.stdin.take().context("no input")?;
        let stdout = BufReader::new(child.stdout.take().context("no output")?);
        Ok(Self { child, stdin, stdout })
    }

    pub(super) async fn turn(&mut self) -> anyhow::Result<()> {
        let message = r#"{"type":"user","message":{"role":"user","content":"hi"}}"#;
        self.stdin.write_all(format!("{message}\n").as_bytes()).await?;
        let mut line = String::new();
        while !line.contains(r#""type":"result""#) {
            line.clear();
            if self.stdout.read_line(&mut line).await? == 0 {
                bail!("claude ended without a result");
            }
        }
        if !line.contains(r#""result":"fine""#) {
            bail!("not the answer: {line}");
        }
        Ok(())
    }

    pub(super) async fn end(mut self) -> anyhow::Result<()> {
        drop(self.stdin);
        self.child.wait().await?;
        Ok(())
    }
}
