//! What is streamed for tools that are not complete: output and progress.

use std::borrow::Cow;
use std::collections::HashMap;

use takopi_core::model::{Action, ActionEvent, OUTPUT_TAIL_BYTES, Phase, TakopiEvent, tail};

use crate::CODEX;

/// What kind of text is streamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    /// A message of the agent.
    Message,
    /// What a command or a patch prints.
    Output,
    /// How far a tool is.
    Progress,
}

#[derive(Debug)]
struct Text {
    stream: Stream,
    so_far: String,
}

/// The texts that are streamed for tools that are not complete.
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
            // It is of no action. The text comes again with the completed item.
            return;
        }
        self.mark(&item);
        let streamed = self
            .texts
            .entry(item.into_owned())
            .or_insert_with(|| Text { stream, so_far: String::new() });
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
                events.push(ActionEvent::new(CODEX, action, Phase::Updated).into());
            }
        }
    }

    /// The item's action with what was streamed for it.
    fn action(&self, id: &str) -> Option<Action> {
        let Text { stream, so_far } = self.texts.get(id)?;
        let name = if *stream == Stream::Progress { "progress" } else { "output_tail" };
        Some(self.open.get(id)?.clone().with(name, tail(so_far, OUTPUT_TAIL_BYTES)))
    }

    /// The item is complete.
    pub(super) fn close(&mut self, id: &str) {
        self.news.retain(|known| known != id);
        self.open.remove(id);
        self.texts.remove(id);
    }
}
