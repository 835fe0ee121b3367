//! What was typed before, in this run and in earlier ones.

use std::path::PathBuf;

use reedline::{FileBackedHistory, History as _, HistoryItem, SearchDirection, SearchQuery};

/// How many texts are kept.
const KEPT: usize = 1000;
/// A longer text is not kept.
const LONGEST: usize = 8 << 10;

/// The history, newest first. Without a file it is empty and keeps nothing.
#[derive(Debug, Default)]
pub(crate) struct History {
    file: Option<FileBackedHistory>,
    entries: Vec<String>,
}

impl History {
    /// The history in this file. One that cannot be read or written is no reason not to chat.
    pub(crate) fn open(file: PathBuf) -> Self {
        let file = FileBackedHistory::with_file(KEPT, file)
            .inspect_err(|error| tracing::warn!(%error, "cannot read the history of the chat"))
            .ok();
        let everything = SearchQuery::everything(SearchDirection::Backward, None);
        let found = file.as_ref().and_then(|file| file.search(everything).ok()).unwrap_or_default();
        Self { file, entries: found.into_iter().map(|item| item.command_line).collect() }
    }

    /// Adds a text.
    pub(super) fn add(&mut self, text: &str) {
        let Some(file) = &mut self.file else { return };
        if text.trim().is_empty()
            || text.len() > LONGEST
            || self.entries.first().is_some_and(|it| it == text)
        {
            return;
        }
        self.entries.insert(0, text.to_owned());
        self.entries.truncate(KEPT);
        let saved = file.save(HistoryItem::from_command_line(text)).map(|_| file.sync());
        if !matches!(saved, Ok(Ok(()))) {
            tracing::warn!("cannot write the history of the chat");
        }
    }

    /// The entry that is this far back.
    pub(super) fn entry(&self, back: usize) -> Option<&str> {
        self.entries.get(back).map(String::as_str)
    }

    /// The newest entry with this text that is at least so far back.
    pub(super) fn find(&self, text: &str, from: usize) -> Option<usize> {
        let mut older = self.entries.iter().enumerate().skip(from);
        older.find(|(_, entry)| !text.is_empty() && entry.contains(text)).map(|(at, _)| at)
    }
}
