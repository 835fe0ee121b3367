//! Search over stored sessions: by what a list shows of them, then by the texts of their messages.
//!
//! A session is found if it has every word of the search, in whatever order and case. Its list entry is looked at
//! first, because that costs nothing; only if a word is missing there are its messages read. A search can have
//! [`Limits`], and reports what it left out because of them.

use std::path::Path;
use std::time::{Duration, Instant};

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

/// What a search may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// How long it takes at most, but for the session that it looks at then.
    pub(super) time: Duration,
    /// The messages of a larger file are not read, in bytes.
    pub(super) file: u64,
}

/// What a search did not look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct LeftOut {
    /// The time was over: sessions that are older than those it looked at.
    pub(super) older: bool,
    /// The messages of this many sessions.
    pub(super) large: usize,
}

/// The sessions of a list that a search found.
pub(super) struct Hits<'a, L, R> {
    search: &'a Search,
    list: L,
    /// Reads the messages of a session.
    read: R,
    limits: Option<Limits>,
    began: Instant,
    pub(super) left_out: LeftOut,
}

impl<L, R> Iterator for Hits<'_, L, R>
where
    L: Iterator<Item = StoredSession>,
    R: Fn(&StoredSession) -> Vec<TranscriptEntry>,
{
    type Item = (StoredSession, Found);

    fn next(&mut self) -> Option<Self::Item> {
        while !self.left_out.older {
            let session = self.list.next()?;
            if self.limits.is_some_and(|it| self.began.elapsed() >= it.time) {
                self.left_out.older = true;
                break;
            }
            let messages = || {
                let size = session.file.as_ref().and_then(|it| it.metadata().ok());
                let size = size.map_or(0, |it| it.len());
                if self.limits.is_some_and(|it| size > it.file) {
                    self.left_out.large += 1;
                    return Vec::new();
                }
                (self.read)(&session)
            };
            if let Some(found) = self.search.find(&session, messages) {
                return Some((session, found));
            }
        }
        None
    }
}

impl Search {
    /// Whether it finds every session.
    pub(super) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The sessions of this list that have all words.
    pub(super) fn of<L, R>(&self, list: L, read: R, limits: Option<Limits>) -> Hits<'_, L, R> {
        let (began, left_out) = (Instant::now(), LeftOut::default());
        Hits { search: self, list, read, limits, began, left_out }
    }

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
    fn a_search_ends_at_its_limits_and_says_what_it_left_out() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(10).unwrap();
        let list = || {
            let mut large = session();
            large.file = Some(file.path().to_owned());
            [large, session()].into_iter()
        };
        let read = |_: &StoredSession| vec![TranscriptEntry::new(Role::Agent, "squid")];
        let found = |time: Duration, size: u64| {
            let search = Search::new("squid");
            let mut hits = search.of(list(), read, Some(Limits { time, file: size }));
            (hits.by_ref().count(), hits.left_out)
        };
        let long = Duration::from_hours(1);
        assert_eq!(found(long, 10), (2, LeftOut::default()));
        assert_eq!(found(long, 9), (1, LeftOut { older: false, large: 1 }));
        assert_eq!(found(Duration::ZERO, 10), (0, LeftOut { older: true, large: 0 }));
        let search = Search::new("squid");
        assert_eq!(search.of(list(), read, None).count(), 2);
    }

    #[test]
    fn the_part_that_is_shown_has_the_word() {
        let text = format!("{} İstanbul needle {}", "before ".repeat(50), "after ".repeat(50));
        let part = around(&text, "needle");
        assert!(part.starts_with('…') && part.contains("needle"), "{part}");
        assert!(part.chars().count() < 100, "{part}");
    }
}
