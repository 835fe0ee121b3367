//! Search over stored sessions: by what a list shows of them, then by the texts of their messages.
//!
//! A session is found if it has every word of the search, in whatever order and case. Its list entry is looked at
//! first, because that costs nothing; only if a word is missing there are its messages read.

use std::path::Path;

use takopi_bridge::present::one_line;
use takopi_core::catalog::{StoredSession, TranscriptEntry};

use super::is_message;

/// How many characters of a message are shown around a word that was found in it.
const AROUND: usize = 40;

/// What a session has to have.
#[derive(Debug, Clone, Default)]
pub(super) struct Search {
    /// In lower case.
    words: Vec<String>,
}

/// How a session was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    /// By what the list shows of it.
    Listed,
    /// By a message, of which this is a part.
    Said(String),
}

impl Search {
    /// The words of a text. No words are found in every session.
    pub(super) fn new(text: &str) -> Self {
        Self { words: text.split_whitespace().map(str::to_lowercase).collect() }
    }

    /// How a session has all words; its messages are read only if they are needed.
    pub(super) fn find(
        &self,
        session: &StoredSession,
        messages: impl FnOnce() -> Vec<TranscriptEntry>,
    ) -> Option<Found> {
        let listed = listed(session);
        let mut missing: Vec<&str> = self.words.iter().map(String::as_str).collect();
        missing.retain(|word| !listed.contains(word));
        let Some(first) = missing.first().copied() else { return Some(Found::Listed) };
        let mut part = None;
        for entry in messages().iter().filter(|entry| is_message(entry)) {
            let text = entry.text.to_lowercase();
            if part.is_none() && text.contains(first) {
                part = Some(around(&entry.text, first));
            }
            missing.retain(|word| !text.contains(word));
            if missing.is_empty() {
                break;
            }
        }
        part.filter(|_| missing.is_empty()).map(Found::Said)
    }
}

/// What a list shows of a session, in lower case.
fn listed(session: &StoredSession) -> String {
    let directory = session.cwd.as_deref().map(Path::to_string_lossy);
    let texts = [
        session.name.as_deref(),
        session.first_prompt.as_deref(),
        directory.as_deref(),
        Some(session.token.engine.as_str()),
        Some(session.token.value.as_str()),
    ];
    // A word is in one of them, not across two.
    texts.into_iter().flatten().collect::<Vec<_>>().join("\n").to_lowercase()
}

/// The part of a text around a word, in one line.
fn around(text: &str, word: &str) -> String {
    // In lower case a text may have another length: its characters are counted instead.
    let lower: String = text.to_lowercase();
    let before = lower.find(word).map_or(0, |at| lower[..at].chars().count());
    let start = before.saturating_sub(AROUND);
    let part: String = text.chars().skip(start).take(AROUND * 3).collect();
    let mark = if start > 0 { "…" } else { "" };
    format!("{mark}{}", one_line(part.trim_start(), AROUND * 2 + word.chars().count()))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use takopi_core::ResumeToken;
    use takopi_core::catalog::Role;

    use super::*;

    fn session() -> StoredSession {
        let mut session =
            StoredSession::new(ResumeToken::new("codex", "01a1"), Timestamp::UNIX_EPOCH);
        session.first_prompt = Some("Count the files".to_owned());
        session
    }

    fn find(words: &str) -> Option<Found> {
        let messages = || {
            vec![
                TranscriptEntry::new(Role::User, "Count the files"),
                TranscriptEntry::new(Role::Command, "ls octopus"),
                TranscriptEntry::new(Role::Agent, "There are\nTHREE hearts."),
            ]
        };
        Search::new(words).find(&session(), messages)
    }

    #[test]
    fn every_word_counts_wherever_it_is_and_commands_do_not() {
        assert_eq!(find("FILES codex 01a1"), Some(Found::Listed));
        assert_eq!(find("three count"), Some(Found::Said("There are THREE hearts.".to_owned())));
        assert_eq!(find("three squid"), None);
        assert_eq!(find("octopus"), None);
    }

    #[test]
    fn messages_are_read_only_if_a_word_is_missing() {
        let unread = || panic!("they are not needed");
        assert_eq!(Search::new("count files").find(&session(), unread), Some(Found::Listed));
        assert_eq!(Search::new(" ").find(&session(), unread), Some(Found::Listed));
    }

    #[test]
    fn the_part_that_is_shown_has_the_word() {
        let text = format!("{} İstanbul needle {}", "before ".repeat(50), "after ".repeat(50));
        let part = around(&text, "needle");
        assert!(part.starts_with('…') && part.contains("needle"), "{part}");
        assert!(part.chars().count() < 100, "{part}");
    }
}
