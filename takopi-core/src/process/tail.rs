//! The end of a byte stream, bounded.

use std::collections::VecDeque;

use crate::redact::redact;

/// As long as a credential gets.
const CREDENTIAL_BYTES: usize = 2 * 1024;

/// Keeps the last `limit` bytes of what is pushed.
#[derive(Debug)]
pub(super) struct Tail {
    bytes: VecDeque<u8>,
    limit: usize,
    /// Whether the beginning was dropped.
    cut: bool,
}

impl Tail {
    pub(super) fn new(limit: usize) -> Self {
        Self { bytes: VecDeque::new(), limit, cut: false }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.cut |= self.bytes.len() + bytes.len() > self.limit;
        let bytes = &bytes[bytes.len().saturating_sub(self.limit)..];
        let excess = (self.bytes.len() + bytes.len()).saturating_sub(self.limit);
        self.bytes.drain(..excess);
        self.bytes.extend(bytes);
    }

    /// The text without credentials, with what is not UTF-8 replaced. If the beginning was dropped, it begins with a
    /// whole line, or else behind a word as long as credentials are: the end of one that was cut in two cannot be
    /// distinguished from other text.
    pub(super) fn text(&self) -> String {
        let (front, back) = self.bytes.as_slices();
        let bytes = [front, back].concat();
        let text = String::from_utf8_lossy(&bytes);
        let whole = if self.cut { whole_line(&text).unwrap_or(&text) } else { &text };
        redact(whole).into_owned()
    }
}

/// The text behind the end of its first line or, if there is none, of its first word.
fn whole_line(text: &str) -> Option<&str> {
    if let Some((_, lines)) = text.split_once('\n').filter(|(_, lines)| !lines.is_empty()) {
        return Some(lines);
    }
    let (word, words) = text.split_once(' ').filter(|(_, words)| !words.is_empty())?;
    let is_long = word.len() > CREDENTIAL_BYTES;
    Some(if is_long { &text[text.floor_char_boundary(CREDENTIAL_BYTES)..] } else { words })
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
        let mut tail = Tail::new(2 * CREDENTIAL_BYTES);
        tail.push(&[b'x'; 3 * CREDENTIAL_BYTES]);
        tail.push(b" was refused");
        assert_eq!(tail.text().len(), CREDENTIAL_BYTES, "no credential is as long");
    }

    #[test]
    fn a_word_that_may_be_the_end_of_a_credential_is_left_out() {
        for (length, kept) in [(1500, "rest"), (2048, "rest"), (2049, "x rest")] {
            let mut tail = Tail::new(length + " rest".len());
            tail.push(b"dropped");
            tail.push(&vec![b'x'; length]);
            tail.push(b" rest");
            assert_eq!(tail.text(), kept, "{length}");
        }
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
