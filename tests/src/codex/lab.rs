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

use std::time::Duration;

use takopi_codex::Codex;
use takopi_codex::app_server::{CodexAppServer, ServerLaunch};
use takopi_codex::exec::CodexExec;
use takopi_core::jsonl::Jsonl;
use takopi_core::{EngineRunner, ResumeToken};

use crate::codex::fake::Script;
use crate::codex::home::TestHome;
use crate::home::Home;
use crate::lab::FakeHome;

/// A session for tests that need one before any run.
pub const SESSION: &str = "01a1e21b-26e5-7eb0-9d27-459e98f10b74";

/// The session [`SESSION`].
pub fn session() -> ResumeToken {
    ResumeToken::new("codex", SESSION)
}

/// One test's fakes and the takopi that runs them.
pub type Lab = crate::lab::Lab<TestHome>;

impl FakeHome for TestHome {
    type Script = Script;
    const PROGRAM: &'static str = "fake-codex";

    fn without_model() -> Self {
        Self::without_model()
    }

    fn home(&self) -> &Home {
        self
    }

    fn env(&self) -> Vec<(String, String)> {
        self.env()
    }
}

impl Lab {
    /// The fake as a codex.
    pub fn codex(&self) -> Codex {
        Codex::new().binary(self.binary())
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
        self.binary().clone_into(&mut launch.binary);
        let env = self.env().into_iter();
        launch.env = env.map(|(name, value)| (name.into(), value.into())).collect();
        launch
    }
}
