//! `takopi telegram`: the engines in Telegram.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use takopi_core::Host;
use takopi_core::catalog::Finding;
use takopi_core::settings::parse_duration;
use takopi_telegram::bot::Parts;
use takopi_telegram::update::{self, Update};
use takopi_telegram::{Api, Bot, Config as BotConfig, Store, Token};

use crate::args::{Approve, RunOptions};
use crate::config::Config;
use crate::exit::{self, Usage};
use crate::terminal::Terminal;
use crate::{conversation, projects, run, signals};

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
    Setup,
}

pub(crate) fn main(
    mut args: TelegramArgs,
    config: Config,
    file: Option<&Path>,
    terminal: Terminal,
) -> anyhow::Result<u8> {
    let bot = BotConfig::read(&config.telegram).map_err(usage)?;
    if matches!(args.command, Some(TelegramCommand::Setup)) {
        return setup(&bot, !config.telegram.is_empty(), file, terminal);
    }
    let token = bot.token().map_err(usage)?;
    let all = config.projects.clone();
    args.options = args.options.filled(config);
    args.options.enter_project()?;
    let router = conversation::router(&args.options, args.keep_warm)?;
    let settings = conversation::approval_settings(&args.options, Approve::Ask);
    let directory = args.options.settings().cwd.map_or_else(std::env::current_dir, Ok)?;
    run::runtime()?.block_on(async {
        let state = Host::global()?.state_directory().join("telegram.json");
        let store = Store::open(&state).with_context(|| state.display().to_string())?;
        let api = Api::new(bot.service.clone(), token)?;
        let mut parts = Parts::new(api, bot, router, store, directory);
        parts.projects = all;
        parts.settings = settings;
        let stop = tokio_util::sync::CancellationToken::new();
        let _received = signals::watch(stop.clone())?;
        let bot = Bot::start(parts).await?;
        terminal.note("the bot is running; Ctrl-C ends it");
        bot.run(&stop).await?;
        if let Ok(host) = Host::global() {
            host.settle().await;
        }
        Ok(exit::OK)
    })
}

fn usage(error: impl std::fmt::Display) -> Usage {
    Usage::new(error.to_string())
}

/// Asks for the token, waits for a message, and writes the table. Nothing that is typed is printed.
fn setup(
    bot: &BotConfig,
    exists: bool,
    file: Option<&Path>,
    terminal: Terminal,
) -> anyhow::Result<u8> {
    if exists {
        let text =
            "the configuration has a table [telegram] already; edit that, or remove it first";
        return Err(Usage::new(text).into());
    }
    if std::io::stdin().is_terminal() {
        terminal.note(
            "create a bot: write /newbot to @BotFather in Telegram, then paste its token here",
        );
        write!(std::io::stderr(), "token: ")?;
    }
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let token = Token::parse(&line);
    let token = token.ok_or_else(|| Usage::new("that is no token; it looks like 123456:ABC…"))?;
    let (user, name) = run::runtime()?.block_on(async {
        let api = Api::new(bot.service.clone(), token.clone())?;
        let me = api.call("getMe", &json!({})).await?;
        let username = me["username"].as_str().unwrap_or_default().to_owned();
        terminal.note(&format!("now write any message to @{username}"));
        first_writer(&api).await
    })?;
    let table = format!(
        "[telegram]\ntoken = {}\n# {name}\nallowed_users = [{user}]\n",
        projects::toml_text(token.reveal())
    );
    let path = projects::append(file, &table)?;
    let closed = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&path, closed)?;
    terminal.note(&format!(
        "{name} ({user}) may use the bot; written to {}; start it with `takopi telegram`",
        path.display()
    ));
    Ok(exit::OK)
}

/// Who writes first, from now on.
async fn first_writer(api: &Api) -> anyhow::Result<(i64, String)> {
    let mut offset = 0;
    loop {
        for update in api.updates(offset, true).await? {
            offset = update::number(&update).map_or(offset, |number| number + 1);
            if let Update::Message(message) = update::read(&update)
                && message.private
            {
                return Ok((message.user.id, message.user.name));
            }
        }
    }
}

/// Checks token, chats and rights, if there is a table.
pub(crate) async fn doctor(config: &Config) -> Vec<Finding> {
    if config.telegram.is_empty() {
        return Vec::new();
    }
    let hint = "run `takopi telegram setup`, or see docs/telegram.md";
    let problem = |text: String| vec![Finding::problem("telegram", text, hint)];
    let bot = match BotConfig::read(&config.telegram) {
        Ok(bot) => bot,
        Err(error) => return problem(error.to_string()),
    };
    let api = bot
        .token()
        .map_err(|error| error.to_string())
        .and_then(|token| Api::new(bot.service.clone(), token).map_err(|error| error.to_string()));
    let api = match api {
        Ok(api) => api,
        Err(error) => return problem(error),
    };
    let me = match api.call("getMe", &json!({})).await {
        Ok(me) => me,
        Err(error) => return problem(error.to_string()),
    };
    let name = me["username"].as_str().unwrap_or_default();
    let mut findings =
        vec![Finding::ok("telegram", format!("@{name}, {} allowed", bot.allowed_users.len()))];
    if bot.allowed_users.is_empty() {
        findings = problem("nobody is allowed to use the bot".to_owned());
    }
    for chat in &bot.chats {
        findings.push(chat_finding(&api, *chat, &me).await);
    }
    findings
}

async fn chat_finding(api: &Api, chat: i64, me: &Value) -> Finding {
    let params = json!({ "chat_id": chat, "user_id": me["id"] });
    match api.call("getChatMember", &params).await {
        Ok(member) => match member["status"].as_str().unwrap_or_default() {
            "left" | "kicked" => Finding::problem(
                "telegram",
                format!("the bot is not in chat {chat}"),
                "add it to the group",
            ),
            status => Finding::ok("telegram", format!("chat {chat}: {status}")),
        },
        Err(error) => {
            let hint = "check the id with /ctx in the group, and add the bot to it";
            Finding::problem("telegram", format!("chat {chat}: {error}"), hint)
        }
    }
}
