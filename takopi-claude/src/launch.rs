//! How a process is started: arguments, environment, and how it is stopped.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value, json};
use takopi_core::mcp::McpServer;
use takopi_core::process::{EnvPolicy, Launch, StdinPlan, StopSequence, StopStep};
use takopi_core::runner::RunError;
use takopi_core::version::Version;
use takopi_core::{Reason, RunRequest};

use crate::Claude;
use crate::options::Options;
use crate::permission_mode::permission_mode;

/// The name of the MCP server that takopi plays for the host's tools.
pub(crate) const HOST_SERVER: &str = "takopi";

/// The first release that takes `client_composed` messages, in which nothing is expanded.
const CLIENT_COMPOSED: Version = Version::new(2, 1, 325);

/// The oldest release on which `end_session` was seen to work.
const ENDS_SESSION: Version = Version::new(2, 1, 210);

/// Variables by which Claude Code marks what it starts. With them another one takes itself for a child
/// of the session that started takopi.
const NESTED: [&str; 9] = [
    "CLAUDECODE",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_CODE_CHILD_SESSION",
    "CLAUDE_PID",
    "CLAUDE_CODE_MESSAGING_*",
    "CLAUDE_CODE_EXECPATH",
    "CLAUDE_EFFORT",
    "AI_AGENT",
];

/// Tools by which the agent would go on after its answer.
const WAKING_TOOLS: &str = "Monitor,ScheduleWakeup,CronCreate";

/// A process that serves one session. Two equal launches may share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClaudeLaunch {
    program: PathBuf,
    /// All arguments but those that name the session.
    args: Vec<String>,
    env: Vec<(OsString, OsString)>,
    env_policy: EnvPolicy,
    cwd: PathBuf,
    /// How prompts are kept from being expanded.
    pub(crate) inert_prompts: InertPrompts,
    /// Whether it can be asked to end its session. Older releases never answer that.
    pub(crate) ends_session: bool,
}

/// How a prompt is kept plain text: no command at its beginning is run, no file it mentions is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InertPrompts {
    /// The message is marked.
    Marked,
    /// A space goes ahead of a slash, and attachments are off: for releases that do not know the mark.
    Escaped,
}

/// How the session comes to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionArg<'a> {
    New(&'a str),
    Resume(&'a str),
}

impl ClaudeLaunch {
    /// How a request wants its process.
    pub(crate) fn new(
        claude: &Claude,
        request: &RunRequest,
        version: Option<Version>,
    ) -> Result<Self, RunError> {
        let options = Options::parse(claude.options.iter().chain(&request.settings.options))?;
        let background = options.background.unwrap_or(claude.background);
        let project_settings = options.project_settings.unwrap_or(claude.project_settings);
        let inert_prompts = match version {
            Some(version) if version >= CLIENT_COMPOSED => InertPrompts::Marked,
            // One that does not tell its version gets the way that every release understands.
            _ => InertPrompts::Escaped,
        };
        let mut env: Vec<(OsString, OsString)> = Vec::new();
        let mut set = |name: &str, value: &str| env.push((name.into(), value.into()));
        set("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS", "1");
        match inert_prompts {
            InertPrompts::Marked => set("CLAUDE_CODE_DISABLE_FILE_MENTIONS", "1"),
            InertPrompts::Escaped => set("CLAUDE_CODE_DISABLE_ATTACHMENTS", "1"),
        }
        if !background {
            set("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1");
        }
        env.extend(
            claude.config_dir.iter().map(|dir| ("CLAUDE_CONFIG_DIR".into(), dir.clone().into())),
        );
        env.extend(request.env.iter().cloned());
        let env_policy =
            NESTED.iter().fold(claude.env_policy.clone(), |policy, name| policy.deny(*name));
        Ok(Self {
            program: claude.binary.clone(),
            args: arguments(claude, request, &options, background, project_settings)?,
            env,
            env_policy,
            cwd: request.working_directory()?,
            inert_prompts,
            ends_session: version.is_none_or(|version| version >= ENDS_SESSION),
        })
    }

    /// The process for a session.
    pub(crate) fn launch(&self, session: SessionArg<'_>) -> Launch {
        let session = match session {
            SessionArg::New(id) => format!("--session-id={id}"),
            SessionArg::Resume(id) => format!("--resume={id}"),
        };
        let launch = Launch::new(&self.program)
            .args(self.args.iter().cloned().chain([session]))
            .env_policy(self.env_policy.clone())
            .cwd(&self.cwd)
            .stdin(StdinPlan::Open)
            // It ends its commands on SIGINT; SIGTERM orphans them on some releases. Its input is
            // closed first: after `end_session` it is about to exit by itself.
            .stop_sequence(StopSequence::new([
                (StopStep::CloseStdin, Duration::from_millis(200)),
                (StopStep::Interrupt, Duration::from_secs(3)),
                (StopStep::Terminate, Duration::from_secs(2)),
            ]))
            .linger(Duration::from_secs(3));
        self.env.iter().fold(launch, |launch, (name, value)| launch.env(name, value))
    }
}

fn arguments(
    claude: &Claude,
    request: &RunRequest,
    options: &Options,
    background: bool,
    project_settings: bool,
) -> Result<Vec<String>, RunError> {
    let settings = &request.settings;
    let mut args: Vec<String> = [
        "--print",
        "--input-format=stream-json",
        "--output-format=stream-json",
        "--verbose",
        "--permission-prompt-tool=stdio",
    ]
    .map(str::to_owned)
    .to_vec();
    if request.deltas {
        args.push("--include-partial-messages".to_owned());
    }
    let mut flag = |name: &str, value: &str| args.push(format!("{name}={value}"));
    if let Some(model) = &settings.model {
        flag("--model", model);
    }
    if let Some(effort) = &settings.effort {
        flag("--effort", effort);
    }
    if let Some(mode) = &settings.permission_mode {
        let mode =
            permission_mode(mode).map_err(|error| RunError::new(Reason::InvalidRequest, error))?;
        flag("--permission-mode", mode);
    }
    if !project_settings {
        flag("--setting-sources", "user");
    }
    if let Some(servers) = mcp_config(claude) {
        flag("--mcp-config", &servers);
    }
    let (mut allowed, mut denied) = (String::new(), String::new());
    if !claude.tools.is_empty() {
        join(&mut allowed, &format!("mcp__{HOST_SERVER}"));
    }
    if !background {
        join(&mut denied, WAKING_TOOLS);
    }
    for (name, value) in &options.flags {
        match *name {
            "--allowedTools" => join(&mut allowed, value),
            "--disallowedTools" => join(&mut denied, value),
            name => flag(name, value),
        }
    }
    for (name, tools) in [("--allowedTools", &allowed), ("--disallowedTools", &denied)] {
        if !tools.is_empty() {
            flag(name, tools);
        }
    }
    if let Some(file) = &settings.output_schema {
        flag("--json-schema", &schema(file)?);
    }
    args.extend(claude.args.iter().cloned());
    Ok(args)
}

/// Adds to a list that is separated by commas.
fn join(list: &mut String, more: &str) {
    if !list.is_empty() {
        list.push(',');
    }
    list.push_str(more);
}

/// The MCP servers of the host, and takopi itself if the host has tools.
fn mcp_config(claude: &Claude) -> Option<String> {
    let mut servers = Map::new();
    if !claude.tools.is_empty() {
        servers.insert(HOST_SERVER.to_owned(), json!({ "type": "sdk", "name": HOST_SERVER }));
    }
    for McpServer { name, command, args, env, inherits, .. } in &claude.mcp_servers {
        // A variable that is inherited is expanded by Claude Code: its value is no argument.
        let inherited = inherits.iter().map(|name| (name.clone(), format!("${{{name}}}")));
        let env: Map<String, Value> = inherited
            .chain(env.iter().cloned())
            .map(|(name, value)| (name, value.into()))
            .collect();
        let command = command.to_string_lossy();
        let server = json!({ "type": "stdio", "command": command, "args": args, "env": env });
        servers.insert(name.clone(), server);
    }
    (!servers.is_empty()).then(|| json!({ "mcpServers": servers }).to_string())
}

/// The output schema as one line.
fn schema(file: &std::path::Path) -> Result<String, RunError> {
    let text = std::fs::read(file).map_err(|error| error.to_string());
    let schema = text
        .and_then(|text| serde_json::from_slice::<Value>(&text).map_err(|error| error.to_string()));
    schema.map(|schema| schema.to_string()).map_err(|error| {
        let error = format!("the output schema {} cannot be used: {error}", file.display());
        RunError::new(Reason::InvalidRequest, error)
    })
}
