//! takopi over the fake pi, with a home and a state directory of its own.

use std::time::Duration;

use takopi_core::EngineRunner;
use takopi_pi::{Pi, PiEngine};

use super::fake::Script;
use super::home::TestHome;
use crate::home::Home;
use crate::lab::FakeHome;

/// One test's fakes and the takopi that runs them.
pub type Lab = crate::lab::Lab<TestHome>;

impl FakeHome for TestHome {
    type Script = Script;
    const PROGRAM: &'static str = "fake-pi";

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
    pub fn pi(&self) -> Pi {
        Pi::new().binary(self.binary())
    }

    /// A runner that keeps sessions warm for this long.
    pub fn runner(&self, keep_warm: Duration) -> EngineRunner<PiEngine> {
        self.pi().keep_warm(keep_warm).runner().on(self.host.clone())
    }
}
