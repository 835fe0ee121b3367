//! The messages on the wire: one JSON object a line, no `jsonrpc` member.
//!
//! The envelope is read tolerantly: of a member that stands twice the first counts, and an odd member
//! reads as absent. Ids are kept as they were written, so that a response carries the same bytes.

use std::borrow::Cow;
use std::fmt;

use serde::de::MapAccess;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::address::Address;
use crate::common::{Read, Tolerant, first, next_key, skip};

/// How much of an error that makes no sense is shown.
const ERROR_SHOWN: usize = 500;

/// The id of a request, exactly as its sender wrote it.
#[derive(Clone)]
pub struct RequestId(Box<RawValue>);

impl RequestId {
    pub(super) fn new(raw: &RawValue) -> Self {
        Self(raw.to_owned())
    }

    /// The id as JSON.
    pub fn as_json(&self) -> &str {
        self.0.get()
    }
}

impl PartialEq for RequestId {
    fn eq(&self, other: &Self) -> bool {
        self.as_json() == other.as_json()
    }
}

impl Eq for RequestId {}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_json())
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_json())
    }
}

impl Serialize for RequestId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// The result of `turn/start`.
#[derive(Deserialize)]
pub(super) struct TurnStarted {
    pub(super) turn: StartedTurn,
}

#[derive(Deserialize)]
pub(super) struct StartedTurn {
    pub(super) id: String,
}

/// The turn that a result of `turn/start` names.
pub(super) fn started_turn(result: &RawValue) -> Option<String> {
    let TurnStarted { turn } = serde_json::from_str(result.get()).ok()?;
    Some(turn.id)
}

/// What can be read of an error in response to a request.
#[derive(Debug)]
pub(super) struct ErrorBody {
    pub(super) code: Option<i64>,
    pub(super) message: String,
    pub(super) data: Option<Box<Value>>,
}

impl ErrorBody {
    pub(super) fn read(raw: &RawValue) -> Self {
        let fields = match serde_json::from_str::<Read<ErrorFields<'_>>>(raw.get()) {
            Ok(Read(Some(fields))) => fields,
            _ => ErrorFields::default(),
        };
        let code = fields.code.and_then(|code| code.get().parse().ok());
        let mut message = match fields.message {
            Some(message) if !message.is_empty() => message.into_owned(),
            _ => format!("the app-server refused without a message: {}", shortened(raw.get())),
        };
        if let (None, Some(odd)) = (code, fields.code) {
            message = format!("{message} (code {})", shortened(odd.get()));
        }
        let data = fields.data.and_then(|data| serde_json::from_str(data.get()).ok());
        Self { code, message, data }
    }
}

fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(ERROR_SHOWN)]
}

#[derive(Default)]
struct ErrorFields<'a> {
    code: Option<&'a RawValue>,
    message: Option<Cow<'a, str>>,
    data: Option<&'a RawValue>,
}

impl<'de> Tolerant<'de> for ErrorFields<'de> {
    fn from_input(text: &'de str) -> Option<Self> {
        Some(Self { message: Some(text.into()), ..Self::default() })
    }

    fn from_text(text: &str) -> Option<Self> {
        Some(Self { message: Some(text.to_owned().into()), ..Self::default() })
    }

    fn from_object<A: MapAccess<'de>>(mut object: A) -> Result<Option<Self>, A::Error> {
        let object = &mut object;
        let mut fields = Self::default();
        while let Some(key) = next_key(object)? {
            match &*key {
                "code" => first_raw(&mut fields.code, object)?,
                "message" => first(&mut fields.message, object)?,
                "data" => first_raw(&mut fields.data, object)?,
                _ => skip(object)?,
            }
        }
        Ok(Some(fields))
    }
}

/// Reads the value at hand as it stands, unless an earlier one is there. `null` is none.
fn first_raw<'de, A: MapAccess<'de>>(
    slot: &mut Option<&'de RawValue>,
    object: &mut A,
) -> Result<(), A::Error> {
    let value: &RawValue = object.next_value()?;
    if slot.is_none() && value.get() != "null" {
        *slot = Some(value);
    }
    Ok(())
}

/// Anything the server sends.
#[derive(Debug, Default)]
pub(super) struct Incoming<'a> {
    pub(super) id: Option<&'a RawValue>,
    pub(super) method: Option<Cow<'a, str>>,
    pub(super) params: Option<&'a RawValue>,
    pub(super) result: Option<&'a RawValue>,
    pub(super) error: Option<&'a RawValue>,
}

impl<'a> Incoming<'a> {
    /// Reads a line; JSON that is no object has no members.
    pub(super) fn parse(text: &'a str) -> Result<Self, serde_json::Error> {
        let Read(incoming) = serde_json::from_str(text)?;
        Ok(incoming.unwrap_or_default())
    }
}

impl<'de> Tolerant<'de> for Incoming<'de> {
    fn from_object<A: MapAccess<'de>>(mut object: A) -> Result<Option<Self>, A::Error> {
        let object = &mut object;
        let mut incoming = Self::default();
        while let Some(key) = next_key(object)? {
            match &*key {
                "id" => first_raw(&mut incoming.id, object)?,
                "method" => first(&mut incoming.method, object)?,
                "params" => first_raw(&mut incoming.params, object)?,
                "result" => first_raw(&mut incoming.result, object)?,
                "error" => first_raw(&mut incoming.error, object)?,
                _ => skip(object)?,
            }
        }
        Ok(Some(incoming))
    }
}

/// What is known of a message that was too long to be read, from its first bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MessageHead {
    /// The response to this request of ours.
    Response(i64),
    Notification {
        method: String,
        thread: Option<String>,
    },
    Request {
        id: RequestId,
        method: String,
        thread: Option<String>,
    },
    Unknown,
}

impl MessageHead {
    pub(super) fn read(head: &[u8]) -> Self {
        let head = String::from_utf8_lossy(head);
        // The members ahead of the long one: ids and methods inside of that are not the message's.
        let body = ["\"params\":", "\"result\":", "\"error\":"];
        let body = body.iter().filter_map(|key| head.find(key)).min();
        let (envelope, body) = head.split_at(body.unwrap_or(head.len()));
        let id = value_of(envelope, "id").and_then(|id| serde_json::from_str::<&RawValue>(id).ok());
        let text = |text: &str, key: &str| {
            value_of(text, key).and_then(|value| serde_json::from_str::<String>(value).ok())
        };
        match (text(envelope, "method"), id) {
            (Some(method), None) => Self::Notification { method, thread: text(body, "threadId") },
            (Some(method), Some(id)) => {
                Self::Request { id: RequestId::new(id), method, thread: text(body, "threadId") }
            }
            (None, Some(id)) => id.get().parse().map_or(Self::Unknown, Self::Response),
            (None, None) => Self::Unknown,
        }
    }
}

/// The string or the number behind a key.
fn value_of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let rest = text.split_once(&format!("\"{key}\":"))?.1.trim_start();
    let end = if let Some(inside) = rest.strip_prefix('"') {
        inside.find('"')? + 2
    } else {
        rest.find([',', '}', ' '])?
    };
    Some(&rest[..end])
}

/// The address of a message, which is read before anything else.
pub(super) fn address_of(params: &RawValue) -> Address<'_> {
    match serde_json::from_str::<Read<Address<'_>>>(params.get()) {
        Ok(Read(address)) => address.unwrap_or_default(),
        Err(_) => Address::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn of_a_member_that_stands_twice_the_first_counts() {
        let text = r#"{"method":"a","params":{"x":1},"params":{},"method":"b","id":7,"id":8}"#;
        let incoming = Incoming::parse(text).unwrap();
        assert_eq!(incoming.method.as_deref(), Some("a"));
        assert_eq!(incoming.params.unwrap().get(), r#"{"x":1}"#);
        assert_eq!(incoming.id.unwrap().get(), "7");
        assert!(Incoming::parse("[]").unwrap().method.is_none());
        assert!(Incoming::parse("not JSON").is_err());
    }

    #[test]
    fn what_can_be_read_of_an_error_is_kept() {
        let read = |text: &str| ErrorBody::read(&raw(text));
        let full = read(r#"{"code":-32600,"message":"no","data":{"a":1}}"#);
        assert_eq!((full.code, full.message.as_str()), (Some(-32600), "no"));
        assert_eq!(*full.data.unwrap(), serde_json::json!({"a": 1}));
        assert_eq!(read(r#"{"message":"no"}"#).message, "no");
        assert_eq!(read(r#""no""#).message, "no");
        let long = read(r#"{"code":99999999999999999999,"message":"no"}"#);
        assert_eq!((long.code, long.message.as_str()), (None, "no (code 99999999999999999999)"));
        let null = read(r#"{"code":-5,"message":null}"#);
        assert_eq!(null.code, Some(-5));
        assert!(null.message.contains(r#"{"code":-5,"message":null}"#), "{}", null.message);
        assert!(read("[1]").message.contains("[1]"));
    }

    #[test]
    fn the_head_of_a_skipped_line_tells_whose_it_is() {
        let read = |text: &str| MessageHead::read(text.as_bytes());
        assert_eq!(read(r#"{"id":7,"result":{"thr"#), MessageHead::Response(7));
        assert_eq!(read(r#"{"id":7,"result":{"method":"x"#), MessageHead::Response(7));
        assert_eq!(
            read(r#"{"method":"turn/completed","params":{"threadId":"t","turn":{"id":1,"#),
            MessageHead::Notification {
                method: "turn/completed".to_owned(),
                thread: Some("t".to_owned())
            }
        );
        let request = read(r#"{"method":"m","id":"a-1","params":{"threadId":"t","x":"#);
        let MessageHead::Request { id, method, thread } = request else { panic!("{request:?}") };
        assert_eq!(
            (id.as_json(), method.as_str(), thread.as_deref()),
            (r#""a-1""#, "m", Some("t"))
        );
        assert_eq!(read("xxxx"), MessageHead::Unknown);
    }
}
