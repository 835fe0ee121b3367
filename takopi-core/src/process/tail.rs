//! The end of a byte stream, bounded.

use std::collections::VecDeque;

use crate::redact::redact_from;

/// What is kept ahead of what is shown, so that a credential is found though its beginning is not shown: the
/// name before a token, the first lines of a private key.
const BEFORE: usize = 8 * 1024;
/// A word that is longer may be shown in part.
const LONG_WORD: usize = 256;

/// Shows the last `limit` bytes of what is pushed.
#[derive(Debug)]
pub(super) struct Tail {
    bytes: VecDeque<u8>,
    limit: usize,
}

impl Tail {
    pub(super) fn new(limit: usize) -> Self {
        Self { bytes: VecDeque::new(), limit }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let kept = self.limit + BEFORE;
        let bytes = &bytes[bytes.len().saturating_sub(kept)..];
        let excess = (self.bytes.len() + bytes.len()).saturating_sub(kept);
        self.bytes.drain(..excess);
        self.bytes.extend(bytes);
    }

    /// The text without credentials, with what is not UTF-8 replaced. If it is not all of it, it begins with a whole
    /// line, or else with a whole word.
    pub(super) fn text(&self) -> String {
        let (front, back) = self.bytes.as_slices();
        let bytes = [front, back].concat();
        let text = String::from_utf8_lossy(&bytes);
        let start = text.floor_char_boundary(text.len().saturating_sub(self.limit));
        redact_from(&text, start + partial(&text, start)).into_owned()
    }
}

/// How much behind this position is the rest of a line or a word.
fn partial(text: &str, start: usize) -> usize {
    let (before, shown) = text.split_at(start);
    if before.is_empty() || before.ends_with('\n') {
        return 0;
    }
    let behind = |end: char| shown.find(end).map(|at| at + 1).filter(|at| *at < shown.len());
    behind('\n').or_else(|| behind(' ').filter(|at| *at <= LONG_WORD)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stderr_is_kept_in_a_bounded_ring() {
        let mut tail = Tail::new(4);
        tail.push(b"ab");
        tail.push(b"cdef");
        assert_eq!(tail.text(), "cdef");
        tail.push(&[b'x'; 1000]);
        assert_eq!(tail.text(), "xxxx");
        tail.push(b"yz");
        assert_eq!(tail.text(), "xxyz");
        tail.push(b"\nz");
        assert_eq!(tail.text(), "z");
    }

    #[test]
    fn credentials_are_never_returned_whole_or_in_part() {
        let mut tail = Tail::new(64);
        tail.push(b"Error: Bearer sk-abc123def456\n");
        assert_eq!(tail.text(), "Error: Bearer [redacted]\n");
        tail.push(b"a line that pushes the beginning of the key out\n");
        assert_eq!(tail.text(), "a line that pushes the beginning of the key out\n");
        let mut tail = Tail::new(16);
        tail.push(b"Bearer sk-abc123def456 was refused");
        assert_eq!(tail.text(), "was refused");
        let text = "Bearer 0123456789abcdef was refused";
        for limit in 0..text.len() {
            let mut tail = Tail::new(limit);
            tail.push(text.as_bytes());
            assert!(!tail.text().contains("cdef"), "{limit}: {}", tail.text());
        }
    }

    #[test]
    fn a_private_key_is_not_shown_though_it_began_before_what_is_shown() {
        let lines = "MIIEvgIBADANBgkqhkiG9w0BAQEFAASCBKgwggSkAgEAAoIBAQC7\n".repeat(60);
        let key = format!("-----BEGIN PRIVATE KEY-----\n{lines}-----END PRIVATE KEY-----\n");
        let mut tail = Tail::new(1024);
        tail.push(key.as_bytes());
        tail.push(b"refused\n");
        assert_eq!(tail.text(), "[redacted]\nrefused\n");
    }

    #[test]
    fn a_line_that_is_too_long_for_what_is_shown_is_shown_from_a_word_on() {
        let mut tail = Tail::new("ome words\n".len());
        tail.push(b"dropped some words\n");
        assert_eq!(tail.text(), "words\n");
    }

    #[test]
    fn a_long_word_is_shown_in_part() {
        for (length, shown) in [(LONG_WORD - 1, 0), (LONG_WORD, LONG_WORD)] {
            let mut tail = Tail::new(length + " rest".len());
            tail.push(b"dropped");
            tail.push(&vec![b'x'; length]);
            tail.push(b" rest");
            let rest = if shown == 0 { "rest" } else { " rest" };
            assert_eq!(tail.text(), "x".repeat(shown) + rest, "{length}");
        }
    }

    #[test]
    fn no_more_is_kept_than_is_needed() {
        let mut tail = Tail::new(4);
        for _ in 0..3 {
            tail.push(&[b'x'; BEFORE]);
        }
        assert_eq!(tail.bytes.len(), BEFORE + 4);
        tail.push(&vec![b'y'; 3 * BEFORE]);
        assert_eq!((tail.bytes.len(), tail.bytes[0]), (BEFORE + 4, b'y'));
    }

    #[test]
    fn a_text_within_the_limit_keeps_its_first_line() {
        for (limit, pieces, kept) in [
            (4, ["a\nb", "c"], "a\nbc"),
            (8, ["a\nbb", "cccc"], "a\nbbcccc"),
            (3, ["a\nb", "c"], "bc"),
            (5, ["", "abcd\nxy"], "xy"),
        ] {
            let mut tail = Tail::new(limit);
            for piece in pieces {
                tail.push(piece.as_bytes());
            }
            assert_eq!(tail.text(), kept, "{pieces:?}");
        }
    }
}
