//! Which text is the answer.
//!
//! The answer is the text of the agent's last message. Claude Code prints a message block by block, so
//! a text is held back until it is known what it was: if a tool call or another message follows, it was
//! a remark, and is emitted as a note; if nothing follows, it is the answer. So no text is emitted twice.
//!
//! Blocks of one message are joined by a blank line, as paragraphs. Blocks with citations are parts of
//! a sentence, and are joined as they are; so are blocks with white space where they meet.
//!
//! A message that was cut off is continued by the next one, and the answer is both.

/// The text of the last message.
#[derive(Debug, Default)]
pub(super) struct Answer {
    message: Option<String>,
    text: String,
    edge: Edge,
    /// The next message is the rest of this one.
    is_continued: Option<Cut>,
}

/// Where a message was cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// Behind a whole block: the rest is a further one.
    BehindBlock,
    /// Inside a block, perhaps inside a word: the rest follows as it stands.
    InsideBlock,
}

impl Cut {
    /// Reads what Claude Code says to the model in the user's name. Where it asks for the whole answer
    /// again, nothing is continued.
    pub(super) fn of(text: &str) -> Option<Self> {
        if text.starts_with("Your response above was cut off mid-stream. Resume directly") {
            return Some(Self::BehindBlock);
        }
        let by_limit = text.starts_with("Output token limit hit. Resume directly")
            || (text.starts_with("Your response was cut off")
                && text.contains("Continue from where you left off"));
        by_limit.then_some(Self::InsideBlock)
    }
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
        let cut = self.is_continued.take();
        let is_same = cut.is_some() || self.message.as_deref() == message;
        let earlier = if is_same { None } else { self.take() };
        self.message = message.map(str::to_owned);
        if cut != Some(Cut::InsideBlock) {
            self.text.push_str(self.edge.separator(block, is_cited));
        }
        self.text.push_str(block);
        self.edge = self.edge.after(block, is_cited);
        earlier
    }

    /// The message was cut off, and the next one is the rest of it.
    pub(super) fn is_cut(&mut self, cut: Cut) {
        self.is_continued = (!self.text.is_empty()).then_some(cut);
    }

    /// Takes the text out.
    pub(super) fn take(&mut self) -> Option<Remark> {
        self.is_continued = None;
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
    fn a_message_that_was_cut_off_goes_on_in_the_next_one_and_only_there() {
        let cut = "Your response above was cut off mid-stream. Resume directly from where it stops";
        let limit = "Output token limit hit. Resume directly — no apology";
        for (said, whole) in [(cut, "One half,\n\nthe other."), (limit, "One half,the other.")] {
            let mut answer = Answer::default();
            answer.push(Some("a"), "One half,", false);
            answer.is_cut(Cut::of(said).unwrap());
            assert!(answer.push(Some("b"), "the other.", false).is_none());
            assert_eq!(answer.push(Some("c"), "New.", false).unwrap().text, whole);
        }
        for again in [
            "Your response above was cut off mid-stream and only your next message is delivered.",
            "Output token limit hit. Your caller does not receive an answer in pieces.",
            "Resume directly",
        ] {
            assert_eq!(Cut::of(again), None, "{again}");
        }
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
