//! Reading JSON that may not be what it should be.
//!
//! Agents change their output from release to release. So a field of an odd type reads as absent, an
//! unknown field is skipped, and of a field that stands twice the first counts (a web search of codex
//! carries two `id`s). Only text that is not JSON is an error. One pass; strings are borrowed from
//! the line where they can be.
//!
//! ```
//! use std::borrow::Cow;
//!
//! use serde::de::MapAccess;
//! use takopi_core::tolerant::{Read, Tolerant, first, next_key, skip};
//!
//! #[derive(Default)]
//! struct Named<'a> {
//!     name: Option<Cow<'a, str>>,
//! }
//!
//! impl<'de> Tolerant<'de> for Named<'de> {
//!     fn from_object<A: MapAccess<'de>>(mut object: A) -> Result<Option<Self>, A::Error> {
//!         let mut named = Self::default();
//!         while let Some(key) = next_key(&mut object)? {
//!             match &*key {
//!                 "name" => first(&mut named.name, &mut object)?,
//!                 _ => skip(&mut object)?,
//!             }
//!         }
//!         Ok(Some(named))
//!     }
//! }
//!
//! let read = |json| serde_json::from_str::<Read<Named<'_>>>(json).unwrap().0.unwrap_or_default().name;
//! assert_eq!(read(r#"{"new":[1],"name":"a","name":"b"}"#).as_deref(), Some("a"));
//! assert_eq!(read(r#"{"name":7}"#), None);
//! ```

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A type that is read from the JSON it expects, and is absent from any other.
pub trait Tolerant<'de>: Sized {
    /// From a string of the input itself.
    fn from_input(text: &'de str) -> Option<Self> {
        Self::from_text(text)
    }

    /// From a string that had to be unescaped.
    fn from_text(text: &str) -> Option<Self> {
        let _ = text;
        None
    }

    /// From a whole number.
    fn from_number(number: i64) -> Option<Self> {
        let _ = number;
        None
    }

    /// From `true` or `false`.
    fn from_flag(flag: bool) -> Option<Self> {
        let _ = flag;
        None
    }

    /// From a list.
    fn from_list<A: SeqAccess<'de>>(mut list: A) -> Result<Option<Self>, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    /// From an object.
    fn from_object<A: MapAccess<'de>>(mut object: A) -> Result<Option<Self>, A::Error> {
        while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

/// What became of reading a [`Tolerant`] type.
#[derive(Debug)]
pub struct Read<T>(pub Option<T>);

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
pub fn next_key<'de, A: MapAccess<'de>>(object: &mut A) -> Result<Option<Cow<'de, str>>, A::Error> {
    Ok(object.next_key::<Read<Cow<'de, str>>>()?.map(|Read(key)| key.unwrap_or_default()))
}

/// Reads the value at hand into its slot, unless an earlier one is there.
pub fn first<'de, T: Tolerant<'de>, A: MapAccess<'de>>(
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
pub fn skip<'de, A: MapAccess<'de>>(object: &mut A) -> Result<(), A::Error> {
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
    /// From a whole number.
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
}
