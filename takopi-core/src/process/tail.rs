//! The end of a byte stream, bounded.

use std::collections::VecDeque;

/// Keeps the last `limit` bytes of what is pushed.
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
        let bytes = &bytes[bytes.len().saturating_sub(self.limit)..];
        let excess = (self.bytes.len() + bytes.len()).saturating_sub(self.limit);
        self.bytes.drain(..excess);
        self.bytes.extend(bytes);
    }

    /// The text, with what is not UTF-8 replaced.
    pub(super) fn text(&self) -> String {
        let (front, back) = self.bytes.as_slices();
        String::from_utf8_lossy(&[front, back].concat()).into_owned()
    }
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
    }
}
