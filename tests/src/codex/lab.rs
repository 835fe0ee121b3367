//! takopi's runners over the fake codex, with a home and a state directory of their own.
//!
//! ```no_run
//! # use takopi_tests::codex::fake::exec;
//! # use takopi_tests::codex::lab::Lab;
//! # use takopi_tests::runs::run;
//! # async fn example() {
//! let lab = Lab::new(exec::hello("Hello."));
//! let seen = run(&lab.exec(), lab.request("hi")).await;
//! assert_eq!(seen.ok().answer, "Hello.");
//! lab.assert_nothing_left().await;
//! # }
//! ```

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

use takopi_codex::Codex;
use takopi_codex::app_server::{CodexAppServer, ServerLaunch};
use takopi_codex::exec::CodexExec;
use takopi_core::RunRequest;
use takopi_core::jsonl::Jsonl;
use takopi_core::{EngineRunner, Host, ResumeToken};

use crate::codex::fake::{self, Control, Script};
use crate::codex::home::TestHome;
use crate::runs;

/// A session for tests that need one before any run.
pub const SESSION: &str = "01a1e21b-26e5-7eb0-9d27-459e98f10b74";

/// The session [`SESSION`].
pub fn session() -> ResumeToken {
    ResumeToken::new("codex", SESSION)
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
        let link = self.home.root().join("codex-of-this-test");
        symlink(&self.binary, &link).expect("a link in the test's home");
        self.binary = link;
        self
    }

    /// The fake as a codex.
    pub fn codex(&self) -> Codex {
        Codex::new().binary(&self.binary)
    }

    /// A runner over exec.
    pub fn exec(&self) -> EngineRunner<Jsonl<CodexExec>> {
        self.codex().exec().on(self.host.clone())
    }

    /// A runner over app-server that keeps sessions warm for this long.
    pub fn app_server(&self, warm: Duration) -> EngineRunner<CodexAppServer> {
        let engine = CodexAppServer::new(self.codex()).keep_warm(warm);
        EngineRunner::new(engine).on(self.host.clone())
    }

    /// How to start a bare app-server.
    pub fn launch(&self) -> ServerLaunch {
        let mut launch = ServerLaunch::default();
        launch.binary.clone_from(&self.binary);
        let env = self.home.env().into_iter().chain(self.env.clone());
        launch.env = env.map(|(name, value)| (name.into(), value.into())).collect();
        launch
    }

    /// A request in the home's workspace, with the environment that the fakes need.
    pub fn request(&self, prompt: &str) -> RunRequest {
        let request = runs::request(&self.home, prompt);
        self.env.iter().fold(request, |request, (name, value)| request.env(name, value))
    }

    /// Waits until every run is over, then looks: no process, no lock, no run record.
    pub async fn assert_nothing_left(&self) {
        runs::assert_nothing_left(&self.host, &self.home, &self.control).await;
    }
}
