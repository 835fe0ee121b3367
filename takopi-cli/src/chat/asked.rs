//! The approval requests of the chat.
//!
//! An agent and its sub-agents may ask several things at once, and a decision does not name what it decides. Promises:
//! - of each conversation one request is shown, and the next one when that is settled;
//! - what belongs to a request, as its diffs, is shown right before it;
//! - whoever decides can know whether a request was shown before they began to type.

use std::collections::{BTreeMap, VecDeque};

use takopi_bridge::transport::{Content, MessageRef};

/// A request, or a message that belongs to the one behind it.
#[derive(Debug, Clone)]
struct Entry {
    message: MessageRef,
    content: Content,
    /// Its number, once it is shown.
    shown: Option<u64>,
}

impl Entry {
    /// Whether it can be decided.
    fn is_request(&self) -> bool {
        !self.content.buttons.is_empty()
    }
}

/// The open approval requests.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// By chat, in the order they came: only the first one is shown.
    entries: BTreeMap<String, VecDeque<Entry>>,
    /// How many requests were shown so far.
    shown: u64,
}

impl Asked {
    /// Takes a request, its outcome, or a message that belongs to the next one. Returns what is to be shown now.
    pub(super) fn change(&mut self, message: MessageRef, content: Content) -> Vec<Content> {
        let chat = message.chat.clone();
        let entries = self.entries.entry(chat.clone()).or_default();
        match entries.iter().position(|it| it.message == message) {
            // The step that it became says how it was decided.
            Some(_) if content.buttons.is_empty() => return self.remove(&message),
            Some(at) => entries[at].content = content,
            None => entries.push_back(Entry { message, content, shown: None }),
        }
        self.next(&chat)
    }

    /// The message of a request is gone, or it is settled. Returns what is to be shown now.
    pub(super) fn remove(&mut self, message: &MessageRef) -> Vec<Content> {
        let Some(entries) = self.entries.get_mut(&message.chat) else { return Vec::new() };
        let Some(at) = entries.iter().position(|it| it.message == *message) else {
            return Vec::new();
        };
        // Of one that was never shown, what belongs to it is not needed either.
        let before = entries.range(..at).rev().take_while(|it| !it.is_request()).count();
        entries.drain(at - before..=at);
        self.next(&message.chat)
    }

    /// What is to be shown of a chat, up to its first request.
    fn next(&mut self, chat: &str) -> Vec<Content> {
        let mut contents = Vec::new();
        let Some(entries) = self.entries.get_mut(chat) else { return contents };
        while let Some(first) = entries.front_mut().filter(|first| first.shown.is_none()) {
            contents.push(first.content.clone());
            if first.is_request() {
                first.shown = Some(self.shown);
                self.shown += 1;
            } else {
                entries.pop_front();
            }
        }
        if entries.is_empty() {
            self.entries.remove(chat);
        }
        contents
    }

    /// How many requests were shown so far.
    pub(super) fn shown(&self) -> u64 {
        self.shown
    }

    /// The request of a chat that is shown, and how many were shown before it.
    pub(super) fn of(&self, chat: &str) -> Option<(&MessageRef, u64)> {
        let first = self.entries.get(chat)?.front()?;
        Some((&first.message, first.shown?))
    }

    /// All requests, those that are not shown yet too.
    pub(super) fn all(&self) -> impl Iterator<Item = &MessageRef> {
        let entries = self.entries.values().flatten();
        entries.filter(|it| it.is_request()).map(|it| &it.message)
    }
}

#[cfg(test)]
mod tests {
    use takopi_bridge::transport::{Kind, MessageId, Press};
    use takopi_core::Decision;

    use super::*;

    fn at(chat: &str, id: &str) -> MessageRef {
        MessageId::from(id.to_owned()).at(chat)
    }

    /// A message, or with a button a request.
    fn says(text: &str, buttons: &[Press]) -> Content {
        Content::new(Kind::Question, text).buttons(buttons.to_vec())
    }

    fn texts(contents: Vec<Content>) -> Vec<String> {
        contents.into_iter().map(|content| content.text).collect()
    }

    const ACCEPT: &[Press] = &[Press::Choose(Decision::Accept)];

    #[test]
    fn of_each_conversation_one_request_is_shown_at_a_time() {
        let mut asked = Asked::default();
        assert_eq!(texts(asked.change(at("1", "a"), says("curl", ACCEPT))), ["curl"]);
        assert_eq!(asked.change(at("1", "b"), says("ls", ACCEPT)), []);
        assert_eq!(texts(asked.change(at("2", "c"), says("rm", ACCEPT))), ["rm"]);
        assert_eq!(asked.of("1"), Some((&at("1", "a"), 0)));
        assert_eq!(asked.of("2"), Some((&at("2", "c"), 1)));
        assert_eq!(asked.all().count(), 3);
        assert_eq!(texts(asked.change(at("1", "a"), says("curl: accepted", &[]))), ["ls"]);
        assert_eq!(asked.of("1"), Some((&at("1", "b"), 2)));
        assert_eq!(asked.shown(), 3);
        assert_eq!(asked.remove(&at("1", "b")), []);
        assert_eq!(asked.of("1"), None);
    }

    #[test]
    fn the_messages_of_a_request_wait_and_go_with_it() {
        let mut asked = Asked::default();
        assert_eq!(texts(asked.change(at("1", "d"), says("its diff", &[]))), ["its diff"]);
        assert_eq!(texts(asked.change(at("1", "a"), says("first", ACCEPT))), ["first"]);
        for (id, text, buttons) in [
            ("e", "one", &[][..]),
            ("b", "second", ACCEPT),
            ("f", "two", &[]),
            ("c", "third", ACCEPT),
        ] {
            assert_eq!(asked.change(at("1", id), says(text, buttons)), []);
        }
        assert_eq!(asked.change(at("1", "b"), says("second: withdrawn", &[])), []);
        assert_eq!(
            texts(asked.change(at("1", "a"), says("first: declined", &[]))),
            ["two", "third"]
        );
        assert_eq!(asked.of("1"), Some((&at("1", "c"), 1)));
    }
}
