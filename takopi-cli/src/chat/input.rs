//! The input of the chat: keys, or the lines of a pipe.
//!
//! All available keys are read at once, up to the end of a line, so that pasted text is drawn once and not
//! for each character.

use std::io::BufRead as _;

use tokio::sync::mpsc;

use super::editor::{Editor, Typed};
use crate::keys::Keys;

/// The most keys that are read before the line is drawn, so that signals are handled in time.
const AT_ONCE: usize = 1 << 16;

/// The input of the chat.
pub(super) struct Input {
    source: Source,
    /// The line that is being typed.
    pub(super) editor: Editor,
}

enum Source {
    /// A terminal.
    Keys(Keys),
    Lines(mpsc::Receiver<String>),
}

impl Input {
    /// The terminal if a person types there, else standard input.
    pub(super) fn new(typing: bool) -> Self {
        let keys = if typing { Keys::listen() } else { None };
        Self { source: keys.map_or_else(lines, Source::Keys), editor: Editor::default() }
    }

    /// Whether it is a terminal.
    pub(super) fn is_typed(&self) -> bool {
        matches!(self.source, Source::Keys(_))
    }

    /// The next input. Cancel-safe.
    pub(super) async fn next(&mut self) -> Typed {
        match &mut self.source {
            Source::Lines(lines) => lines.recv().await.map_or(Typed::End, Typed::Line),
            Source::Keys(keys) => {
                let Some(first) = keys.next().await else { return Typed::End };
                let more = std::iter::from_fn(|| keys.ready()).take(AT_ONCE);
                for key in std::iter::once(first).chain(more) {
                    // Keys are bytes.
                    let typed = self.editor.press(u8::try_from(key).unwrap_or_default());
                    if typed != Typed::Edit {
                        return typed;
                    }
                }
                Typed::Edit
            }
        }
    }

    /// Handles Ctrl-C. The terminal drops unread input at it; so does this, and an incomplete key is not
    /// waited for.
    pub(super) fn interrupt(&mut self) {
        if let Source::Keys(keys) = &mut self.source {
            while keys.ready().is_some() {}
        }
        self.editor.interrupt();
    }

    /// Prepares the terminal again after takopi was suspended.
    pub(super) fn prepare_again(&mut self) {
        if let Source::Keys(keys) = &self.source {
            keys.prepare_again();
            self.editor.interrupt();
        }
    }
}

/// The lines of standard input, read by a thread: a blocking read cannot be cancelled.
fn lines() -> Source {
    let (sender, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    Source::Lines(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pressed(chunks: &[&[u8]]) -> Input {
        let (sender, keys) = mpsc::channel(chunks.len());
        for chunk in chunks {
            sender.try_send(chunk.to_vec()).unwrap();
        }
        Input { source: Source::Keys(Keys::pressed(keys)), editor: Editor::default() }
    }

    #[tokio::test]
    async fn a_long_paste_is_taken_in_before_anything_is_drawn() {
        let letters = [b'x'; 1000];
        let mut chunks = vec![&b"\x1b[200~"[..]];
        chunks.extend([&letters[..]; 60]);
        chunks.push(b"\x1b[201~");
        let mut input = pressed(&chunks);
        assert_eq!(input.next().await, Typed::Edit);
        assert_eq!(input.editor.press(b'\r'), Typed::Line("x".repeat(60_000)));
        assert_eq!(input.next().await, Typed::End);
    }

    #[tokio::test]
    async fn lines_that_come_together_are_taken_one_by_one() {
        let mut input = pressed(&[b"one\rtwo\rthr", b"ee\r"]);
        for line in ["one", "two", "three"] {
            assert_eq!(input.next().await, Typed::Line(line.to_owned()));
        }
    }

    #[tokio::test]
    async fn after_an_interrupt_nothing_is_being_pasted() {
        let mut input = pressed(&[b"a\x1b[200~"]);
        assert_eq!(input.next().await, Typed::Edit);
        input.interrupt();
        assert_eq!(input.editor.press(b'\r'), Typed::Line("a".to_owned()));
        // And what was on its way is lost, as what the terminal still had.
        let mut input = pressed(&[b"\x1b[200~", b"more"]);
        input.interrupt();
        assert_eq!(input.next().await, Typed::End);
    }
}
