//! Which of the agent's messages is the answer.

use std::borrow::Cow;

use super::labels::MessagePhase;

/// The answer so far: the last message marked as final, else the last one without a phase.
///
/// Each message is looked at once, and two are kept, however many there are.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    last_final: Option<String>,
    last_plain: Option<String>,
}

impl Answer {
    /// Records a message.
    pub(crate) fn record(&mut self, text: Cow<'_, str>, phase: Option<MessagePhase>) {
        match phase {
            Some(MessagePhase::FinalAnswer) => replace(&mut self.last_final, text),
            Some(MessagePhase::Commentary) => {}
            None => replace(&mut self.last_plain, text),
        }
    }

    /// The answer; an empty one is an answer too.
    pub(crate) fn get(&self) -> Option<&str> {
        self.last_final.as_deref().or(self.last_plain.as_deref())
    }

    /// Takes the answer out.
    pub(crate) fn take(&mut self) -> Option<String> {
        self.last_final.take().or(self.last_plain.take())
    }
}

/// Puts a text in the place of another, in whose memory it is copied.
fn replace(slot: &mut Option<String>, text: Cow<'_, str>) {
    match (slot, text) {
        (Some(slot), Cow::Borrowed(text)) => text.clone_into(slot),
        (slot, text) => *slot = Some(text.into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(messages: &[(&str, &str)]) -> Option<String> {
        let mut answer = Answer::default();
        for (text, phase) in messages {
            answer.record((*text).into(), MessagePhase::new(phase));
        }
        assert_eq!(answer.get().map(str::to_owned), answer.take());
        let mut answer = Answer::default();
        for (text, phase) in messages {
            answer.record((*text).into(), MessagePhase::new(phase));
        }
        answer.take()
    }

    #[test]
    fn the_answer_is_the_last_final_message_else_the_last_without_phase() {
        for (messages, expected) in [
            (&[("a", ""), ("b", "")][..], Some("b")),
            (&[("a", ""), ("", "")], Some("")),
            (&[("a", "commentary"), ("b", "final_answer")], Some("b")),
            (&[("a", "final_answer"), ("b", "final_answer")], Some("b")),
            (&[("a", "final_answer"), ("b", "")], Some("a")),
            (&[("a", "commentary")], None),
            (&[("a", ""), ("b", "commentary")], Some("a")),
            (&[("a", "partial_answer")], Some("a")),
            (&[], None),
        ] {
            assert_eq!(answer(messages).as_deref(), expected, "{messages:?}");
        }
    }
}
