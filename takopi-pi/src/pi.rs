//! Which pi to run, and how.

use std::path::PathBuf;
use std::time::Duration;

use takopi_core::EngineRunner;
use takopi_core::mcp::McpServer;
use takopi_core::process::EnvPolicy;
use takopi_core::tools::{HostTool, HostTools};

use crate::engine::PiEngine;

/// How long a session is kept warm by default.
const KEEP_WARM: Duration = Duration::from_mins(1);

/// Which pi to run, and how.
///
/// Every run is a prompt to a process that stays for the next one. By default extensions and settings of
/// the directory that the agent works in do not apply: they would run without anybody being asked.
///
/// ```
/// use takopi_core::Runner;
/// use takopi_pi::Pi;
///
/// let runner = Pi::new().binary("/opt/pi/bin/pi").runner();
/// assert_eq!(runner.engine().as_str(), "pi");
/// ```
#[derive(Debug, Clone)]
#[must_use = "it does nothing until it is made into a runner"]
pub struct Pi {
    pub(crate) binary: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) config_dir: Option<PathBuf>,
    pub(crate) env_policy: EnvPolicy,
    pub(crate) mcp_servers: Vec<McpServer>,
    pub(crate) tools: HostTools,
    pub(crate) keep_warm: Duration,
    pub(crate) project_settings: bool,
    pub(crate) options: Vec<(String, String)>,
}

impl Default for Pi {
    fn default() -> Self {
        Self::new()
    }
}

impl Pi {
    /// The `pi` on the `PATH`, as the user has set it up. Keeps sessions warm for a minute.
    pub fn new() -> Self {
        Self {
            binary: PathBuf::from("pi"),
            args: Vec::new(),
            config_dir: None,
            env_policy: EnvPolicy::default(),
            mcp_servers: Vec::new(),
            tools: HostTools::default(),
            keep_warm: KEEP_WARM,
            project_settings: false,
            options: Vec::new(),
        }
    }

    /// Runs this program: a path, or a name to be found on the `PATH`.
    pub fn binary(mut self, program: impl Into<PathBuf>) -> Self {
        self.binary = program.into();
        self
    }

    /// Adds arguments of pi's own.
    pub fn args<I, S>(mut self, args: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets `PI_CODING_AGENT_DIR`, which otherwise is left as it is.
    pub fn config_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.config_dir = Some(directory.into());
        self
    }

    /// Which variables pi inherits.
    pub fn env_policy(mut self, policy: EnvPolicy) -> Self {
        self.env_policy = policy;
        self
    }

    /// Gives it an MCP server of the host's own; the user's configuration stays as it is.
    pub fn mcp_server(mut self, server: McpServer) -> Self {
        self.mcp_servers.push(server);
        self
    }

    /// Offers a tool of the host. It is called without approval: the host registered it itself. One
    /// of the same name is replaced.
    pub fn tool(mut self, tool: HostTool) -> Self {
        self.tools.add(tool);
        self
    }

    /// Keeps sessions warm for this long after a run; not at all if it is zero.
    pub fn keep_warm(mut self, time: Duration) -> Self {
        self.keep_warm = time;
        self
    }

    /// Whether settings and extensions of the working directory apply, as they do when a user starts pi
    /// there and trusts it. Off unless set.
    pub fn project_settings(mut self, apply: bool) -> Self {
        self.project_settings = apply;
        self
    }

    /// Options that hold for every run, as [`RunSettings::options`](takopi_core::RunSettings::options).
    pub fn options(mut self, options: Vec<(String, String)>) -> Self {
        self.options = options;
        self
    }

    /// A runner: a process per live session, kept warm for a while.
    pub fn runner(self) -> EngineRunner<PiEngine> {
        EngineRunner::new(PiEngine::new(self))
    }
}
