//! `takopi fleet`: its subcommands.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{demo, manage};
use crate::config::Config;
use crate::run;
use crate::terminal::Terminal;

#[derive(Debug, Args)]
#[command(after_help = "\
The address of the database is also taken from TAKOPI_FLEET and from `url` of [fleet] in the configuration file; the password from
PGPASSWORD or a password file (~/.pgpass). Exit codes: 0 ok, 1 failed (the database is down, there is no such job), 2 usage.")]
pub(crate) struct FleetArgs {
    #[command(subcommand)]
    pub(super) command: FleetCommand,
    /// The fleet's database
    #[arg(long, value_name = "URL", global = true)]
    pub(super) fleet: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(super) enum FleetCommand {
    /// Create the queue in the database, or bring it to this version
    Init,
    /// Show workers, slots, what waits and how much ended; on a terminal again every second
    Status {
        /// Print the figures as JSON
        #[arg(long)]
        json: bool,
        /// Print it once, also on a terminal
        #[arg(long)]
        once: bool,
    },
    /// List your newest jobs
    Jobs {
        /// List everybody's: for the owner of the database's schema
        #[arg(long)]
        all: bool,
        /// List only those that wait or run
        #[arg(long)]
        open: bool,
        /// The number of jobs to look at
        #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
        limit: u32,
        /// Print one job per line, as JSON
        #[arg(long)]
        json: bool,
    },
    /// Cancel a job: its id, or a unique beginning of it
    Cancel {
        /// The id
        id: String,
    },
    /// Bring a session of this machine into the fleet, with its files
    Import {
        /// The session's id, or a unique beginning of it
        id: String,
        /// The engine. Default: whichever has a session of this id
        #[arg(long, value_name = "ENGINE")]
        engine: Option<String>,
    },
    /// Give up the machine that a session is bound to, so that any worker may continue it
    Release {
        /// The session's id
        id: String,
        /// The engine. Default: whichever has a session of this id
        #[arg(long, value_name = "ENGINE")]
        engine: Option<String>,
    },
    /// Remove events, results and sessions that are old; workers do it every minute
    Gc {
        /// Only count them
        #[arg(long)]
        dry_run: bool,
    },
    /// Show what a fleet does, with a private PostgreSQL and three workers; needs no account and no agent
    Demo(DemoArgs),
}

#[derive(Debug, Args)]
pub(super) struct DemoArgs {
    /// How many prompts to run
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) prompts: u32,
    /// The directory with the programs of PostgreSQL. Default: PATH, then where Debian puts them
    #[arg(long, value_name = "DIR")]
    pub(super) postgres: Option<PathBuf>,
}

pub(crate) fn main(args: FleetArgs, config: &Config, terminal: Terminal) -> anyhow::Result<u8> {
    if let FleetCommand::Demo(args) = &args.command {
        return demo::main(args, terminal);
    }
    let url = super::address(args.fleet.as_deref(), &config.fleet)?;
    let done = run::runtime()?.block_on(manage::run(args.command, url, &config.fleet, terminal));
    done.map_err(super::explained)
}
