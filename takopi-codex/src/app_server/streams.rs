//! What is streamed for items that are not complete: texts, output, progress.

use std::borrow::Cow;
use std::collections::HashMap;

use takopi_core::model::{
    Action, ActionEvent, ActionKind, OUTPUT_TAIL_BYTES, Phase, TakopiEvent, tail,
};

use crate::CODEX;

/// What kind of text is streamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    /// A message of the agent.
    Message,
    /// Reasoning, or a plan as text.
    Note,
    /// What a command or a patch prints.
    Output,
    /// How far a tool is.
    Progress,
}

#[derive(Debug)]
struct Text {
    stream: Stream,
    so_far: String,
    /// Whether it was emitted to the consumer.
    emitted: bool,
}

/// The texts that are streamed for items that are not complete.
#[derive(Debug, Default)]
pub(super) struct Streams {
    open: HashMap<String, Action>,
    texts: HashMap<String, Text>,
    /// Items with news, in the order of it.
    news: Vec<String>,
}

impl Streams {
    pub(super) fn opened(&mut self, action: &Action) {
        self.open.insert(action.id.clone(), action.clone());
    }

    /// Adds what was streamed for an item. Progress replaces what was there.
    pub(super) fn add(&mut self, stream: Stream, item: Cow<'_, str>, text: &str) {
        if item.trim().is_empty() {
            // No action can be made of it. The text comes again with the completed item.
            return;
        }
        self.mark(&item);
        let streamed = self.texts.entry(item.into_owned()).or_insert_with(|| Text {
            stream,
            so_far: String::new(),
            emitted: false,
        });
        if stream == Stream::Progress {
            streamed.so_far.clear();
        }
        streamed.so_far.push_str(text);
        if streamed.so_far.len() > 2 * OUTPUT_TAIL_BYTES {
            streamed.so_far = tail(&streamed.so_far, OUTPUT_TAIL_BYTES).to_owned();
        }
    }

    fn mark(&mut self, id: &str) {
        if !self.news.iter().any(|known| known == id) {
            self.news.push(id.to_owned());
        }
    }

    pub(super) fn flush(&mut self, events: &mut Vec<TakopiEvent>) {
        for id in std::mem::take(&mut self.news) {
            if let Some(action) = self.action(&id) {
                if let Some(text) = self.texts.get_mut(&id) {
                    text.emitted = true;
                }
                events.push(ActionEvent::new(CODEX, action, Phase::Updated).into());
            }
        }
    }

    /// The item's action with what was streamed for it.
    fn action(&self, id: &str) -> Option<Action> {
        let Text { stream, so_far, .. } = self.texts.get(id)?;
        let text = tail(so_far, OUTPUT_TAIL_BYTES);
        Some(match stream {
            Stream::Message => Action::new(id, ActionKind::Note, text).with("stream", "message"),
            Stream::Note => Action::new(id, ActionKind::Note, text),
            Stream::Output => self.open.get(id)?.clone().with("output_tail", text),
            Stream::Progress => self.open.get(id)?.clone().with("progress", text),
        })
    }

    /// The item is complete; what closes an action that only its stream had opened.
    pub(super) fn close(&mut self, id: &str) -> Option<ActionEvent> {
        self.news.retain(|known| known != id);
        let action = self.action(id);
        self.open.remove(id);
        let Text { stream, emitted, .. } = self.texts.remove(id)?;
        let opened_by_stream = emitted && matches!(stream, Stream::Message | Stream::Note);
        let action = action.filter(|_| opened_by_stream)?;
        Some(ActionEvent::new(CODEX, action, Phase::Completed).ok(true))
    }
}
