//! takopi over a fake agent, with a home and a state directory of its own.
//!
//! What is particular to an agent (its engine, its runners) is in the module of that agent, where `Lab` is the lab of its home:
//! `claude::lab::Lab`, `codex::lab::Lab`, `pi::lab::Lab`, `acp::fake::Lab`.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde::Serialize;
use takopi_core::{Host, RunRequest};
use tokio::runtime::Handle;

use crate::fake::{self, Control};
use crate::home::Home;
use crate::runs;

/// The home of a fake agent.
pub trait FakeHome: Sized + Send + Sync + 'static {
    /// What its fakes play.
    type Script: Serialize;
    /// The name of the fake's program.
    const PROGRAM: &'static str;

    /// A home for an agent that calls no model.
    fn without_model() -> Self;

    /// The directories.
    fn home(&self) -> &Home;

    /// The variables to set for the agent or takopi.
    fn env(&self) -> Vec<(String, String)>;
}

/// One test's fakes and the takopi that runs them.
pub struct Lab<H> {
    /// Sees and steers the fakes.
    pub control: Control,
    /// Where they live.
    pub home: H,
    /// Where takopi lives.
    pub host: Host,
    binary: PathBuf,
    env: Vec<(String, String)>,
}

impl<H: FakeHome> Lab<H> {
    /// Fakes that play this script.
    pub fn new(script: impl Into<H::Script>) -> Self {
        let home = H::without_model();
        let host = host_at(home.home());
        Self::at(home, host, &script.into())
    }

    /// Fakes that play this script, run by the takopi of another lab.
    pub fn beside(other: &Self, script: impl Into<H::Script>) -> Self {
        Self::at(H::without_model(), other.host.clone(), &script.into())
    }

    fn at(home: H, host: Host, script: &H::Script) -> Self {
        let control = Control::new();
        let env = control.env(script);
        Self { control, home, host, binary: fake::binary(H::PROGRAM), env }
    }

    /// Runs the fake under a name of its own, so that its version is not cached in this process yet.
    pub fn unknown(mut self) -> Self {
        let link = self.home.home().root().join("agent-of-this-test");
        symlink(&self.binary, &link).expect("a link in the test's home");
        self.binary = link;
        self
    }

    /// Runs takopi on the runtime of the test instead of a thread of its own: a clock that the test pauses, and
    /// [`Logs`](crate::logs::Logs), are those of the runs as well.
    pub fn on_this_runtime(mut self) -> Self {
        let host = Host::builder().state_directory(self.home.home().state());
        self.host = host.runtime(Handle::current()).build().expect("a host");
        self
    }

    /// The fake.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// Another takopi on the same sessions, with locks of its own as another process has them.
    pub fn another_host(&self) -> Host {
        host_at(self.home.home())
    }

    /// The variables that a fake needs.
    pub fn env(&self) -> Vec<(String, String)> {
        self.home.env().into_iter().chain(self.env.clone()).collect()
    }

    /// A request in the home's workspace, with the environment that the fakes need.
    pub fn request(&self, prompt: &str) -> RunRequest {
        runs::request_in(&self.home.home().workspace(), self.env(), prompt)
    }

    /// Waits until every run is over, then looks: no process, no lock, no run record.
    pub async fn assert_nothing_left(&self) {
        runs::assert_nothing_left(&self.host, self.home.home(), &self.control).await;
    }
}

fn host_at(home: &Home) -> Host {
    Host::builder().state_directory(home.state()).build().expect("a host")
}
