//! Which text is the answer.
//!
//! The answer is the text of the agent's last message. Claude Code prints a message block by block, so
//! a text is held back until it is known what it was: if a tool call or another message follows, it was
//! a remark, and is emitted as a note; if nothing follows, it is the answer. So no text is emitted twice.
//!
//! Blocks of one message are joined by a blank line, as paragraphs. Blocks with citations are parts of
//! a sentence, and are joined as they are; so are blocks with white space where they meet.

/// The text of the last message.
#[derive(Debug, Default)]
pub(super) struct Answer {
    message: Option<String>,
    text: String,
    edge: Edge,
}

/// The end of a text, to which a block is added.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Edge {
    has_text: bool,
    ends_in_space: bool,
    is_cited: bool,
}

impl Edge {
    /// What stands between the text and a further block.
    pub(super) fn separator(self, block: &str, is_cited: bool) -> &'static str {
        let touches = !self.has_text
            || self.ends_in_space
            || self.is_cited
            || is_cited
            || block.starts_with(char::is_whitespace);
        if touches { "" } else { "\n\n" }
    }

    /// The end after this was added.
    pub(super) fn after(self, text: &str, is_cited: bool) -> Self {
        if text.is_empty() {
            return self;
        }
        Self { has_text: true, ends_in_space: text.ends_with(char::is_whitespace), is_cited }
    }
}

impl Answer {
    /// A text block of a message. Returns the text of an earlier message, which is not the answer then.
    pub(super) fn push(
        &mut self,
        message: Option<&str>,
        block: &str,
        is_cited: bool,
    ) -> Option<Remark> {
        if block.is_empty() {
            return None;
        }
        let earlier = if self.message.as_deref() == message { None } else { self.take() };
        self.message = message.map(str::to_owned);
        self.text.push_str(self.edge.separator(block, is_cited));
        self.text.push_str(block);
        self.edge = self.edge.after(block, is_cited);
        earlier
    }

    /// Takes the text out.
    pub(super) fn take(&mut self) -> Option<Remark> {
        let text = std::mem::take(&mut self.text);
        self.edge = Edge::default();
        let message = self.message.take();
        (!text.trim().is_empty()).then_some(Remark { message, text })
    }
}

/// The text of a message.
#[derive(Debug)]
pub(super) struct Remark {
    pub(super) message: Option<String>,
    pub(super) text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(blocks: &[(&str, bool)]) -> String {
        let mut answer = Answer::default();
        for (block, is_cited) in blocks {
            assert!(answer.push(Some("m"), block, *is_cited).is_none());
        }
        answer.take().map(|remark| remark.text).unwrap_or_default()
    }

    #[test]
    fn blocks_of_a_message_are_paragraphs_and_cited_ones_are_parts_of_a_sentence() {
        assert_eq!(joined(&[("First.", false), ("Second.", false)]), "First.\n\nSecond.");
        assert_eq!(
            joined(&[("An octopus has ", false), ("eight arms", true)]),
            "An octopus has eight arms"
        );
        assert_eq!(joined(&[("eight arms", true), (", and", false)]), "eight arms, and");
        assert_eq!(joined(&[("one\n", false), ("two", false), ("", false)]), "one\ntwo");
        assert_eq!(joined(&[]), "");
    }

    #[test]
    fn another_message_makes_the_earlier_one_a_remark() {
        let mut answer = Answer::default();
        assert!(answer.push(Some("a"), "one", false).is_none());
        let earlier = answer.push(Some("b"), "two", false).unwrap();
        assert_eq!((earlier.message.as_deref(), earlier.text.as_str()), (Some("a"), "one"));
        assert_eq!(answer.take().unwrap().text, "two");
        assert!(answer.take().is_none());
    }
}
