//! How an agent is run.

use std::path::PathBuf;
use std::time::Duration;

use takopi_core::EngineRunner;
use takopi_core::mcp::McpServer;
use takopi_core::process::EnvPolicy;

use crate::Agent;
use crate::engine::AcpEngine;

/// How long a session is kept warm by default.
const KEEP_WARM: Duration = Duration::from_mins(1);

/// An agent, and how to run it.
///
/// ```
/// use takopi_acp::{Acp, Agent};
/// use takopi_core::Runner;
///
/// let agent = Agent::preset("opencode").unwrap();
/// let runner = Acp::new(agent).program("/opt/opencode/bin/opencode").runner();
/// assert_eq!(runner.engine().as_str(), "opencode");
/// ```
#[derive(Debug, Clone)]
#[must_use = "it does nothing until it is made into a runner"]
pub struct Acp {
    pub(crate) agent: Agent,
    pub(crate) program: PathBuf,
    pub(crate) env_policy: EnvPolicy,
    pub(crate) mcp_servers: Vec<McpServer>,
    pub(crate) keep_warm: Duration,
    pub(crate) options: Vec<(String, String)>,
}

impl Acp {
    /// An agent as the user has set it up. Keeps sessions warm for a minute.
    pub fn new(agent: Agent) -> Self {
        Self {
            program: agent.program(),
            agent,
            env_policy: EnvPolicy::default(),
            mcp_servers: Vec::new(),
            keep_warm: KEEP_WARM,
            options: Vec::new(),
        }
    }

    /// Runs this program with the agent's arguments: a path, or a name to be found on the `PATH`.
    pub fn program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = program.into();
        self
    }

    /// Which variables the agent inherits.
    pub fn env_policy(mut self, policy: EnvPolicy) -> Self {
        self.env_policy = policy;
        self
    }

    /// Gives it an MCP server of the host's own; the user's configuration stays as it is.
    pub fn mcp_server(mut self, server: McpServer) -> Self {
        self.mcp_servers.push(server);
        self
    }

    /// Keeps sessions warm for this long after a run; not at all if it is zero.
    pub fn keep_warm(mut self, time: Duration) -> Self {
        self.keep_warm = time;
        self
    }

    /// Options that hold for every run, as [`RunSettings::options`](takopi_core::RunSettings::options).
    pub fn options(mut self, options: Vec<(String, String)>) -> Self {
        self.options = options;
        self
    }

    /// A runner: a process per live session, kept warm for a while.
    pub fn runner(self) -> EngineRunner<AcpEngine> {
        EngineRunner::new(AcpEngine::new(self))
    }
}
