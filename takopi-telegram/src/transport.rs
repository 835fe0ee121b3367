//! The bridge's messages in Telegram.
//!
//! Promises:
//! - a text is sent as plain text with entities, so none can fail to parse; one that is longer than Telegram
//!   allows is cut, which the limit of the bridge prevents;
//! - calls keep to the [rate](crate::rate) of the service;
//! - a message is sent exactly once, though responses are lost (`delivery`);
//! - what the service refuses for good, as a bot that is blocked, is not tried again;
//! - the messages of running jobs are stored, so that the next start can close those that a crash left open.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use takopi_bridge::present::Limit;
use takopi_bridge::present::markup::{Entity, RichText};
use takopi_bridge::{
    Content, Kind, MessageId, MessageRef, Outgoing, Place, Transport, TransportError,
};

use crate::api::{Api, ApiError, retried};
use crate::delivery::{Delivery, Unconfirmed};
use crate::files;
use crate::rate::{Rate, Urgency};
use crate::state::{Store, Stored, message_key, read_message_key};

/// The longest text of a message, in UTF-16 units.
pub const LIMIT: usize = 4096;
/// How many entities of a message count.
const ENTITIES: usize = 100;
/// How often the message of an interrupted run is edited before that is left to the next start.
const CLOSING: usize = 5;
/// How often a file is sent.
const FILE_ATTEMPTS: usize = 5;
/// The first pause before a message is sent again.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Of how many messages the place is remembered.
const REMEMBERED: usize = 10_000;

/// The chat service of a bridge.
#[derive(Debug)]
pub struct Telegram {
    pub(crate) api: Api,
    pub(crate) rate: Rate,
    store: Arc<Store>,
    seen: Mutex<Seen>,
    pub(crate) unconfirmed: Unconfirmed,
}

/// What is known of messages.
#[derive(Debug, Default)]
struct Seen {
    /// The newest message of each group; private chats count together.
    newest: HashMap<i64, i64>,
    /// The places of messages of the bot, each with the message that it answers.
    places: HashMap<(i64, i64), (Place, i64)>,
    /// In the order they came.
    order: std::collections::VecDeque<(i64, i64)>,
}

/// The name of a place in the state: `chat` or `chat:topic`.
pub(crate) fn place_key(place: &Place) -> String {
    match &place.thread {
        Some(thread) => format!("{}:{thread}", place.chat),
        None => place.chat.clone(),
    }
}

impl Telegram {
    /// Over this API, at this rate.
    pub fn new(api: Api, rate: Rate, store: Arc<Store>) -> Self {
        let newest = store.read(newest);
        let seen = Seen { newest, ..Seen::default() };
        Self { api, rate, store, seen: Mutex::new(seen), unconfirmed: Unconfirmed::default() }
    }

    /// A message of this id was seen in a chat.
    pub(crate) fn saw(&self, chat: i64, message: i64) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = seen.newest.entry(counter(chat)).or_default();
        *newest = (*newest).max(message);
    }

    /// The newest message that was seen in a chat.
    pub(crate) fn newest(&self, chat: i64) -> i64 {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.newest.get(&counter(chat)).copied().unwrap_or_default()
    }

    /// Whether a message is one of the bot that was confirmed.
    pub(crate) fn is_known(&self, chat: i64, message: i64) -> bool {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.places.contains_key(&(chat, message))
    }

    fn remember(&self, chat: i64, message: i64, place: &Place, answers: i64) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.places.insert((chat, message), (place.clone(), answers));
        seen.order.push_back((chat, message));
        if seen.order.len() > REMEMBERED
            && let Some(oldest) = seen.order.pop_front()
        {
            seen.places.remove(&oldest);
        }
    }

    /// Stores what a restart needs to know of a message.
    fn note(&self, chat: i64, message: i64, content: &Content) {
        let key = message_key(chat, message);
        let place = {
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.places.get(&(chat, message)).cloned()
        };
        let footer = content.footer.clone().unwrap_or_default();
        self.store.change(|stored| {
            // A reply to it is read back from its text if that has the lines. A request and its diffs have none.
            let is_part = content.kind == Kind::Final && !content.text.ends_with(&footer);
            let is_request = content.kind == Kind::Question && stored.part(chat, message).is_none();
            if is_part || is_request {
                stored.parts.push_back((key.clone(), footer.clone()));
            }
            // What shows a running job or waits for a press: nobody handles either after a crash.
            if is_progress(content) || !content.buttons.is_empty() {
                stored.open.insert(key, footer.clone());
            } else {
                stored.open.remove(&key);
            }
            if content.resume_line.is_some()
                && let Some((place, answers)) = place
            {
                let place = place_key(&place);
                // Not used anew by every edit: each would write the file.
                let is_edit = content.kind != Kind::Final && stored.places.contains_key(&place);
                let state = if is_edit {
                    stored.places.entry(place).or_default()
                } else {
                    stored.used(place)
                };
                // An answer that arrives late does not end the conversation that was begun meanwhile.
                if answers >= state.begun {
                    state.footer = Some(footer);
                }
            }
        });
    }

    /// Sends a notice of the bot itself.
    pub(crate) async fn notice(&self, place: &Place, reply_to: i64, text: &str) {
        let content = Content::new(Kind::Notice, text);
        let message = Outgoing::new(place.clone(), content)
            .reply_to(MessageId::from(reply_to.to_string()))
            .silent(true);
        for attempt in 0..3_u32 {
            match self.send(message.clone()).await {
                Ok(_) => return,
                Err(TransportError::RateLimited { retry_after }) => {
                    tokio::time::sleep(retry_after.min(Duration::from_secs(30))).await;
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot send a notice");
                    if matches!(error, TransportError::Closed(_)) {
                        return;
                    }
                    tokio::time::sleep(Duration::from_secs(1 << attempt)).await;
                }
            }
        }
    }

    /// Sends a file. It is sent again only if it certainly did not arrive.
    pub(crate) async fn send_file(
        &self,
        chat: i64,
        params: &Value,
        file: &files::Outgoing,
    ) -> Result<(), ApiError> {
        let mut attempts = FILE_ATTEMPTS;
        loop {
            self.rate.wait(chat, Urgency::Message).await;
            let error = match self.api.upload(params, &file.name, file.bytes.clone()).await {
                Ok(sent) => {
                    self.saw(chat, sent["message_id"].as_i64().unwrap_or_default());
                    return Ok(());
                }
                Err(error) => error,
            };
            attempts -= 1;
            let unsent = matches!(error, ApiError::Lost { unsent: true, .. });
            if attempts == 0 || !(unsent || error.retry_after().is_some()) {
                return Err(error);
            }
            tokio::time::sleep(error.retry_after().unwrap_or(FIRST_PAUSE)).await;
        }
    }

    /// Edits the messages and questions of jobs that a crash cut short. The last lines stay, so that a reply resumes the
    /// session.
    pub async fn close_open_messages(&self) {
        let open = self.store.read(|stored| stored.open.clone());
        for (key, footer) in open {
            if let Some((chat, message)) = read_message_key(&key) {
                let next = if footer.is_empty() { "" } else { "; reply to go on\n\n" };
                let text =
                    format!("interrupted: takopi was restarted while this ran{next}{footer}");
                let mut params = body(&Content::new(Kind::Final, text));
                params["chat_id"] = chat.into();
                params["message_id"] = message.into();
                self.rate.wait(chat, Urgency::Message).await;
                let edited = retried(CLOSING, || self.api.call("editMessageText", &params)).await;
                // A message that is gone, or in a chat that the bot has left, is never closed.
                if let Err(error) = edited
                    && !error.is_lasting()
                {
                    tracing::warn!(%error, "cannot close the message of an interrupted run");
                    continue;
                }
            }
            self.store.change(|stored| stored.open.remove(&key));
        }
    }
}

/// The newest message of each group that the state names: a press on an older one is on no message that is
/// still on its way.
fn newest(stored: &Stored) -> HashMap<i64, i64> {
    let mut newest: HashMap<i64, i64> = HashMap::new();
    for key in stored.open.keys().chain(stored.parts.iter().map(|part| &part.0)) {
        if let Some((chat, message)) = read_message_key(key) {
            let known = newest.entry(counter(chat)).or_default();
            *known = message.max(*known);
        }
    }
    newest
}

/// Private chats share the numbers of their messages; a group has its own.
fn counter(chat: i64) -> i64 {
    chat.min(0)
}

/// Text, entities and buttons, as the API wants them.
fn body(content: &Content) -> Value {
    let rich = RichText::from_markdown(&content.text);
    let rich = rich.split(Limit::Utf16(LIMIT)).into_iter().next().unwrap_or_default();
    let shown = rich.telegram();
    let entities: Vec<Value> = shown.entities.iter().take(ENTITIES).map(Entity::to_json).collect();
    let text = if shown.text.trim().is_empty() { "…".to_owned() } else { shown.text };
    let button = |press: &takopi_bridge::Press| json!([{ "text": press.label(), "callback_data": press.to_string() }]);
    let rows: Vec<Value> = content.buttons.iter().map(button).collect();
    json!({
        "text": text,
        "entities": entities,
        "reply_markup": { "inline_keyboard": rows },
        "link_preview_options": { "is_disabled": true },
    })
}

pub(crate) fn failure(error: ApiError) -> TransportError {
    if let Some(retry_after) = error.retry_after() {
        return TransportError::RateLimited { retry_after };
    }
    let gone =
        ["message to edit not found", "message to be replied not found", "MESSAGE_ID_INVALID"];
    if gone.iter().any(|text| error.says(text)) {
        return TransportError::Gone;
    }
    // The token was revoked, a person has blocked the bot, a group has removed it, …
    if error.is_lasting() {
        return TransportError::Closed(error.to_string());
    }
    TransportError::failed(error)
}

/// Whether a message shows a job that is not over.
fn is_progress(content: &Content) -> bool {
    matches!(content.kind, Kind::Queued | Kind::Progress)
}

fn number(text: &str) -> Result<i64, TransportError> {
    text.parse().map_err(TransportError::failed)
}

impl Transport for Telegram {
    async fn send(&self, message: Outgoing) -> Result<MessageId, TransportError> {
        let chat = number(&message.place.chat)?;
        let content = body(&message.content);
        let mut params = content.clone();
        params["chat_id"] = chat.into();
        params["disable_notification"] = message.silent.into();
        if let Some(topic) = &message.place.thread {
            params["message_thread_id"] = number(topic)?.into();
        }
        if let Some(replied) = &message.reply_to {
            params["reply_parameters"] = json!({ "message_id": number(replied.as_str())? });
        }
        let mut key = params.clone();
        if is_progress(&message.content)
            && let Some(key) = key.as_object_mut()
        {
            // What it shows may have changed when it is sent again.
            key.retain(|name, _| content.get(name).is_none());
        }
        let id = self.send_once(&Delivery { chat, params, content, key }).await?;
        self.saw(chat, id);
        let answers = message.reply_to.as_ref().and_then(|it| it.as_str().parse().ok());
        self.remember(chat, id, &message.place, answers.unwrap_or(id));
        self.note(chat, id, &message.content);
        Ok(MessageId::from(id.to_string()))
    }

    async fn edit(&self, message: MessageRef, content: Content) -> Result<(), TransportError> {
        let (chat, id) = (number(&message.chat)?, number(message.message.as_str())?);
        let urgency = if is_progress(&content) { Urgency::Progress } else { Urgency::Message };
        if !self.rate.wait(chat, urgency).await {
            return Err(TransportError::failed("progress waits for the rate limit of the chat"));
        }
        let mut params = body(&content);
        params["chat_id"] = chat.into();
        params["message_id"] = id.into();
        match self.api.call("editMessageText", &params).await {
            Ok(_) => {}
            Err(error) if error.says("message is not modified") => {}
            Err(error) => return Err(failure(error)),
        }
        self.note(chat, id, &content);
        Ok(())
    }

    async fn delete(&self, message: MessageRef) -> Result<(), TransportError> {
        let (chat, id) = (number(&message.chat)?, number(message.message.as_str())?);
        self.rate.wait(chat, Urgency::Message).await;
        let params = json!({ "chat_id": chat, "message_id": id });
        match self.api.call("deleteMessage", &params).await {
            Ok(_) => {}
            Err(error) if error.says("message to delete not found") => {}
            Err(error) => return Err(failure(error)),
        }
        self.store.change(|stored| stored.open.remove(&format!("{chat}/{id}")));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_plain_text_with_entities_and_short_button_data() {
        let press = takopi_bridge::Press::Choose(takopi_core::Decision::AcceptForSession);
        let content = Content::new(Kind::Question, "**a** _b_ <i> `c`").buttons([press]);
        let body = body(&content);
        assert_eq!(body["text"], "a b <i> c");
        assert!(body["parse_mode"].is_null());
        let data = &body["reply_markup"]["inline_keyboard"][0][0]["callback_data"];
        assert!(data.as_str().unwrap().len() <= 64);
    }

    #[test]
    fn the_newest_message_is_known_after_a_restart() {
        let mut stored = Stored::default();
        stored.open.insert("11/50".to_owned(), String::new());
        stored.open.insert("-100/7".to_owned(), String::new());
        stored.parts.push_back(("12/60".to_owned(), String::new()));
        let directory = tempfile::TempDir::new().unwrap();
        let store = Store::open(directory.path().join("state.json")).unwrap();
        store.change(|it| *it = stored);
        let api = Api::new("http://127.0.0.1:9", crate::Token::parse("1:ABCDEFGHIJKL").unwrap());
        let telegram = Telegram::new(api.unwrap(), Rate::default(), Arc::new(store));
        assert_eq!(telegram.newest(11), 60, "private chats share their numbers");
        assert_eq!((telegram.newest(-100), telegram.newest(-200)), (7, 0));
    }
}
