//! An answer on a screen while it is being written.
//!
//! Promises:
//! - a block of Markdown that is complete is laid out once, and its lines never change: blocks end where the next
//!   one begins, items of a list and lines of a code block one by one;
//! - the rest, which the next piece may change, is laid out again when it is asked for; the work is that of the
//!   rest, however long the answer is;
//! - the lines together have all of the text, laid out as [`answer`](super::answer) does, but for the width, which
//!   may change on the way, and for references: a link whose target is defined further down is printed as it is
//!   written, and so is the definition.

use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag};

use super::super::layout::{MARKDOWN, render_from};
use super::super::line::{Line, Style, flow};

/// The rest is not laid out beyond this: it is a single paragraph or table of great length.
const LARGEST_REST: usize = 32 << 10;

/// An answer that is being written. What is complete is laid out once, the rest when it is asked for.
///
/// ```
/// use takopi_bridge::present::terminal::Written;
///
/// let mut written = Written::default();
/// let complete = written.push("# Title\n\nThe rest\nmay cha", 80);
/// assert_eq!(complete[0].plain(), "Title");
/// assert_eq!(written.rest(80)[1].plain(), "The rest may cha");
/// written.push("nge.", 80);
/// assert_eq!(written.end(80)[1].plain(), "The rest may change.");
/// ```
#[derive(Debug, Clone, Default)]
pub struct Written {
    /// What is not yet laid out for good.
    rest: String,
    /// Where the rest belongs.
    place: Place,
    bytes: usize,
}

/// What comes before the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Place {
    /// Nothing.
    #[default]
    Beginning,
    /// A block: a blank line separates the rest from it.
    AfterBlock,
    /// Items of the list that the rest continues, and the number of its next one.
    InList(Option<u64>),
    /// Lines of the code that the rest continues.
    InCode,
}

/// A block at the top of the text.
#[derive(Debug)]
struct Block {
    /// Where its first line begins.
    begin: usize,
    kind: BlockKind,
}

#[derive(Debug)]
enum BlockKind {
    /// The number of its first item, and where the lines of its items begin.
    List(Option<u64>, Vec<usize>),
    Fenced,
    /// A blank line ends it: a paragraph, a heading, a table.
    Prose,
    Other,
}

impl Written {
    /// Adds a piece; returns the lines that are complete with it.
    pub fn push(&mut self, piece: &str, width: usize) -> Vec<Line> {
        self.rest.push_str(piece);
        self.bytes += piece.len();
        // A block ends at the end of a line.
        if piece.contains('\n') { self.complete(width) } else { Vec::new() }
    }

    /// The lines that may still change. Of a paragraph or table of great length they are the last ones.
    pub fn rest(&self, width: usize) -> Vec<Line> {
        let from = self.rest.len().saturating_sub(LARGEST_REST);
        let from = (from..self.rest.len()).find(|at| self.rest.is_char_boundary(*at));
        let rest = self.rest[from.unwrap_or(0)..].to_owned();
        Self { rest, place: self.place, bytes: 0 }.end(width)
    }

    /// The remaining lines: nothing follows.
    pub fn end(mut self, width: usize) -> Vec<Line> {
        // The last line is complete too.
        self.rest.push('\n');
        let mut lines = self.complete(width);
        lines.extend(self.lay_out(&self.rest, width));
        lines
    }

    /// The length of all pieces in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn complete(&mut self, width: usize) -> Vec<Line> {
        let mut lines = Vec::new();
        // Of a line that is not complete nothing is known.
        let Some(known) = self.rest.rfind('\n').map(|at| at + 1) else { return lines };
        let blocks = blocks(&self.rest[..known]);
        let Some(last) = blocks.last() else { return lines };
        // What was cut off the rest.
        let mut begin = 0;
        if self.place == Place::InCode && blocks.len() > 1 {
            // The end of the code has no lines of its own.
            begin = blocks[1].begin;
            lines.extend(self.cut(begin, "", Place::AfterBlock, width));
        }
        if last.begin > begin && blocks.len() > 1 {
            lines.extend(self.cut(last.begin - begin, "", Place::AfterBlock, width));
            begin = last.begin;
        }
        match &last.kind {
            BlockKind::List(first, items) if items.len() > 1 => {
                let first = match self.place {
                    Place::InList(Some(number)) => first.map(|_| number),
                    _ => *first,
                };
                let next = first.map(|first| first + items.len() as u64 - 1);
                let at = items.last().map_or(0, |item| item - begin);
                lines.extend(self.cut(at, "", Place::InList(next), width));
            }
            BlockKind::Fenced => {
                let code = &self.rest[last.begin - begin..known - begin];
                let opening = code.split_inclusive('\n').next().unwrap_or_default().to_owned();
                if code.len() > opening.len() && !is_closed(code) {
                    lines.extend(self.cut(known - begin, &opening, Place::InCode, width));
                }
            }
            BlockKind::Prose if self.rest[..known - begin].ends_with("\n\n") => {
                lines.extend(self.cut(known - begin, "", Place::AfterBlock, width));
            }
            _ => {}
        }
        lines
    }

    /// Lays out everything before `at` for good; `opening` stands before what follows.
    fn cut(&mut self, at: usize, opening: &str, place: Place, width: usize) -> Vec<Line> {
        let lines = self.lay_out(&self.rest[..at], width);
        self.rest.replace_range(..at, opening);
        // Nothing may have been before it but definitions and blank lines.
        let is_first = self.place == Place::Beginning && lines.is_empty();
        if !(is_first && place == Place::AfterBlock) {
            self.place = place;
        }
        lines
    }

    fn lay_out(&self, text: &str, width: usize) -> Vec<Line> {
        let number = if let Place::InList(number) = self.place { number } else { None };
        let mut lines = render_from(text, width, number);
        let parser = Parser::new_ext(text, MARKDOWN);
        for (label, definition) in parser.reference_definitions().iter() {
            let target = &*definition.dest;
            // A link of the same block shows its target.
            if !lines.iter().any(|line| line.plain().contains(target)) {
                let text = format!("[{label}]: {target}");
                lines.extend(flow([(Style::Dim, text.as_str())], width.max(8), Line::new));
            }
        }
        if self.place == Place::AfterBlock && !lines.is_empty() {
            lines.insert(0, Line::new());
        }
        lines
    }
}

/// The blocks at the top of a text.
fn blocks(text: &str) -> Vec<Block> {
    let line_start = |at: usize| text[..at].rfind('\n').map_or(0, |at| at + 1);
    let mut blocks: Vec<Block> = Vec::new();
    let mut depth = 0_usize;
    for (event, range) in Parser::new_ext(text, MARKDOWN).into_offset_iter() {
        let begin = line_start(range.start);
        match event {
            Event::Start(tag) => {
                if depth == 0 {
                    let kind = match tag {
                        Tag::List(first) => BlockKind::List(first, Vec::new()),
                        Tag::CodeBlock(CodeBlockKind::Fenced(_)) => BlockKind::Fenced,
                        Tag::Paragraph | Tag::Heading { .. } | Tag::Table(_) => BlockKind::Prose,
                        _ => BlockKind::Other,
                    };
                    blocks.push(Block { begin, kind });
                } else if depth == 1
                    && matches!(tag, Tag::Item)
                    && let Some(Block { kind: BlockKind::List(_, items), .. }) = blocks.last_mut()
                {
                    items.push(begin);
                }
                depth += 1;
            }
            Event::End(_) => depth = depth.saturating_sub(1),
            Event::Rule if depth == 0 => blocks.push(Block { begin, kind: BlockKind::Other }),
            _ => {}
        }
    }
    blocks
}

/// Whether a fenced code block has its closing fence.
fn is_closed(code: &str) -> bool {
    let mut lines = code.lines();
    let opening = lines.next().unwrap_or_default().trim_start();
    let mark = opening.chars().next().unwrap_or('`');
    let fence = opening.chars().take_while(|it| *it == mark).count();
    lines.any(|line| {
        let indent = line.len() - line.trim_start_matches(' ').len();
        let line = line.trim();
        indent < 4 && line.chars().count() >= fence && line.chars().all(|it| it == mark)
    })
}
