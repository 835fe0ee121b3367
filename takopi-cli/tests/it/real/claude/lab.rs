//! A real Claude Code, a scripted model, and the binary.

use std::process::Stdio;

use pty_process::blocking;
use takopi_tests::claude::home::TestHome;
use takopi_tests::claude::real::{self, Claude};
use takopi_tests::model::messages::MessagesServer;
use tokio::process::{ChildStdin, Command};

use crate::real::lab::{Ran, Running};

pub(crate) struct Lab {
    pub(crate) model: MessagesServer,
    pub(crate) home: TestHome,
    pub(crate) claude: Claude,
}

impl Lab {
    /// A place with the usual settings; `None` if there is no Claude Code to be had.
    pub(crate) fn new() -> Option<Self> {
        Self::with(|home| home)
    }

    /// A place whose home is changed in some way.
    pub(crate) fn with(change: impl FnOnce(TestHome) -> TestHome) -> Option<Self> {
        let claude = real::claude_or_skip()?;
        let model = MessagesServer::start();
        let home = change(TestHome::new(&model));
        Some(Self { model, home, claude })
    }

    /// takopi with Claude Code as its engine.
    pub(crate) fn takopi(&self, args: &[&str]) -> Command {
        let mut command = self.home.command(env!("CARGO_BIN_EXE_takopi"));
        command
            .args(args)
            .env("TAKOPI_ENGINE", "claude")
            .env("TAKOPI_CLAUDE_BIN", &self.claude.path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// The same on a terminal.
    pub(crate) fn on_terminal(&self, args: &[&str]) -> blocking::Command {
        blocking::Command::new(env!("CARGO_BIN_EXE_takopi"))
            .args(args)
            .current_dir(self.home.workspace())
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .envs(self.home.env())
            .env("TERM", "xterm")
            .env("TAKOPI_ENGINE", "claude")
            .env("TAKOPI_CLAUDE_BIN", &self.claude.path)
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

    /// A path in the workspace, for a script.
    pub(crate) fn path(&self, name: &str) -> String {
        self.home.workspace().join(name).to_str().unwrap().to_owned()
    }
}

/// The line that resumes a session, the last on standard error.
pub(crate) fn resume_line(ran: &Ran) -> &str {
    let last = ran.stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("claude --resume "), "{}", ran.stderr);
    last
}

/// The session that a run reports.
pub(crate) fn session(ran: &Ran) -> &str {
    resume_line(ran).rsplit(' ').next().unwrap()
}

/// A command that goes on until it is ended. (The Bash tool refuses to sleep.)
pub(crate) fn lasting(number: u32) -> String {
    format!("tail -n {number} -f /dev/null")
}
