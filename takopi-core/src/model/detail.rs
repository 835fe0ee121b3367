//! The particulars of an action.
//!
//! An action has few of them and a run has many actions, so they stand in a list in the order in
//! which they were added, not in a hash map; names that are known beforehand cost nothing. An engine
//! that emits many events writes them as text ([`DetailWriter`]), which is parsed when it is asked for.

mod unread;

use std::borrow::Cow;
use std::fmt;
use std::ops::Index;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

pub use self::unread::DetailWriter;
use self::unread::Unread;
use super::event::entries_weight;

/// A particular with its name.
type Entry = (Cow<'static, str>, Value);

/// Free-form particulars, by name. Engines keep them bounded: tails of output, not output.
///
/// ```
/// use takopi_core::model::Detail;
///
/// let mut detail = Detail::new();
/// detail.insert("exit_code", 3);
/// assert_eq!(detail["exit_code"], 3);
/// assert!(detail["status"].is_null());
/// assert_eq!(serde_json::to_string(&detail)?, r#"{"exit_code":3}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Default)]
pub struct Detail(Content);

enum Content {
    Entries(Vec<Entry>),
    Text(Unread),
}

impl Default for Content {
    fn default() -> Self {
        Self::Entries(Vec::new())
    }
}

impl Detail {
    /// No particulars.
    pub const fn new() -> Self {
        Self(Content::Entries(Vec::new()))
    }

    /// No particulars yet, with room for so many.
    pub fn with_capacity(capacity: usize) -> Self {
        Self(Content::Entries(Vec::with_capacity(capacity)))
    }

    fn unread(unread: Unread) -> Self {
        Self(Content::Text(unread))
    }

    fn entries(&self) -> &[Entry] {
        match &self.0 {
            Content::Entries(entries) => entries,
            Content::Text(unread) => unread.entries(),
        }
    }

    fn into_entries(self) -> Vec<Entry> {
        match self.0 {
            Content::Entries(entries) => entries,
            Content::Text(unread) => unread.into_entries(),
        }
    }

    /// Changes the entries, which are parsed for it.
    fn change<T>(&mut self, change: impl FnOnce(&mut Vec<Entry>) -> T) -> T {
        let mut entries = std::mem::take(self).into_entries();
        let changed = change(&mut entries);
        self.0 = Content::Entries(entries);
        changed
    }

    /// About how many bytes they take.
    pub(super) fn weight(&self) -> usize {
        match &self.0 {
            Content::Text(unread) => unread.weight,
            Content::Entries(_) => entries_weight(self.iter()),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries().is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries().len()
    }

    /// The particular of this name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.iter().find_map(|(known, value)| (known == name).then_some(value))
    }

    /// Whether there is one of this name.
    pub fn contains_key(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Adds a particular; an earlier one of the same name is replaced.
    pub fn insert(&mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Value>) {
        let (name, value) = (name.into(), value.into());
        self.change(|entries| match entries.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => entries.push((name, value)),
        });
    }

    /// Keeps those for which this is true.
    pub(super) fn retain_mut(&mut self, mut keep: impl FnMut(&str, &mut Value) -> bool) {
        self.change(|entries| entries.retain_mut(|(name, value)| keep(name, value)));
    }

    /// All of them with values that can be changed, in the order in which they were added.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut Value)> {
        self.change(|_| ());
        let entries = match &mut self.0 {
            Content::Entries(entries) => &mut entries[..],
            Content::Text(_) => &mut [],
        };
        entries.iter_mut().map(|(name, value)| (&**name, value))
    }

    /// All of them, in the order in which they were added.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries().iter().map(|(name, value)| (&**name, value))
    }
}

impl Clone for Detail {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            Content::Entries(entries) => Content::Entries(entries.clone()),
            Content::Text(unread) => Content::Text(unread.clone()),
        })
    }

    /// Keeps the memory of what is overwritten.
    fn clone_from(&mut self, other: &Self) {
        match (&mut self.0, &other.0) {
            (Content::Entries(entries), Content::Entries(others)) => entries.clone_from(others),
            (Content::Text(unread), Content::Text(other)) => unread.clone_from(other),
            _ => *self = other.clone(),
        }
    }
}

/// Null for a name that is not there, as with [`Value`].
impl Index<&str> for Detail {
    type Output = Value;

    fn index(&self, name: &str) -> &Value {
        static NULL: Value = Value::Null;
        self.get(name).unwrap_or(&NULL)
    }
}

/// The same names with the same values, in whatever order.
impl PartialEq for Detail {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().all(|(name, value)| other.get(name) == Some(value))
    }
}

impl fmt::Debug for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl From<Map<String, Value>> for Detail {
    fn from(map: Map<String, Value>) -> Self {
        let entries = map.into_iter().map(|(name, value)| (name.into(), value)).collect();
        Self(Content::Entries(entries))
    }
}

impl From<Detail> for Value {
    fn from(detail: Detail) -> Self {
        let entries = detail.into_entries().into_iter();
        entries.map(|(name, value)| (name.into_owned(), value)).collect::<Map<_, _>>().into()
    }
}

impl Serialize for Detail {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Detail {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = Detail;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Detail, A::Error> {
                let mut detail = Detail::new();
                while let Some((name, value)) = object.next_entry::<String, Value>()? {
                    detail.insert(name, value);
                }
                Ok(detail)
            }
        }

        deserializer.deserialize_map(Entries)
    }
}

impl JsonSchema for Detail {
    fn schema_name() -> Cow<'static, str> {
        "Detail".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "additionalProperties": true })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_read_is_what_was_written_in_its_order() {
        let text = r#"{"b":1,"a":[true,null],"c":{"x":"y"}}"#;
        let detail: Detail = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&detail).unwrap(), text);
        assert_eq!(Value::from(detail), json!({"a": [true, null], "b": 1, "c": {"x": "y"}}));
    }

    #[test]
    fn the_last_of_one_name_counts_and_order_does_not() {
        let mut one = Detail::new();
        one.insert("a", 1);
        one.insert("b", 2);
        one.insert("a", 3);
        let mut other = Detail::with_capacity(2);
        other.insert("b".to_owned(), 2);
        other.insert("a".to_owned(), 3);
        assert_eq!(one, other);
        other.insert("c", Value::Null);
        assert_ne!(one, other);
        assert!(other.contains_key("c") && !one.contains_key("c"));
    }
}
