//! What `takopi doctor` checks of Telegram: the token, who is allowed, and the bot's rights in every group.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use takopi_core::catalog::Finding;
use takopi_projects::Projects;
use takopi_telegram::{Api, BotError, Config as BotConfig, Trigger};

use crate::config::Config;

const CHECK: &str = "telegram";

/// Checks the table `[telegram]`, if there is one.
pub(crate) async fn doctor(config: &Config) -> Vec<Finding> {
    if config.telegram.is_empty() {
        return Vec::new();
    }
    match checked(config).await {
        Ok(findings) => findings,
        Err(error) => {
            let hint = "run `takopi telegram setup`, or see docs/telegram.md";
            vec![Finding::problem(CHECK, error, hint)]
        }
    }
}

async fn checked(config: &Config) -> Result<Vec<Finding>, String> {
    let bot = BotConfig::read(&config.telegram).map_err(|error| error.to_string())?;
    let token = bot.token().map_err(|error| error.to_string())?;
    let api = Api::new(bot.service.clone(), token).map_err(|error| error.to_string())?;
    let me = api.call("getMe", &json!({})).await;
    let me = me.map_err(|error| BotError::from(error).to_string())?;
    if bot.allowed_users.is_empty() {
        return Err(BotError::NobodyAllowed.to_string());
    }
    let name = me["username"].as_str().unwrap_or_default();
    let users = bot.allowed_users.len();
    let plural = if users == 1 { "" } else { "s" };
    let mut findings = vec![Finding::ok(CHECK, format!("@{name} answers {users} user{plural}"))];
    for group in groups(&bot, &config.projects) {
        let params = json!({ "chat_id": group, "user_id": me["id"] });
        findings.push(match api.call("getChatMember", &params).await {
            Ok(member) => rights(group, &member, &me, bot.trigger),
            Err(error) => {
                let hint = "check the id with /ctx in the group, and add the bot to it";
                Finding::problem(CHECK, format!("chat {group}: {error}"), hint)
            }
        });
    }
    Ok(findings)
}

/// The groups that are answered: those of the table, and those of the projects.
fn groups(bot: &BotConfig, projects: &Projects) -> BTreeSet<i64> {
    let of_projects = projects.iter().flat_map(|project| &project.chats);
    let of_projects =
        of_projects.filter_map(|id| id.split(':').next().and_then(|chat| chat.parse().ok()));
    // Groups have negative ids.
    bot.chats.iter().copied().chain(of_projects).filter(|chat| *chat < 0).collect()
}

fn rights(chat: i64, member: &Value, me: &Value, trigger: Trigger) -> Finding {
    let status = member["status"].as_str().unwrap_or_default();
    let problem =
        |text: &str, hint: &str| Finding::problem(CHECK, format!("chat {chat}: {text}"), hint);
    match status {
        "left" | "kicked" => problem("the bot is not a member", "add it to the group"),
        "restricted" if member["is_member"] == false => {
            problem("the bot is not a member", "add it to the group")
        }
        "restricted" if member["can_send_messages"] == false => {
            problem("the bot may not send messages", "allow it in the permissions of the group")
        }
        // Of a group with `privacy mode`, a plain member sees what is meant for it, and nothing else.
        "member" | "restricted"
            if trigger == Trigger::All && me["can_read_all_group_messages"] != true =>
        {
            let text = format!("chat {chat}: the bot sees only mentions, replies and commands");
            let hint = "for trigger = \"all\", write /setprivacy to @BotFather and add the bot to the group \
                        again, or make it an administrator";
            Finding::note(CHECK, text, hint)
        }
        status => Finding::ok(CHECK, format!("chat {chat}: {status}")),
    }
}
