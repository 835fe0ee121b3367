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

use std::time::Duration;

use takopi_claude::{Claude, ClaudeEngine};
use takopi_core::{EngineRunner, ResumeToken};

use super::fake::Script;
use super::home::TestHome;
use crate::home::Home;
use crate::lab::FakeHome;

/// A session for tests that need one before any run.
pub const SESSION: &str = "01a1e21b-26e5-4eb0-9d27-459e98f10b74";

/// The session [`SESSION`].
pub fn session() -> ResumeToken {
    ResumeToken::new("claude", SESSION)
}

/// One test's fakes and the takopi that runs them.
pub type Lab = crate::lab::Lab<TestHome>;

impl FakeHome for TestHome {
    type Script = Script;
    const PROGRAM: &'static str = "fake-claude";

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
    /// The engine around the fake.
    pub fn claude(&self) -> Claude {
        Claude::new().binary(self.binary())
    }

    /// A runner that keeps sessions warm for this long.
    pub fn runner(&self, keep_warm: Duration) -> EngineRunner<ClaudeEngine> {
        self.claude().keep_warm(keep_warm).runner().on(self.host.clone())
    }

    /// A runner with locks of its own on the same sessions, as another process of takopi has.
    pub fn elsewhere(&self, keep_warm: Duration) -> EngineRunner<ClaudeEngine> {
        self.claude().keep_warm(keep_warm).runner().on(self.another_host())
    }
}
