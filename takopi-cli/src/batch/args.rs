//! `takopi batch` as the user types it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use takopi_batch::{Format, OnChange, OnCrash, OnFailure, OnLimit};

use crate::args::Options;
use crate::config::Config;
use takopi_core::settings::parse_duration;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Examples:
  takopi batch prompts.txt --jobs 8 --out results.jsonl
  generate | takopi batch --out results.jsonl
  takopi batch prompts.jsonl --out results.jsonl --retry-failed
  takopi batch report results.jsonl

A line of JSON: {\"id\":\"a\",\"prompt\":\"…\",\"session\":\"name\"}, and resume, cwd, model, effort, sandbox,
images, output_schema, settings, wait, idle_timeout, timeout. Run again with the same --out, a batch does
only what is missing.

Exit codes: 0 all ok, 1 some failed or it stopped early, 2 usage or a bad line, 3 engine missing or too
old, 4 the results are in use, 124 timeout, 129 hang-up, 130 interrupted, 143 terminated.")]
pub(crate) struct BatchArgs {
    #[command(subcommand)]
    pub(crate) command: Option<BatchCommand>,
    /// The prompts: JSON Lines, or text with one prompt a line. `-`, or nothing, is standard input
    #[arg(value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// Files too many: that of all of them is said, and not taken for a subcommand
    #[arg(hide = true)]
    pub(crate) more: Vec<PathBuf>,
    /// How many prompts run at once
    #[arg(long, short, value_name = "N", default_value_t = 4, value_parser = positive)]
    pub(crate) jobs: usize,
    /// Append the results to this file, and do only what is missing in it; without it they go to
    /// standard output
    #[arg(long, short, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// How the prompts are written; without it the first line decides
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<InputFormat>,
    /// How often a prompt is tried again that another try can mend
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) retries: u32,
    /// Run again what failed before
    #[arg(long)]
    pub(crate) retry_failed: bool,
    /// What becomes of the rest when a prompt fails
    #[arg(long, value_enum, value_name = "WHAT", default_value = "continue")]
    on_failure: WhenFailed,
    /// The same as --on-failure stop
    #[arg(long, conflicts_with = "on_failure")]
    fail_fast: bool,
    /// What becomes of a prompt that was in flight when takopi was killed
    #[arg(long, value_enum, value_name = "WHAT", default_value = "resend")]
    on_crash: WhenCrashed,
    /// What becomes of an id whose prompt is not the one that was sent before
    #[arg(long, value_enum, value_name = "WHAT", default_value = "refuse")]
    on_change: WhenChanged,
    /// What happens at a usage limit
    #[arg(long, value_enum, value_name = "WHAT", default_value = "wait")]
    on_limit: WhenLimited,
    /// End the batch when all of it takes longer than this
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub(crate) total_timeout: Option<Duration>,
    /// How long what runs may take to finish after Ctrl-C
    #[arg(long, value_name = "DUR", value_parser = parse_duration, default_value = "30s")]
    pub(crate) grace: Duration,
    #[command(flatten)]
    pub(crate) options: Options,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BatchCommand {
    /// Print the closing table of a batch again
    Report {
        /// The results
        out: PathBuf,
        /// Print the figures as JSON
        #[arg(long)]
        json: bool,
    },
}

/// Names of choices on the command line, and what they stand for.
macro_rules! choices {
    ($( $name:ident => $target:ident { $( $(#[$doc:meta])* $variant:ident, )* } )*) => { $(
        #[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
        enum $name { $( $(#[$doc])* $variant, )* }

        impl From<$name> for $target {
            fn from(choice: $name) -> Self {
                match choice { $( $name::$variant => Self::$variant, )* }
            }
        }
    )* };
}

choices! {
    WhenFailed => OnFailure {
        /// It goes on
        Continue,
        /// Later prompts of its session are skipped
        SkipSession,
        /// Nothing more is started
        Stop,
    }
    WhenCrashed => OnCrash {
        /// It is sent again, in the same conversation
        Resend,
        /// It fails
        Fail,
    }
    WhenChanged => OnChange {
        /// The input is refused
        Refuse,
        /// What is done stays done
        Keep,
        /// It is run again
        Rerun,
    }
    WhenLimited => OnLimit {
        /// The batch pauses, and goes on by itself
        Wait,
        /// Nothing more is started
        Stop,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum InputFormat {
    /// One prompt a line
    Text,
    /// One JSON object a line
    Jsonl,
}

impl BatchArgs {
    /// The arguments, with what was not given taken from the configuration file.
    pub(crate) fn filled(mut self, config: Config) -> Self {
        self.options.run = self.options.run.filled(config);
        self
    }

    pub(crate) fn format(&self) -> Option<Format> {
        self.format.map(|format| match format {
            InputFormat::Text => Format::Text,
            InputFormat::Jsonl => Format::JsonLines,
        })
    }

    pub(crate) fn on_failure(&self) -> OnFailure {
        if self.fail_fast { OnFailure::Stop } else { self.on_failure.into() }
    }

    pub(crate) fn on_crash(&self) -> OnCrash {
        self.on_crash.into()
    }

    pub(crate) fn on_change(&self) -> OnChange {
        self.on_change.into()
    }

    pub(crate) fn on_limit(&self) -> OnLimit {
        self.on_limit.into()
    }
}

fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or("expected a number from 1".to_owned())
}
