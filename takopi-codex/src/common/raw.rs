//! Texts that are read from the line itself.
//!
//! serde_json gathers a text with escapes in a buffer that grows piece by piece, for every line anew. Here it is
//! written once, into memory of the right size.

use std::borrow::Cow;

use memchr::memchr;
use serde::de::{Error as _, MapAccess};
use serde_json::value::RawValue;

/// Reads the text at hand into its slot, unless an earlier one is there; what is no text reads as absent. One
/// that cannot be read (half of a pair of surrogates) is an error: the line is repaired and read again.
pub(super) fn first_text<'de, A: MapAccess<'de>>(
    slot: &mut Option<Cow<'de, str>>,
    object: &mut A,
) -> Result<(), A::Error> {
    let raw: &RawValue = object.next_value()?;
    let read = text(raw);
    if read.is_none() && raw.get().starts_with('"') {
        return Err(A::Error::custom("a text that cannot be read"));
    }
    if slot.is_none() {
        *slot = read;
    }
    Ok(())
}

/// The text of a value, if it is one.
pub(super) fn text(raw: &RawValue) -> Option<Cow<'_, str>> {
    let inside = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    if memchr(b'\\', inside.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inside));
    }
    let text = unescaped(inside).or_else(|| serde_json::from_str(raw.get()).ok());
    text.map(Cow::Owned)
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

    #[test]
    fn a_line_with_a_text_that_cannot_be_read_is_an_error() {
        use crate::common::{Item, Read};
        let read = |json| serde_json::from_str::<Read<Item<'_>>>(json).map(drop);
        assert!(read(r#"{"id":"a","type":"error","text":"\ud83d alone"}"#).is_err());
        assert!(read(r#"{"id":"a","type":"error","text":7}"#).is_ok());
    }

    #[test]
    fn a_text_is_read_as_in_the_json() {
        for json in [
            r#""""#,
            r#""plain 🐙""#,
            r#""a\n\tb\r\"\\\/c""#,
            r#""\u001b[32mgreen\u001b[0m \ud83d\udc19""#,
            r#""\b\f""#,
        ] {
            let expected: String = serde_json::from_str(json).unwrap();
            assert_eq!(text(serde_json::from_str(json).unwrap()).unwrap(), expected, "{json}");
        }
        for json in ["null", "1", "true", "[]", "{}", r#"["a"]"#] {
            assert_eq!(text(serde_json::from_str(json).unwrap()), None, "{json}");
        }
    }
}
