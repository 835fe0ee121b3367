//! Details as text, which is parsed when somebody asks for it.
//!
//! Most details of most events are never looked at, or only passed on. As JSON text they are one allocation
//! however many there are, and what an engine printed is copied and not parsed.

use std::borrow::Cow;
use std::fmt;
use std::sync::OnceLock;

use memchr::memchr3_iter;
use serde::Serialize;
use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Detail, Entry};

/// What a value costs beside its text; see [`weight`](crate::TakopiEvent::weight).
const VALUE_COST: usize = 40;

/// The text of a JSON object that was written by a [`DetailWriter`].
#[derive(Debug, Default)]
pub(super) struct Unread {
    json: Cow<'static, [u8]>,
    /// At least what the parsed details weigh.
    pub(super) weight: usize,
    /// Boxed, because few are read and all are moved from hand to hand.
    read: OnceLock<Box<[Entry]>>,
}

impl Unread {
    /// What the text says, parsed at the first call.
    pub(super) fn entries(&self) -> &[Entry] {
        self.read.get_or_init(|| parse(&self.json).into_boxed_slice())
    }

    pub(super) fn into_entries(self) -> Vec<Entry> {
        self.read.into_inner().map_or_else(|| parse(&self.json), Vec::from)
    }
}

/// What was parsed of it is not copied, but the memory of what is overwritten is kept.
impl Clone for Unread {
    fn clone(&self) -> Self {
        Self { json: self.json.clone(), weight: self.weight, read: OnceLock::new() }
    }

    fn clone_from(&mut self, other: &Self) {
        self.json.clone_from(&other.json);
        self.weight = other.weight;
        self.read = OnceLock::new();
    }
}

/// Reads the members of an object one by one. One that cannot be read (a number that is too large) stands as
/// its text.
fn parse(json: &[u8]) -> Vec<Entry> {
    struct Members;

    impl<'de> Visitor<'de> for Members {
        type Value = Vec<Entry>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Vec<Entry>, A::Error> {
            let mut entries = Vec::new();
            while let Some((name, raw)) = object.next_entry::<String, &RawValue>()? {
                let value = serde_json::from_str(raw.get());
                let value = value.unwrap_or_else(|_| Value::from(raw.get()));
                entries.push((Cow::Owned(name), value));
            }
            Ok(entries)
        }
    }

    let parsed = serde_json::Deserializer::from_slice(json).deserialize_map(Members);
    parsed.unwrap_or_else(|error| {
        tracing::debug!(%error, "details that are no JSON");
        Vec::new()
    })
}

/// Writes details as text. Each name is written once.
///
/// ```
/// use takopi_core::model::DetailWriter;
///
/// let mut writer = DetailWriter::with_capacity(64);
/// writer.add("exit_code", &0);
/// writer.add("status", "completed");
/// let detail = writer.finish();
/// assert_eq!(detail["status"], "completed");
/// assert_eq!(serde_json::to_string(&detail)?, r#"{"exit_code":0,"status":"completed"}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug)]
pub struct DetailWriter {
    json: Vec<u8>,
    weight: usize,
}

impl DetailWriter {
    /// Nothing is written yet; the text will have about so many bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { json: Vec::with_capacity(bytes), weight: 0 }
    }

    /// Adds one of them. A [`RawValue`] is copied as it stands; a value that has no JSON is left out.
    pub fn add(&mut self, name: &'static str, value: &(impl Serialize + ?Sized)) {
        let before = self.json.len();
        self.json.push(if before == 0 { b'{' } else { b',' });
        let written = self.write(name).and_then(|()| {
            self.json.push(b':');
            let start = self.json.len();
            self.write(value)?;
            Ok(start)
        });
        match written {
            Ok(start) => self.weight += name.len() + weight_of(&self.json[start..]),
            Err(error) => {
                tracing::debug!(%error, name, "a detail that has no JSON");
                self.json.truncate(before);
            }
        }
    }

    fn write(&mut self, value: &(impl Serialize + ?Sized)) -> serde_json::Result<()> {
        serde_json::to_writer(&mut self.json, value)
    }

    /// The details.
    pub fn finish(mut self) -> Detail {
        if self.json.is_empty() {
            return Detail::new();
        }
        self.json.push(b'}');
        Detail::unread(Unread {
            json: Cow::Owned(self.json),
            weight: self.weight,
            read: OnceLock::new(),
        })
    }
}

impl Detail {
    /// Details that are always the same: the text of a JSON object.
    ///
    /// ```
    /// use takopi_core::model::Detail;
    /// assert_eq!(Detail::from_static(r#"{"status":"in_progress"}"#)["status"], "in_progress");
    /// ```
    pub fn from_static(json: &'static str) -> Self {
        let json = json.as_bytes();
        Self::unread(Unread {
            json: Cow::Borrowed(json),
            weight: weight_of(json),
            read: OnceLock::new(),
        })
    }
}

/// At least what a value weighs: every element stands behind a comma or a bracket.
fn weight_of(json: &[u8]) -> usize {
    // What is in a string is text.
    let elements =
        if json.starts_with(b"\"") { 0 } else { memchr3_iter(b',', b'[', b'{', json).count() };
    json.len() + VALUE_COST * (1 + elements)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::model::event::entries_weight;

    fn written(value: &Value) -> Detail {
        let mut writer = DetailWriter::with_capacity(0);
        writer.add("value", value);
        writer.add("done", &true);
        writer.finish()
    }

    #[test]
    fn what_was_written_is_read_when_it_is_asked_for() {
        let detail = written(&json!({ "a": ["é\n", null, 1.5] }));
        assert_eq!(detail.len(), 2);
        assert_eq!(detail["value"], json!({ "a": ["é\n", null, 1.5] }));
        assert_eq!(detail, detail.clone());
        assert_eq!(DetailWriter::with_capacity(0).finish(), Detail::new());
        assert!(Detail::from_static("{}").is_empty());
    }

    #[test]
    fn what_was_written_can_be_changed() {
        let mut detail = written(&json!("a"));
        detail.insert("value", 2);
        detail.insert("more", 3);
        assert_eq!(Value::from(detail), json!({ "value": 2, "done": true, "more": 3 }));
    }

    #[test]
    fn a_copy_over_other_details_is_a_copy() {
        let [first, second] = [json!("a long text"), json!("b")].map(|value| written(&value));
        for target in [first, Detail::from_static("{}"), Detail::new(), {
            let mut read = Detail::new();
            read.insert("x", 1);
            read
        }] {
            let mut target = target;
            // Parsed before, to see that nothing of it stays.
            let _ = target.len();
            target.clone_from(&second);
            assert_eq!(target, second);
            target.clone_from(&Detail::new());
            assert!(target.is_empty());
        }
    }

    #[test]
    fn a_member_that_cannot_be_read_stands_as_its_text() {
        let raw: &RawValue = serde_json::from_str("[1e999]").unwrap();
        let mut writer = DetailWriter::with_capacity(0);
        writer.add("arguments", raw);
        writer.add("tool", "search");
        let detail = writer.finish();
        assert_eq!(detail["arguments"], "[1e999]");
        assert_eq!(detail["tool"], "search");
    }

    #[test]
    fn what_has_no_json_is_left_out() {
        let mut writer = DetailWriter::with_capacity(0);
        writer.add("map", &std::collections::BTreeMap::from([((1, 2), 3)]));
        writer.add("exit_code", &0);
        assert_eq!(Value::from(writer.finish()), json!({ "exit_code": 0 }));
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::from),
            ".{0,9}".prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec((".{0,4}", inner), 0..6)
                    .prop_map(|entries| Value::Object(entries.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn unread_details_weigh_no_less_than_those_that_were_read(value in value()) {
            let detail = written(&value);
            prop_assert!(detail.weight() >= entries_weight(detail.iter()));
            prop_assert_eq!(&detail["value"], &value);
        }
    }
}
