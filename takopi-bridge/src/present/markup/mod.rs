//! The agent's Markdown as what a chat wants: plain text, HTML, Telegram's entities, Slack's mrkdwn.
//!
//! [`RichText::from_markdown`] lays a text out for a chat that knows no lists, tables or headings: they
//! become lines with marks. What is left are styled ranges, which every chat has in its own form. Promises,
//! for any text:
//! - nothing of the text is lost: what Markdown shows is in the result, in the same order, except for a
//!   wide table, which becomes a list of its rows with the head of the column before each cell;
//! - the result is not many times as long: where many rows would repeat a long head, it is an item of its own and they
//!   have only the beginning of it, and of many quotes and lists in each other the outer ones have a margin;
//! - of two ranges that overlap one contains the other; none is empty; none ends inside a character. Code
//!   contains no other range, and only a quote contains code;
//! - control characters become `�`, except for line ends and tabs;
//! - HTML in the text is text. Only links to the web are links; the target of any other is shown.
//!
//! ```
//! use takopi_bridge::present::markup::RichText;
//!
//! let answer = RichText::from_markdown("## Done\n\n- **1** test & `a < b`\n- [docs](https://takopi.dev)");
//! assert_eq!(answer.plain(), "Done\n\n• 1 test & a < b\n• docs (https://takopi.dev)");
//! assert_eq!(
//!     answer.html(),
//!     "<b>Done</b>\n\n• <b>1</b> test &amp; <code>a &lt; b</code>\n\
//!      • <a href=\"https://takopi.dev\">docs</a>",
//! );
//! assert_eq!(answer.mrkdwn(), "*Done*\n\n• *1* test &amp; `a &lt; b`\n• <https://takopi.dev|docs>");
//!
//! let message = answer.telegram();
//! assert_eq!(message.text, "Done\n\n• 1 test & a < b\n• docs");
//! assert_eq!(
//!     message.entities[2].to_json(),
//!     serde_json::json!({ "type": "code", "offset": 17, "length": 5 }),
//! );
//! ```

mod build;
mod render;
mod split;
mod table;
mod telegram;

use std::ops::Range;

pub use self::telegram::{Entity, TelegramText};

/// A text with styled ranges. See the [module](self).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RichText {
    text: String,
    /// By their beginning, a range before those that it contains.
    spans: Vec<RichSpan>,
}

impl RichText {
    /// Lays out a Markdown text.
    pub fn from_markdown(markdown: &str) -> Self {
        build::build(markdown)
    }

    /// The text without styles and without the targets of its links.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The styled ranges, by their beginning; a range comes before those that it contains.
    pub fn spans(&self) -> &[RichSpan] {
        &self.spans
    }

    /// Whether there is nothing to show.
    pub fn is_empty(&self) -> bool {
        self.text.trim().is_empty()
    }

    /// Only the ranges that hold the promises of the module are kept, and of those that do not what does.
    fn normalize(&mut self) {
        let mut spans = std::mem::take(&mut self.spans);
        spans.retain(|span| !span.range.is_empty());
        // Of two ranges with the same extent the one that was closed last contains the other.
        spans.reverse();
        spans.sort_by_key(|span| (span.range.start, std::cmp::Reverse(span.range.end)));
        let mut links = ranges(&spans, |style| matches!(style, RichStyle::Link(_)));
        // An image in a link is a link in a link.
        links.dedup_by(|inner, outer| contains(outer, inner));
        // The link is of more use than the font.
        spans.retain(|span| {
            let before = links.partition_point(|link| link.start <= span.range.start);
            let in_link = before > 0 && contains(&links[before - 1], &span.range);
            span.style != RichStyle::Code || !in_link
        });
        let codes = ranges(&spans, RichStyle::is_code);
        let mut open: Vec<RichSpan> = Vec::new();
        for span in spans {
            open.retain(|outer| outer.range.end > span.range.start);
            let repeated = open.iter().any(|outer| {
                outer.style == span.style
                    || matches!(
                        (&outer.style, &span.style),
                        (RichStyle::Link(_), RichStyle::Link(_))
                    )
            });
            if repeated {
                continue;
            }
            open.push(span.clone());
            if span.style.is_code() || span.style == RichStyle::Quote {
                self.spans.push(span);
            } else {
                self.spans.extend(without(&span, &codes));
            }
        }
        self.spans.sort_by_key(|span| (span.range.start, std::cmp::Reverse(span.range.end)));
    }
}

/// A styled range of a [`RichText`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RichSpan {
    /// The bytes of the text.
    pub range: Range<usize>,
    /// Their style.
    pub style: RichStyle,
}

/// What a chat shows differently from its other text.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RichStyle {
    /// Strong emphasis, and headings.
    Bold,
    /// Emphasis.
    Italic,
    /// Text that is struck through.
    Strikethrough,
    /// Code in a line.
    Code,
    /// Lines of code, and tables that fit.
    CodeBlock {
        /// The language, if one is given.
        language: Option<String>,
    },
    /// A link to this address, which begins with `http://`, `https://` or `tg://`.
    Link(String),
    /// Quoted lines.
    Quote,
}

impl RichStyle {
    fn is_code(&self) -> bool {
        matches!(self, Self::Code | Self::CodeBlock { .. })
    }
}

fn contains(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

fn ranges(spans: &[RichSpan], of: impl Fn(&RichStyle) -> bool) -> Vec<Range<usize>> {
    spans.iter().filter(|span| of(&span.style)).map(|span| span.range.clone()).collect()
}

/// What is left of a range without those in it, which are in order and apart.
fn without(span: &RichSpan, holes: &[Range<usize>]) -> Vec<RichSpan> {
    let mut left = Vec::new();
    let mut at = span.range.start;
    let first = holes.partition_point(|hole| hole.end <= at);
    for hole in holes[first..].iter().take_while(|hole| hole.start < span.range.end) {
        left.push(at..hole.start);
        at = hole.end;
    }
    left.push(at..span.range.end);
    left.retain(|range| range.start < range.end);
    let pieces = left.into_iter().map(|range| RichSpan { range, style: span.style.clone() });
    pieces.collect()
}
