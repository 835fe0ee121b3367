//! The line that is being typed.
//!
//! Bytes of the terminal in, lines out. A pasted text is one message, however many lines it has; keys
//! that mean nothing here do nothing. To show a line takes no longer however long it is.

use takopi_bridge::present::{clean, width};
use unicode_segmentation::UnicodeSegmentation as _;

/// Has the terminal mark what is pasted, and not any more.
pub(super) const MARK_PASTE: &str = "\x1b[?2004h";
pub(super) const MARK_NO_PASTE: &str = "\x1b[?2004l";

/// What a byte did.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Typed {
    /// The line may look different.
    Some,
    /// The line is finished.
    Line(String),
    /// There will be no more.
    End,
}

#[derive(Debug, Default)]
pub(super) struct Editor {
    text: String,
    /// The beginning of a letter.
    letter: Vec<u8>,
    /// The beginning of an escape sequence.
    escape: Option<Vec<u8>>,
    pasting: bool,
}

impl Editor {
    /// Takes in a byte.
    pub(super) fn press(&mut self, byte: u8) -> Typed {
        if let Some(mut sequence) = self.escape.take() {
            let first = sequence.is_empty();
            // Else it was Esc alone, or a sequence that was cut short: this key counts.
            if if first { matches!(byte, b'[' | b'O') } else { (0x20..0x7f).contains(&byte) } {
                sequence.push(byte);
                match sequence.as_slice() {
                    b"[200~" => self.pasting = true,
                    b"[201~" => self.pasting = false,
                    // No sequence is that long: better lose it than all that follows.
                    open if (first || byte < 0x40) && open.len() < 16 => {
                        self.escape = Some(sequence);
                    }
                    _ => {}
                }
                return Typed::Some;
            }
        }
        match byte {
            b'\r' | b'\n' if self.pasting => self.text.push('\n'),
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
            byte => self.letter(byte),
        }
        Typed::Some
    }

    /// What has begun and not ended, a letter or a key or a paste, will not.
    pub(super) fn interrupt(&mut self) {
        (self.escape, self.pasting) = (None, false);
        self.letter.clear();
    }

    fn letter(&mut self, byte: u8) {
        self.letter.push(byte);
        match std::str::from_utf8(&self.letter) {
            Ok(letter) => self.text.push_str(letter),
            Err(error) if error.error_len().is_none() => return,
            Err(_) => {}
        }
        self.letter.clear();
    }

    /// The end of the line, as much as there is room for.
    pub(super) fn shown(&self, room: usize) -> String {
        let mut shown = Vec::new();
        let mut left = room;
        for letter in self.text.graphemes(true).rev() {
            let letter = clean(if letter == "\n" { "⏎" } else { letter });
            let Some(rest) = left.checked_sub(width(&letter)) else { break };
            left = rest;
            shown.push(letter);
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
    fn letters_of_any_script_make_lines() {
        assert_eq!(typed("häll🐙o\rnext\n".as_bytes()).0, ["häll🐙o", "next"]);
        assert_eq!(typed(b"a\xff\xc3b\r").0, ["a"], "what is no letter is lost, and no more");
    }

    #[test]
    fn what_was_typed_can_be_taken_back() {
        assert_eq!(typed("añ\x7fb\r".as_bytes()).0, ["ab"]);
        assert_eq!(typed(b"one two  \x17three\r").0, ["one three"]);
        assert_eq!(typed(b"nonsense\x15sense\r").0, ["sense"]);
        assert_eq!(typed(b"\x7f\x17\r").0, [""]);
        assert_eq!(typed("a👩‍🚀\x7fe\u{301}\x7fb\r".as_bytes()).0, ["ab"], "as people see them");
    }

    #[test]
    fn a_pasted_text_is_one_message() {
        assert_eq!(typed(b"\x1b[200~one\ntwo\r\x1b[201~ three\r").0, ["one\ntwo\n three"]);
    }

    #[test]
    fn keys_that_mean_nothing_here_do_nothing() {
        assert_eq!(typed(b"a\x1b[A\x1b[1;5Cb\x1bOP\x0cc\r").0, ["abc"]);
    }

    #[test]
    fn escape_alone_takes_no_other_key_with_it() {
        assert_eq!(typed(b"\x1ba\x1b\x1b[Ab\x1b\r").0, ["ab"]);
        assert_eq!(typed(b"a\x1b[1\rb\r").0, ["a", "b"], "nor does a key that was cut short");
    }

    #[test]
    fn a_paste_that_does_not_end_is_over_with_the_line() {
        assert_eq!(typed(b"\x1b[200~a\rb\x15c\r").0, ["c"]);
    }

    #[test]
    fn only_an_empty_line_ends_it() {
        assert_eq!(Editor::default().press(4), Typed::End);
        assert_eq!(typed(b"a").1.press(4), Typed::Some);
    }

    #[test]
    fn the_end_of_a_long_line_is_shown() {
        assert_eq!(typed("abc\u{4e2d}def".as_bytes()).1.shown(4), "def");
        assert_eq!(typed(b"\x1b[200~a\nb").1.shown(10), "a⏎b");
        assert_eq!(typed("\u{4e2d}".as_bytes()).1.shown(1), "");
    }

    #[test]
    fn no_more_of_a_line_is_measured_than_is_shown() {
        // Measured from the front, again for each letter, this would not end in hours.
        let editor = Editor { text: "x".repeat(10_000_000), ..Editor::default() };
        assert_eq!(editor.shown(70), "x".repeat(70));
    }
}
