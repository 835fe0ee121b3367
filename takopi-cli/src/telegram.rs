//! `takopi telegram`: the engines in Telegram.

mod check;
mod setup;

use std::fs::{File, TryLockError};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::{Args, Subcommand};
use takopi_core::Host;
use takopi_core::settings::parse_duration;
use takopi_telegram::bot::Parts;
use takopi_telegram::{Api, Bot, BotError, Config as BotConfig, Store, Token};
use tokio_util::sync::CancellationToken;

pub(crate) use self::check::doctor;
use crate::args::{Approve, RunOptions};
use crate::config::Config;
use crate::exit::{self, Usage};
use crate::fleet::Submitting;
use crate::terminal::Terminal;
use crate::{conversation, run, signals};

#[derive(Debug, Args)]
pub(crate) struct TelegramArgs {
    #[command(subcommand)]
    command: Option<TelegramCommand>,
    #[command(flatten)]
    pub(crate) options: RunOptions,
    /// How long to keep the process of an idle session
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "5m")]
    keep_warm: Duration,
}

#[derive(Debug, Subcommand)]
enum TelegramCommand {
    /// Ask for the token, wait for your first message, and write the configuration
    Setup(setup::SetupArgs),
}

pub(crate) fn main(
    mut args: TelegramArgs,
    config: Config,
    file: Option<&Path>,
    terminal: Terminal,
) -> anyhow::Result<u8> {
    if let Some(TelegramCommand::Setup(args)) = &args.command {
        return setup::main(args, &config, file, terminal);
    }
    let bot = BotConfig::read(&config.telegram).map_err(usage)?;
    let token = bot.token().map_err(usage)?;
    let all = config.projects.clone();
    args.options = args.options.filled(config);
    args.options.enter_project()?;
    args.options.join_fleet(Submitting::Unattended)?;
    let router = conversation::router(&args.options, args.keep_warm)?;
    let settings = conversation::approval_settings(&args.options, Approve::Ask);
    let directory = args.options.settings().cwd.map_or_else(std::env::current_dir, Ok)?;
    let runtime = run::runtime()?;
    let ended = runtime.block_on(async {
        let _lock = lock(&token)?;
        let store = store(&token)?;
        let api = Api::new(bot.service.clone(), token)?;
        let mut parts = Parts::new(api, bot, router, store, directory);
        parts.projects = all;
        parts.settings = settings;
        let stop = CancellationToken::new();
        let _received = signals::watch(stop.clone())?;
        let started = tokio::select! {
            // Nothing runs yet that would have to be ended in order.
            () = stop.cancelled() => return Ok(exit::OK),
            started = Bot::start(parts) => started,
        };
        let bot = started.map_err(|error| match error {
            BotError::NobodyAllowed | BotError::Shadowed(_) => usage(error).into(),
            error => anyhow!(error),
        })?;
        terminal.note("the bot is running; Ctrl-C ends it");
        bot.run(&stop).await?;
        if let Ok(host) = Host::global() {
            host.settle().await;
        }
        Ok(exit::OK)
    });
    // A file or a call of git that hangs does not keep the process from exiting.
    runtime.shutdown_background();
    ended
}

/// One process runs a bot: a second one would take the messages of the first for those of a crash, and close them.
fn lock(token: &Token) -> anyhow::Result<File> {
    let directory = Host::global()?.state_directory().to_owned();
    let path = directory.join(format!("telegram-{}.lock", token.bot()));
    let fail = || format!("cannot use {}", path.display());
    // Nobody else's concern, as everything in the state directory.
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory);
    made.with_context(fail)?;
    let file = File::create(&path).with_context(fail)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(anyhow!("another `takopi telegram` runs this bot on this machine; end that first"))
        }
        Err(TryLockError::Error(error)) => Err(error).with_context(fail),
    }
}

/// What survives a restart. Each bot has its own: the numbers of updates are those of one bot.
fn store(token: &Token) -> anyhow::Result<Store> {
    let file = format!("telegram-{}.json", token.bot());
    let path = Host::global()?.state_directory().join(file);
    Store::open(&path).with_context(|| path.display().to_string())
}

fn usage(error: impl std::fmt::Display) -> Usage {
    Usage::new(error.to_string())
}
