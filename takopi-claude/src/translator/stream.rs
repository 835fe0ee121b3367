//! Pieces of the answer while it is written, for runs that ask for them.
//!
//! The pieces joined are the text of the message, as the answer has it: with the same separators between
//! its blocks.

use takopi_core::model::{AnswerPieces, TakopiEvent};

use super::answer::Edge;
use crate::CLAUDE;
use crate::wire::{Stream, StreamEvent};

/// The message that is written.
#[derive(Debug)]
pub(super) struct Pieces {
    events: AnswerPieces,
    message: Option<String>,
    edge: Edge,
    /// Whether the next piece begins a block.
    begins: bool,
    /// Whether the block has citations.
    is_cited: bool,
}

impl Pieces {
    pub(super) fn new() -> Self {
        Self {
            events: AnswerPieces::new(CLAUDE),
            message: None,
            edge: Edge::default(),
            begins: false,
            is_cited: false,
        }
    }

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
        message.is_some_and(|message| self.events.has(message))
    }

    /// The message is complete, or what follows it will never come.
    pub(super) fn close(&mut self, events: &mut Vec<TakopiEvent>) {
        self.events.close(events);
        self.edge = Edge::default();
        self.begins = false;
        self.message = None;
    }

    fn piece(&mut self, text: &str, events: &mut Vec<TakopiEvent>) {
        let Some(message) = &self.message else { return };
        if text.is_empty() {
            return;
        }
        let begins = std::mem::take(&mut self.begins);
        let separator = if begins { self.edge.separator(text, self.is_cited) } else { "" };
        self.edge = self.edge.after(text, self.is_cited);
        self.events.piece(message, &format!("{separator}{text}"), events);
    }
}
