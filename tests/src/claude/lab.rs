//! takopi over the fake Claude Code, with a home and a state directory of its own.
//!
//! ```no_run
//! # use takopi_tests::claude::fake;
//! # use takopi_tests::claude::lab::Lab;
//! # async fn example() {
//! # use takopi_tests::runs::run;
//! # use std::time::Duration;
//! let lab = Lab::new(fake::answering("Hello."));
//! let seen = run(&lab.runner(Duration::ZERO), lab.request("hi")).await;
//! assert_eq!(seen.ok().answer, "Hello.");
//! lab.assert_nothing_left().await;
//! # }
//! ```

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use takopi_claude::{Claude, ClaudeEngine};
use takopi_core::{EngineRunner, Host, ResumeToken, RunRequest};

use super::fake::{self, Control, Script};
use super::home::TestHome;
use crate::runs;

/// A session for tests that need one before any run.
pub const SESSION: &str = "01a1e21b-26e5-4eb0-9d27-459e98f10b74";

/// The session [`SESSION`].
pub fn session() -> ResumeToken {
    ResumeToken::new("claude", SESSION)
}

/// One test's fakes and the takopi that runs them.
pub struct Lab {
    /// Sees and steers the fakes.
    pub control: Control,
    /// Where they live.
    pub home: TestHome,
    /// Where takopi lives.
    pub host: Host,
    binary: PathBuf,
    env: Vec<(String, String)>,
}

impl Lab {
    /// Fakes that play this script.
    pub fn new(script: impl Into<Script>) -> Self {
        let home = TestHome::without_model();
        let host = Host::builder().state_directory(home.state()).build().expect("a host");
        Self::at(home, host, &script.into())
    }

    /// Fakes that play this script, run by the takopi of another lab.
    pub fn beside(other: &Self, script: impl Into<Script>) -> Self {
        Self::at(TestHome::without_model(), other.host.clone(), &script.into())
    }

    fn at(home: TestHome, host: Host, script: &Script) -> Self {
        let control = Control::new();
        let env = control.env(script);
        Self { control, home, host, binary: fake::binary(), env }
    }

    /// Runs the fake under a name of its own, so that its version is not cached in this process yet.
    pub fn unknown(mut self) -> Self {
        let link = self.home.root().join("claude-of-this-test");
        symlink(&self.binary, &link).expect("a link in the test's home");
        self.binary = link;
        self
    }

    /// The fake.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// The engine around the fake.
    pub fn claude(&self) -> Claude {
        Claude::new().binary(&self.binary)
    }

    /// A runner that keeps sessions warm for this long.
    pub fn runner(&self, keep_warm: Duration) -> EngineRunner<ClaudeEngine> {
        self.claude().keep_warm(keep_warm).runner().on(self.host.clone())
    }

    /// A runner with locks of its own on the same sessions, as another process of takopi has.
    pub fn elsewhere(&self, keep_warm: Duration) -> EngineRunner<ClaudeEngine> {
        let host = Host::builder().state_directory(self.home.state()).build().expect("a host");
        self.claude().keep_warm(keep_warm).runner().on(host)
    }

    /// The variables that a fake needs.
    pub fn env(&self) -> Vec<(String, String)> {
        self.home.env().into_iter().chain(self.env.clone()).collect()
    }

    /// A request in the home's workspace, with the environment that the fakes need.
    pub fn request(&self, prompt: &str) -> RunRequest {
        runs::request_in(&self.home.workspace(), self.env(), prompt)
    }

    /// Waits until every run is over, then looks: no process, no lock, no run record.
    pub async fn assert_nothing_left(&self) {
        runs::assert_nothing_left(&self.host, &self.home, &self.control).await;
    }
}
