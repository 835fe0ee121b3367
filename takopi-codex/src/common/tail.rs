//! Long texts, of which only the end is kept.

use std::borrow::Cow;

use memchr::memchr;
use serde_json::value::RawValue;
use takopi_core::jsonl::repair;
use takopi_core::model::{OUTPUT_TAIL_BYTES, tail};

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
