//! The instructions of a fake: one [`Start`] per process.

use serde::{Deserialize, Serialize};

use super::{Server, Step};

/// What every process started from one environment does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Script {
    /// One entry per process start; the last repeats.
    pub starts: Vec<Start>,
    /// `codex --version`; prints `codex-cli 0.166.0` by default. Counts as no start.
    pub version: Option<Vec<Step>>,
    /// `codex login …`; prints `Logged in using ChatGPT` by default. Counts as no start.
    pub login: Option<Vec<Step>>,
}

/// What one process does, by the transport it was started for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Start {
    /// `codex exec`; without it, being started so is an error of the script.
    pub exec: Option<Vec<Step>>,
    /// `codex app-server`; without it, being started so is an error of the script.
    pub app_server: Option<Server>,
}

impl Script {
    /// Every `codex exec` plays these steps.
    pub fn exec(steps: impl IntoIterator<Item = Step>) -> Self {
        Self::start(Start { exec: Some(steps.into_iter().collect()), app_server: None })
    }

    /// Every `codex app-server` is this server.
    pub fn app_server(server: Server) -> Self {
        Self::start(Start { exec: None, app_server: Some(server) })
    }

    /// Serves both transports.
    pub fn both(steps: impl IntoIterator<Item = Step>, server: Server) -> Self {
        let exec = Some(steps.into_iter().collect());
        Self::start(Start { exec, app_server: Some(server) })
    }

    /// One script per process start, in order; the last repeats. Needs a control, which counts.
    /// `version` and `login` are those of the first script that has them.
    pub fn nth(scripts: impl IntoIterator<Item = Self>) -> Self {
        let mut all = Self::default();
        for script in scripts {
            all.starts.extend(script.starts);
            all.version = all.version.or(script.version);
            all.login = all.login.or(script.login);
        }
        all
    }

    /// `--version` plays these steps, for example [`Step::SleepForever`].
    pub fn on_version(mut self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.version = Some(steps.into_iter().collect());
        self
    }

    /// `--version` prints `codex-cli` and this number; app-servers report it in `initialize`.
    pub fn version(mut self, number: &str) -> Self {
        for server in self.starts.iter_mut().filter_map(|start| start.app_server.as_mut()) {
            number.clone_into(&mut server.version);
        }
        self.on_version([Step::line(format!("codex-cli {number}"))])
    }

    /// `login …` plays these steps.
    pub fn on_login(mut self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.login = Some(steps.into_iter().collect());
        self
    }

    /// The environment of a fake without a control; steps that report or wait then end it with
    /// [`BAD_SCRIPT`](super::BAD_SCRIPT).
    pub fn env(&self) -> Vec<(String, String)> {
        crate::fake::env(self)
    }

    fn start(start: Start) -> Self {
        Self { starts: vec![start], ..Self::default() }
    }
}
