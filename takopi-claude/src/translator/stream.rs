//! Pieces of the answer while it is written, for runs that ask for them.
//!
//! An action of kind `answer` for each message with text: started, `updated` with only the new text as
//! its message, completed. The pieces joined are the text of the message, as the answer has it.

use std::collections::VecDeque;

use takopi_core::model::{Action, ActionEvent, ActionKind, Phase, TakopiEvent};

use super::answer::Edge;
use crate::CLAUDE;
use crate::wire::{Stream, StreamEvent};

/// How many messages are remembered.
const REMEMBERED: usize = 8;

/// The message that is written.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    message: Option<String>,
    edge: Edge,
    /// Whether the next piece begins a block.
    begins: bool,
    /// Whether the block has citations.
    is_cited: bool,
    is_open: bool,
    streamed: VecDeque<String>,
}

impl Pieces {
    pub(super) fn stream(&mut self, stream: &Stream, events: &mut Vec<TakopiEvent>) {
        match &stream.event {
            StreamEvent::MessageStart => {
                self.close(events);
                self.message.clone_from(&stream.message_id);
            }
            StreamEvent::TextStart { is_cited } => {
                self.begins = true;
                self.is_cited = *is_cited;
            }
            StreamEvent::Text(text) => self.piece(text, events),
            StreamEvent::MessageStop => self.close(events),
            StreamEvent::Other => {}
        }
    }

    /// Whether the text of a message was emitted in pieces.
    pub(super) fn has(&self, message: Option<&str>) -> bool {
        message.is_some_and(|message| self.streamed.iter().any(|known| known == message))
    }

    /// The message is complete, or what follows it will never come.
    pub(super) fn close(&mut self, events: &mut Vec<TakopiEvent>) {
        if std::mem::take(&mut self.is_open)
            && let Some(message) = &self.message
        {
            events
                .push(ActionEvent::new(CLAUDE, action(message), Phase::Completed).ok(true).into());
        }
        self.edge = Edge::default();
        self.begins = false;
        self.message = None;
    }

    fn piece(&mut self, text: &str, events: &mut Vec<TakopiEvent>) {
        let Some(message) = &self.message else { return };
        if text.is_empty() {
            return;
        }
        if !self.is_open {
            self.is_open = true;
            if self.streamed.len() == REMEMBERED {
                self.streamed.pop_front();
            }
            self.streamed.push_back(message.clone());
            events.push(ActionEvent::new(CLAUDE, action(message), Phase::Started).into());
        }
        let begins = std::mem::take(&mut self.begins);
        let separator = if begins { self.edge.separator(text, self.is_cited) } else { "" };
        self.edge = self.edge.after(text, self.is_cited);
        let piece = format!("{separator}{text}");
        events
            .push(ActionEvent::new(CLAUDE, action(message), Phase::Updated).message(piece).into());
    }
}

fn action(message: &str) -> Action {
    Action::new(message, ActionKind::from("answer"), "answer")
}
