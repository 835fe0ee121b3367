//! The command line.
//!
//! Every setting of a run is optional here: a flag wins over its `TAKOPI_*` variable, which clap
//! reads, and both win over the configuration file, which [`RunOptions::filled`] adds.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use serde::Deserialize;
use takopi_core::catalog::{COMMON_SETTINGS, EngineEntry};
use takopi_core::settings::parse_duration;
use takopi_core::{EngineId, RunSettings};
use takopi_projects::Projects;

use crate::batch::BatchArgs;
use crate::config::Config;
use crate::engines::{self, EngineFlags, NameParser};
use crate::fleet::FleetFlags;
use crate::projects::ProjectsArgs;

/// Runs coding agents: one prompt in, one answer out, one writer per session.
#[derive(Debug, Parser)]
#[command(name = "takopi", version, arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = "\
Examples:
  takopi run 'what does this project do?'
  git diff | takopi run 'review this' -
  takopi run --last 'and now add a test'
  takopi batch prompts.jsonl --jobs 8 --out results.jsonl
  takopi demo

Exit codes of run: 0 ok, 1 failed, 2 usage, 3 engine missing or too old, 4 session busy,
124 timeout, 129 hang-up, 130 interrupted, 143 terminated.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) global: Global,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// When to use colour
    #[arg(long, global = true, value_enum, value_name = "WHEN", env = "TAKOPI_COLOR")]
    pub(crate) color: Option<Color>,
    /// Log to standard error and show the causes of errors; repeat for more. TAKOPI_LOG sets a
    /// filter, TAKOPI_LOG_FILE a file to log to
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Read settings from this file
    #[arg(long, global = true, value_name = "FILE", env = "TAKOPI_CONFIG", hide_env_values = true)]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run one prompt and print the answer
    Run(Box<RunArgs>),
    /// Run many prompts, with retries, and continue after a crash
    Batch(Box<BatchArgs>),
    /// Chat with the agent on this terminal, in one or more conversations
    Chat(Box<ChatArgs>),
    /// Chat with the agent in a browser
    Serve(Box<ServeArgs>),
    /// Chat with the agent in Telegram
    #[cfg(feature = "telegram")]
    Telegram(Box<crate::telegram::TelegramArgs>),
    /// Run jobs of a fleet on this machine, until SIGTERM
    #[cfg(feature = "fleet")]
    Worker(Box<crate::fleet::WorkerArgs>),
    /// Set up a fleet, look at it, and manage its jobs
    #[cfg(feature = "fleet")]
    Fleet(crate::fleet::FleetArgs),
    /// List the stored sessions on this machine, newest first
    Sessions(SessionsArgs),
    /// List the engines: which are installed, and what they support
    Engines(EnginesArgs),
    /// List projects, register the current repository, remove worktrees that are done
    Projects(ProjectsArgs),
    /// Check the installation and report problems
    Doctor(DoctorArgs),
    /// Show what takopi does; needs no account and no agent
    Demo(DemoArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

impl Command {
    /// The level that is logged without being asked for: a bot has no other way to report who was refused.
    pub(crate) fn logged(&self) -> Option<&'static str> {
        match self {
            #[cfg(feature = "telegram")]
            Self::Telegram(_) => Some("warn"),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct RunArgs {
    /// The prompt. `-` appends standard input to it; without any prompt, standard input is the
    /// prompt
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: Vec<String>,
    /// Resume this session: its id, a unique prefix of it, or text with a line such as `codex resume ID` or `claude --resume ID`
    #[arg(long, value_name = "TOKEN|LINE", conflicts_with = "last")]
    pub(crate) resume: Option<String>,
    /// Resume the newest session of this directory; with --fleet, yours that ran last there
    #[arg(long)]
    pub(crate) last: bool,
    /// With --json: print the answer in pieces as well, while it is written
    #[arg(long, requires = "json")]
    pub(crate) deltas: bool,
    #[command(flatten)]
    pub(crate) options: Options,
}

/// The options that `run` and `batch` share.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) run: RunOptions,
    /// Attach this image to the prompt; can be repeated
    #[arg(long, short, value_name = "FILE")]
    pub(crate) image: Vec<PathBuf>,
    /// Require an answer that follows the JSON Schema in this file
    #[arg(long, value_name = "FILE")]
    pub(crate) output_schema: Option<PathBuf>,
    /// Print every event as one line of JSON, and nothing else
    #[arg(long, conflicts_with = "quiet")]
    pub(crate) json: bool,
    /// Print only the answer and errors
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// The options of every command that runs an agent.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct RunOptions {
    // First: clap takes the other arguments out of the matches as it reads them.
    #[command(flatten)]
    pub(crate) flags: EngineFlags,
    /// The engine to run
    #[arg(long, value_name = "ENGINE", value_parser = NameParser::Engine, env = "TAKOPI_ENGINE")]
    pub(crate) engine: Option<String>,
    /// The transport between takopi and the engine
    #[arg(long, value_name = "TRANSPORT", value_parser = NameParser::Transport, env = "TAKOPI_TRANSPORT")]
    pub(crate) transport: Option<String>,
    /// The directory to work in
    #[arg(long, short = 'C', value_name = "DIR")]
    pub(crate) cd: Option<PathBuf>,
    /// The model to use
    #[arg(long, short, value_name = "MODEL", env = "TAKOPI_MODEL")]
    pub(crate) model: Option<String>,
    /// Reasoning effort of the model: low, medium, high, …
    #[arg(long, value_name = "EFFORT", env = "TAKOPI_EFFORT")]
    pub(crate) effort: Option<String>,
    /// Sandbox of the agent's commands: read-only, workspace-write, danger-full-access
    #[arg(long, short, value_name = "SANDBOX", env = "TAKOPI_SANDBOX")]
    pub(crate) sandbox: Option<String>,
    /// What the agent may do without approval, for claude: default, acceptEdits, plan, dontAsk,
    /// bypassPermissions, auto
    #[arg(long, value_name = "MODE", env = "TAKOPI_PERMISSION_MODE")]
    pub(crate) permission_mode: Option<String>,
    /// Do not store the session: it cannot be resumed
    #[arg(long)]
    pub(crate) ephemeral: bool,
    /// How approval requests are decided. Default: ask on a terminal and in `serve`, otherwise deny
    #[arg(long, value_enum, value_name = "MODE", env = "TAKOPI_APPROVE")]
    pub(crate) approve: Option<Approve>,
    /// Set an option of the engine; can be repeated
    #[arg(short = 'c', value_name = "KEY=VALUE", value_parser = setting)]
    pub(crate) settings: Vec<(String, String)>,
    /// How long to wait for a session that is in use, e.g. 90s or 5m; 0 fails at once. Default: no
    /// limit
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, env = "TAKOPI_WAIT")]
    pub(crate) wait: Option<Duration>,
    /// Stop the run when the engine is silent for this long
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, env = "TAKOPI_IDLE_TIMEOUT")]
    pub(crate) idle_timeout: Option<Duration>,
    /// Stop the run when it takes longer than this
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, env = "TAKOPI_TIMEOUT")]
    pub(crate) timeout: Option<Duration>,
    /// Run in this project of the configuration file
    #[arg(long, value_name = "NAME")]
    pub(crate) project: Option<String>,
    /// Run on this branch, in a git worktree of its own; without --project, of the repository here
    #[arg(long, value_name = "BRANCH")]
    pub(crate) branch: Option<String>,
    #[command(flatten)]
    pub(crate) fleet: FleetFlags,
    /// The prompt or the session to resume names the engine.
    #[arg(skip)]
    pub(crate) engine_chosen: bool,
    /// The projects of the configuration file.
    #[arg(skip)]
    pub(crate) projects: Projects,
    /// The settings of the configuration file.
    #[arg(skip)]
    pub(crate) defaults: RunSettings,
    /// The settings of the configuration file for one engine, by engine.
    #[arg(skip)]
    pub(crate) engine_defaults: BTreeMap<EngineId, RunSettings>,
}

impl RunArgs {
    /// The arguments, with defaults from the configuration file.
    pub(crate) fn filled(mut self, config: Config) -> Self {
        self.options.run = self.options.run.filled(config);
        self
    }
}

impl RunOptions {
    /// The settings of a run on the chosen engine: flags, then `TAKOPI_*`, then the configuration file; only
    /// those that the engine understands.
    pub(crate) fn settings(&self) -> RunSettings {
        engines::named(self.engine.as_deref())
            .map_or_else(|_| self.typed(), |it| self.settings_of(it))
    }

    /// The settings of a run on an engine. Flags, `TAKOPI_*` and the keys at the top of the file are for the
    /// chosen engine; of them, another one gets what takopi applies to every engine. Each has a table of
    /// its own in the file.
    pub(crate) fn settings_of(&self, entry: &dyn EngineEntry) -> RunSettings {
        let chosen = engines::named(self.engine.as_deref());
        let is_chosen = chosen.is_ok_and(|chosen| chosen.id() == entry.id());
        let applies = |name: &str| {
            if is_chosen { entry.understands(name) } else { COMMON_SETTINGS.contains(&name) }
        };
        let (mut settings, mut general) = (self.typed(), self.defaults.clone());
        settings.retain(applies);
        general.retain(applies);
        if let Some(own) = self.engine_defaults.get(&entry.id()) {
            settings.fill_from(own);
        }
        settings.fill_from(&general);
        settings
    }

    /// The engine that the command line names.
    pub(crate) fn engine_flag(&self) -> Option<&str> {
        self.engine.as_deref().filter(|_| self.flags.is_typed("engine"))
    }

    /// What flags and `TAKOPI_*` set.
    fn typed(&self) -> RunSettings {
        let mut settings = RunSettings::new();
        settings.cwd.clone_from(&self.cd);
        settings.model.clone_from(&self.model);
        settings.effort.clone_from(&self.effort);
        settings.sandbox.clone_from(&self.sandbox);
        settings.permission_mode.clone_from(&self.permission_mode);
        settings.ephemeral = self.ephemeral.then_some(true);
        settings.options.clone_from(&self.settings);
        settings.wait = self.wait;
        settings.idle_timeout = self.idle_timeout;
        settings.wall_timeout = self.timeout;
        settings
    }

    /// Chooses the engine that the prompt or the session names: more than that of a project.
    pub(crate) fn choose_engine(&mut self, engine: &EngineId) {
        self.engine_chosen = true;
        self.change_engine(engine);
    }

    /// Changes the engine. Defaults that were meant for another engine do not apply to it.
    pub(crate) fn change_engine(&mut self, engine: &EngineId) {
        if engines::named(self.engine.as_deref()).is_ok_and(|chosen| chosen.id() == *engine) {
            return;
        }
        self.engine = Some(engine.to_string());
        self.defaults.retain(|name| COMMON_SETTINGS.contains(&name));
        let typed = |id: &str| self.flags.is_typed(id);
        self.model.take_if(|_| !typed("model"));
        self.effort.take_if(|_| !typed("effort"));
        self.sandbox.take_if(|_| !typed("sandbox"));
        self.permission_mode.take_if(|_| !typed("permission_mode"));
    }

    /// The options, with defaults from the configuration file.
    pub(crate) fn filled(mut self, config: Config) -> Self {
        // A variable that is set to nothing counts as not set.
        self.engine.take_if(|engine| engine.is_empty());
        self.transport.take_if(|transport| transport.is_empty());
        self.model.take_if(|model| model.is_empty());
        self.effort.take_if(|effort| effort.is_empty());
        self.sandbox.take_if(|sandbox| sandbox.is_empty());
        self.permission_mode.take_if(|mode| mode.is_empty());
        macro_rules! fill {
            ($( $field:ident ),*) => { $( self.$field = self.$field.or(config.$field); )* };
        }
        fill!(engine, transport, approve);
        self.flags.fill(config.programs);
        self.fleet.fill(config.fleet);
        self.defaults = config.run;
        self.engine_defaults = config.engines;
        self.projects = config.projects;
        self
    }
}

#[derive(Debug, Args)]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    pub(crate) options: RunOptions,
    /// How long to keep the process of an idle session
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "5m")]
    pub(crate) keep_warm: Duration,
}

/// The environment variable with the access token of `takopi serve`.
pub(crate) const TOKEN: &str = "TAKOPI_TOKEN";

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The address to listen on. An address that other machines can reach requires a token
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listen, default_value = "127.0.0.1:8730")]
    pub(crate) listen: SocketAddr,
    /// Access token, at least 16 characters. Generated if one is required and none is given
    #[arg(long, value_name = "TOKEN", env = TOKEN, hide_env_values = true, value_parser = token)]
    pub(crate) token: Option<String>,
    #[command(flatten)]
    pub(crate) options: RunOptions,
    /// How long to keep the process of an idle session
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "5m")]
    pub(crate) keep_warm: Duration,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    pub(crate) command: Option<SessionsCommand>,
    /// List only sessions of this engine
    #[arg(long, value_name = "ENGINE", value_parser = NameParser::Engine)]
    pub(crate) engine: Option<String>,
    /// List only sessions that began in this directory
    #[arg(long, short = 'C', value_name = "DIR")]
    pub(crate) cd: Option<PathBuf>,
    /// List only sessions with these words in their messages, name, directory or id. Searches for at most 10 s
    #[arg(long, short, value_name = "WORDS")]
    pub(crate) search: Option<String>,
    /// The number of sessions to list; 0 lists all, and searches for as long as it takes
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
    pub(crate) limit: usize,
    /// Print one session per line, as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionsCommand {
    /// Print the messages of a session, with --steps also what the agent did
    Show {
        /// The id, or a unique prefix of it
        id: String,
        /// Look only among the sessions of this engine
        #[arg(long, value_name = "ENGINE", value_parser = NameParser::Engine)]
        engine: Option<String>,
        /// Print commands with the end of their output, and notes too, not only messages
        #[arg(long)]
        steps: bool,
        /// Print one message per line, as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct EnginesArgs {
    /// Print the engines as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Repair what can be repaired, and stop processes that a killed takopi left running
    #[arg(long)]
    pub(crate) fix: bool,
    /// Print the findings as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Check only this engine
    #[arg(long, value_name = "ENGINE", value_parser = NameParser::Engine)]
    pub(crate) engine: Option<String>,
    #[command(flatten)]
    pub(crate) flags: EngineFlags,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// The time each step takes
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) pace: Option<Duration>,
}

/// When to use colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Color {
    /// On terminals, unless NO_COLOR is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// How approval requests are decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Approve {
    /// Ask the user
    Ask,
    /// Decline every request
    Deny,
    /// Accept every request
    Accept,
}

/// An address, or `localhost`.
pub(crate) fn listen(text: &str) -> Result<SocketAddr, String> {
    let local = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    let address = local.as_deref().unwrap_or(text).parse();
    address.map_err(|_| "expected ADDRESS:PORT, such as 127.0.0.1:8730 or localhost:0".to_owned())
}

/// A token is used in addresses and cookies without escaping.
fn token(text: &str) -> Result<String, String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    if text.len() < 16 || !text.bytes().all(allowed) {
        return Err("expected at least 16 characters of a-z, A-Z, 0-9, - . _ ~".to_owned());
    }
    Ok(text.to_owned())
}

pub(crate) fn setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            Ok((key.trim().to_owned(), value.to_owned()))
        }
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests;
