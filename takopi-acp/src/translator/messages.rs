//! The texts of a turn: which is the answer, which are notes, and which are not the model's.

use takopi_core::EngineId;
use takopi_core::model::{Action, ActionEvent, ActionKind, AnswerPieces, Phase, TakopiEvent};

/// How often in a row an agent may say the same, and how often anything, with no call in between.
const SAME: u32 = 5;
const ANY: u32 = 25;
/// How much of a message is kept; what is longer ends in `…`.
const TEXT_BYTES: usize = 4 * 1024 * 1024;

/// The texts of a turn.
#[derive(Debug)]
pub(super) struct Messages {
    engine: EngineId,
    /// Whether the model's text has ids.
    uses_ids: bool,
    /// The pieces of messages, if they are asked for.
    pieces: Option<AnswerPieces>,
    current: Option<Message>,
    thought: Option<Message>,
    /// Text without an id where the model's has one: the agent's own.
    own: String,
    /// The last message that is over.
    last: Option<String>,
    same: u32,
    any: u32,
    named: u32,
}

#[derive(Debug)]
struct Message {
    id: Option<String>,
    text: String,
    /// The id of its pieces.
    key: Option<String>,
    /// Reasoning came behind it: more text is another message. Until there is any, it may be the answer.
    is_ended: bool,
}

impl Message {
    fn push(&mut self, text: &str) {
        push(&mut self.text, text);
    }
}

/// Adds a piece to a text. Behind the mark of one that is full nothing more is added.
fn push(kept: &mut String, piece: &str) {
    let room = TEXT_BYTES.saturating_sub(kept.len());
    let added = &piece[..piece.floor_char_boundary(room)];
    if added.len() == piece.len() {
        kept.push_str(added);
    } else if room > 0 || !kept.ends_with('…') {
        kept.push_str(added);
        kept.push('…');
    }
}

impl Messages {
    pub(super) fn new(engine: EngineId, uses_ids: bool, deltas: bool) -> Self {
        Self {
            pieces: deltas.then(|| AnswerPieces::new(engine.clone())),
            engine,
            uses_ids,
            current: None,
            thought: None,
            own: String::new(),
            last: None,
            same: 0,
            any: 0,
            named: 0,
        }
    }

    /// A piece of a message.
    pub(super) fn piece(&mut self, id: Option<&str>, text: &str, events: &mut Vec<TakopiEvent>) {
        if text.is_empty() {
            return;
        }
        self.uses_ids |= id.is_some();
        if self.uses_ids && id.is_none() {
            self.end_thought(events);
            push(&mut self.own, text);
            return;
        }
        // Blank lines begin no message: pi-acp sends some as a banner.
        let begins = self.current.as_ref().is_none_or(|current| current.is_ended);
        if begins && id.is_none() && text.trim().is_empty() {
            return;
        }
        self.end_held(events);
        self.end_thought(events);
        self.end_own(events);
        if self.current.as_ref().is_some_and(|current| current.id.as_deref() != id) {
            self.end_message(events);
        }
        if self.current.is_none() {
            let (id, key) = (id.map(str::to_owned), self.key(id));
            self.current = Some(Message { id, text: String::new(), key, is_ended: false });
        }
        let Some(current) = &mut self.current else { return };
        current.push(text);
        if let (Some(pieces), Some(key)) = (&mut self.pieces, &current.key) {
            pieces.piece(key, text, events);
        }
    }

    /// What the pieces of a new message are called: as the message is, unless it goes on behind a call.
    fn key(&mut self, id: Option<&str>) -> Option<String> {
        let pieces = self.pieces.as_ref()?;
        Some(match id.filter(|id| !pieces.has(id)) {
            Some(id) => id.to_owned(),
            None => self.new_id("text"),
        })
    }

    /// A piece of reasoning. Without ids it ends the message before it.
    pub(super) fn thought(&mut self, id: Option<&str>, text: &str, events: &mut Vec<TakopiEvent>) {
        if text.is_empty() {
            return;
        }
        if let Some(current) = self.current.as_mut().filter(|_| !self.uses_ids) {
            current.is_ended = true;
            if let Some(pieces) = &mut self.pieces {
                pieces.close(events);
            }
        }
        if self.thought.as_ref().is_some_and(|thought| thought.id.as_deref() != id) {
            self.end_thought(events);
        }
        let id = id.map(str::to_owned);
        let new = || Message { id, text: String::new(), key: None, is_ended: false };
        self.thought.get_or_insert_with(new).push(text);
    }

    /// A call came: what was said before it is not the answer.
    pub(super) fn interrupted(&mut self, events: &mut Vec<TakopiEvent>) {
        self.end_held(events);
        self.end_thought(events);
        self.end_own(events);
        self.end_message(events);
        (self.same, self.any, self.last) = (0, 0, None);
    }

    /// Whether the agent would go on for ever.
    pub(super) fn is_repeating(&self) -> bool {
        self.same >= SAME || self.any >= ANY
    }

    /// The turn is over: the answer, and the agent's own text at its end.
    pub(super) fn close(&mut self, events: &mut Vec<TakopiEvent>) -> (String, Option<String>) {
        self.end_thought(events);
        let own = std::mem::take(&mut self.own);
        let own = (!own.trim().is_empty()).then_some(own);
        if let Some(pieces) = &mut self.pieces {
            pieces.close(events);
        }
        let answer = self.current.take().map(|message| message.text).unwrap_or_default();
        (answer, own)
    }

    /// A message that reasoning came behind was not the answer. It goes ahead of that reasoning.
    fn end_held(&mut self, events: &mut Vec<TakopiEvent>) {
        if self.current.as_ref().is_some_and(|current| current.is_ended) {
            self.end_message(events);
        }
    }

    /// A message is over, and was not the answer.
    fn end_message(&mut self, events: &mut Vec<TakopiEvent>) {
        let Some(Message { text, .. }) = self.current.take() else { return };
        if text.trim().is_empty() {
            return;
        }
        self.any += 1;
        self.same = if self.last.as_deref() == Some(&*text) { self.same + 1 } else { 1 };
        match &mut self.pieces {
            // Emitted already.
            Some(pieces) => pieces.close(events),
            None => self.note("text", &text, Some("commentary"), events),
        }
        self.last = Some(text);
    }

    fn end_thought(&mut self, events: &mut Vec<TakopiEvent>) {
        if let Some(thought) = self.thought.take() {
            self.note("thought", &thought.text, None, events);
        }
    }

    /// The agent's own text was followed by the model's: it was a warning.
    fn end_own(&mut self, events: &mut Vec<TakopiEvent>) {
        let text = std::mem::take(&mut self.own);
        if !text.trim().is_empty() {
            let id = self.new_id("own");
            events.push(ActionEvent::warning(self.engine.clone(), id, text.trim()).into());
        }
    }

    fn note(
        &mut self,
        what: &str,
        text: &str,
        phase: Option<&'static str>,
        events: &mut Vec<TakopiEvent>,
    ) {
        if text.trim().is_empty() {
            return;
        }
        let mut action = Action::new(self.new_id(what), ActionKind::Note, text.trim());
        if let Some(phase) = phase {
            action.detail.insert("phase", phase);
        }
        let event = ActionEvent::new(self.engine.clone(), action, Phase::Completed);
        events.push(event.ok(true).into());
    }

    fn new_id(&mut self, what: &str) -> String {
        let id = format!("{}.{what}_{}", self.engine, self.named);
        self.named += 1;
        id
    }
}
