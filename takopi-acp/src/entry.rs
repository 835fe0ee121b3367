//! An agent for programs with many engines.

use std::sync::Arc;

use futures::future::BoxFuture;
use takopi_core::catalog::{EngineEntry, EngineSetup, Feature, Finding, SetupError, TransportInfo};
use takopi_core::process::find_program;
use takopi_core::{Completed, EngineId, Reason, Runner};

use crate::{Acp, Agent, doctor};

const ABOUT: &str = "the Agent Client Protocol over the agent's standard input and output: it can ask for approval, sessions stay warm";
const PLAIN: TransportInfo = TransportInfo::new(
    "acp",
    ABOUT,
    &[Feature::Approvals, Feature::Images, Feature::Deltas, Feature::Resume],
);
const STEERABLE: TransportInfo = TransportInfo::new(
    "acp",
    ABOUT,
    &[Feature::Approvals, Feature::Steering, Feature::Images, Feature::Deltas, Feature::Resume],
);

/// An agent for programs with many engines: its checks and its hints.
///
/// ```
/// use takopi_acp::{AcpEntry, Agent};
/// use takopi_core::catalog::{EngineEntry, EngineSetup};
///
/// let entry = AcpEntry::new(Agent::preset("opencode").unwrap());
/// let runner = entry.runner(&EngineSetup::new())?;
/// assert_eq!(runner.engine().as_str(), "opencode");
/// # Ok::<(), takopi_core::catalog::SetupError>(())
/// ```
#[derive(Debug, Clone)]
pub struct AcpEntry {
    agent: Agent,
    transports: [TransportInfo; 1],
}

impl AcpEntry {
    /// The entry of an agent.
    pub fn new(agent: Agent) -> Self {
        let transports = if agent.quirks.steering { [STEERABLE] } else { [PLAIN] };
        Self { agent, transports }
    }

    /// The entries of all agents that takopi knows.
    pub fn presets() -> Vec<Self> {
        Agent::presets().filter_map(Agent::preset).map(Self::new).collect()
    }

    /// The agent.
    pub fn agent(&self) -> &Agent {
        &self.agent
    }
}

impl EngineEntry for AcpEntry {
    fn id(&self) -> EngineId {
        self.agent.id().clone()
    }

    fn title(&self) -> &str {
        self.agent.title()
    }

    fn transports(&self) -> &[TransportInfo] {
        &self.transports
    }

    fn settings(&self) -> &[&str] {
        &["model", "effort", "permission_mode", "images", "options"]
    }

    fn is_installed(&self) -> bool {
        find_program(&self.agent.program(), None).is_some()
    }

    fn runner(&self, setup: &EngineSetup) -> Result<Arc<dyn Runner>, SetupError> {
        self.transport(setup.transport.as_deref())?;
        let mut acp = Acp::new(self.agent.clone())
            .env_policy(setup.env_policy.clone())
            .keep_warm(setup.keep_warm)
            .options(setup.options.clone());
        if let Some(program) = &setup.program {
            acp = acp.program(program);
        }
        Ok(Arc::new(acp.runner()))
    }

    fn store(&self) -> Option<&str> {
        Some(self.agent.store())
    }

    fn doctor<'a>(&'a self, setup: &'a EngineSetup) -> BoxFuture<'a, Vec<Finding>> {
        Box::pin(doctor::check(&self.agent, setup))
    }

    fn hint(&self, completed: &Completed) -> Option<String> {
        match completed.reason.as_ref()? {
            Reason::EngineMissing => Some(doctor::advice(&self.agent)),
            Reason::Auth => Some(self.agent.login().to_owned()),
            _ => None,
        }
    }
}
