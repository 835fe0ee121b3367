//! One way of running turns, in a process of its own: takopi, the agent itself, a bare client, an SDK.
//!
//! It gets commands on its standard input, one a line (`new`, `again`, `many N`, `crowd N`), and answers
//! each with the microseconds it took by its own clock. So its start is not in the figures, its turns
//! alternate with those of the others, and its memory and processor time can be measured apart.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context, bail};

use super::{Place, tree};

/// The longest that anything here takes, on a busy machine too.
const PATIENCE: Duration = Duration::from_mins(5);

/// A program to be measured.
#[derive(Clone)]
pub(crate) struct Entrant {
    pub(crate) name: String,
    program: PathBuf,
    args: Vec<OsString>,
}

impl Entrant {
    /// A side of this program, of this section, with an agent.
    pub(crate) fn own(
        name: &str,
        section: &str,
        side: &[&str],
        agent: &Path,
    ) -> anyhow::Result<Self> {
        let words = ["side", section].into_iter().chain(side.iter().copied());
        let args = words.map(Into::into).chain([agent.into()]).collect();
        Ok(Self { name: name.to_owned(), program: std::env::current_exe()?, args })
    }

    /// A script around a library of somebody else's, with an agent.
    pub(crate) fn foreign(name: String, program: &Path, args: Vec<OsString>, agent: &Path) -> Self {
        let args = args.into_iter().chain([agent.into()]).collect();
        Self { name, program: program.to_owned(), args }
    }

    pub(crate) fn start(&self, place: &Place) -> anyhow::Result<Contestant> {
        let mut child = place
            .command(&self.program)
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
    pub(crate) fn processor_time(&self) -> tree::ProcessorTime {
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
