//! How a process is started: command, environment, MCP servers, settings, and how it is stopped.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use takopi_core::RunRequest;
use takopi_core::mcp::McpServer;
use takopi_core::process::{EnvPolicy, Launch, StdinPlan, StopSequence, StopStep, find_program};
use takopi_core::runner::RunError;

use crate::Acp;

/// A process that serves one session. Two equal ones may share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AcpLaunch {
    program: PathBuf,
    args: Vec<String>,
    env: Vec<(OsString, OsString)>,
    env_policy: EnvPolicy,
    pub(crate) cwd: PathBuf,
    pub(crate) mcp_servers: Vec<McpServer>,
    pub(crate) settings: Settings,
    /// How long it may take to exit once its input is closed.
    pub(crate) linger: Duration,
    interrupt_on_death: bool,
}

/// What a session is set to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) model: Option<String>,
    pub(crate) effort: Option<String>,
    pub(crate) mode: Option<String>,
    pub(crate) options: Vec<(String, String)>,
}

impl AcpLaunch {
    /// How a request wants its process.
    pub(crate) fn new(acp: &Acp, request: &RunRequest) -> Result<Self, RunError> {
        let settings = &request.settings;
        let mut options: Vec<(String, String)> = Vec::new();
        for (key, value) in acp.options.iter().chain(&settings.options) {
            options.retain(|(known, _)| known != key);
            options.push((key.clone(), value.clone()));
        }
        let quirks = &acp.agent.quirks;
        let own = quirks.env.iter().map(|(name, value)| (name.into(), value.into()));
        Ok(Self {
            program: acp.program.clone(),
            args: acp.agent.command().iter().skip(1).cloned().collect(),
            env: own.chain(request.env.iter().cloned()).collect(),
            env_policy: acp.env_policy.clone(),
            cwd: request.working_directory()?,
            mcp_servers: acp.mcp_servers.clone(),
            settings: Settings {
                model: settings.model.clone(),
                effort: settings.effort.clone(),
                mode: settings.permission_mode.clone(),
                options,
            },
            linger: quirks.linger,
            interrupt_on_death: quirks.interrupt_on_death,
        })
    }

    /// The process. Signal dispositions are reset before it runs: an ignored SIGINT would be inherited.
    pub(crate) fn launch(&self) -> Launch {
        let launch = Launch::new(&self.program)
            .args(self.args.iter().cloned())
            .env_policy(self.env_policy.clone())
            .cwd(&self.cwd)
            .stdin(StdinPlan::Open)
            // What it leaves is swept in any case: nothing is gained by waiting long for it.
            .stop_sequence(StopSequence::new([
                (StopStep::CloseStdin, Duration::from_millis(300)),
                (StopStep::Terminate, Duration::from_secs(2)),
            ]))
            .interrupt_on_death(self.interrupt_on_death)
            .linger(self.linger);
        self.env.iter().fold(launch, |launch, (name, value)| launch.env(name, value))
    }

    /// The MCP servers of the host, as `session/new` wants them.
    pub(crate) fn mcp_servers(&self) -> Value {
        let servers = self.mcp_servers.iter().map(|server| {
            let McpServer { name, command, args, env, inherits, .. } = server;
            let value = |name: &String| {
                let own = self.env.iter().rev().find(|(known, _)| known.to_str() == Some(name));
                let value = own.map(|(_, value)| value.clone()).or_else(|| std::env::var_os(name));
                Some((name.clone(), value?.to_string_lossy().into_owned()))
            };
            let env = inherits.iter().filter_map(value).chain(env.iter().cloned());
            let env: Vec<Value> =
                env.map(|(name, value)| json!({ "name": name, "value": value })).collect();
            // Agents want an absolute path.
            let command = find_program(command, None).unwrap_or_else(|| command.clone());
            json!({ "name": name, "command": command.to_string_lossy(), "args": args, "env": env })
        });
        servers.collect()
    }
}
