//! The messages on the wire: one JSON object a line, no `jsonrpc` member.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// The id of a request, as its sender chose it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RequestId {
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
}

/// An error in answer to a request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ErrorBody {
    /// Its code.
    pub code: i64,
    /// Its text.
    #[serde(default)]
    pub message: String,
    /// Further data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<Value>>,
}

/// Anything the server sends.
#[derive(Debug, Deserialize)]
pub(super) struct Incoming<'a> {
    pub(super) id: Option<RequestId>,
    #[serde(borrow)]
    pub(super) method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) params: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) result: Option<&'a RawValue>,
    pub(super) error: Option<ErrorBody>,
}

/// Something the server tells.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Notification {
    /// What it is about.
    pub method: String,
    /// Its particulars, as they came.
    pub params: Box<RawValue>,
}

impl Notification {
    /// Its particulars in a type of the caller's choice.
    pub fn parse<'a, T: Deserialize<'a>>(&'a self) -> Option<T> {
        serde_json::from_str(self.params.get()).ok()
    }
}

/// Whom a message concerns: looked at before anything else.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Address<'a> {
    #[serde(borrow, default)]
    thread_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    turn_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    thread: Option<Named<'a>>,
    #[serde(borrow, default)]
    turn: Option<Named<'a>>,
}

#[derive(Debug, Deserialize)]
struct Named<'a> {
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
}

impl<'a> Address<'a> {
    pub(super) fn of(params: &'a RawValue) -> Self {
        serde_json::from_str(params.get()).unwrap_or_default()
    }

    pub(super) fn thread(&self) -> Option<&str> {
        self.thread_id.as_deref().or_else(|| self.thread.as_ref()?.id.as_deref())
    }

    pub(super) fn into_thread(self) -> Option<Cow<'a, str>> {
        self.thread_id.or_else(|| self.thread?.id)
    }

    pub(super) fn turn(&self) -> Option<&str> {
        self.turn_id.as_deref().or_else(|| self.turn.as_ref()?.id.as_deref())
    }
}

/// What can be told of a message from its head, when the rest was too long to read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Beheaded {
    /// The answer to this request.
    Answer(i64),
    /// A notification about this thread.
    Notification {
        method: String,
        thread: Option<String>,
    },
    Unknown,
}

impl Beheaded {
    pub(super) fn of(head: &[u8]) -> Self {
        let head = String::from_utf8_lossy(head);
        let text = |key: &str| {
            let rest = head.split_once(&format!("\"{key}\":\""))?.1;
            rest.split_once('"').map(|(value, _)| value.to_owned())
        };
        if let Some(method) = text("method") {
            return Self::Notification { method, thread: text("threadId") };
        }
        let number = head.split_once("\"id\":").and_then(|(_, rest)| {
            let digits: String =
                rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
            digits.parse().ok()
        });
        number.map_or(Self::Unknown, Self::Answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_addressed_by_thread_and_turn() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let params = raw(r#"{"threadId":"t","turn":{"id":"u","items":[]}}"#);
        let address = Address::of(&params);
        assert_eq!((address.thread(), address.turn()), (Some("t"), Some("u")));
        let params = raw(r#"{"thread":{"id":"t"}}"#);
        assert_eq!(Address::of(&params).thread(), Some("t"));
        assert_eq!(Address::of(&raw("[1]")).thread(), None);
    }

    #[test]
    fn the_head_of_a_skipped_line_tells_whose_it_is() {
        assert_eq!(Beheaded::of(br#"{"id":7,"result":{"thr"#), Beheaded::Answer(7));
        assert_eq!(
            Beheaded::of(br#"{"method":"turn/completed","params":{"threadId":"t","turn":{"#),
            Beheaded::Notification {
                method: "turn/completed".to_owned(),
                thread: Some("t".to_owned())
            }
        );
        assert_eq!(Beheaded::of(b"xxxx"), Beheaded::Unknown);
    }
}
