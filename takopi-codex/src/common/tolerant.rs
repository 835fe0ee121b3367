//! Reading JSON that may not be what it should be.
//!
//! Codex changes its output from release to release. So a field of an odd type reads as absent, an
//! unknown field is skipped, and of a field that stands twice the first counts (a web search on exec
//! carries two `id`s). Only text that is not JSON is an error. One pass; strings are borrowed from
//! the line where they can be.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use memchr::memchr;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use takopi_core::jsonl::repair;
use takopi_core::model::{OUTPUT_TAIL_BYTES, tail};

/// A type that is read from the JSON it expects, and is absent from any other.
pub(crate) trait Tolerant<'de>: Sized {
    /// From a string of the input itself.
    fn from_input(text: &'de str) -> Option<Self> {
        Self::from_text(text)
    }

    /// From a string that had to be unescaped.
    fn from_text(text: &str) -> Option<Self> {
        let _ = text;
        None
    }

    fn from_number(number: i64) -> Option<Self> {
        let _ = number;
        None
    }

    fn from_flag(flag: bool) -> Option<Self> {
        let _ = flag;
        None
    }

    fn from_list<A: SeqAccess<'de>>(mut list: A) -> Result<Option<Self>, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn from_object<A: MapAccess<'de>>(mut object: A) -> Result<Option<Self>, A::Error> {
        while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

/// What became of reading a [`Tolerant`] type.
pub(crate) struct Read<T>(pub(crate) Option<T>);

impl<'de, T: Tolerant<'de>> Deserialize<'de> for Read<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader(PhantomData)).map(Self)
    }
}

struct Reader<T>(PhantomData<T>);

impl<'de, T: Tolerant<'de>> Visitor<'de> for Reader<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(T::from_input(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(T::from_text(text))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(T::from_number(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(i64::try_from(number).ok().and_then(T::from_number))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Self::Value, E> {
        Ok(T::from_flag(flag))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
        T::from_list(list)
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<Self::Value, A::Error> {
        T::from_object(object)
    }
}

/// The next key of an object.
pub(crate) fn next_key<'de, A: MapAccess<'de>>(
    object: &mut A,
) -> Result<Option<Cow<'de, str>>, A::Error> {
    Ok(object.next_key::<Read<Cow<'de, str>>>()?.map(|Read(key)| key.unwrap_or_default()))
}

/// Reads the value at hand into its slot, unless an earlier one is there.
pub(crate) fn first<'de, T: Tolerant<'de>, A: MapAccess<'de>>(
    slot: &mut Option<T>,
    object: &mut A,
) -> Result<(), A::Error> {
    let Read(value) = object.next_value()?;
    if slot.is_none() {
        *slot = value;
    }
    Ok(())
}

/// Passes over the value at hand.
pub(crate) fn skip<'de, A: MapAccess<'de>>(object: &mut A) -> Result<(), A::Error> {
    object.next_value::<IgnoredAny>().map(drop)
}

impl<'de> Tolerant<'de> for Cow<'de, str> {
    fn from_input(text: &'de str) -> Option<Self> {
        Some(Cow::Borrowed(text))
    }

    fn from_text(text: &str) -> Option<Self> {
        Some(Cow::Owned(text.to_owned()))
    }
}

impl Tolerant<'_> for i64 {
    fn from_number(number: i64) -> Option<Self> {
        Some(number)
    }
}

impl Tolerant<'_> for bool {
    fn from_flag(flag: bool) -> Option<Self> {
        Some(flag)
    }
}

/// The elements that are what they should be.
impl<'de, T: Tolerant<'de>> Tolerant<'de> for Vec<T> {
    fn from_list<A: SeqAccess<'de>>(mut list: A) -> Result<Option<Self>, A::Error> {
        let mut values = Vec::new();
        while let Some(Read(value)) = list.next_element()? {
            values.extend(value);
        }
        Ok(Some(values))
    }
}

/// The end of a long text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tail<'a>(pub(crate) Cow<'a, str>);

impl<'a> Tail<'a> {
    /// From the text as it stands in the line; absent from what is no text. Outputs are most of what
    /// codex prints: they are copied once, or not at all.
    pub(crate) fn of(raw: &'a RawValue) -> Option<Self> {
        let json = raw.get();
        let inside = json.strip_prefix('"')?.strip_suffix('"')?;
        if memchr(b'\\', inside.as_bytes()).is_none() {
            return Some(Self(Cow::Borrowed(tail(inside, OUTPUT_TAIL_BYTES))));
        }
        let mut text = unescaped(inside)
            .or_else(|| serde_json::from_str(json).ok())
            .or_else(|| serde_json::from_str(&repair(json.as_bytes())?).ok())?;
        if text.len() > OUTPUT_TAIL_BYTES {
            text = tail(&text, OUTPUT_TAIL_BYTES).to_owned();
        }
        Some(Self(Cow::Owned(text)))
    }
}

/// A text with the usual escapes; `None` if others are in it.
fn unescaped(mut inside: &str) -> Option<String> {
    let mut text = String::with_capacity(inside.len());
    while let Some(at) = memchr(b'\\', inside.as_bytes()) {
        text.push_str(&inside[..at]);
        text.push(match inside.as_bytes().get(at + 1)? {
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            _ => return None,
        });
        inside = &inside[at + 2..];
    }
    text.push_str(inside);
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<'de, T: Tolerant<'de>>(json: &'de str) -> Option<T> {
        serde_json::from_str::<Read<T>>(json).unwrap().0
    }

    #[test]
    fn a_value_of_an_odd_type_reads_as_absent() {
        let odd =
            ["null", "1", "-1", "1.5", "18446744073709551615", "true", "[1,{}]", r#"{"a":[]}"#];
        for json in odd {
            assert_eq!(read::<Cow<'_, str>>(json), None, "{json}");
        }
        assert_eq!(read::<i64>(r#""1""#), None);
        assert_eq!(read::<bool>("0"), None);
        assert_eq!(read::<Vec<i64>>("{}"), None);
    }

    #[test]
    fn odd_elements_of_a_list_are_left_out() {
        assert_eq!(read::<Vec<i64>>(r#"[1,"2",null,3]"#), Some(vec![1, 3]));
    }

    #[test]
    fn strings_are_borrowed_unless_they_are_escaped() {
        assert!(matches!(read::<Cow<'_, str>>(r#""plain""#), Some(Cow::Borrowed("plain"))));
        assert_eq!(read::<Cow<'_, str>>(r#""a\nb""#).as_deref(), Some("a\nb"));
    }

    fn tail_of(json: &str) -> Option<Tail<'_>> {
        Tail::of(serde_json::from_str(json).unwrap())
    }

    #[test]
    fn an_output_is_read_as_in_the_json() {
        for json in [
            r#""""#,
            r#""plain 🐙""#,
            r#""a\n\tb\r\"\\\/c""#,
            r#""\u001b[32mgreen\u001b[0m \ud83d\udc19""#,
            r#""\b\f""#,
        ] {
            let text: String = serde_json::from_str(json).unwrap();
            assert_eq!(tail_of(json), Some(Tail(text.into())), "{json}");
        }
        assert_eq!(tail_of(r#""\ud83d alone""#), Some(Tail("\u{fffd} alone".into())));
        for json in ["null", "1", "[]", "{}"] {
            assert_eq!(tail_of(json), None, "{json}");
        }
    }

    #[test]
    fn of_a_long_output_only_the_tail_is_kept() {
        let long = "é".repeat(OUTPUT_TAIL_BYTES);
        for json in [format!("\"{long}\""), format!("\"{long}\\n\"")] {
            let Tail(text) = tail_of(&json).unwrap();
            assert!(text.len() <= OUTPUT_TAIL_BYTES);
            assert!(text.len() > OUTPUT_TAIL_BYTES - 4);
        }
    }
}
