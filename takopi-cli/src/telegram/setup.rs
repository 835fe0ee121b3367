//! `takopi telegram setup`: from a token to a configuration.
//!
//! Promises:
//! - the token is shown nowhere: not while it is typed, and not in an error;
//! - who wrote before the setup began is not asked about: the bot may have been found by a stranger. On a
//!   terminal nobody is allowed without a yes;
//! - the file with the token is readable by its owner alone before the token is in it.

use std::io::{self, BufRead as _, IsTerminal as _};
use std::path::Path;

use anyhow::Context as _;
use clap::Args;
use serde_json::json;
use takopi_telegram::api::{SERVICE, retried};
use takopi_telegram::update::{self, Update, User};
use takopi_telegram::{Api, BotError, Token};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::config::{self, Access, Config};
use crate::exit::{self, Usage};
use crate::terminal::{Terminal, write_error};
use crate::{keys, projects, run, signals};

/// How often a call is tried when the service is down for a moment.
const ATTEMPTS: usize = 5;

#[derive(Debug, Args)]
pub(crate) struct SetupArgs {
    /// The address of a Bot API server of your own; it is written to the configuration
    #[arg(long, value_name = "URL", default_value = SERVICE, hide_default_value = true)]
    service: String,
}

pub(super) fn main(
    args: &SetupArgs,
    config: &Config,
    file: Option<&Path>,
    terminal: Terminal,
) -> anyhow::Result<u8> {
    check_free(config)?;
    let service = args.service.trim_end_matches('/').to_owned();
    run::runtime()?.block_on(async {
        let stop = CancellationToken::new();
        let received = signals::watch(stop.clone())?;
        let asked = tokio::select! {
            () = stop.cancelled() => None,
            asked = ask(&service, terminal) => Some(asked),
        };
        keys::restore();
        let Some(asked) = asked else {
            write_error("\n");
            let signal = *received.borrow();
            return Ok(signal.map_or(exit::FAILED, signals::Signal::code));
        };
        let (token, user) = asked?;
        let own = match service.as_str() {
            SERVICE => String::new(),
            own => format!("service = {}\n", projects::toml_text(own)),
        };
        let secret = projects::toml_text(token.reveal());
        let (name, id) = (&user.name, user.id);
        let table =
            format!("[telegram]\ntoken = {secret}\n{own}# {name}\nallowed_users = [{id}]\n");
        let path = config::append(file, &table, Access::Owner, check_free)?;
        terminal.note(&format!(
            "{name} ({id}) may use the bot; written to {}; start it with `takopi telegram`",
            path.display()
        ));
        Ok(exit::OK)
    })
}

fn check_free(config: &Config) -> Result<(), Usage> {
    if config.telegram.is_empty() {
        return Ok(());
    }
    let text = "the configuration has a table [telegram] already; edit that, or remove it first";
    Err(Usage::new(text))
}

/// The token, and who may use the bot.
async fn ask(service: &str, terminal: Terminal) -> anyhow::Result<(Token, User)> {
    let interactive = io::stdin().is_terminal();
    if interactive {
        terminal.note(
            "create a bot: write /newbot to @BotFather in Telegram, then paste its token here \
             (it is not shown)",
        );
        keys::hide();
        write_error("token: ");
    }
    let typed = line().await;
    if interactive {
        keys::restore();
        write_error("\n");
    }
    let token = Token::parse(&typed?.unwrap_or_default());
    let token = token.ok_or_else(|| Usage::new("that is no token; it looks like 123456:ABC…"))?;
    let api = Api::new(service, token.clone())?;
    let nothing = json!({});
    let me = retried(ATTEMPTS, || api.call("getMe", &nothing)).await.map_err(BotError::from)?;
    let username = me["username"].as_str().unwrap_or_default().to_owned();
    // A bot that another program used may have one; then the service delivers updates nowhere else.
    retried(ATTEMPTS, || api.call("deleteWebhook", &nothing)).await?;
    // What is pending was written before.
    let pending = retried(ATTEMPTS, || api.updates(-1, false)).await?;
    let mut offset = pending.last().and_then(update::number).map_or(0, |number| number + 1);
    terminal.note(&format!("now write any message to @{username}"));
    loop {
        let user = next_writer(&api, &mut offset).await?;
        if interactive {
            write_error(&format!("{} ({}) wrote. Is that you? [Y/n] ", user.name, user.id));
            // The end of the input is no empty line: nobody pressed Enter.
            let answer = line().await?.context("standard input has ended; nobody was allowed")?;
            if !matches!(answer.trim().to_lowercase().as_str(), "" | "y" | "yes") {
                terminal.note(&format!("waiting for another message to @{username}"));
                continue;
            }
        }
        // Confirms the message: it was no prompt.
        retried(ATTEMPTS, || api.updates(offset, false)).await?;
        return Ok((token, user));
    }
}

/// A line of standard input, `None` at its end. The thread that waits for it does not keep the process from exiting.
async fn line() -> io::Result<Option<String>> {
    let (sender, line) = oneshot::channel();
    std::thread::Builder::new().name("takopi-setup".to_owned()).spawn(move || {
        let mut line = String::new();
        let read = io::stdin().lock().read_line(&mut line);
        let _ = sender.send(read.map(|length| (length > 0).then_some(line)));
    })?;
    line.await.unwrap_or_else(|_| Err(io::ErrorKind::UnexpectedEof.into()))
}

/// Who writes next in a private chat.
async fn next_writer(api: &Api, offset: &mut i64) -> anyhow::Result<User> {
    loop {
        let from = *offset;
        for update in retried(ATTEMPTS, || api.updates(from, true)).await? {
            *offset = update::number(&update).map_or(*offset, |number| number + 1);
            if let Update::Message(message) = update::read(&update)
                && message.origin.private
            {
                return Ok(message.user);
            }
        }
    }
}
