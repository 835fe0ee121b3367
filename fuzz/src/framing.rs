//! Framing: however the bytes are cut, the lines are those between the newlines.

use takopi_core::process::{Frame, LineFramer};

/// A line, or the length of one that was too long.
#[derive(Debug, PartialEq)]
enum Line {
    Whole(Vec<u8>),
    Skipped(u64),
}

fn pop_all(framer: &mut LineFramer, lines: &mut Vec<Line>) {
    while let Some(frame) = framer.pop() {
        lines.push(match frame {
            Frame::Line(line) => Line::Whole(line.to_vec()),
            Frame::Skipped { bytes, .. } => Line::Skipped(bytes),
            _ => continue,
        });
    }
}

/// The first two bytes are the limit of a line and the size of a read.
pub(crate) fn lines(input: &[u8]) {
    let (limit, rest) = crate::number(input);
    let (cut, bytes) = crate::number(rest);
    let mut framer = LineFramer::new(limit);
    let mut lines = Vec::new();
    for piece in bytes.chunks(cut.max(1)) {
        framer.push(piece);
        pop_all(&mut framer, &mut lines);
    }
    framer.finish();
    pop_all(&mut framer, &mut lines);

    let mut parts: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    if parts.last().is_some_and(|last| last.is_empty()) {
        parts.pop();
    }
    let expected: Vec<Line> = parts
        .into_iter()
        .map(|part| match part.len() {
            length if length > limit => Line::Skipped(length as u64),
            _ => Line::Whole(part.to_vec()),
        })
        .collect();
    assert_eq!(lines, expected, "limit {limit}, pieces of {cut}");
}
