//! takopi over the fake pi, with a home and a state directory of its own.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

use takopi_core::{EngineRunner, Host, RunRequest};
use takopi_pi::{Pi, PiEngine};

use super::fake::{self, Control, Script};
use super::home::TestHome;
use crate::runs;

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
        let control = Control::new();
        let env = control.env(&script.into());
        // Under a name of its own, so that its version is not cached in this process yet.
        let binary = home.root().join("pi-of-this-test");
        symlink(fake::binary(), &binary).expect("a link in the test's home");
        Self { control, home, host, binary, env }
    }

    /// A runner that keeps sessions warm for this long.
    pub fn runner(&self, keep_warm: Duration) -> EngineRunner<PiEngine> {
        Pi::new().binary(&self.binary).keep_warm(keep_warm).runner().on(self.host.clone())
    }

    /// A request in the home's workspace, with the environment that the fakes need.
    pub fn request(&self, prompt: &str) -> RunRequest {
        let env = self.home.env().into_iter().chain(self.env.clone()).collect();
        runs::request_in(&self.home.workspace(), env, prompt)
    }

    /// Waits until every run is over, then looks: no process, no lock, no run record.
    pub async fn assert_nothing_left(&self) {
        runs::assert_nothing_left(&self.host, &self.home, &self.control).await;
    }
}
