//! Where messages come from: keys, or the lines of a pipe.

use std::io::BufRead as _;

use tokio::sync::mpsc;

use super::editor::{Editor, Typed};
use crate::keys::Keys;

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
            Source::Keys(keys) => match keys.next().await.and_then(|key| u8::try_from(key).ok()) {
                Some(byte) => self.editor.press(byte),
                None => Typed::End,
            },
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
