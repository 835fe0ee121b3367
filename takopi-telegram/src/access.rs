//! Who is answered.
//!
//! Promises:
//! - only allowed users are answered, in their private chats and in the configured groups. Anybody else causes
//!   a log line and nothing else, also by pressing buttons or forging their data;
//! - a press counts for the message that the button is on, whatever its data says;
//! - in a group the bot answers what is meant for it, unless it is set to answer everything.

use std::ops::Range;
use std::time::Duration;

use serde_json::json;
use takopi_bridge::{MessageId, Press as Button, PressOutcome};

use crate::bot::Bot;
use crate::config::Trigger;
use crate::update::{Message, Origin, Press, User};

/// How often and how long a press waits for its message to be known.
const PRESS_RETRIES: usize = 10;
/// … and if no response has named a message as new as that yet.
const LONG_PRESS_RETRIES: usize = 300;
const PRESS_PAUSE: Duration = Duration::from_millis(100);

impl Bot {
    pub(crate) fn is_allowed(&self, user: &User, place: &Origin) -> bool {
        let topic = place.topic.map(|topic| topic.to_string());
        let bound = || self.projects.of_chat(&place.chat.to_string(), topic.as_deref()).is_some();
        let chat_allowed = place.private || self.config.chats.contains(&place.chat) || bound();
        self.config.allowed_users.contains(&user.id) && chat_allowed
    }

    pub(crate) async fn press(&self, press: &Press) {
        if !self.is_allowed(&press.user, &press.origin) {
            tracing::warn!(
                user = press.user.id,
                chat = press.origin.chat,
                "a press by somebody who is not allowed"
            );
            return;
        }
        // The data names no chat and no message: they are those of the message with the button.
        let text = if let Ok(button) = press.data.parse::<Button>() {
            let message =
                MessageId::from(press.message.to_string()).at(press.origin.chat.to_string());
            let mut outcome = self.bridge.press(&message, button, &press.user.name);
            // People may press before the response with the id of the message is here.
            let is_under_way = press.message > self.transport.newest(press.origin.chat);
            let retries = if is_under_way { LONG_PRESS_RETRIES } else { PRESS_RETRIES };
            for _ in 0..retries {
                if outcome != PressOutcome::UnknownMessage {
                    break;
                }
                tokio::time::sleep(PRESS_PAUSE).await;
                outcome = self.bridge.press(&message, button, &press.user.name);
            }
            outcome.to_string()
        } else {
            tracing::warn!(user = press.user.id, "a press with unknown data");
            "unknown button".to_owned()
        };
        let text: String = text.chars().take(200).collect();
        let params = json!({ "callback_query_id": press.id, "text": text });
        if let Err(error) = self.api.call("answerCallbackQuery", &params).await {
            tracing::warn!(%error, "cannot answer a press");
        }
    }

    /// Whether a message is for the bot; takes the mention off its text.
    pub(crate) fn take_mention(&self, message: &mut Message) -> bool {
        let replies = message.reply.as_ref().is_some_and(|reply| reply.by == self.me.id);
        let first = message.text.split_whitespace().next().unwrap_or_default().to_lowercase();
        // A private chat has no other bot.
        if !message.origin.private
            && let Some(bot) = commanded_bot(&first)
            && format!("@{bot}") != self.me.mention
        {
            return false;
        }
        let is_me = |range: &Range<usize>| {
            message.text.get(range.clone()).is_some_and(|it| it.to_lowercase() == self.me.mention)
        };
        let mentioned = message.mentions.iter().find(|range| is_me(range)).cloned();
        let is_mentioned = mentioned.is_some();
        if let Some(mention) = mentioned.filter(|_| !first.starts_with('/')) {
            message.text.replace_range(mention, "");
            message.text = message.text.trim().to_owned();
        }
        message.origin.private
            || self.config.trigger == Trigger::All
            || replies
            || is_mentioned
            || first.starts_with('/')
    }
}

/// The bot that a word commands: `/help@some_bot`. Paths may have an `@` too.
fn commanded_bot(word: &str) -> Option<&str> {
    let (name, bot) = word.strip_prefix('/')?.split_once('@')?;
    let is_plain = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    (is_plain(name) && is_plain(bot)).then_some(bot)
}
