//! Engines by name: the one place where runners are made.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use takopi_codex::Codex;
use takopi_codex::app_server::{CodexAppServer, PoolLimits};
use takopi_core::demo::Demo;
use takopi_core::process::EnvPolicy;
use takopi_core::settings::parse_duration;
use takopi_core::{EngineRunner, Runner};

use crate::args::{Approve, Engine, RunOptions, TOKEN, Transport};
use crate::exit::Usage;

/// How codex is talked to unless asked otherwise.
pub(crate) const DEFAULT_TRANSPORT: Transport = Transport::AppServer;

/// How long a shared process is kept that has nothing to do.
const KEEP_WARM: Duration = Duration::from_mins(1);

/// The setting of the demo engine: how long it takes over each step.
const PACE: &str = "pace";

/// Which engine, and how to reach it.
#[derive(Debug, Clone)]
pub(crate) enum Choice {
    Codex { transport: Transport, program: Option<PathBuf> },
    Demo { pace: Duration },
}

impl Choice {
    /// What the options choose.
    pub(crate) fn of(options: &RunOptions) -> Result<Self, Usage> {
        match options.engine.unwrap_or_default() {
            Engine::Codex => Ok(Self::Codex {
                transport: options.transport.unwrap_or(DEFAULT_TRANSPORT),
                program: options.codex_bin.clone(),
            }),
            Engine::Demo => {
                let pace =
                    options.settings().options.into_iter().rev().find(|(key, _)| key == PACE);
                let pace = pace.map_or(Ok(Duration::ZERO), |(_, value)| parse_duration(&value));
                let pace = pace.map_err(|error| Usage::new(format!("-c {PACE}: {error}")))?;
                Ok(Self::Demo { pace })
            }
        }
    }

    /// Whether the agent can ask for leave.
    pub(crate) fn can_ask(&self) -> bool {
        !matches!(self, Self::Codex { transport: Transport::Exec, .. })
    }

    /// Whether that can answer what the agent asks.
    pub(crate) fn allows(&self, approve: Approve) -> bool {
        self.can_ask() || approve == Approve::Deny
    }

    /// A runner for it, which keeps an idle session warm for so long.
    pub(crate) fn runner(&self, keep_warm: Duration) -> Arc<dyn Runner> {
        self.runner_with(|codex| CodexAppServer::new(codex).keep_warm(keep_warm))
    }

    /// A runner for many sessions, so many of them busy at once: they share few processes.
    pub(crate) fn shared_runner(&self, busy: usize) -> Arc<dyn Runner> {
        let limits = PoolLimits::default();
        // One more than needed: a process that is full is replaced while its last runs go on.
        let processes = busy.div_ceil(limits.busy) + 1;
        let limits = PoolLimits::new(limits.busy, limits.loaded, processes);
        self.runner_with(|codex| CodexAppServer::new(codex).keep_warm(KEEP_WARM).shared(limits))
    }

    fn runner_with(&self, app_server: impl FnOnce(Codex) -> CodexAppServer) -> Arc<dyn Runner> {
        match self {
            Self::Demo { pace } => Arc::new(Demo::new().pace(*pace).runner()),
            Self::Codex { transport, program } => {
                // Who has the token of `takopi serve` may do what its agents may not.
                let policy = EnvPolicy::default().deny(TOKEN);
                let mut codex = Codex::new().env_policy(policy);
                if let Some(program) = program {
                    codex = codex.binary(program);
                }
                match transport {
                    Transport::Exec => Arc::new(codex.exec()),
                    Transport::AppServer => Arc::new(EngineRunner::new(app_server(codex))),
                }
            }
        }
    }
}
