//! Reading JSON objects of which nothing is certain.
//!
//! A field of an unexpected type reads as absent, unknown fields are skipped, of a field that stands
//! twice the first counts, and the order of fields does not matter. Values stay text until they are
//! asked for, so a number that fits no type or half a surrogate pair spoils its own field only.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::repair;

/// An object, its values unread. Anything else reads as an object without fields.
///
/// ```
/// use takopi_core::jsonl::Object;
///
/// let line = Object::parse(r#"{"type":"result","usage":{"tokens":7},"odd":[1]}"#)?;
/// assert_eq!(line.text("type").as_deref(), Some("result"));
/// assert_eq!(line.object("usage").count("tokens"), Some(7));
/// assert_eq!(line.text("odd"), None);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Object<'a> {
    fields: Vec<(Key<'a>, &'a RawValue)>,
}

impl<'a> Object<'a> {
    /// Reads a text; an error only if it is not JSON.
    pub fn parse(json: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json)
    }

    /// Reads a value.
    pub fn of(raw: &'a RawValue) -> Self {
        Self::parse(raw.get()).unwrap_or_default()
    }

    /// A value as it stands in the line; `null` is none.
    pub fn raw(&self, name: &str) -> Option<&'a RawValue> {
        let (_, raw) = self.fields.iter().find(|(Key(known), _)| known == name)?;
        (raw.get() != "null").then_some(raw)
    }

    /// Whether there is a value, of whatever type.
    pub fn has(&self, name: &str) -> bool {
        self.raw(name).is_some()
    }

    /// A text.
    pub fn text(&self, name: &str) -> Option<String> {
        text(self.raw(name)?)
    }

    /// `true` or `false`.
    pub fn flag(&self, name: &str) -> Option<bool> {
        serde_json::from_str(self.raw(name)?.get()).ok()
    }

    /// A number.
    pub fn number(&self, name: &str) -> Option<f64> {
        serde_json::from_str(self.raw(name)?.get()).ok().filter(|number: &f64| number.is_finite())
    }

    /// A whole number; the whole part of one that is not.
    #[expect(clippy::cast_possible_truncation, reason = "checked for its range before")]
    pub fn int(&self, name: &str) -> Option<i64> {
        let raw = self.raw(name)?;
        serde_json::from_str(raw.get()).ok().or_else(|| {
            let number = self.number(name)?;
            (number.abs() < 1e15).then_some(number as i64)
        })
    }

    /// A whole number that is not negative.
    pub fn count(&self, name: &str) -> Option<u64> {
        u64::try_from(self.int(name)?).ok()
    }

    /// An object; one without fields if there is none.
    pub fn object(&self, name: &str) -> Object<'a> {
        self.raw(name).map(Object::of).unwrap_or_default()
    }

    /// The elements of a list; none if there is no list.
    pub fn list(&self, name: &str) -> Vec<&'a RawValue> {
        self.raw(name).map(list).unwrap_or_default()
    }

    /// The texts in a list.
    pub fn texts(&self, name: &str) -> Vec<String> {
        self.list(name).into_iter().filter_map(text).collect()
    }

    /// The names and values, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.fields.iter().map(|(Key(name), raw)| (&**name, *raw))
    }
}

/// The text that a value is.
pub fn text(raw: &RawValue) -> Option<String> {
    let json = raw.get();
    if !json.starts_with('"') {
        return None;
    }
    serde_json::from_str(json).ok().or_else(|| serde_json::from_str(&repair(json.as_bytes())?).ok())
}

/// The elements of the list that a value is.
pub fn list(raw: &RawValue) -> Vec<&RawValue> {
    serde_json::from_str(raw.get()).unwrap_or_default()
}

/// A value in full; the text of one that cannot be read.
pub fn value(raw: &RawValue) -> Value {
    let json = raw.get();
    serde_json::from_str(json)
        .ok()
        .or_else(|| serde_json::from_str(&repair(json.as_bytes())?).ok())
        .unwrap_or_else(|| Value::String(json.to_owned()))
}

impl<'de: 'a, 'a> Deserialize<'de> for Object<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Fields)
    }
}

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = Object<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::with_capacity(16);
        while let Some(field) = object.next_entry()? {
            fields.push(field);
        }
        Ok(Object { fields })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Object::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Object::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Object::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Object::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Object::default())
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(Object::default())
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Object::default())
    }
}

/// A name, borrowed from the line unless it is escaped.
#[derive(Debug)]
struct Key<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Key<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;

        impl<'de> Visitor<'de> for Name {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Borrowed(name)))
            }

            fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Owned(name.to_owned())))
            }
        }

        deserializer.deserialize_str(Name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_of_an_unexpected_type_is_absent_and_spoils_no_other() {
        let line = r#"{"a":1e999,"b":"\ud800x","c":[1,"t",null],"d":null,"e":1.9,"f":{"g":true},"a2":7,"a2":8}"#;
        let object = Object::parse(line).unwrap();
        assert_eq!(object.number("a"), None);
        assert_eq!(object.text("b").as_deref(), Some("\u{fffd}x"));
        assert_eq!(object.texts("c"), ["t"]);
        assert!(!object.has("d") && !object.has("none"));
        assert_eq!((object.int("e"), object.int("a2")), (Some(1), Some(7)));
        assert_eq!(object.object("f").flag("g"), Some(true));
        assert_eq!(object.text("f"), None);
        assert!(object.list("f").is_empty());
    }

    #[test]
    fn what_is_no_object_has_no_fields_and_what_is_no_json_is_an_error() {
        for json in ["[]", "1", "-1.5", "\"x\"", "true", "null", "[{\"a\":[1]}]"] {
            assert_eq!(Object::parse(json).unwrap().iter().count(), 0, "{json}");
        }
        for text in ["", "[SandboxDebug] x", "{\"a\":1", "{\"a\":1} x"] {
            assert!(Object::parse(text).is_err(), "{text}");
        }
    }
}
