//! One way of running turns, in a process of its own: takopi, codex itself, a bare client, an SDK.
//!
//! It gets commands on its standard input, one a line (`new`, `again`, `many N`), and answers
//! each with the microseconds it took by its own clock. So its start is not in the figures, its turns
//! alternate with those of the others, and its memory and processor time can be measured apart.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context, bail};
use takopi_tests::codex::home::TestHome;
use takopi_tests::codex::real;

use super::{sdk, tree};

/// The longest that anything here takes, on a busy machine too.
const PATIENCE: Duration = Duration::from_mins(5);

/// A program to be measured.
#[derive(Clone)]
pub(crate) struct Entrant {
    pub(crate) name: String,
    program: std::path::PathBuf,
    args: Vec<std::ffi::OsString>,
}

impl Entrant {
    /// A side of this program; see [`super::side`].
    pub(crate) fn own(name: &str, side: &[&str], codex: &real::Codex) -> anyhow::Result<Self> {
        let mut args: Vec<std::ffi::OsString> = vec!["side".into(), "codex".into()];
        args.extend(side.iter().map(Into::into));
        args.push(codex.path.clone().into());
        Ok(Self { name: name.to_owned(), program: std::env::current_exe()?, args })
    }

    /// `@openai/codex-sdk`.
    pub(crate) fn typescript(codex: &real::Codex) -> anyhow::Result<Self> {
        let args = vec![sdk::script("turns.mjs").into(), sdk::typescript()?.into()];
        Ok(Self::foreign("TypeScript SDK", "node".as_ref(), args, codex))
    }

    /// `openai-codex`.
    pub(crate) fn python(codex: &real::Codex) -> anyhow::Result<Self> {
        let args = vec![sdk::script("turns.py").into()];
        Ok(Self::foreign("Python SDK", &sdk::python()?, args, codex))
    }

    fn foreign(
        name: &str,
        program: &Path,
        mut args: Vec<std::ffi::OsString>,
        codex: &real::Codex,
    ) -> Self {
        args.push(codex.path.clone().into());
        Self { name: format!("{name} {}", sdk::VERSION), program: program.to_owned(), args }
    }

    pub(crate) fn start(&self, home: &TestHome) -> anyhow::Result<Contestant> {
        let mut command: Command = home.command(&self.program).into_std();
        let mut child = command
            .args(&self.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", self.name))?;
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().context("no output")?);
        let (send, answers) = channel();
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).try_for_each(|line| send.send(line))
        });
        Ok(Contestant { name: self.name.clone(), child, stdin, answers })
    }
}

/// An entrant that was started.
pub(crate) struct Contestant {
    pub(crate) name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Contestant {
    /// Has a command carried out; how long it took.
    pub(crate) fn ask(&mut self, command: &str) -> anyhow::Result<Duration> {
        let stdin = self.stdin.as_mut().context("it was stopped")?;
        writeln!(stdin, "{command}")?;
        match self.answers.recv_timeout(PATIENCE) {
            Ok(answer) => match answer.parse() {
                Ok(micros) => Ok(Duration::from_micros(micros)),
                Err(_) => bail!("{} answered `{command}` with: {answer}", self.name),
            },
            Err(_) => bail!("{} did not answer `{command}` within {PATIENCE:?}", self.name),
        }
    }

    /// The same, watched.
    pub(crate) fn watched(&mut self, command: &str) -> anyhow::Result<tree::Memory> {
        let watch = tree::Watch::start(self.child.id());
        let answer = self.ask(command);
        let memory = watch.stop();
        answer.map(|_| memory)
    }

    /// What it and what it started have used of the processors.
    pub(crate) fn processor_time(&self) -> Duration {
        tree::processor_time(self.child.id())
    }
}

impl Drop for Contestant {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // It ends by itself when there is nothing more to read; its output closes with it.
        while self.answers.recv_timeout(Duration::from_secs(20)).is_ok() {}
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
