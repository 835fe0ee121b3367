//! The command line as the user types it.
//!
//! Every setting of a run is optional here: a flag wins over its `TAKOPI_*` variable, which clap
//! reads, and both win over the configuration file, which [`RunOptions::filled`] adds.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use serde::Deserialize;
use takopi_core::RunSettings;
use takopi_core::settings::parse_duration;

use crate::batch::BatchArgs;
use crate::config::Config;

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
    /// Log to standard error, and show the causes of errors; twice for more. TAKOPI_LOG sets a
    /// filter, TAKOPI_LOG_FILE a file
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
    /// Run many prompts, and lose none
    Batch(Box<BatchArgs>),
    /// Talk to the agent on this terminal, in as many conversations as you like
    Chat(Box<ChatArgs>),
    /// Talk to the agent in a browser
    Serve(Box<ServeArgs>),
    /// List the sessions on this machine, newest first
    Sessions(SessionsArgs),
    /// Look for what could keep takopi from working
    Doctor(DoctorArgs),
    /// Show what takopi does, with no account and nothing installed
    Demo(DemoArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct RunArgs {
    /// The prompt; `-` adds standard input behind it, and without any prompt standard input is the
    /// prompt
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: Vec<String>,
    /// Go on with this session: its id, or a text with a line such as `codex resume ID`
    #[arg(long, value_name = "TOKEN|LINE", conflicts_with = "last")]
    pub(crate) resume: Option<String>,
    /// Go on with the newest session of this directory
    #[arg(long)]
    pub(crate) last: bool,
    #[command(flatten)]
    pub(crate) options: Options,
}

/// What a run and a batch have in common.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) run: RunOptions,
    /// Send this image along; can be given more than once
    #[arg(long, short, value_name = "F")]
    pub(crate) image: Vec<PathBuf>,
    /// The answer must follow the JSON Schema in this file
    #[arg(long, value_name = "F")]
    pub(crate) output_schema: Option<PathBuf>,
    /// Print every event as a line of JSON, and nothing else
    #[arg(long, conflicts_with = "quiet")]
    pub(crate) json: bool,
    /// Print the answer and errors only
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// What every command takes that runs an agent.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct RunOptions {
    /// The engine
    #[arg(long, value_enum, env = "TAKOPI_ENGINE")]
    pub(crate) engine: Option<Engine>,
    /// How to talk to codex
    #[arg(long, value_enum, env = "TAKOPI_TRANSPORT")]
    pub(crate) transport: Option<Transport>,
    /// Work in this directory
    #[arg(long, short = 'C', value_name = "DIR")]
    pub(crate) cd: Option<PathBuf>,
    /// The model
    #[arg(long, short, value_name = "M", env = "TAKOPI_MODEL")]
    pub(crate) model: Option<String>,
    /// How hard the model should think: low, medium, high, …
    #[arg(long, value_name = "E", env = "TAKOPI_EFFORT")]
    pub(crate) effort: Option<String>,
    /// What the agent's commands may do: read-only, workspace-write, danger-full-access
    #[arg(long, short, value_name = "S", env = "TAKOPI_SANDBOX")]
    pub(crate) sandbox: Option<String>,
    /// Who answers when the agent asks for approval: a person (default where one can be asked), nobody
    /// (default elsewhere), or everything is accepted
    #[arg(long, value_enum, value_name = "WHO", env = "TAKOPI_APPROVE")]
    pub(crate) approve: Option<Approve>,
    /// A setting of the engine; can be given more than once
    #[arg(short = 'c', value_name = "KEY=VALUE", value_parser = setting)]
    pub(crate) settings: Vec<(String, String)>,
    /// The codex to run
    #[arg(long, value_name = "PATH", env = "TAKOPI_CODEX_BIN")]
    pub(crate) codex_bin: Option<PathBuf>,
    /// How long to wait while others use the session, e.g. 90s or 5m; 0 does not wait. Without it,
    /// as long as it takes
    #[arg(long, value_name = "DUR", value_parser = parse_duration, env = "TAKOPI_WAIT")]
    pub(crate) wait: Option<Duration>,
    /// End the run when nothing was heard for this long
    #[arg(long, value_name = "DUR", value_parser = parse_duration, env = "TAKOPI_IDLE_TIMEOUT")]
    pub(crate) idle_timeout: Option<Duration>,
    /// End the run when it takes longer than this
    #[arg(long, value_name = "DUR", value_parser = parse_duration, env = "TAKOPI_TIMEOUT")]
    pub(crate) timeout: Option<Duration>,
    /// What the configuration file sets.
    #[arg(skip)]
    pub(crate) defaults: RunSettings,
}

impl RunArgs {
    /// The arguments, with what was not given taken from the configuration file.
    pub(crate) fn filled(mut self, config: Config) -> Self {
        self.options.run = self.options.run.filled(config);
        self
    }
}

impl RunOptions {
    /// The settings of a run: what was typed, then `TAKOPI_*`, then the configuration file.
    pub(crate) fn settings(&self) -> RunSettings {
        let mut settings = RunSettings::new();
        settings.cwd.clone_from(&self.cd);
        settings.model.clone_from(&self.model);
        settings.effort.clone_from(&self.effort);
        settings.sandbox.clone_from(&self.sandbox);
        settings.options.clone_from(&self.settings);
        settings.wait = self.wait;
        settings.idle_timeout = self.idle_timeout;
        settings.wall_timeout = self.timeout;
        settings.fill_from(&self.defaults);
        settings
    }

    /// The options, with what was not given taken from the configuration file.
    pub(crate) fn filled(mut self, config: Config) -> Self {
        // A variable that is set to nothing is as good as not set.
        self.model.take_if(|model| model.is_empty());
        self.effort.take_if(|effort| effort.is_empty());
        self.sandbox.take_if(|sandbox| sandbox.is_empty());
        self.codex_bin.take_if(|program| program.as_os_str().is_empty());
        macro_rules! fill {
            ($( $field:ident ),*) => { $( self.$field = self.$field.or(config.$field); )* };
        }
        fill!(engine, transport, approve, codex_bin);
        self.defaults = config.run;
        self
    }
}

#[derive(Debug, Args)]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    pub(crate) options: RunOptions,
    /// How long the process of an idle session is kept
    #[arg(long, value_name = "DUR", value_parser = parse_duration, default_value = "5m")]
    pub(crate) keep_warm: Duration,
}

/// The variable with the token of `takopi serve`.
pub(crate) const TOKEN: &str = "TAKOPI_TOKEN";

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Where to listen. Where others can reach it a token is needed
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listen, default_value = "127.0.0.1:8730")]
    pub(crate) listen: SocketAddr,
    /// Let in only who knows this, 16 letters or more; without it, where one is needed, takopi makes
    /// one up
    #[arg(long, value_name = "TOKEN", env = TOKEN, hide_env_values = true, value_parser = token)]
    pub(crate) token: Option<String>,
    #[command(flatten)]
    pub(crate) options: RunOptions,
    /// How long the process of an idle session is kept
    #[arg(long, value_name = "DUR", value_parser = parse_duration, default_value = "5m")]
    pub(crate) keep_warm: Duration,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    pub(crate) command: Option<SessionsCommand>,
    /// Only those of this directory
    #[arg(long, short = 'C', value_name = "DIR")]
    pub(crate) cd: Option<PathBuf>,
    /// How many to list; 0 lists all
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
    pub(crate) limit: usize,
    /// One session a line, as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionsCommand {
    /// Print the conversation of a session
    Show {
        /// Its id, or the beginning of it
        id: String,
        /// One message a line, as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Repair what can be repaired, and end what killed takopis left running
    #[arg(long)]
    pub(crate) fix: bool,
    /// Print the findings as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The codex to look at
    #[arg(long, value_name = "PATH", env = "TAKOPI_CODEX_BIN")]
    pub(crate) codex_bin: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// How long each step takes
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Engine {
    /// OpenAI Codex
    #[default]
    Codex,
    /// A scripted agent inside takopi
    Demo,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Transport {
    /// `codex app-server`: can ask for approval
    AppServer,
    /// `codex exec`: one process a run
    Exec,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Approve {
    /// A person on this terminal
    Ask,
    /// Nobody: what is asked is declined
    Deny,
    /// Everything is accepted
    Accept,
}

/// An address, or this machine by its usual name.
fn listen(text: &str) -> Result<SocketAddr, String> {
    let local = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    let address = local.as_deref().unwrap_or(text).parse();
    address.map_err(|_| "expected ADDRESS:PORT, such as 127.0.0.1:8730 or localhost:0".to_owned())
}

/// A token goes into addresses and cookies as it is.
fn token(text: &str) -> Result<String, String> {
    let good = |letter: u8| letter.is_ascii_alphanumeric() || b"-._~".contains(&letter);
    if text.len() < 16 || !text.bytes().all(good) {
        return Err("expected 16 or more of a-z, A-Z, 0-9, - . _ ~".to_owned());
    }
    Ok(text.to_owned())
}

fn setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            Ok((key.trim().to_owned(), value.to_owned()))
        }
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn run(args: &[&str]) -> RunArgs {
        let all = ["takopi", "run"].iter().chain(args);
        match Cli::try_parse_from(all).unwrap().command {
            Command::Run(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_dash_is_part_of_the_prompt_and_options_may_stand_anywhere() {
        let args = run(&["review", "this", "-", "--model", "m", "-c", "a.b=c=d"]);
        assert_eq!(args.prompt, ["review", "this", "-"]);
        assert_eq!(args.options.run.model.as_deref(), Some("m"));
        assert_eq!(args.options.run.settings, [("a.b".to_owned(), "c=d".to_owned())]);
    }

    #[test]
    fn what_begins_with_a_dash_can_be_a_prompt_behind_two() {
        assert_eq!(run(&["--", "--model", "-"]).prompt, ["--model", "-"]);
    }

    #[test]
    fn flags_win_over_the_configuration_file() {
        let file = "model = 'file'\neffort = 'file'\nwait = 5\ntimeout = '2m'";
        let config = crate::config::parse(file, "c.toml".as_ref()).unwrap();
        let given = ["x", "--model", "flag", "--effort", "", "--wait", "0"];
        let args = run(&given).filled(config).options.run;
        let settings = args.settings();
        assert_eq!(settings.model.as_deref(), Some("flag"));
        assert_eq!(settings.effort.as_deref(), Some("file"));
        assert_eq!(settings.wait, Some(Duration::ZERO));
        assert_eq!(settings.wall_timeout, Some(Duration::from_mins(2)));
    }
}
