//! The input of the chat: keys, or the lines of a pipe.
//!
//! All available keys are handled at once, up to the end of a line, so that the line is drawn once and not for
//! each character.

use std::io::BufRead as _;

use tokio::sync::mpsc;

use crate::editor::{Editor, History, Typed};
use crate::keys::Keys;

/// The most keys that are handled before the line is drawn, so that signals are handled in time.
const AT_ONCE: usize = 1 << 12;

/// The input of the chat.
pub(super) struct Input {
    source: Source,
    /// The text that is being typed.
    pub(super) editor: Editor,
}

enum Source {
    /// A terminal.
    Keys(Keys),
    Lines(mpsc::Receiver<String>),
}

impl Input {
    /// The terminal if a person types there, else standard input.
    pub(super) fn new(typing: bool, history: History) -> Self {
        let keys = if typing { Keys::listen() } else { None };
        Self { source: keys.map_or_else(lines, Source::Keys), editor: Editor::new(history) }
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
                    let typed = self.editor.handle(key);
                    if typed != Typed::Edit {
                        return typed;
                    }
                }
                Typed::Edit
            }
        }
    }

    /// Handles Ctrl-C: drops the text that is being typed; whether there was one.
    pub(super) fn interrupt(&mut self) -> bool {
        self.is_typed() && self.editor.clear()
    }

    /// Prepares the terminal again after takopi was suspended.
    pub(super) fn prepare_again(&mut self) {
        if let Source::Keys(keys) = &self.source {
            keys.prepare_again();
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
