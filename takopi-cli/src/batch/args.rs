//! The arguments of `takopi batch`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use takopi_batch::{Format, OnChange, OnCrash, OnFailure, OnLimit, PromptTemplate};

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
  takopi batch files.csv --format csv --template 'review {file}' --answers answers --dry-run
  takopi batch report results.jsonl

A line of JSON is an object such as {\"id\":\"a\",\"prompt\":\"…\",\"session\":\"name\"}. Other fields: resume, project, branch, cwd, \
model, effort, sandbox, permission_mode, images, output_schema, ephemeral, settings, wait, idle_timeout, timeout. Run again with \
the same --out, a batch runs only the prompts that have no result.

Exit codes: 0 all ok, 1 some failed or the batch stopped early, 2 usage or an invalid line, 3 engine \
missing or too old, 4 the results are in use, 124 timeout, 129 hang-up, 130 interrupted, 143 \
terminated.")]
pub(crate) struct BatchArgs {
    #[command(subcommand)]
    pub(crate) command: Option<BatchCommand>,
    /// The prompts: JSON Lines, or text with one prompt per line. Default, or `-`: standard input
    #[arg(value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// Further files, only to refuse them with a message of their own
    #[arg(hide = true)]
    pub(crate) more: Vec<PathBuf>,
    /// The number of prompts that run at once
    #[arg(long, short, value_name = "N", default_value_t = 4, value_parser = positive)]
    pub(crate) jobs: usize,
    /// Append the results to this file, and skip prompts that have a result in it. Default: print the
    /// results to standard output
    #[arg(long, short, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// The format of the prompts. Default: by the ending of the file (.csv, .tsv), else detected from the
    /// first line
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<InputFormat>,
    /// Make every prompt from this text, with columns in braces: 'review {prompt}'. Of a table any column,
    /// otherwise prompt, id and session
    #[arg(long, value_name = "TEXT")]
    pub(crate) template: Option<PromptTemplate>,
    /// Write each answer to a file of its own in this directory, named after the id
    #[arg(long, value_name = "DIR")]
    pub(crate) answers: Option<PathBuf>,
    /// Check the input and print the prompts that would run, without running them
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// How often a prompt is retried after a temporary failure
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) retries: u32,
    /// Run prompts again that failed in an earlier run
    #[arg(long)]
    pub(crate) retry_failed: bool,
    /// What to do with the other prompts when one fails
    #[arg(long, value_enum, value_name = "ACTION", default_value = "continue")]
    on_failure: WhenFailed,
    /// The same as --on-failure stop
    #[arg(long, conflicts_with = "on_failure")]
    fail_fast: bool,
    /// What to do with a prompt that was running when takopi was killed
    #[arg(long, value_enum, value_name = "ACTION", default_value = "resend")]
    on_crash: WhenCrashed,
    /// What to do when the prompt of an id has changed since an earlier run
    #[arg(long, value_enum, value_name = "ACTION", default_value = "refuse")]
    on_change: WhenChanged,
    /// What to do at a usage limit
    #[arg(long, value_enum, value_name = "ACTION", default_value = "wait")]
    on_limit: WhenLimited,
    /// Stop the batch when it takes longer than this in total
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) total_timeout: Option<Duration>,
    /// How long running prompts may take to finish after Ctrl-C
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "30s")]
    pub(crate) grace: Duration,
    #[command(flatten)]
    pub(crate) options: Options,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BatchCommand {
    /// Print the summary table of a batch again
    Report {
        /// The file with the results
        out: PathBuf,
        /// Print the figures as JSON
        #[arg(long)]
        json: bool,
    },
}

/// Choices of the command line, and the values of takopi-batch that they stand for.
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
        /// Run them
        Continue,
        /// Skip later prompts of the same session
        SkipSession,
        /// Start no more prompts
        Stop,
    }
    WhenCrashed => OnCrash {
        /// Send it again, in the same session
        Resend,
        /// Mark it as failed
        Fail,
    }
    WhenChanged => OnChange {
        /// Refuse the input
        Refuse,
        /// Keep the existing result
        Keep,
        /// Run the new prompt
        Rerun,
    }
    WhenLimited => OnLimit {
        /// Pause until the limit is reset, then continue
        Wait,
        /// Start no more prompts
        Stop,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum InputFormat {
    /// One prompt per line
    Text,
    /// One JSON object per line
    Jsonl,
    /// Comma-separated values; the first line names the columns
    Csv,
    /// Tab-separated values; the first line names the columns
    Tsv,
}

impl BatchArgs {
    /// The arguments, with defaults from the configuration file.
    pub(crate) fn filled(mut self, config: Config) -> Self {
        self.options.run = self.options.run.filled(config);
        self
    }

    pub(crate) fn format(&self) -> Option<Format> {
        let ending = self.input.as_deref().and_then(Path::extension).and_then(OsStr::to_str);
        match (self.format, ending) {
            (Some(InputFormat::Text), _) => Some(Format::Text),
            (Some(InputFormat::Jsonl), _) => Some(Format::JsonLines),
            (Some(InputFormat::Csv), _) | (None, Some("csv")) => Some(Format::Csv),
            (Some(InputFormat::Tsv), _) | (None, Some("tsv")) => Some(Format::Tsv),
            (None, _) => None,
        }
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
