//! The blocks of a Markdown text, and the fenced code in them.

use std::borrow::Cow;
use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use unicode_segmentation::UnicodeSegmentation;

use super::super::limit::Limit;
use super::inline::longest_run;

/// A piece of text, with the separator before it.
pub(super) type Piece<'a> = (&'a str, Cow<'a, str>);

/// A top-level block: a paragraph, a list, a code block, …
#[derive(Debug)]
pub(super) struct Block<'a> {
    pub(super) text: &'a str,
    /// The separator after it.
    pub(super) gap: &'static str,
    /// The fenced code in it.
    pub(super) codes: Vec<Code>,
    /// Whether it is HTML that may hide the text after it.
    hides: bool,
}

impl Block<'_> {
    /// Whether text after it is parsed as usual: all its fences are closed, and it opens no HTML
    /// that continues until a closing tag of its own.
    pub(super) fn is_sound(&self) -> bool {
        self.codes.iter().all(|code| code.closed) && !self.hides
    }
}

/// A fenced code block.
#[derive(Debug)]
pub(super) struct Code {
    /// Its range in the block, including the fences.
    pub(super) range: Range<usize>,
    /// The code, without the indent of a list or the marks of a quote around it.
    pub(super) body: String,
    mark: char,
    info: String,
    closed: bool,
}

/// The lines around code.
#[derive(Debug, Clone)]
pub(super) struct Fence {
    pub(super) open: String,
    pub(super) close: String,
}

impl Code {
    /// A fence that can hold any piece of the code.
    pub(super) fn fence(&self) -> Fence {
        let longest = longest_run(&self.body, self.mark);
        let close = self.mark.to_string().repeat((longest + 1).max(3));
        Fence { open: format!("{close}{}", self.info), close }
    }
}

impl Fence {
    /// Its length in a part, including line ends.
    pub(super) fn takes(&self, limit: Limit) -> usize {
        limit.measure(&self.open) + limit.measure(&self.close) + 2
    }
}

/// The blocks of a text, in order; together they are the whole text except white space.
pub(super) fn of(text: &str) -> Vec<Block<'_>> {
    let mut starts = Vec::new();
    let mut codes: Vec<Code> = Vec::new();
    let mut depth = 0_usize;
    // The end of what was read of the open code block.
    let mut open: Option<usize> = None;
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        if depth == 0 && matches!(event, Event::Start(_) | Event::Rule) {
            let line = text[..range.start].rfind('\n').map_or(0, |end| end + 1);
            let is_html = matches!(event, Event::Start(Tag::HtmlBlock));
            starts.push((line, is_html && opens_html(text[range.start..].trim_start())));
        }
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(_))) => {
                depth += 1;
                let code = Code::opening(text, range);
                open = Some(code.range.start + code.first_line(text).len());
                codes.push(code);
            }
            Event::Start(_) => depth += 1,
            Event::End(tag) => {
                depth = depth.saturating_sub(1);
                if let (TagEnd::CodeBlock, Some(end), Some(code)) =
                    (tag, open.take(), codes.last_mut())
                {
                    code.end(text, end);
                }
            }
            Event::Text(piece) => {
                if let (Some(end), Some(code)) = (&mut open, codes.last_mut()) {
                    code.body.push_str(&piece);
                    *end = range.end.max(*end);
                }
            }
            _ => {}
        }
    }
    assemble(text, &starts, codes)
}

impl Code {
    fn opening(text: &str, range: Range<usize>) -> Self {
        let mut code =
            Self { range, body: String::new(), mark: '`', info: String::new(), closed: false };
        let line = code.first_line(text).trim();
        code.mark = line.chars().next().unwrap_or('`');
        // The space before it stays: without it a `~` would become part of the fence.
        code.info = line.trim_start_matches(code.mark).to_owned();
        code
    }

    fn first_line<'a>(&self, text: &'a str) -> &'a str {
        text[self.range.clone()].split('\n').next().unwrap_or_default()
    }

    /// The text after the code is the closing fence, if there is one.
    fn end(&mut self, text: &str, read: usize) {
        let rest = text.get(read..self.range.end).unwrap_or_default();
        self.closed = rest.contains(self.mark);
        if self.body.ends_with('\n') {
            self.body.pop();
        }
    }
}

/// A block extends to the beginning of the next one, so that nothing between them is lost.
fn assemble<'a>(text: &'a str, starts: &[(usize, bool)], codes: Vec<Code>) -> Vec<Block<'a>> {
    let mut codes = codes.into_iter().peekable();
    let mut blocks = Vec::new();
    for n in 0..starts.len().max(1) {
        let (start, hides) = starts.get(n).copied().unwrap_or_default();
        let start = if n == 0 { 0 } else { start };
        let end = starts.get(n + 1).map_or(text.len(), |next| next.0);
        let rest = from_first_line(&text[start..end]);
        let at = end - rest.len();
        let content = rest.trim_end();
        let behind = &rest[content.len()..];
        let mut block = Block { text: content, gap: gap(behind), codes: Vec::new(), hides };
        while let Some(mut code) = codes.next_if(|code| code.range.start < end) {
            let within = |offset: usize| offset.saturating_sub(at).min(content.len());
            code.range = within(code.range.start)..within(code.range.end);
            block.codes.push(code);
        }
        if !content.is_empty() {
            blocks.push(block);
        }
    }
    blocks
}

fn gap(behind: &str) -> &'static str {
    if behind.matches('\n').count() > 1 { "\n\n" } else { "\n" }
}

/// The text without the blank lines around it; the indent of its first line stays.
pub(super) fn bare(text: &str) -> &str {
    from_first_line(text).trim_end()
}

fn from_first_line(mut text: &str) -> &str {
    while let Some((line, rest)) = text.split_once('\n')
        && line.trim().is_empty()
    {
        text = rest;
    }
    text
}

/// The text split at its blank lines.
pub(super) fn paragraphs(text: &str) -> Vec<&str> {
    let mut paragraphs = Vec::new();
    let (mut start, mut at) = (0, 0);
    for line in text.split_inclusive('\n') {
        if line.trim().is_empty() {
            paragraphs.push(bare(&text[start..at]));
            start = at + line.len();
        }
        at += line.len();
    }
    paragraphs.push(bare(&text[start..]));
    paragraphs.retain(|paragraph| !paragraph.is_empty());
    paragraphs
}

/// The words of a line, each with the white space before it; leading white space belongs to the
/// first word. A word that would open a fence at the beginning of a line is escaped.
pub(super) fn words(line: &str) -> Vec<Piece<'_>> {
    let mut words = Vec::new();
    // Where the white space before the word begins, and where the word begins.
    let (mut gap, mut word) = (0, 0);
    let mut blank = true;
    // A space with a combining mark is not white space.
    for (at, grapheme) in line.grapheme_indices(true) {
        let is_blank = grapheme.trim().is_empty();
        if is_blank && !blank {
            words.push((&line[gap..word], guarded(&line[word..at])));
            gap = at;
        }
        if !is_blank && blank {
            word = if words.is_empty() { 0 } else { at };
        }
        blank = is_blank;
    }
    if !blank {
        words.push((&line[gap..word], guarded(&line[word..])));
    }
    words
}

/// The words of a line of code, each with the space after it: in code a space matters.
pub(super) fn code_words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut start = 0;
    for (at, grapheme) in line.grapheme_indices(true) {
        if grapheme == " " {
            words.push(&line[start..=at]);
            start = at + 1;
        }
    }
    words.push(&line[start..]);
    words
}

/// A word, with a backslash if it would open a fence or HTML at the beginning of a line.
fn guarded(word: &str) -> Cow<'_, str> {
    let bare = word.trim_start();
    let fence = bare.starts_with("```") || bare.starts_with("~~~");
    escape(word, bare, fence || opens_html(bare))
}

/// The middle of a word at the beginning of a line, with a backslash if it may become a fence or
/// HTML as more of the word follows.
pub(super) fn begun<'a>(gap: &str, piece: &'a str) -> Cow<'a, str> {
    escape(piece, piece, gap.is_empty() && piece.starts_with(['`', '~', '<']))
}

/// A line that is no fence, with a backslash if it looks like one, or like HTML that could hide
/// one.
pub(super) fn escaped(line: &str) -> Cow<'_, str> {
    let container = |it: char| it.is_whitespace() || it.is_ascii_digit() || ">-*+.)".contains(it);
    let bare = line.trim_start_matches(container);
    let ticks = bare.starts_with("```") && !bare.trim_start_matches('`').contains('`');
    escape(line, bare, ticks || bare.starts_with("~~~") || opens_html(bare))
}

/// The text with a backslash before its end `bare`, if needed.
fn escape<'a>(text: &'a str, bare: &str, needed: bool) -> Cow<'a, str> {
    let margin = &text[..text.len() - bare.len()];
    if needed { format!("{margin}\\{bare}").into() } else { text.into() }
}

/// Whether it opens HTML that continues over blank lines and fences until a closing tag of its own.
fn opens_html(text: &str) -> bool {
    const OPEN: [&str; 6] = ["<!", "<?", "<pre", "<script", "<style", "<textarea"];
    OPEN.iter().any(|it| text.get(..it.len()).is_some_and(|head| head.eq_ignore_ascii_case(it)))
}
