//! The messages on the wire: one JSON object a line.

use std::borrow::Cow;
use std::fmt;

use serde::de::MapAccess;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::jsonl::repair;
use crate::redact::redact;
use crate::tolerant::{Read, Tolerant, first, next_key, skip};

/// How much of an error that makes no sense is shown.
const ERROR_SHOWN: usize = 500;

/// The codes of JSON-RPC for a request that was not JSON, or no request.
const UNREADABLE_REQUEST: [i64; 2] = [-32700, -32600];

/// The id of a request, exactly as its sender wrote it.
#[derive(Clone)]
pub struct RequestId(Box<RawValue>);

impl RequestId {
    /// An id as it came.
    pub fn new(raw: &RawValue) -> Self {
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

/// What can be read of an error in response to a request.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ErrorBody {
    /// The error's code, if it could be read.
    pub code: Option<i64>,
    /// The error's text; never empty.
    pub message: String,
    /// Further data.
    pub data: Option<Box<Value>>,
}

impl ErrorBody {
    /// Reads the `error` of a response.
    pub fn read(raw: &RawValue) -> Self {
        let fields = match serde_json::from_str::<Read<ErrorFields<'_>>>(raw.get()) {
            Ok(Read(Some(fields))) => fields,
            _ => ErrorFields::default(),
        };
        let code = fields.code.and_then(|code| code.get().parse().ok());
        let mut message = match fields.message {
            Some(message) if !message.is_empty() => message.into_owned(),
            _ => format!("refused without a message: {}", shortened(raw.get())),
        };
        if let (None, Some(odd)) = (code, fields.code) {
            message = format!("{message} (code {})", shortened(odd.get()));
        }
        let data = fields.data.and_then(|data| serde_json::from_str(data.get()).ok());
        Self { code, message, data }
    }
}

/// Without credentials: half of one could not be recognised later.
fn shortened(text: &str) -> String {
    let mut text = redact(text).into_owned();
    text.truncate(text.floor_char_boundary(ERROR_SHOWN));
    text
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

/// Anything the other side sends: a response, a request, or a notification.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Incoming<'a> {
    /// The id of a request, or of the request that is answered.
    pub id: Option<&'a RawValue>,
    /// The method of a request or a notification; as JSON if it is no text. Without one it is a response.
    pub method: Option<Cow<'a, str>>,
    /// Its parameters.
    pub params: Option<&'a RawValue>,
    /// The result of a request of ours.
    pub result: Option<&'a RawValue>,
    /// Why there is none.
    pub error: Option<&'a RawValue>,
}

/// Reads a line. One that is not quite JSON is repaired; `None` if it is none at all.
pub fn read_line<T>(line: &[u8], read: impl FnOnce(Incoming<'_>) -> T) -> Option<T> {
    let text = String::from_utf8_lossy(line);
    if let Ok(incoming) = Incoming::parse(&text) {
        return Some(read(incoming));
    }
    let repaired = repair(line)?;
    Incoming::parse(&repaired).ok().map(read)
}

impl<'a> Incoming<'a> {
    /// Reads a line; JSON that is no object has no members.
    pub fn parse(text: &'a str) -> Result<Self, serde_json::Error> {
        let Read(incoming) = serde_json::from_str(text)?;
        Ok(incoming.unwrap_or_default())
    }

    /// Which of our requests a response answers. Our ids are small numbers; other ids are not ours.
    ///
    /// The error of a peer that could not read a request has no id: it answers the only request that waits.
    pub fn answers<'i>(&self, waiting: impl Iterator<Item = &'i i64>) -> Option<i64> {
        if let Some(id) = self.id {
            let id = id.get();
            return id.trim_matches('"').parse().ok();
        }
        ErrorBody::read(self.error?).code.filter(|code| UNREADABLE_REQUEST.contains(code))?;
        let mut waiting = waiting.copied();
        waiting.next().filter(|_| waiting.next().is_none())
    }
}

/// The text of a method. One that is no text is kept as JSON: such a message is no response.
fn method_of(raw: &RawValue) -> Cow<'_, str> {
    let json = raw.get();
    match json.strip_prefix('"').and_then(|json| json.strip_suffix('"')) {
        Some(text) if !text.contains('\\') => Cow::Borrowed(text),
        _ => serde_json::from_str(json).map_or(Cow::Borrowed(json), Cow::Owned),
    }
}

impl<'de> Tolerant<'de> for Incoming<'de> {
    fn from_object<A: MapAccess<'de>>(mut object: A) -> Result<Option<Self>, A::Error> {
        let object = &mut object;
        let (mut incoming, mut method) = (Self::default(), None);
        while let Some(key) = next_key(object)? {
            match &*key {
                "id" => first_raw(&mut incoming.id, object)?,
                "method" => first_raw(&mut method, object)?,
                "params" => first_raw(&mut incoming.params, object)?,
                "result" => first_raw(&mut incoming.result, object)?,
                "error" => first_raw(&mut incoming.error, object)?,
                _ => skip(object)?,
            }
        }
        incoming.method = method.map(method_of);
        Ok(Some(incoming))
    }
}

/// What is known of a message that was too long to be read, from its first bytes.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageHead {
    /// The response to this request of ours.
    Response(i64),
    /// A notification.
    Notification {
        /// Its method.
        method: String,
        /// The session or thread it is about.
        place: Option<String>,
    },
    /// A request of the other side.
    Request {
        /// Its id.
        id: RequestId,
        /// Its method.
        method: String,
        /// The session or thread it is about.
        place: Option<String>,
    },
    /// It cannot be said.
    Unknown,
}

impl MessageHead {
    /// Reads the first bytes of a message, whose parameters name the place it is about with this key.
    pub fn read(head: &[u8], place: &str) -> Self {
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
            (Some(method), None) => Self::Notification { method, place: text(body, place) },
            (Some(method), Some(id)) => {
                Self::Request { id: RequestId::new(id), method, place: text(body, place) }
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
        for (json, method) in [("7", "7"), (r#""a\/b""#, "a/b"), (r#""a\ud800""#, r#""a\ud800""#)] {
            let line = format!(r#"{{"method":{json},"id":4}}"#);
            assert_eq!(
                Incoming::parse(&line).unwrap().method.as_deref(),
                Some(method),
                "no response"
            );
        }
        assert!(Incoming::parse(r#"{"method":null,"id":4,"result":1}"#).unwrap().method.is_none());
        assert!(Incoming::parse("not JSON").is_err());
    }

    #[test]
    fn a_line_that_is_not_quite_json_is_repaired() {
        let line = b"\xef\xbb\xbf{\"method\":\"a\",\"params\":{\"text\":\"\x01\"}}";
        assert!(Incoming::parse(&String::from_utf8_lossy(line)).is_err());
        let method = read_line(line, |incoming| incoming.method.map(Cow::into_owned));
        assert_eq!(method.flatten().as_deref(), Some("a"));
        assert!(read_line(b"not JSON", |_| ()).is_none());
    }

    #[test]
    fn a_request_that_could_not_be_read_is_the_only_one_that_waits() {
        let answers =
            |text: &str, waiting: &[i64]| Incoming::parse(text).unwrap().answers(waiting.iter());
        assert_eq!(answers(r#"{"id":5,"result":1}"#, &[5, 6]), Some(5));
        assert_eq!(answers(r#"{"id":"5","result":1}"#, &[5, 6]), Some(5));
        assert_eq!(answers(r#"{"id":null,"error":{"code":-32700}}"#, &[5]), Some(5));
        assert_eq!(answers(r#"{"error":{"code":-32600}}"#, &[5]), Some(5));
        assert_eq!(answers(r#"{"id":null,"error":{"code":1}}"#, &[5]), None);
        assert_eq!(answers(r#"{"error":"no"}"#, &[5]), None);
        assert_eq!(answers(r#"{"id":null,"error":{"code":-32700}}"#, &[5, 6]), None);
        assert_eq!(answers(r#"{"id":"x","error":"no"}"#, &[5]), None);
        assert_eq!(answers(r#"{"id":null,"result":1}"#, &[5]), None);
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
        let url = format!(r#"["{}postgres://app:hunter2@host"]"#, "x".repeat(ERROR_SHOWN - 22));
        assert!(!read(&url).message.contains("hunter"), "{}", read(&url).message);
    }

    #[test]
    fn the_head_of_a_skipped_line_tells_whose_it_is() {
        let read = |text: &str| MessageHead::read(text.as_bytes(), "threadId");
        assert_eq!(read(r#"{"id":7,"result":{"thr"#), MessageHead::Response(7));
        assert_eq!(read(r#"{"id":7,"result":{"method":"x"#), MessageHead::Response(7));
        assert_eq!(
            read(r#"{"method":"turn/completed","params":{"threadId":"t","turn":{"id":1,"#),
            MessageHead::Notification {
                method: "turn/completed".to_owned(),
                place: Some("t".to_owned())
            }
        );
        let request = read(r#"{"method":"m","id":"a-1","params":{"threadId":"t","x":"#);
        let MessageHead::Request { id, method, place } = request else { panic!("{request:?}") };
        assert_eq!((id.as_json(), method.as_str(), place.as_deref()), (r#""a-1""#, "m", Some("t")));
        assert_eq!(read("xxxx"), MessageHead::Unknown);
    }
}
