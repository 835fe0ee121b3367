//! The instructions of a fake: one [`Process`] per start.

use serde::{Deserialize, Serialize};

use super::{Process, Step};

/// What every process started from one environment does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Script {
    /// One entry per start; the last repeats.
    pub starts: Vec<Process>,
    /// `claude --version`; prints `2.1.325 (Claude Code)` by default. Counts as no start.
    pub version: Option<Vec<Step>>,
    /// `claude auth …`; prints that a key is used by default. Counts as no start.
    pub auth: Option<Vec<Step>>,
}

impl From<Process> for Script {
    fn from(process: Process) -> Self {
        Self { starts: vec![process], ..Self::default() }
    }
}

impl Script {
    /// One script per start, in order; the last repeats. Needs a control, which counts. `version` and `auth` are those of the
    /// first script that has them.
    pub fn nth<T: Into<Self>>(scripts: impl IntoIterator<Item = T>) -> Self {
        let mut all = Self::default();
        for script in scripts.into_iter().map(T::into) {
            all.starts.extend(script.starts);
            all.version = all.version.or(script.version);
            all.auth = all.auth.or(script.auth);
        }
        all
    }

    /// `--version` plays these steps, for example [`Step::SleepForever`].
    pub fn on_version(mut self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.version = Some(steps.into_iter().collect());
        self
    }

    /// `--version` prints this number; the lines of processes name it too.
    pub fn version(mut self, number: &str) -> Self {
        for process in &mut self.starts {
            number.clone_into(&mut process.version);
        }
        self.on_version([Step::line(format!("{number} (Claude Code)"))])
    }

    /// `auth …` plays these steps.
    pub fn on_auth(mut self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.auth = Some(steps.into_iter().collect());
        self
    }

    /// The environment of a fake without a control; steps that report or wait then end it.
    pub fn env(&self) -> Vec<(String, String)> {
        crate::fake::env(self)
    }
}
