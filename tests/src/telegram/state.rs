//! What the fake service knows: chats, messages, updates, calls.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use serde_json::{Value, json};

use super::{BOT, BOT_NAME, Room};

/// One call of a client.
#[derive(Debug, Clone)]
pub struct Call {
    /// Its number, from one.
    pub number: usize,
    /// The method; `file` for the download of a file.
    pub method: String,
    /// The parameters.
    pub params: Value,
    /// When it came.
    pub at: Instant,
}

/// A message as a client of a person shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Its id.
    pub id: i64,
    /// Its topic.
    pub topic: Option<i64>,
    /// Whether the bot wrote it.
    pub by_bot: bool,
    /// Its text.
    pub text: String,
    /// The labels of its buttons.
    pub buttons: Vec<String>,
    /// Whether it notified.
    pub notified: bool,
    /// The message it replies to.
    pub reply_to: Option<i64>,
    /// The name of the file it carries, if there is one, and how many bytes that has.
    pub file: Option<(String, usize)>,
    /// How often it was edited.
    pub edits: usize,
}

#[derive(Debug, Clone)]
pub(super) struct Message {
    pub(super) room: Room,
    pub(super) by: i64,
    pub(super) fields: Value,
    pub(super) notified: bool,
    pub(super) edits: usize,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) calls: Vec<Call>,
    pub(super) refusals: Vec<String>,
    messages: BTreeMap<(i64, i64), Message>,
    updates: BTreeMap<i64, Value>,
    last_update: i64,
    /// By counter: a group has its own, private chats share one.
    last_message: BTreeMap<i64, i64>,
    files: Vec<(String, Vec<u8>)>,
    pub(super) polling: usize,
    /// Whether updates go to another program.
    pub(super) webhook: bool,
    pub(super) answered: BTreeSet<String>,
    /// The bot's membership in chats where it is no administrator.
    pub(super) members: BTreeMap<i64, Value>,
}

impl State {
    fn next_message(&mut self, chat: i64) -> i64 {
        let last = self.last_message.entry(chat.min(0)).or_default();
        *last += 1;
        *last
    }

    fn push_update(&mut self, kind: &str, content: &Value) {
        self.last_update += 1;
        let id = self.last_update;
        self.updates.insert(id, json!({ "update_id": id, kind: content }));
    }

    /// The next update gets this number.
    pub(super) fn renumber(&mut self, next: i64) {
        self.last_update = next - 1;
    }

    /// The updates from an offset; those before it are confirmed. A negative one counts from the end. One that lies
    /// behind everything is of an earlier count, and confirms nothing.
    pub(super) fn updates_from(&mut self, offset: i64) -> Vec<Value> {
        let next = self.last_update + 1;
        let offset = match offset {
            ..0 => next + offset,
            _ if offset > next => 0,
            _ => offset,
        };
        self.updates.retain(|id, _| *id >= offset);
        self.updates.values().take(100).cloned().collect()
    }

    pub(super) fn pending(&self) -> usize {
        self.updates.len()
    }

    pub(super) fn receive(&mut self, room: Room, user: i64, mut fields: Value) -> i64 {
        let id = self.next_message(room.chat);
        // The service marks what a text mentions, whoever wrote it.
        for (text, entities) in [("text", "entities"), ("caption", "caption_entities")] {
            let mentions = fields[text].as_str().map(mentions).unwrap_or_default();
            if fields[entities].is_null() && !mentions.is_empty() {
                fields[entities] = mentions.into();
            }
        }
        let message = Message { room, by: user, fields, notified: true, edits: 0 };
        self.messages.insert((room.chat, id), message);
        let content = self.message_json(room.chat, id);
        self.push_update("message", &content);
        id
    }

    pub(super) fn press(&mut self, chat: i64, message: i64, data: &str, user: i64) {
        let content = json!({
            "id": format!("press-{}", self.last_update + 1),
            "from": user_json(user),
            "message": self.message_json(chat, message),
            "chat_instance": "1",
            "data": data,
        });
        self.push_update("callback_query", &content);
    }

    pub(super) fn button(&self, chat: i64, message: i64, label: &str) -> Option<String> {
        let fields = &self.messages.get(&(chat, message))?.fields;
        let found = buttons(fields).into_iter().find(|button| button["text"] == label)?;
        Some(found["callback_data"].as_str()?.to_owned())
    }

    pub(super) fn message_json(&self, chat: i64, id: i64) -> Value {
        let mut json = json!({ "message_id": id, "date": 1_700_000_000, "chat": chat_json(chat) });
        let Some(message) = self.messages.get(&(chat, id)) else { return json };
        json["from"] = user_json(message.by);
        if let Some(topic) = message.room.topic {
            json["message_thread_id"] = topic.into();
            json["is_topic_message"] = true.into();
        }
        for (name, value) in message.fields.as_object().into_iter().flatten() {
            json[name] = value.clone();
        }
        json
    }

    pub(super) fn exists(&self, chat: i64, id: i64) -> bool {
        self.messages.contains_key(&(chat, id))
    }

    pub(super) fn get(&mut self, chat: i64, id: i64) -> Option<&mut Message> {
        self.messages.get_mut(&(chat, id))
    }

    pub(super) fn send(&mut self, room: Room, fields: Value, notified: bool) -> Value {
        let id = self.next_message(room.chat);
        let message = Message { room, by: BOT, fields, notified, edits: 0 };
        self.messages.insert((room.chat, id), message);
        self.message_json(room.chat, id)
    }

    pub(super) fn delete(&mut self, chat: i64, id: i64) -> bool {
        self.messages.remove(&(chat, id)).is_some()
    }

    pub(super) fn add_file(&mut self, name: &str, bytes: &[u8]) -> String {
        self.files.push((name.to_owned(), bytes.to_vec()));
        format!("file-{}", self.files.len() - 1)
    }

    pub(super) fn file(&self, id: &str) -> Option<&(String, Vec<u8>)> {
        self.files.get(id.strip_prefix("file-")?.parse::<usize>().ok()?)
    }

    pub(super) fn shown(&self, chat: i64) -> Vec<Shown> {
        let of_chat = self.messages.range((chat, 0)..(chat, i64::MAX));
        of_chat.map(|((_, id), message)| show(*id, message)).collect()
    }

    pub(super) fn all(&self) -> Vec<(i64, Shown)> {
        self.messages.iter().map(|((chat, id), message)| (*chat, show(*id, message))).collect()
    }
}

/// The users that a text mentions, as entities: their places are in UTF-16 units.
fn mentions(text: &str) -> Vec<Value> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (at, _) in text.match_indices('@') {
        // `/help@some_bot` and `mail@example.org` mention nobody.
        let alone = !text[..at].chars().next_back().is_some_and(char::is_alphanumeric);
        let name: String = text[at + 1..].chars().take_while(|c| is_name(*c)).collect();
        if alone && name.len() >= 5 {
            let offset = text[..at].encode_utf16().count();
            found.push(json!({ "type": "mention", "offset": offset, "length": name.len() + 1 }));
        }
    }
    found
}

fn buttons(fields: &Value) -> Vec<Value> {
    let rows = fields["reply_markup"]["inline_keyboard"].as_array().cloned().unwrap_or_default();
    rows.iter().filter_map(Value::as_array).flatten().cloned().collect()
}

fn show(id: i64, message: &Message) -> Shown {
    let fields = &message.fields;
    let label = |button: &Value| button["text"].as_str().unwrap_or_default().to_owned();
    let document = &fields["document"];
    let size = document["file_size"].as_u64().unwrap_or_default();
    let file = document["file_name"].as_str();
    Shown {
        id,
        topic: message.room.topic,
        by_bot: message.by == BOT,
        text: fields["text"].as_str().or(fields["caption"].as_str()).unwrap_or_default().to_owned(),
        buttons: buttons(fields).iter().map(label).collect(),
        notified: message.notified,
        reply_to: fields["reply_parameters"]["message_id"].as_i64(),
        file: file.map(|name| (name.to_owned(), usize::try_from(size).unwrap())),
        edits: message.edits,
    }
}

pub(super) fn user_json(id: i64) -> Value {
    if id == BOT {
        return json!({ "id": BOT, "is_bot": true, "first_name": "takopi", "username": BOT_NAME,
            "can_read_all_group_messages": false });
    }
    let name = format!("user{id}");
    json!({ "id": id, "is_bot": false, "first_name": name, "username": name })
}

pub(super) fn chat_json(chat: i64) -> Value {
    if chat < 0 {
        json!({ "id": chat, "type": "supergroup", "title": "a group", "is_forum": true })
    } else {
        json!({ "id": chat, "type": "private", "first_name": format!("user{chat}") })
    }
}
