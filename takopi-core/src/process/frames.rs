//! Framing: bytes in, lines out.
//!
//! Lines end at the byte `\n` and nowhere else; a last line without one counts. A line over the
//! limit is skipped and reported with its length and its head, and reading goes on behind it. The
//! buffer grows with the longest line and shrinks again behind it.

use memchr::memchr;

/// The default limit on the length of a line.
pub const DEFAULT_LINE_LIMIT: usize = 64 * 1024 * 1024;

/// How much of a skipped line is kept.
const HEAD: usize = 4 * 1024;
/// How much is read at a time.
const CHUNK: usize = 64 * 1024;

/// One line, or what is known of one that was too long.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Frame<'a> {
    /// A line without its newline.
    Line(&'a [u8]),
    /// A line over the limit.
    Skipped {
        /// Its length.
        bytes: u64,
        /// How it began.
        head: &'a [u8],
    },
}

/// Cuts a byte stream into lines.
///
/// ```
/// use takopi_core::process::{Frame, LineFramer};
///
/// let mut framer = LineFramer::new(1024);
/// framer.push(b"one\ntw");
/// assert_eq!(framer.pop(), Some(Frame::Line(b"one")));
/// assert_eq!(framer.pop(), None);
/// framer.push(b"o");
/// framer.finish();
/// assert_eq!(framer.pop(), Some(Frame::Line(b"two")));
/// ```
#[derive(Debug)]
pub struct LineFramer {
    buffer: Vec<u8>,
    /// Filled part of the buffer.
    filled: usize,
    /// Where the next line begins.
    start: usize,
    /// Up to where no newline was found.
    scanned: usize,
    limit: usize,
    skipped: Option<Skipped>,
    /// The head of the line that was reported last as skipped.
    head: Vec<u8>,
    finished: bool,
}

#[derive(Debug)]
struct Skipped {
    bytes: u64,
    head: Vec<u8>,
}

impl LineFramer {
    /// A framer that takes lines of up to `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            buffer: Vec::new(),
            filled: 0,
            start: 0,
            scanned: 0,
            limit,
            skipped: None,
            head: Vec::new(),
            finished: false,
        }
    }

    /// Room to read into; call [`Self::advance`] with how much was read.
    pub fn room(&mut self) -> &mut [u8] {
        if self.start == self.filled {
            (self.start, self.filled, self.scanned) = (0, 0, 0);
            if self.buffer.len() > 4 * CHUNK {
                self.buffer = Vec::new();
            }
        } else if self.start > 0 && self.buffer.len() - self.filled < CHUNK {
            self.buffer.copy_within(self.start..self.filled, 0);
            self.filled -= self.start;
            self.scanned -= self.start;
            self.start = 0;
        }
        if self.buffer.len() - self.filled < CHUNK {
            // Doubling, so that a line of many megabytes is not copied over and over.
            let wanted = (self.filled + CHUNK).max(self.buffer.len().saturating_mul(2));
            let bound = self.limit.saturating_add(2 * CHUNK).max(self.filled + CHUNK);
            self.buffer.resize(wanted.min(bound), 0);
        }
        &mut self.buffer[self.filled..]
    }

    /// Takes the first `count` bytes of [`Self::room`] as read.
    pub fn advance(&mut self, count: usize) {
        self.filled = (self.filled + count).min(self.buffer.len());
    }

    /// Takes bytes that were read elsewhere.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = self.room();
            let count = room.len().min(bytes.len());
            room[..count].copy_from_slice(&bytes[..count]);
            self.advance(count);
            bytes = &bytes[count..];
            self.skip_if_too_long();
        }
    }

    /// Nothing more will come: what is left is the last line.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// The next frame, if one is whole.
    pub fn pop(&mut self) -> Option<Frame<'_>> {
        let (line_end, next) = match memchr(b'\n', &self.buffer[self.scanned..self.filled]) {
            Some(offset) => (self.scanned + offset, self.scanned + offset + 1),
            None if self.finished && (self.start < self.filled || self.skipped.is_some()) => {
                (self.filled, self.filled)
            }
            None => {
                self.scanned = self.filled;
                self.skip_if_too_long();
                return None;
            }
        };
        let line = self.start..line_end;
        self.start = next;
        self.scanned = next;
        if let Some(skipped) = self.skipped.take() {
            self.head = skipped.head;
            let bytes = skipped.bytes + line.len() as u64;
            return Some(Frame::Skipped { bytes, head: &self.head });
        }
        if line.len() > self.limit {
            let head = &self.buffer[line.start..line.start + HEAD.min(line.len())];
            return Some(Frame::Skipped { bytes: line.len() as u64, head });
        }
        Some(Frame::Line(&self.buffer[line]))
    }

    /// Forgets the bytes of a line that is over the limit already, but for its head.
    fn skip_if_too_long(&mut self) {
        let pending = self.filled - self.start;
        let over = self.skipped.is_some() || pending > self.limit;
        if !over || memchr(b'\n', &self.buffer[self.start..self.filled]).is_some() {
            return;
        }
        let skipped = self.skipped.get_or_insert_with(|| Skipped {
            bytes: 0,
            head: self.buffer[self.start..self.start + HEAD.min(pending)].to_vec(),
        });
        skipped.bytes += pending as u64;
        (self.start, self.scanned) = (self.filled, self.filled);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lines(chunks: &[&[u8]], limit: usize) -> Vec<Result<Vec<u8>, u64>> {
        let mut framer = LineFramer::new(limit);
        let mut out = Vec::new();
        let mut drain = |framer: &mut LineFramer| {
            while let Some(frame) = framer.pop() {
                out.push(match frame {
                    Frame::Line(line) => Ok(line.to_vec()),
                    Frame::Skipped { bytes, .. } => Err(bytes),
                });
            }
        };
        for chunk in chunks {
            framer.push(chunk);
            drain(&mut framer);
        }
        framer.finish();
        drain(&mut framer);
        out
    }

    #[test]
    fn the_last_line_without_a_newline_is_not_lost() {
        assert_eq!(lines(&[b"a\nb"], 10), [Ok(b"a".to_vec()), Ok(b"b".to_vec())]);
        assert_eq!(lines(&[b"a\n"], 10), [Ok(b"a".to_vec())]);
    }

    #[test]
    fn bytes_split_at_newline_only() {
        let text = "a\u{2028}b\rc\u{85}d\n".as_bytes();
        assert_eq!(lines(&[text], 100), [Ok(text[..text.len() - 1].to_vec())]);
    }

    #[test]
    fn a_line_over_the_limit_is_skipped_and_reading_goes_on() {
        let long = vec![b'x'; 300_000];
        let got = lines(&[b"ok\n", &long, &long, b"\nnext\n"], 1000);
        assert_eq!(got, [Ok(b"ok".to_vec()), Err(600_000), Ok(b"next".to_vec())]);
    }

    #[test]
    fn the_head_of_a_skipped_line_is_kept() {
        let mut framer = LineFramer::new(10);
        framer.push(br#"{"id":7,"result":"#);
        framer.push(&[b'x'; 100]);
        framer.push(b"\n");
        let Some(Frame::Skipped { head, .. }) = framer.pop() else { panic!("not skipped") };
        assert!(head.starts_with(br#"{"id":7,"#));
    }

    #[test]
    fn the_head_of_a_skipped_line_begins_where_the_line_does() {
        let mut framer = LineFramer::new(10);
        framer.push(b"short\nlonger than ten bytes\nshort\n");
        assert_eq!(framer.pop(), Some(Frame::Line(b"short")));
        let line = b"longer than ten bytes".as_slice();
        assert_eq!(framer.pop(), Some(Frame::Skipped { bytes: line.len() as u64, head: line }));
        assert_eq!(framer.pop(), Some(Frame::Line(b"short")));
    }

    #[test]
    fn memory_is_bounded_though_reads_never_end_with_a_line() {
        let mut framer = LineFramer::new(DEFAULT_LINE_LIMIT);
        let bytes = [[b'x'; 999].as_slice(), b"\n"].concat().repeat(20_000);
        let (mut lines, mut largest) = (0, 0);
        // Next to no piece ends where a line does.
        for piece in bytes.chunks(1499) {
            framer.push(piece);
            while framer.pop().is_some() {
                lines += 1;
            }
            largest = largest.max(framer.buffer.len());
        }
        assert_eq!(lines, 20_000);
        assert!(largest <= 4 * CHUNK, "{largest}");
    }

    #[test]
    fn memory_is_bounded_by_the_limit_of_a_line() {
        for (limit, length) in [(5 * CHUNK, 5 * CHUNK), (10, 100 * CHUNK)] {
            let mut framer = LineFramer::new(limit);
            for piece in vec![b'x'; length].chunks(CHUNK / 2) {
                framer.push(piece);
                assert!(framer.pop().is_none());
                assert!(framer.buffer.len() <= limit + 2 * CHUNK, "{}", framer.buffer.len());
            }
        }
        // The same where bytes are read right into the buffer.
        let mut framer = LineFramer::new(10);
        for _ in 0..100 {
            let room = framer.room();
            room.fill(b'x');
            let count = room.len();
            framer.advance(count);
            assert!(framer.pop().is_none());
            assert!(framer.buffer.len() <= 10 + 2 * CHUNK, "{}", framer.buffer.len());
        }
    }

    #[test]
    fn memory_comes_back_behind_a_long_line() {
        let mut framer = LineFramer::new(DEFAULT_LINE_LIMIT);
        framer.push(&vec![b'x'; 8 << 20]);
        framer.push(b"\n");
        assert!(matches!(framer.pop(), Some(Frame::Line(line)) if line.len() == 8 << 20));
        framer.push(b"y\n");
        assert!(framer.buffer.len() <= 4 * CHUNK);
    }

    proptest! {
        /// However the bytes are cut into reads, the lines are those of the whole.
        #[test]
        fn framing_does_not_depend_on_how_reads_are_cut(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..400),
            cuts in proptest::collection::vec(1usize..40, 0..40),
            limit in 1usize..60,
        ) {
            let mut chunks = Vec::new();
            let mut rest = bytes.as_slice();
            for cut in cuts {
                let (chunk, tail) = rest.split_at(cut.min(rest.len()));
                chunks.push(chunk);
                rest = tail;
            }
            chunks.push(rest);
            let mut expected: Vec<_> = bytes.split(|byte| *byte == b'\n').collect();
            if expected.last().is_some_and(|last| last.is_empty()) {
                expected.pop();
            }
            let expected: Vec<_> = expected
                .into_iter()
                .map(|line| if line.len() > limit { Err(line.len() as u64) } else { Ok(line.to_vec()) })
                .collect();
            prop_assert_eq!(lines(&chunks, limit), expected);
        }
    }
}
