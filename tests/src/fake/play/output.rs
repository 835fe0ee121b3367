//! Writing to stdout and stderr. Every call is whole: no other thread writes in between.

use std::io::{self, BufWriter, Write};

use crate::fake::OUTPUT_LOST;

static FILLING: [u8; 64 * 1024] = [b'x'; 64 * 1024];

/// Writes bytes to stdout.
pub fn stdout(bytes: &[u8]) {
    let mut out = io::stdout().lock();
    check(&out.write_all(bytes).and_then(|()| out.flush()));
}

/// Writes a line to stdout.
pub fn line(mut text: String) {
    text.push('\n');
    stdout(text.as_bytes());
}

/// Writes many lines to stdout.
pub fn lines(lines: impl Iterator<Item = String>) {
    let mut out = BufWriter::with_capacity(FILLING.len(), io::stdout().lock());
    for line in lines {
        check(&writeln!(out, "{line}"));
    }
    check(&out.flush());
}

/// Writes a line of `len` bytes to stdout that begins and ends as given.
pub fn huge(head: &str, tail: &str, len: usize) {
    let mut out = io::stdout().lock();
    check(&out.write_all(head.as_bytes()));
    let mut missing = len.saturating_sub(head.len() + tail.len());
    while missing > 0 {
        let chunk = &FILLING[..missing.min(FILLING.len())];
        check(&out.write_all(chunk));
        missing -= chunk.len();
    }
    check(&writeln!(out, "{tail}").and_then(|()| out.flush()));
}

/// Writes a line to stderr; it may be lost when there is no reader.
pub fn stderr(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Writes at least this many bytes of log lines to stderr.
pub fn flood_stderr(bytes: usize) {
    let line = format!("WARN fake: {}", "noise ".repeat(20));
    let mut err = BufWriter::with_capacity(FILLING.len(), io::stderr().lock());
    for _ in 0..=bytes / (line.len() + 1) {
        let _ = writeln!(err, "{line}");
    }
    let _ = err.flush();
}

fn check(result: &io::Result<()>) {
    if result.is_err() {
        std::process::exit(OUTPUT_LOST);
    }
}
