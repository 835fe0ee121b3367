//! From Markdown to a text with styled ranges.

use pulldown_cmark::{CodeBlockKind, CowStr, Event, LinkType, Options, Parser, Tag, TagEnd};

use super::super::chat::inline;
use super::table::Table;
use super::{RichSpan, RichStyle, RichText};

/// Shown where Markdown has a line across the page.
const RULE: &str = "———";
/// Written before each line of a quote that has no form of its own.
const QUOTE: &str = "> ";
/// The addresses that become links. Without the slashes `http:x` would be an address on some server.
const WEB: [&str; 3] = ["http://", "https://", "tg://"];

pub(super) fn build(markdown: &str) -> RichText {
    let options =
        Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TABLES | Options::ENABLE_TASKLISTS;
    let mut builder = Builder::default();
    for event in Parser::new_ext(markdown, options) {
        builder.take(event);
    }
    builder.finish()
}

/// The blank space before the next text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Gap {
    #[default]
    None,
    Line,
    Blank,
}

/// The widest margin of a line: quotes and items that are deeper have none, except for their marks.
const WIDEST: usize = 32;

/// What is written before each line.
#[derive(Debug)]
enum Margin {
    /// A list item: its mark, once, then spaces.
    Item { mark: String },
    /// A quote that is inside of something else.
    Quote,
}

/// What an open tag leads to when it is closed.
#[derive(Debug)]
enum Open {
    Styled(RichStyle, usize),
    /// A link whose target is shown behind it, unless it is the text.
    Shown {
        target: String,
        from: usize,
    },
    Other,
}

#[derive(Debug, Default)]
pub(super) struct Builder {
    rich: RichText,
    gap: Gap,
    margins: Vec<Margin>,
    /// How many of the margins were written already: the marks of their items do not follow.
    written: usize,
    /// The number of the next item of each open list; `None` for lists without numbers.
    lists: Vec<Option<u64>>,
    open: Vec<Open>,
    in_code: bool,
    /// Where a quote or code begins, before which there is blank space already.
    fresh: Option<usize>,
    table: Option<Table>,
    /// The text around the cell that is being read.
    around: Option<RichText>,
}

impl Builder {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Code(code) => self.styled(RichStyle::Code, &code),
            Event::SoftBreak | Event::HardBreak => self.line_end(),
            Event::InlineHtml(html) if is_line_break(&html) => self.line_end(),
            Event::Rule => {
                self.part(Gap::Blank);
                self.say(RULE);
                self.part(Gap::Blank);
            }
            Event::TaskListMarker(done) => self.say(if done { "☑ " } else { "☐ " }),
            Event::Text(text)
            | Event::Html(text)
            | Event::InlineHtml(text)
            | Event::InlineMath(text)
            | Event::DisplayMath(text)
            | Event::FootnoteReference(text) => self.say(&text),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.part(Gap::Blank),
            Tag::Heading { .. } => {
                self.part(Gap::Blank);
                self.style(RichStyle::Bold);
                return;
            }
            Tag::BlockQuote(_) => {
                self.part(Gap::Blank);
                // A quote in a quote or a list has no form of its own in chats.
                let quotes = |it: &Open| matches!(it, Open::Styled(RichStyle::Quote, _));
                if !self.margins.is_empty() || self.open.iter().any(quotes) {
                    self.margins.push(Margin::Quote);
                } else {
                    self.style(RichStyle::Quote);
                    return;
                }
            }
            Tag::CodeBlock(kind) => {
                self.part(Gap::Blank);
                self.mark_alone();
                self.in_code = true;
                self.style(RichStyle::CodeBlock { language: language(&kind) });
                return;
            }
            Tag::List(first) => {
                self.part(if self.lists.is_empty() { Gap::Blank } else { Gap::Line });
                self.lists.push(first);
            }
            Tag::Item => {
                self.part(Gap::Line);
                let mark = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}. ", *number - 1)
                    }
                    _ => "• ".to_owned(),
                };
                self.margins.push(Margin::Item { mark });
            }
            Tag::Emphasis => return self.style(RichStyle::Italic),
            Tag::Strong => return self.style(RichStyle::Bold),
            Tag::Strikethrough => return self.style(RichStyle::Strikethrough),
            Tag::Link { link_type, dest_url, .. } => {
                return self.link(&dest_url, link_type == LinkType::Email);
            }
            Tag::Image { dest_url, .. } => return self.link(&dest_url, false),
            Tag::Table(_) => {
                self.part(Gap::Blank);
                self.table = Some(Table::default());
            }
            Tag::TableHead | Tag::TableRow => {
                if let Some(table) = &mut self.table {
                    table.row();
                }
            }
            Tag::TableCell => {
                self.around = Some(std::mem::take(&mut self.rich));
            }
            _ => {}
        }
        self.open.push(Open::Other);
    }

    fn end(&mut self, tag: TagEnd) {
        match self.open.pop() {
            Some(Open::Styled(style, from)) => self.close(style, from),
            Some(Open::Shown { target, from }) => {
                if self.rich.text[from.min(self.rich.text.len())..].trim() != target {
                    self.say(&format!(" ({target})"));
                }
            }
            Some(Open::Other) | None => {}
        }
        match tag {
            TagEnd::Paragraph | TagEnd::Heading(_) | TagEnd::HtmlBlock => self.part(Gap::Blank),
            TagEnd::BlockQuote(_) => {
                if matches!(self.margins.last(), Some(Margin::Quote)) {
                    self.leave();
                }
                self.part(Gap::Blank);
            }
            TagEnd::CodeBlock => {
                self.in_code = false;
                self.part(Gap::Blank);
            }
            TagEnd::List(_) => {
                self.lists.pop();
                // Behind a list in an item the next item follows at once.
                self.gap = Gap::None;
                self.part(if self.lists.is_empty() { Gap::Blank } else { Gap::Line });
            }
            TagEnd::Item => {
                self.mark_alone();
                self.leave();
                self.gap = Gap::None;
                self.part(Gap::Line);
            }
            TagEnd::TableCell => {
                let around = self.around.take().unwrap_or_default();
                let cell = std::mem::replace(&mut self.rich, around);
                if let Some(table) = &mut self.table {
                    table.cell(cell);
                }
            }
            TagEnd::Table => {
                if let Some(table) = self.table.take() {
                    self.part(Gap::Blank);
                    self.mark_alone();
                    self.append(table.lay_out());
                    self.part(Gap::Blank);
                }
            }
            _ => {}
        }
    }

    /// Adds text at the end of the current line or block.
    fn say(&mut self, text: &str) {
        let text = inline::lines(text);
        if self.around.is_some() {
            // In a cell there are no lines and no margins.
            self.rich.text.push_str(&text.replace('\n', " "));
            return;
        }
        if text.is_empty() {
            return;
        }
        self.begin();
        let mut lines = text.split('\n');
        self.rich.text.push_str(lines.next().unwrap_or_default());
        for line in lines {
            self.rich.text.push('\n');
            if !self.in_code && !line.is_empty() {
                self.indent();
            }
            self.rich.text.push_str(line);
        }
    }

    fn styled(&mut self, style: RichStyle, text: &str) {
        self.style(style);
        self.say(text);
        if let Some(Open::Styled(style, from)) = self.open.pop() {
            self.close(style, from);
        }
    }

    fn style(&mut self, style: RichStyle) {
        // What is written before the text does not belong to it.
        match style {
            _ if self.around.is_some() => {}
            RichStyle::Quote | RichStyle::CodeBlock { .. } => {
                self.separate();
                self.fresh = Some(self.rich.text.len());
            }
            _ => self.begin(),
        }
        self.open.push(Open::Styled(style, self.rich.text.len()));
    }

    fn close(&mut self, style: RichStyle, from: usize) {
        let mut to = self.rich.text.len();
        if style.is_code() && self.in_code {
            // The last line of code needs no line end.
            to = self.rich.text[from..].trim_end_matches('\n').len() + from;
            self.rich.text.truncate(to);
        }
        if from < to {
            self.rich.spans.push(RichSpan { range: from..to, style });
        }
    }

    fn link(&mut self, target: &str, is_mail: bool) {
        if is_mail || target.is_empty() {
            self.open.push(Open::Other);
        } else if is_web(target) {
            self.style(RichStyle::Link(inline::lines(target)));
        } else {
            let from = self.rich.text.len();
            self.open.push(Open::Shown { target: inline::lines(target), from });
        }
    }

    fn line_end(&mut self) {
        if self.around.is_some() {
            self.rich.text.push(' ');
        } else {
            self.part(Gap::Line);
        }
    }

    /// The next text is at least so far from this one.
    fn part(&mut self, gap: Gap) {
        // The first text of an item follows its mark.
        if !self.waits() && self.fresh != Some(self.rich.text.len()) {
            self.gap = self.gap.max(gap);
        }
    }

    /// Writes the blank space and the margin before a text.
    fn begin(&mut self) {
        if self.gap == Gap::None && !self.waits() && !self.rich.text.is_empty() {
            return;
        }
        self.separate();
        self.indent();
    }

    fn separate(&mut self) {
        let gap = std::mem::take(&mut self.gap);
        if self.rich.text.is_empty() {
            return;
        }
        self.rich.text.push_str(match gap {
            Gap::None => "",
            Gap::Line => "\n",
            Gap::Blank => "\n\n",
        });
    }

    fn indent(&mut self) {
        let (written, new) = self.margins.split_at(self.written);
        let mut left = WIDEST;
        for margin in written {
            let width = match margin {
                Margin::Item { mark } => mark.chars().count(),
                Margin::Quote => QUOTE.len(),
            };
            if width > left {
                break;
            }
            left -= width;
            match margin {
                Margin::Item { .. } => self.rich.text.extend(std::iter::repeat_n(' ', width)),
                Margin::Quote => self.rich.text.push_str(QUOTE),
            }
        }
        for margin in new {
            self.rich.text.push_str(match margin {
                Margin::Item { mark } => mark,
                Margin::Quote => QUOTE,
            });
        }
        self.written = self.margins.len();
    }

    /// The innermost margin ends.
    fn leave(&mut self) {
        self.margins.pop();
        self.written = self.written.min(self.margins.len());
    }

    /// Whether the mark of an item is still to be written.
    fn waits(&self) -> bool {
        self.written < self.margins.len()
            && matches!(self.margins.last(), Some(Margin::Item { .. }))
    }

    /// An item that begins with something that has no margin has its mark on a line of its own.
    fn mark_alone(&mut self) {
        if self.waits() {
            self.begin();
            self.gap = Gap::Line;
        }
    }

    fn append(&mut self, other: RichText) {
        self.separate();
        let from = self.rich.text.len();
        self.rich.text.push_str(&other.text);
        self.rich.spans.extend(other.spans.into_iter().map(|span| RichSpan {
            range: span.range.start + from..span.range.end + from,
            style: span.style,
        }));
    }

    fn finish(self) -> RichText {
        let mut rich = self.rich;
        rich.text.truncate(rich.text.trim_end().len());
        let most = rich.text.len();
        for span in &mut rich.spans {
            span.range = span.range.start.min(most)..span.range.end.min(most);
        }
        rich.normalize();
        rich
    }
}

fn is_web(address: &str) -> bool {
    WEB.iter().any(|begin| {
        address.get(..begin.len()).is_some_and(|given| given.eq_ignore_ascii_case(begin))
    })
}

fn is_line_break(html: &CowStr<'_>) -> bool {
    let tag: String = html.chars().filter(|it| !it.is_whitespace()).collect();
    ["<br>", "<br/>"].iter().any(|known| tag.eq_ignore_ascii_case(known))
}

/// The language of a code block, if it is a plain word.
fn language(kind: &CodeBlockKind<'_>) -> Option<String> {
    let CodeBlockKind::Fenced(info) = kind else { return None };
    let word = info.split([' ', ',', '\t']).next().unwrap_or_default();
    let is_plain = |it: char| it.is_alphanumeric() || matches!(it, '+' | '-' | '_' | '#' | '.');
    (!word.is_empty() && word.len() <= 32 && word.chars().all(is_plain)).then(|| word.to_owned())
}
