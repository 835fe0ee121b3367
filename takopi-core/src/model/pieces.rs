//! The answer in pieces, while it is written.

use std::collections::VecDeque;

use super::{Action, ActionEvent, ActionKind, EngineId, Phase, TakopiEvent};

/// How many messages are remembered as streamed.
const REMEMBERED: usize = 16;

/// Makes the events of messages that are streamed: for each an action of kind
/// [`Answer`](ActionKind::Answer), started at its first piece, updated with only the new text as its
/// message, and completed. The pieces joined are the text of the message.
///
/// For engines, and only for runs whose request [asks](crate::RunRequest::deltas) for it. One message is
/// written at a time: a piece of another one completes it.
///
/// ```
/// use takopi_core::model::{AnswerPieces, Phase, TakopiEvent};
///
/// let (mut pieces, mut events) = (AnswerPieces::new("lab"), Vec::new());
/// pieces.piece("m1", "Three ", &mut events);
/// pieces.piece("m1", "hearts.", &mut events);
/// pieces.close(&mut events);
/// let seen: Vec<_> = events.iter().filter_map(|event| match event {
///     TakopiEvent::Action(event) => Some((event.phase, event.message.as_deref())),
///     _ => None,
/// }).collect();
/// assert_eq!(seen, [
///     (Phase::Started, None),
///     (Phase::Updated, Some("Three ")),
///     (Phase::Updated, Some("hearts.")),
///     (Phase::Completed, None),
/// ]);
/// assert!(pieces.has("m1"));
/// ```
#[derive(Debug, Clone)]
pub struct AnswerPieces {
    engine: EngineId,
    open: Option<Open>,
    streamed: VecDeque<String>,
}

/// The message that is written.
#[derive(Debug, Clone)]
struct Open {
    id: String,
    text: String,
}

impl AnswerPieces {
    /// Nothing is streamed yet.
    pub fn new(engine: impl Into<EngineId>) -> Self {
        Self { engine: engine.into(), open: None, streamed: VecDeque::new() }
    }

    /// Text was added to a message. Nothing comes of an empty one, of a message that was completed, nor of
    /// one without an id.
    pub fn piece(&mut self, message: &str, text: &str, events: &mut Vec<TakopiEvent>) {
        if text.is_empty() || message.trim().is_empty() {
            return;
        }
        if self.open.as_ref().is_none_or(|open| open.id != message) {
            self.close(events);
            if self.has(message) {
                return;
            }
            if self.streamed.len() == REMEMBERED {
                self.streamed.pop_front();
            }
            self.streamed.push_back(message.to_owned());
            self.open = Some(Open { id: message.to_owned(), text: String::new() });
            events.push(self.event(message, Phase::Started).into());
        }
        if let Some(open) = &mut self.open {
            open.text.push_str(text);
        }
        events.push(self.event(message, Phase::Updated).message(text).into());
    }

    /// A message is complete, and this is all of it: emits what was not streamed, if anything was.
    pub fn complete(&mut self, message: &str, whole: &str, events: &mut Vec<TakopiEvent>) {
        let Some(open) = self.open.as_ref().filter(|open| open.id == message) else { return };
        if let Some(rest) = whole.strip_prefix(&open.text) {
            self.piece(message, rest, events);
        }
        self.close(events);
    }

    /// The message that is written is complete, or will never be.
    pub fn close(&mut self, events: &mut Vec<TakopiEvent>) {
        if let Some(Open { id, .. }) = self.open.take() {
            events.push(self.event(&id, Phase::Completed).ok(true).into());
        }
    }

    /// Whether text of a message was emitted in pieces. It must not be emitted again.
    pub fn has(&self, message: &str) -> bool {
        self.streamed.iter().any(|known| known == message)
    }

    fn event(&self, message: &str, phase: Phase) -> ActionEvent {
        let action = Action::new(message, ActionKind::Answer, "answer");
        ActionEvent::new(self.engine.clone(), action, phase)
    }
}

impl ActionEvent {
    /// The piece of the answer that this event adds, if it is one.
    pub fn answer_piece(&self) -> Option<&str> {
        let is_piece = self.phase == Phase::Updated && self.action.kind == ActionKind::Answer;
        self.message.as_deref().filter(|_| is_piece)
    }

    /// Adds the piece of the answer in `next` to the one in this event, if both are of one message; whether it
    /// did. Who keeps events that nobody has taken yet keeps fewer of them so, and loses no text.
    pub fn merge_piece(&mut self, next: &Self) -> bool {
        let (true, Some(piece)) = (self.action.id == next.action.id, next.answer_piece()) else {
            return false;
        };
        if self.answer_piece().is_none() {
            return false;
        }
        self.message.get_or_insert_default().push_str(piece);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(events: &[TakopiEvent]) -> Vec<(&str, Phase, &str)> {
        events
            .iter()
            .filter_map(|event| match event {
                TakopiEvent::Action(event) => Some((
                    event.action.id.as_str(),
                    event.phase,
                    event.message.as_deref().unwrap_or_default(),
                )),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn a_piece_of_another_message_completes_the_one_before() {
        let (mut pieces, mut events) = (AnswerPieces::new("lab"), Vec::new());
        pieces.piece("a", "one", &mut events);
        pieces.piece("b", "two", &mut events);
        pieces.piece("a", "late", &mut events);
        pieces.piece("b", "", &mut events);
        pieces.piece(" ", "of nobody", &mut events);
        assert_eq!(
            shown(&events),
            [
                ("a", Phase::Started, ""),
                ("a", Phase::Updated, "one"),
                ("a", Phase::Completed, ""),
                ("b", Phase::Started, ""),
                ("b", Phase::Updated, "two"),
                ("b", Phase::Completed, ""),
            ]
        );
        assert!(pieces.has("a") && pieces.has("b") && !pieces.has("c"));
    }

    #[test]
    fn the_rest_of_a_completed_message_is_streamed_and_no_other_text() {
        for (whole, rest) in [("one two", Some(" two")), ("one", None), ("another", None)] {
            let (mut pieces, mut events) = (AnswerPieces::new("lab"), Vec::new());
            pieces.piece("a", "one", &mut events);
            events.clear();
            pieces.complete("a", whole, &mut events);
            let texts: Vec<_> = shown(&events).into_iter().map(|(_, _, text)| text).collect();
            let expected: Vec<&str> = rest.into_iter().chain([""]).collect();
            assert_eq!(texts, expected, "{whole}");
        }
        let (mut pieces, mut events) = (AnswerPieces::new("lab"), Vec::new());
        pieces.complete("a", "never streamed", &mut events);
        assert!(events.is_empty() && !pieces.has("a"));
    }

    #[test]
    fn only_pieces_of_one_message_are_merged() {
        let piece = |id: &str, text: &str| {
            let action = Action::new(id, ActionKind::Answer, "answer");
            ActionEvent::new("lab", action, Phase::Updated).message(text)
        };
        let mut first = piece("a", "one ");
        assert!(first.merge_piece(&piece("a", "two")));
        assert_eq!(first.answer_piece(), Some("one two"));
        assert!(!first.merge_piece(&piece("b", "three")));
        let mut note =
            ActionEvent::new("lab", Action::new("a", ActionKind::Note, ""), Phase::Updated);
        assert!(!note.merge_piece(&piece("a", "x")) && !first.merge_piece(&note.message("y")));
        assert_eq!(first.answer_piece(), Some("one two"));
    }
}
