//! Sends a message exactly once, though responses are lost.
//!
//! Promises:
//! - a message that may have arrived is looked for before it is sent again: the bot edits the messages that may be
//!   it, which succeeds only on its own. It is sent again only when the service has said that it is not there;
//! - while the service does not say that, the search goes on, for a bounded time; then the call fails. The next call
//!   for the message goes on with the search, also behind a call that was dropped;
//! - the messages of a chat are sent one at a time, and none while it is unknown whether the one before it arrived.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use takopi_bridge::TransportError;
use tokio::time::{Instant, sleep};

use crate::api::ApiError;
use crate::rate::Urgency;
use crate::transport::{FIRST_PAUSE, Telegram, failure};

/// How many ids are tried behind the newest known message to find one whose response was lost.
const SEARCHED: i64 = 6;
/// How many ids are tried in all.
const LONGEST_SEARCH: i64 = 40;
/// How long a call looks for a message while the service does not respond.
const LOOKING: Duration = Duration::from_mins(1);
/// The longest pause before a message is sent again.
const LONGEST_PAUSE: Duration = Duration::from_secs(16);
/// How many messages are remembered that were found for another call.
const FOUND: usize = 100;

/// A message on its way.
pub(crate) struct Delivery {
    pub(crate) chat: i64,
    /// The parameters of the call.
    pub(crate) params: Value,
    /// Those that an edit takes too.
    pub(crate) content: Value,
    /// What is the same in every call for this message.
    pub(crate) key: Value,
}

/// The messages that may have arrived.
#[derive(Debug, Default)]
pub(crate) struct Unconfirmed {
    state: Mutex<State>,
    /// Who sends in a chat.
    turns: Mutex<HashMap<i64, Arc<tokio::sync::Mutex<()>>>>,
}

#[derive(Debug, Default)]
struct State {
    /// By chat: the message whose response is not here.
    open: HashMap<i64, Attempt>,
    /// Messages that were found, for the next call: chat, key, id. At most [`FOUND`].
    found: VecDeque<(i64, Value, i64)>,
}

#[derive(Debug, Clone)]
struct Attempt {
    key: Value,
    content: Value,
    /// The newest message of the chat when it was sent.
    before: i64,
}

impl Unconfirmed {
    fn state<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn turn(&self, chat: i64) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        turns.entry(chat).or_default().clone()
    }

    /// Whether a message is known to be another one.
    fn is_found(&self, chat: i64, message: i64) -> bool {
        self.state(|state| state.found.iter().any(|it| it.0 == chat && it.2 == message))
    }

    fn take_found(&self, chat: i64, key: &Value) -> Option<i64> {
        self.state(|state| {
            let at = state.found.iter().position(|it| it.0 == chat && it.1 == *key)?;
            state.found.remove(at).map(|it| it.2)
        })
    }

    /// The message of a chat is there, or certainly not.
    fn settle(&self, chat: i64, found: Option<i64>) {
        self.state(|state| {
            if let (Some(attempt), Some(id)) = (state.open.remove(&chat), found) {
                state.found.push_back((chat, attempt.key, id));
            }
            if state.found.len() > FOUND {
                state.found.pop_front();
            }
        });
    }
}

impl Telegram {
    /// Sends a message until there is a response. It keeps its place before the next message of the chat
    /// meanwhile, so that answers stay in order.
    pub(crate) async fn send_once(&self, message: &Delivery) -> Result<i64, TransportError> {
        let Delivery { chat, params, content, key } = message;
        let chat = *chat;
        let turn = self.unconfirmed.turn(chat);
        let _turn = turn.lock().await;
        let deadline = Instant::now() + LOOKING;
        let mut pause = FIRST_PAUSE;
        loop {
            self.settle(message, deadline).await?;
            if let Some(found) = self.unconfirmed.take_found(chat, key) {
                return Ok(found);
            }
            self.rate.wait(chat, Urgency::Message).await;
            let (key, content) = (key.clone(), content.clone());
            let attempt = Attempt { key, content, before: self.newest(chat) };
            // Stays there if this future is dropped.
            self.unconfirmed.state(|state| state.open.insert(chat, attempt));
            let error = match self.api.call("sendMessage", params).await {
                Ok(sent) => match sent["message_id"].as_i64() {
                    Some(id) => {
                        self.unconfirmed.settle(chat, None);
                        return Ok(id);
                    }
                    None => return Err(TransportError::failed("sendMessage: no message id")),
                },
                Err(error) => error,
            };
            let refused = matches!(error, ApiError::Refused { .. });
            if refused || matches!(error, ApiError::Lost { unsent: true, .. }) {
                self.unconfirmed.settle(chat, None);
            }
            if refused || pause > LONGEST_PAUSE {
                return Err(failure(error));
            }
            sleep(pause).await;
            pause *= 2;
        }
    }

    /// Finds out whether the message of a chat arrived whose response is not here. `Err` if that stays unknown.
    async fn settle(&self, next: &Delivery, deadline: Instant) -> Result<(), TransportError> {
        let chat = next.chat;
        let open = self.unconfirmed.state(|state| state.open.get(&chat).cloned());
        if let Some(mut attempt) = open {
            if attempt.key == next.key {
                attempt.content.clone_from(&next.content);
            }
            let found = self.find(chat, &attempt, deadline).await?;
            if let Some(id) = found {
                self.saw(chat, id);
            }
            self.unconfirmed.settle(chat, found);
        }
        Ok(())
    }

    /// Looks for a message whose response was lost: an edit to the same content succeeds, or changes
    /// nothing, if a message is the bot's own and new.
    async fn find(
        &self,
        chat: i64,
        attempt: &Attempt,
        deadline: Instant,
    ) -> Result<Option<i64>, TransportError> {
        let before = attempt.before;
        // Private chats share their numbers: those of others may have come in between.
        let newest = self.newest(chat).max(before);
        for message in before + 1..=(newest + SEARCHED).min(before + LONGEST_SEARCH) {
            if self.is_known(chat, message) || self.unconfirmed.is_found(chat, message) {
                continue;
            }
            let mut params = attempt.content.clone();
            params["chat_id"] = chat.into();
            params["message_id"] = message.into();
            loop {
                self.rate.wait(chat, Urgency::Message).await;
                let error = match self.api.call("editMessageText", &params).await {
                    Ok(_) => return Ok(Some(message)),
                    Err(error) if error.says("message is not modified") => {
                        return Ok(Some(message));
                    }
                    Err(error) if error.code() == Some(400) => break,
                    Err(error) => error,
                };
                // Until the service says, the message may be there. The rate of the chat bounds the calls.
                let wait = error.retry_after().unwrap_or_default();
                if error.is_lasting() || Instant::now() + wait >= deadline {
                    return Err(failure(error));
                }
                sleep(wait).await;
            }
        }
        Ok(None)
    }
}
