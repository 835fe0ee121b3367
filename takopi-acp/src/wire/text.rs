//! What tools print and say, bounded.

use std::borrow::Cow;

use takopi_core::model::{OUTPUT_TAIL_BYTES, tail};
use takopi_core::redact::redact;

/// How much of the beginning of a text is kept.
const HEAD_BYTES: usize = 1024;

/// What a tool printed or says: its end as it came, and its beginning as an error may show it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Text {
    tail: String,
    /// The beginning, if the end is not all: of half a credential nobody knows what it is, so they are removed before
    /// anything is cut.
    head: Option<String>,
}

impl Text {
    pub(crate) fn new(text: &str) -> Self {
        if text.len() <= OUTPUT_TAIL_BYTES {
            return Self { tail: text.to_owned(), head: None };
        }
        let tail = tail(text, OUTPUT_TAIL_BYTES).to_owned();
        Self { tail, head: Some(without_credentials(text)) }
    }

    /// Adds what came behind it.
    pub(crate) fn push(&mut self, more: &str) {
        self.tail.push_str(more);
        // Not at every piece.
        if self.tail.len() > 2 * OUTPUT_TAIL_BYTES {
            let Self { tail, head } = Self::new(&self.tail);
            self.tail = tail;
            self.head = self.head.take().or(head);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tail.is_empty()
    }

    /// The end, as it came.
    pub(crate) fn tail(&self) -> &str {
        &self.tail
    }

    /// The beginning, without credentials.
    pub(crate) fn head(&self) -> Cow<'_, str> {
        match &self.head {
            Some(head) => head.into(),
            None => without_credentials(&self.tail).into(),
        }
    }
}

fn without_credentials(text: &str) -> String {
    head(&redact(text))
}

/// The beginning of a text, with a mark where something is missing.
pub(crate) fn head(text: &str) -> String {
    let text = text.trim();
    let kept = &text[..text.floor_char_boundary(HEAD_BYTES)];
    if kept.len() < text.len() { format!("{kept}…") } else { kept.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_credential_is_cut_in_two_before_it_is_removed() {
        let url = "postgres://app:hunter2@db/main";
        for before in [0, HEAD_BYTES - 23, HEAD_BYTES - 22, OUTPUT_TAIL_BYTES] {
            for behind in [0, OUTPUT_TAIL_BYTES - 16, 3 * OUTPUT_TAIL_BYTES] {
                let text = format!("{} {url} {}", "x".repeat(before), "y".repeat(behind));
                let (at_once, mut in_pieces) = (Text::new(&text), Text::default());
                for piece in text.as_bytes().chunks(10) {
                    in_pieces.push(std::str::from_utf8(piece).unwrap());
                }
                for text in [at_once, in_pieces] {
                    let head = text.head();
                    assert!(!head.contains("hunter"), "{before} {behind}: {head}");
                    assert!(head.starts_with(if before == 0 { "postgres" } else { "xx" }));
                }
            }
        }
    }

    #[test]
    fn the_end_is_kept_as_it_came_and_bounded() {
        let mut text = Text::new("password=4f9d ");
        assert_eq!(text.tail(), "password=4f9d ");
        for _ in 0..100 {
            text.push(&"y".repeat(1000));
            assert!(text.tail().len() <= 2 * OUTPUT_TAIL_BYTES);
        }
        assert!(text.head().starts_with("password=[redacted] yyy"), "{}", text.head());
    }
}
