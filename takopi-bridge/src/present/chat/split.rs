//! Splits a long Markdown text into parts that are each valid on their own.
//!
//! Promises, for any text:
//! - no part is over the limit, and none is blank;
//! - text is split between blocks first, then between paragraphs, lines, words and grapheme
//!   clusters. Only a unit that is longer than a whole part is split inside;
//! - every fenced code block is closed in its part. One that is split continues in the next part in
//!   a fence with the same info string, outside of any list or quote around it;
//! - only white space at the splits is lost (in code: only line ends).
//!
//! If its fence would take more than half of a part, a code block is written as ordinary lines. A
//! backslash is put before text that would become a fence only because of a split, and before HTML
//! that continues until a closing tag of its own and could hide the text after it (comments,
//! `<pre>`, …). Emphasis and links that are split are not repaired.

use std::borrow::Cow;

use unicode_segmentation::UnicodeSegmentation;

use super::super::limit::Limit;
use super::blocks::{self, Block, Fence, Piece};

/// Separates paragraphs.
const BLANK_LINE: &str = "\n\n";

/// Splits a Markdown text into parts that are each valid on their own; none for a blank text.
///
/// ```
/// use takopi_bridge::present::{Limit, chat::split};
/// let text = "So:\n\n```rust\nlet one = 1;\nlet two = 2;\n```";
/// assert_eq!(split(text, Limit::Chars(32)), [
///     "So:\n\n```rust\nlet one = 1;\n```",
///     "```rust\nlet two = 2;\n```",
/// ]);
/// ```
pub fn split(text: &str, limit: Limit) -> Vec<String> {
    let mut packer = Packer::new(limit);
    packer.text(text);
    packer.finish()
}

/// Fills one part after the other.
#[derive(Debug)]
pub(super) struct Packer {
    limit: Limit,
    most: usize,
    parts: Vec<String>,
    /// The current part, and its length in the unit of the limit.
    part: String,
    taken: usize,
    /// The fence around the current text, and whether it is open in this part.
    fence: Option<Fence>,
    opened: bool,
}

impl Packer {
    pub(super) fn new(limit: Limit) -> Self {
        Self {
            limit,
            most: limit.most(),
            parts: Vec::new(),
            part: String::new(),
            taken: 0,
            fence: None,
            opened: false,
        }
    }

    /// Adds a text of any length, in paragraphs of its own.
    pub(super) fn text(&mut self, text: &str) {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let mut gap = BLANK_LINE;
        for block in blocks::of(&text) {
            if block.is_sound() && self.place(gap, block.text) {
                gap = block.gap;
            } else {
                self.divide(gap, &block);
                gap = BLANK_LINE;
            }
        }
    }

    pub(super) fn finish(mut self) -> Vec<String> {
        self.turn();
        self.parts
    }

    /// Adds a block in pieces: its code in fences, the text around it unchanged.
    fn divide(&mut self, gap: &str, block: &Block<'_>) {
        let mut gap = gap;
        let mut at = 0;
        for code in &block.codes {
            self.prose(gap, &block.text[at..code.range.start]);
            let fence = code.fence();
            if fence.takes(self.limit) <= self.most / 2 {
                self.fence = Some(fence);
                self.pack("\n", &code.body, Level::Code);
                self.close();
                self.fence = None;
            } else {
                self.prose(BLANK_LINE, &block.text[code.range.clone()]);
            }
            at = code.range.end;
            gap = "\n";
        }
        self.prose(gap, &block.text[at..]);
    }

    /// Adds text without fences, whatever it looks like.
    fn prose(&mut self, gap: &str, text: &str) {
        let lines: Vec<_> = blocks::bare(text).split('\n').map(blocks::escaped).collect();
        let text = lines.join("\n");
        if !text.is_empty() {
            self.pack(gap, &text, Level::Block);
        }
    }

    /// Adds a piece, split into smaller ones if needed.
    fn pack(&mut self, gap: &str, text: &str, level: Level) {
        if self.place(gap, text) {
            return;
        }
        for (n, (between, piece)) in level.pieces(text).into_iter().enumerate() {
            let gap = if n == 0 { gap } else { between };
            self.pack(gap, &piece, level.smaller());
        }
    }

    /// Adds a piece unsplit, to this part or to a new one, if it fits there.
    fn place(&mut self, gap: &str, text: &str) -> bool {
        let takes = self.limit.measure(&self.lead(gap)) + self.limit.measure(text);
        if self.taken + takes + self.closing() <= self.most {
            self.push(gap, text);
            return true;
        }
        let text = if self.fence.is_none() { blocks::begun(gap, text) } else { text.into() };
        let around = self.fence.as_ref().map_or(0, |fence| fence.takes(self.limit));
        if around + self.limit.measure(&text) > self.most {
            return false;
        }
        self.turn();
        self.push(gap, &text);
        true
    }

    fn push(&mut self, gap: &str, text: &str) {
        let lead = self.lead(gap);
        self.taken += self.limit.measure(&lead) + self.limit.measure(text);
        self.part.push_str(&lead);
        self.part.push_str(text);
        self.opened = self.fence.is_some();
    }

    /// The separator between the part and a new piece.
    fn lead<'a>(&self, gap: &'a str) -> Cow<'a, str> {
        let begins = self.part.is_empty();
        match &self.fence {
            Some(fence) if !self.opened => {
                let gap = if begins { "" } else { BLANK_LINE };
                format!("{gap}{}\n", fence.open).into()
            }
            None if begins => "".into(),
            _ => gap.into(),
        }
    }

    /// The space to reserve for the closing fence.
    fn closing(&self) -> usize {
        self.fence.as_ref().map_or(0, |fence| 1 + self.limit.measure(&fence.close))
    }

    /// Closes the fence in this part.
    fn close(&mut self) {
        if let Some(fence) = self.fence.as_ref().filter(|_| self.opened) {
            self.part.push('\n');
            self.part.push_str(&fence.close);
            self.taken += self.closing();
            self.opened = false;
        }
    }

    /// Ends the part.
    fn turn(&mut self) {
        self.close();
        let part = std::mem::take(&mut self.part);
        if !part.trim().is_empty() {
            self.parts.push(part);
        }
        self.taken = 0;
    }
}

/// The unit of a piece of text, which decides how it is split.
#[derive(Debug, Clone, Copy)]
enum Level {
    Block,
    Paragraph,
    Line,
    Code,
    CodeLine,
    Word,
    Grapheme,
    Character,
}

impl Level {
    fn smaller(self) -> Self {
        match self {
            Self::Block => Self::Paragraph,
            Self::Paragraph => Self::Line,
            Self::Code => Self::CodeLine,
            Self::Line | Self::CodeLine => Self::Word,
            Self::Word => Self::Grapheme,
            Self::Grapheme | Self::Character => Self::Character,
        }
    }

    /// The pieces, each with the separator before it.
    fn pieces(self, text: &str) -> Vec<Piece<'_>> {
        match self {
            Self::Block => each(BLANK_LINE, blocks::paragraphs(text)),
            Self::Paragraph | Self::Code => each("\n", text.split('\n')),
            Self::Line => blocks::words(text),
            Self::CodeLine => each("", blocks::code_words(text)),
            Self::Word => each("", text.graphemes(true)),
            Self::Grapheme => each("", text.split_inclusive(|_| true)),
            // Any single character fits.
            Self::Character => Vec::new(),
        }
    }
}

fn each<'a>(gap: &'a str, pieces: impl IntoIterator<Item = &'a str>) -> Vec<Piece<'a>> {
    pieces.into_iter().map(|piece| (gap, piece.into())).collect()
}
