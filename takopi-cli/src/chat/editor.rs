//! The line that is being typed.
//!
//! Bytes of the terminal in, lines out. Pasted text is one message, however many lines it has; unknown keys
//! are ignored. The time to draw a line does not depend on its length.

use takopi_bridge::present::{clean, width};
use unicode_segmentation::UnicodeSegmentation as _;

/// Switches the terminal's marks around pasted text on and off.
pub(super) const MARK_PASTE: &str = "\x1b[?2004h";
pub(super) const MARK_NO_PASTE: &str = "\x1b[?2004l";

/// The effect of a byte.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Typed {
    /// The line may have changed.
    Edit,
    /// The line is finished.
    Line(String),
    /// The end of the input.
    End,
}

#[derive(Debug, Default)]
pub(crate) struct Editor {
    text: String,
    /// The first bytes of a character.
    partial: Vec<u8>,
    /// The first bytes of an escape sequence.
    escape: Option<Vec<u8>>,
    source: Source,
}

/// Where the bytes come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Source {
    #[default]
    Keys,
    /// Pasted text: line breaks are part of it.
    Paste,
}

impl Editor {
    /// Handles a byte.
    pub(crate) fn press(&mut self, byte: u8) -> Typed {
        if let Some(mut sequence) = self.escape.take() {
            let first = sequence.is_empty();
            // Otherwise it was Esc alone, or an incomplete sequence: this byte is a key of its own.
            if if first { matches!(byte, b'[' | b'O') } else { (0x20..0x7f).contains(&byte) } {
                sequence.push(byte);
                match sequence.as_slice() {
                    b"[200~" => self.source = Source::Paste,
                    b"[201~" => self.source = Source::Keys,
                    // No sequence is longer than this: drop it rather than everything that follows.
                    open if (first || byte < 0x40) && open.len() < 16 => {
                        self.escape = Some(sequence);
                    }
                    _ => {}
                }
                return Typed::Edit;
            }
        }
        match byte {
            b'\r' | b'\n' if self.source == Source::Paste => self.text.push('\n'),
            b'\r' | b'\n' => return Typed::Line(std::mem::take(&mut self.text)),
            // Ctrl-D.
            0x04 if self.text.is_empty() => return Typed::End,
            0x08 | 0x7f => {
                let last = self.text.grapheme_indices(true).next_back();
                self.text.truncate(last.map_or(0, |(at, _)| at));
            }
            // Ctrl-U and Ctrl-W.
            0x15 => {
                self.interrupt();
                self.text.clear();
            }
            0x17 => {
                let rest = self.text.trim_end();
                let word = rest.rfind(char::is_whitespace).map_or(0, |at| at + 1);
                self.text.truncate(word);
            }
            0x1b => self.escape = Some(Vec::new()),
            b'\t' => self.text.push(' '),
            0..=0x1f => {}
            byte => self.push(byte),
        }
        Typed::Edit
    }

    /// Drops an incomplete character or escape sequence, and ends a paste.
    pub(super) fn interrupt(&mut self) {
        (self.escape, self.source) = (None, Source::Keys);
        self.partial.clear();
    }

    fn push(&mut self, byte: u8) {
        self.partial.push(byte);
        match std::str::from_utf8(&self.partial) {
            Ok(character) => self.text.push_str(character),
            Err(error) if error.error_len().is_none() => return,
            Err(_) => {}
        }
        self.partial.clear();
    }

    /// The end of the line, as much as fits.
    pub(crate) fn shown(&self, room: usize) -> String {
        let mut shown = Vec::new();
        let mut left = room;
        for cluster in self.text.graphemes(true).rev() {
            let cluster = clean(if cluster == "\n" { "⏎" } else { cluster });
            let Some(rest) = left.checked_sub(width(&cluster)) else { break };
            left = rest;
            shown.push(cluster);
        }
        shown.into_iter().rev().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(bytes: &[u8]) -> (Vec<String>, Editor) {
        let mut editor = Editor::default();
        let mut lines = Vec::new();
        for byte in bytes {
            if let Typed::Line(line) = editor.press(*byte) {
                lines.push(line);
            }
        }
        (lines, editor)
    }

    #[test]
    fn characters_of_any_script_are_accepted() {
        assert_eq!(typed("häll🐙o\rnext\n".as_bytes()).0, ["häll🐙o", "next"]);
        assert_eq!(typed(b"a\xff\xc3b\r").0, ["a"], "only invalid bytes are dropped");
    }

    #[test]
    fn backspace_and_ctrl_w_and_ctrl_u_delete() {
        assert_eq!(typed("añ\x7fb\r".as_bytes()).0, ["ab"]);
        assert_eq!(typed(b"one two  \x17three\r").0, ["one three"]);
        assert_eq!(typed(b"nonsense\x15sense\r").0, ["sense"]);
        assert_eq!(typed(b"\x7f\x17\r").0, [""]);
        assert_eq!(
            typed("a👩‍🚀\x7fe\u{301}\x7fb\r".as_bytes()).0,
            ["ab"],
            "whole grapheme clusters are deleted"
        );
    }

    #[test]
    fn pasted_text_is_one_message() {
        assert_eq!(typed(b"\x1b[200~one\ntwo\r\x1b[201~ three\r").0, ["one\ntwo\n three"]);
    }

    #[test]
    fn unknown_keys_are_ignored() {
        assert_eq!(typed(b"a\x1b[A\x1b[1;5Cb\x1bOP\x0cc\r").0, ["abc"]);
    }

    #[test]
    fn an_incomplete_escape_sequence_swallows_no_other_key() {
        assert_eq!(typed(b"\x1ba\x1b\x1b[Ab\x1b\r").0, ["ab"]);
        assert_eq!(typed(b"a\x1b[1\rb\r").0, ["a", "b"], "a sequence without its end");
    }

    #[test]
    fn ctrl_u_ends_a_paste() {
        assert_eq!(typed(b"\x1b[200~a\rb\x15c\r").0, ["c"]);
    }

    #[test]
    fn ctrl_d_ends_the_input_only_on_an_empty_line() {
        assert_eq!(Editor::default().press(4), Typed::End);
        assert_eq!(typed(b"a").1.press(4), Typed::Edit);
    }

    #[test]
    fn the_end_of_a_long_line_is_shown() {
        assert_eq!(typed("abc\u{4e2d}def".as_bytes()).1.shown(4), "def");
        assert_eq!(typed(b"\x1b[200~a\nb").1.shown(10), "a⏎b");
        assert_eq!(typed("\u{4e2d}".as_bytes()).1.shown(1), "");
    }

    #[test]
    fn no_more_of_a_line_is_measured_than_is_shown() {
        // Measuring from the front for each character would take hours.
        let editor = Editor { text: "x".repeat(10_000_000), ..Editor::default() };
        assert_eq!(editor.shown(70), "x".repeat(70));
    }
}
