//! Long texts, of which only the end is kept.

use std::borrow::Cow;

use memchr::memmem;
use serde::Serialize;
use serde_json::value::RawValue;
use takopi_core::jsonl::repair;
use takopi_core::model::{OUTPUT_TAIL_BYTES, tail};

use super::raw;

/// The end of a text.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub(crate) enum Tail<'a> {
    /// All of it, as it stands in the line. Outputs are most of what codex prints: a short one is copied, and
    /// parsed when somebody asks for it.
    Whole(&'a RawValue),
    /// The last bytes of a long text, or all of one whose escapes may not be valid.
    Text(String),
}

impl<'a> Tail<'a> {
    /// From the text as it stands in the line; absent from what is no text, and from an empty one.
    pub(crate) fn of(raw: &'a RawValue) -> Option<Self> {
        let json = raw.get();
        let inside = json.strip_prefix('"')?.strip_suffix('"').filter(|text| !text.is_empty())?;
        // Half of a pair of surrogates is valid where codex prints it, and nowhere else.
        let plain = memmem::find(inside.as_bytes(), b"\\u").is_none();
        if plain && inside.len() <= OUTPUT_TAIL_BYTES {
            return Some(Self::Whole(raw));
        }
        let text = match raw::text(raw) {
            Some(text) => text,
            None => Cow::Owned(serde_json::from_str(&repair(json.as_bytes())?).ok()?),
        };
        Some(Self::Text(tail(&text, OUTPUT_TAIL_BYTES).to_owned()))
    }

    /// How many bytes it takes as JSON, about.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Whole(raw) => raw.get().len(),
            Self::Text(text) => text.len() + text.len() / 8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail_of(json: &str) -> Option<String> {
        let tail = Tail::of(serde_json::from_str(json).unwrap())?;
        Some(serde_json::from_str(&serde_json::to_string(&tail).unwrap()).unwrap())
    }

    #[test]
    fn an_output_is_read_as_in_the_json() {
        for json in [
            r#""plain 🐙""#,
            r#""a\n\tb\r\"\\\/c""#,
            r#""\u001b[32mgreen\u001b[0m \ud83d\udc19""#,
            r#""\b\f""#,
        ] {
            let text: String = serde_json::from_str(json).unwrap();
            assert_eq!(tail_of(json), Some(text), "{json}");
        }
        assert_eq!(tail_of(r#""\ud83d alone""#).unwrap(), "\u{fffd} alone");
        for json in ["null", "1", "[]", "{}", r#""""#] {
            assert_eq!(tail_of(json), None, "{json}");
        }
    }

    #[test]
    fn of_a_long_output_only_the_tail_is_kept() {
        let long = "é".repeat(OUTPUT_TAIL_BYTES);
        for json in [format!("\"{long}\""), format!("\"{long}\\n\"")] {
            let text = tail_of(&json).unwrap();
            assert!(text.len() <= OUTPUT_TAIL_BYTES);
            assert!(text.len() > OUTPUT_TAIL_BYTES - 4);
        }
    }
}
