//! A real codex, a scripted model, and the binary.

use std::process::Stdio;

use takopi_tests::codex::home::TestHome;
use takopi_tests::codex::real::{self, Codex};
use takopi_tests::model::{ModelServer, PATIENCE, within};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, Command};

/// How codex can be talked to.
pub(crate) const TRANSPORTS: [&str; 2] = ["exec", "app-server"];

pub(crate) struct Lab {
    pub(crate) model: ModelServer,
    pub(crate) home: TestHome,
    pub(crate) codex: Codex,
}

/// What came of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Lab {
    /// A place with the usual settings; `None` if there is no codex to be had.
    pub(crate) fn new() -> Option<Self> {
        let codex = real::codex_or_skip()?;
        let model = ModelServer::start();
        let home = TestHome::new(&model);
        Some(Self { model, home, codex })
    }

    /// A place whose codex asks before it does what its sandbox forbids.
    pub(crate) fn asking() -> Option<Self> {
        let lab = Self::new()?;
        let home = TestHome::builder(&lab.model).approval_policy("on-request");
        Some(Self { home: home.sandbox_mode("read-only").build(), ..lab })
    }

    pub(crate) fn takopi(&self, args: &[&str]) -> Command {
        let mut command = self.home.command(env!("CARGO_BIN_EXE_takopi"));
        command
            .args(args)
            .env("TAKOPI_CODEX_BIN", &self.codex.path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    pub(crate) async fn run(&self, args: &[&str]) -> Ran {
        self.start(args).end().await
    }

    pub(crate) fn start(&self, args: &[&str]) -> Running {
        Running::new(&mut self.takopi(args))
    }

    /// Starts a command that reads what is written to it.
    pub(crate) fn start_with_input(&self, args: &[&str]) -> (Running, ChildStdin) {
        Running::with_input(&mut self.takopi(args))
    }
}

/// A command that runs.
pub(crate) struct Running {
    child: Child,
    stderr: BufReader<ChildStderr>,
    seen: String,
}

impl Running {
    pub(crate) fn new(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self { child, stderr, seen: String::new() }
    }

    /// One that reads what is written to it.
    pub(crate) fn with_input(command: &mut Command) -> (Self, ChildStdin) {
        let mut running = Self::new(command.stdin(Stdio::piped()));
        let input = running.child.stdin.take().unwrap();
        (running, input)
    }

    /// Waits until this is on standard error; returns everything on it.
    pub(crate) async fn wait_for(&mut self, text: &str) -> &str {
        let reading = async {
            while !self.seen.contains(text) {
                let read = self.stderr.read_line(&mut self.seen).await.unwrap();
                assert!(read > 0, "{text:?} was never printed:\n{}", self.seen);
            }
        };
        within(PATIENCE, text, reading).await;
        &self.seen
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = self.child.id().unwrap().try_into().unwrap();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).unwrap();
    }

    pub(crate) async fn end(mut self) -> Ran {
        let ending = async {
            let mut stdout = String::new();
            let mut pipe = self.child.stdout.take().unwrap();
            let (out, err) = tokio::join!(
                pipe.read_to_string(&mut stdout),
                self.stderr.read_to_string(&mut self.seen)
            );
            out.and(err).unwrap();
            let code = self.child.wait().await.unwrap().code();
            Ran { code, stdout, stderr: std::mem::take(&mut self.seen) }
        };
        within(PATIENCE, "takopi to end", ending).await
    }
}

impl Ran {
    /// The last line of standard error: how to go on.
    pub(crate) fn resume_line(&self) -> &str {
        let last = self.stderr.lines().last().unwrap_or_default();
        // The second one is of a fleet, whose sessions the codex here does not know.
        let starts = ["codex resume ", "takopi run --fleet --engine codex --resume "];
        assert!(starts.iter().any(|start| last.starts_with(start)), "{}", self.stderr);
        last
    }
}
