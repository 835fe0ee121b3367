//! Where messages come from: keys, or the lines of a pipe.
//!
//! All keys that were pressed are taken at once, up to the end of a line: what is pasted comes by the
//! thousands, and is drawn after the last of them.

use std::io::BufRead as _;

use tokio::sync::mpsc;

use super::editor::{Editor, Typed};
use crate::keys::Keys;

/// The most keys that are taken before the line is drawn, so that a signal is never far behind.
const AT_ONCE: usize = 1 << 16;

/// Where messages come from.
pub(super) struct Input {
    source: Source,
    /// The line that is being typed.
    pub(super) editor: Editor,
}

enum Source {
    /// Somebody who types.
    Keys(Keys),
    Lines(mpsc::Receiver<String>),
}

impl Input {
    /// From the terminal if somebody is typing there, else from standard input.
    pub(super) fn new(typing: bool) -> Self {
        let keys = if typing { Keys::listen() } else { None };
        Self { source: keys.map_or_else(lines, Source::Keys), editor: Editor::default() }
    }

    /// Whether somebody is typing.
    pub(super) fn is_typed(&self) -> bool {
        matches!(self.source, Source::Keys(_))
    }

    /// What comes next. May be dropped at any time.
    pub(super) async fn next(&mut self) -> Typed {
        match &mut self.source {
            Source::Lines(lines) => lines.recv().await.map_or(Typed::End, Typed::Line),
            Source::Keys(keys) => {
                let Some(first) = keys.next().await else { return Typed::End };
                let more = std::iter::from_fn(|| keys.ready()).take(AT_ONCE);
                for key in std::iter::once(first).chain(more) {
                    // Keys are bytes.
                    let typed = self.editor.press(u8::try_from(key).unwrap_or_default());
                    if typed != Typed::Some {
                        return typed;
                    }
                }
                Typed::Some
            }
        }
    }

    /// Somebody pressed Ctrl-C. The terminal throws away what was typed before it and not yet read;
    /// so does this, and nobody waits for the end of a key that may be lost.
    pub(super) fn interrupt(&mut self) {
        if let Source::Keys(keys) = &mut self.source {
            while keys.ready().is_some() {}
        }
        self.editor.interrupt();
    }

    /// Takes the terminal again after takopi was stopped.
    pub(super) fn prepare_again(&mut self) {
        if let Source::Keys(keys) = &self.source {
            keys.prepare_again();
            self.editor.interrupt();
        }
    }
}

/// The lines of standard input, read by a thread of its own: there is no other way to give up
/// reading.
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
        assert_eq!(input.next().await, Typed::Some);
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
        assert_eq!(input.next().await, Typed::Some);
        input.interrupt();
        assert_eq!(input.editor.press(b'\r'), Typed::Line("a".to_owned()));
        // And what was on its way is lost, as what the terminal still had.
        let mut input = pressed(&[b"\x1b[200~", b"more"]);
        input.interrupt();
        assert_eq!(input.next().await, Typed::End);
    }
}
