//! A text in parts that each fit into a message.

use unicode_segmentation::UnicodeSegmentation;

use super::super::limit::Limit;
use super::{RichSpan, RichText};

impl RichText {
    /// The text in parts within the limit, which counts the text and not its styles, as Telegram does.
    ///
    /// Split between paragraphs, else lines, words, grapheme clusters, characters; a range that is split
    /// continues in the next part. Only white space at the splits is lost. None for a blank text.
    pub fn split(&self, limit: Limit) -> Vec<Self> {
        let mut parts = Vec::new();
        let mut from = 0;
        while from < self.text.len() {
            let to = from + fitting(&self.text[from..], limit);
            let to = if to < self.text.len() { from + seam(&self.text[from..to]) } else { to };
            let part = self.part(from, to);
            if !part.is_empty() {
                parts.push(part);
            }
            from = to;
        }
        parts
    }

    fn part(&self, from: usize, to: usize) -> Self {
        let text = &self.text[from..to];
        // Blank space at the end of a line is kept: it may be the indent of code.
        let start = if from == 0 { 0 } else { text.len() - text.trim_start_matches('\n').len() };
        let text = text[start..].trim_end();
        let (from, to) = (from + start, from + start + text.len());
        let spans = self.spans.iter().filter_map(|span| {
            let range = span.range.start.max(from)..span.range.end.min(to);
            (range.start < range.end).then(|| RichSpan {
                range: range.start - from..range.end - from,
                style: span.style.clone(),
            })
        });
        Self { text: text.to_owned(), spans: spans.collect() }
    }
}

/// How many bytes of the text fit, at least one character.
fn fitting(text: &str, limit: Limit) -> usize {
    let mut taken = 0;
    for (at, character) in text.char_indices() {
        taken += match limit {
            Limit::Chars(_) => 1,
            Limit::Utf16(_) => character.len_utf16(),
        };
        if taken > limit.most() {
            return at;
        }
    }
    text.len()
}

/// Where to split a text that is followed by more: not so early that a part is nearly empty.
fn seam(text: &str) -> usize {
    let half = text.len() / 2;
    let at = |separator: &str| text.rfind(separator).filter(|at| *at > half);
    let space = at("\n\n").or_else(|| at("\n")).or_else(|| at(" ").map(|at| at + 1));
    space.unwrap_or_else(|| {
        let mut ends = text.grapheme_indices(true).map(|(at, _)| at).rev();
        // The last cluster may go on behind the end.
        ends.next().filter(|at| *at > 0).unwrap_or(text.len())
    })
}
