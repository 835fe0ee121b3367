//! A real pi, a scripted model, and the binary.

use std::process::Stdio;

use takopi_tests::model::chat::ChatServer;
use takopi_tests::pi::home::TestHome;
use takopi_tests::pi::real::{self, Pi};
use tokio::process::Command;

use crate::real::lab::{Ran, Running};

pub(crate) struct Lab {
    pub(crate) model: ChatServer,
    pub(crate) home: TestHome,
    pub(crate) pi: Pi,
}

impl Lab {
    /// A place with the usual settings; `None` if there is no pi to be had.
    pub(crate) fn new() -> Option<Self> {
        Self::with(|home| home)
    }

    /// A place whose home is changed in some way.
    pub(crate) fn with(change: impl FnOnce(TestHome) -> TestHome) -> Option<Self> {
        let pi = real::pi_or_skip()?;
        let model = ChatServer::start();
        let home = change(TestHome::new(&model));
        Some(Self { model, home, pi })
    }

    /// takopi with pi as its engine.
    pub(crate) fn takopi(&self, args: &[&str]) -> Command {
        let mut command = self.home.command(env!("CARGO_BIN_EXE_takopi"));
        command
            .args(args)
            .env("TAKOPI_ENGINE", "pi")
            .env("TAKOPI_PI_BIN", &self.pi.path)
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
}

/// The line that resumes a session, the last on standard error.
pub(crate) fn resume_line(ran: &Ran) -> &str {
    let last = ran.stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("pi --session "), "{}", ran.stderr);
    last
}

/// The session that a run reports.
pub(crate) fn session(ran: &Ran) -> &str {
    resume_line(ran).rsplit(' ').next().unwrap()
}
