//! What the service delivers, as far as a bot needs it. What is unknown is ignored.

use std::ops::Range;

use serde_json::Value;
use takopi_bridge::Place;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Update {
    /// A person wrote.
    Message(Box<Message>),
    /// A person pressed a button.
    Press(Press),
    /// Anything else.
    Other,
}

/// A person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The id.
    pub id: i64,
    /// The name, for people.
    pub name: String,
}

/// Where something happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The chat.
    pub chat: i64,
    /// The topic in it.
    pub topic: Option<i64>,
    /// Whether the chat is a private one.
    pub private: bool,
}

impl Origin {
    /// The place of a bridge.
    pub(crate) fn place(&self) -> Place {
        let place = Place::new(self.chat.to_string());
        match self.topic {
            Some(topic) => place.thread(topic.to_string()),
            None => place,
        }
    }
}

/// A message of a person.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    /// Its id.
    pub id: i64,
    /// Where it was written.
    pub origin: Origin,
    /// Its author.
    pub user: User,
    /// Its text, or the caption of its file.
    pub text: String,
    /// Where its text mentions users, in bytes: `@name`.
    pub mentions: Vec<Range<usize>>,
    /// Whether it was forwarded.
    pub forwarded: bool,
    /// The message it replies to.
    pub reply: Option<Reply>,
    /// The file that it carries.
    pub file: Option<Attachment>,
}

// Not derived, so that texts of people are never logged.
impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Message")
            .field("chat", &self.origin.chat)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// The message that another one replies to.
#[derive(Clone, PartialEq, Eq)]
pub struct Reply {
    /// Its id.
    pub id: i64,
    /// Its text.
    pub text: String,
    /// The id of its author.
    pub by: i64,
}

/// A file of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// The id for the download.
    pub id: String,
    /// Its name, as the sender gave it.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
}

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A photo.
    Image,
    /// Any file.
    Document,
    /// A voice note.
    Voice,
}

/// A button that was pressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Press {
    /// The id of the press, to answer it.
    pub id: String,
    /// Who pressed.
    pub user: User,
    /// Where the message with the button is.
    pub origin: Origin,
    /// The message.
    pub message: i64,
    /// The data of the button.
    pub data: String,
}

/// The number of an update.
pub fn number(update: &Value) -> Option<i64> {
    update["update_id"].as_i64()
}

/// Reads an update.
pub fn read(update: &Value) -> Update {
    if let Some(message) = message(&update["message"]) {
        return Update::Message(Box::new(message));
    }
    press(&update["callback_query"]).map_or(Update::Other, Update::Press)
}

fn user(value: &Value) -> Option<User> {
    let id = value["id"].as_i64()?;
    let name = value["username"].as_str().or(value["first_name"].as_str());
    // Names are shown in messages.
    let name: String =
        name.unwrap_or("somebody").chars().filter(|c| !c.is_control()).take(64).collect();
    Some(User { id, name })
}

fn origin(message: &Value) -> Option<Origin> {
    let is_topic = message["is_topic_message"] == true;
    Some(Origin {
        chat: message["chat"]["id"].as_i64()?,
        topic: message["message_thread_id"].as_i64().filter(|_| is_topic),
        private: message["chat"]["type"] == "private",
    })
}

fn message(value: &Value) -> Option<Message> {
    let id = value["message_id"].as_i64()?;
    let origin = origin(value)?;
    let replied = &value["reply_to_message"];
    let reply = replied["message_id"].as_i64().map(|id| Reply {
        id,
        text: text(replied),
        by: replied["from"]["id"].as_i64().unwrap_or_default(),
    });
    Some(Message {
        id,
        origin,
        user: user(&value["from"])?,
        text: text(value),
        mentions: mentions(value),
        forwarded: !value["forward_origin"].is_null(),
        // In a topic every message replies to the one that opened it.
        reply: reply.filter(|reply| Some(reply.id) != origin.topic),
        file: file(value),
    })
}

fn text(value: &Value) -> String {
    value["text"].as_str().or(value["caption"].as_str()).unwrap_or_default().to_owned()
}

/// The mentions that the service marks. It counts UTF-16 units.
fn mentions(value: &Value) -> Vec<Range<usize>> {
    let text = text(value);
    let entities = value["entities"].as_array().or(value["caption_entities"].as_array());
    let mentions = entities.into_iter().flatten().filter(|it| it["type"] == "mention");
    let range = |entity: &Value| {
        let start = entity["offset"].as_u64()?;
        let end = start.checked_add(entity["length"].as_u64()?)?;
        Some(byte_at(&text, start)?..byte_at(&text, end)?)
    };
    mentions.filter_map(range).collect()
}

/// The byte at which a UTF-16 unit begins; none inside of a character.
fn byte_at(text: &str, unit: u64) -> Option<usize> {
    let mut units = 0;
    for (byte, c) in text.char_indices() {
        if units == unit {
            return Some(byte);
        }
        units += c.len_utf16() as u64;
    }
    (units == unit).then_some(text.len())
}

fn file(value: &Value) -> Option<Attachment> {
    let attachment = |file: &Value, name: &str, kind| {
        let id = file["file_id"].as_str()?.to_owned();
        Some(Attachment { id, name: file["file_name"].as_str().unwrap_or(name).to_owned(), kind })
    };
    if let Some(largest) = value["photo"].as_array().and_then(|sizes| sizes.last()) {
        return attachment(largest, "photo.jpg", Kind::Image);
    }
    attachment(&value["document"], "file", Kind::Document)
        .or_else(|| attachment(&value["voice"], "voice.ogg", Kind::Voice))
}

fn press(value: &Value) -> Option<Press> {
    let message = &value["message"];
    Some(Press {
        id: value["id"].as_str()?.to_owned(),
        user: user(&value["from"])?,
        origin: origin(message)?,
        message: message["message_id"].as_i64()?,
        data: value["data"].as_str().unwrap_or_default().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_unknown_is_ignored() {
        for update in [
            json!({}),
            json!({ "update_id": 1, "poll": {} }),
            json!({ "update_id": 1, "message": {} }),
            json!({ "update_id": 1, "message": { "message_id": "x", "chat": 3 } }),
            json!({ "update_id": 1, "callback_query": { "id": 5 } }),
            json!([]),
            json!(null),
        ] {
            assert_eq!(read(&update), Update::Other, "{update}");
        }
    }

    #[test]
    fn the_message_that_opened_a_topic_is_not_replied_to() {
        let message = |reply: i64| {
            let update = json!({ "message": {
                "message_id": 9, "chat": { "id": -1, "type": "supergroup" }, "from": { "id": 5 },
                "is_topic_message": true, "message_thread_id": 7, "text": "hi",
                "reply_to_message": { "message_id": reply, "from": { "id": 1 } },
            }});
            match read(&update) {
                Update::Message(message) => message,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(message(7).reply.map(|reply| reply.id), None);
        assert_eq!(message(8).reply.map(|reply| reply.id), Some(8));
        assert_eq!(message(8).origin.topic, Some(7));
    }

    #[test]
    fn mentions_are_where_the_service_marks_them_whatever_it_says() {
        let at = |text: &str, offset: i64, length: i64| {
            let entity = json!({ "type": "mention", "offset": offset, "length": length });
            let value = json!({ "caption": text, "caption_entities": [entity] });
            mentions(&value).first().map(|range| text[range.clone()].to_owned())
        };
        assert_eq!(at("İ😀 @bot x", 4, 4).as_deref(), Some("@bot"));
        assert_eq!(at("@bot", 0, 4).as_deref(), Some("@bot"));
        for (offset, length) in [(1, 1), (0, 99), (-1, 4), (i64::MAX, i64::MAX), (99, 1)] {
            assert_eq!(at("😀x", offset, length), None, "{offset} {length}");
        }
    }
}
