//! Markdown laid out for a terminal: headings, emphasis, lists, quotes, code, tables.
//!
//! Prose is wrapped to the width; code is not, so that it can be copied. Nothing of the text is lost, at any
//! width.

mod table;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use self::table::Table;
use super::line::{Line, Style, flow};
use super::text::width;

/// Wider prose is hard to read.
const PROSE_WIDTH: usize = 100;

/// The Markdown that is understood.
pub(super) const MARKDOWN: Options =
    Options::ENABLE_STRIKETHROUGH.union(Options::ENABLE_TABLES).union(Options::ENABLE_TASKLISTS);

/// The text as lines of at most `max` columns, except for code.
pub(super) fn render(text: &str, max: usize) -> Vec<Line> {
    render_from(text, max, None)
}

/// The same. If the text begins with a numbered list, its first item gets this number.
pub(super) fn render_from(text: &str, max: usize, number: Option<u64>) -> Vec<Line> {
    let mut layout = Layout::new(max.max(8), number);
    for event in Parser::new_ext(text, MARKDOWN) {
        layout.take(event);
    }
    layout.flush();
    layout.lines
}

/// What is printed left of the text.
#[derive(Debug)]
enum Margin {
    Quote,
    /// A list item: its mark on the first line, spaces of the same width on the others.
    Item {
        mark: String,
        written: bool,
    },
}

#[derive(Debug)]
struct Layout {
    /// The width of prose.
    max: usize,
    /// The width of the screen, for tables.
    whole: usize,
    /// The number of the next list's first item, in place of its own.
    number: Option<u64>,
    lines: Vec<Line>,
    /// The styled text of the current block.
    words: Vec<(Style, String)>,
    styles: Vec<Style>,
    margins: Vec<Margin>,
    /// The number of the next item of each open list; `None` for lists without numbers.
    lists: Vec<Option<u64>>,
    /// The targets of the open links.
    links: Vec<String>,
    in_code: bool,
    /// Whether the next block is preceded by a blank line.
    gap: bool,
    table: Table,
}

impl Layout {
    fn new(whole: usize, number: Option<u64>) -> Self {
        Self {
            max: whole.min(PROSE_WIDTH),
            whole,
            number,
            lines: Vec::new(),
            words: Vec::new(),
            styles: Vec::new(),
            margins: Vec::new(),
            lists: Vec::new(),
            links: Vec::new(),
            in_code: false,
            gap: false,
            table: Table::default(),
        }
    }

    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.open(tag),
            Event::End(tag) => self.close(tag),
            Event::Text(text) if self.in_code => self.code(&text),
            Event::Text(text) | Event::InlineHtml(text) | Event::Html(text) => self.say(&text),
            Event::Code(text) => self.words.push((Style::Code, text.to_string())),
            Event::SoftBreak => self.say(" "),
            Event::HardBreak => self.flush(),
            Event::Rule => {
                self.begin_block();
                let rule = "─".repeat(self.max.min(40));
                let line = self.margin().with(Style::Dim, rule);
                self.lines.push(line);
                self.gap = true;
            }
            Event::TaskListMarker(done) => self.say(if done { "[x] " } else { "[ ] " }),
            other => other_text(&other).into_iter().for_each(|text| self.say(&text)),
        }
    }

    fn open(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.begin_block(),
            Tag::Table(alignments) => {
                self.begin_block();
                self.table.alignments = alignments;
            }
            Tag::Heading { .. } => {
                self.begin_block();
                self.styles.push(Style::Heading);
            }
            Tag::BlockQuote(_) => {
                self.begin_block();
                self.margins.push(Margin::Quote);
            }
            Tag::CodeBlock(_) => {
                self.begin_block();
                self.in_code = true;
            }
            Tag::List(first) => {
                if self.lists.is_empty() {
                    self.begin_block();
                } else {
                    self.flush();
                }
                let number = self.number.take();
                self.lists.push(first.map(|first| number.unwrap_or(first)));
            }
            Tag::Item => {
                self.flush();
                self.gap = false;
                let mark = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}. ", *number - 1)
                    }
                    _ => "• ".to_owned(),
                };
                self.margins.push(Margin::Item { mark, written: false });
            }
            Tag::Strong => self.styles.push(Style::Strong),
            Tag::Emphasis => self.styles.push(Style::Emphasis),
            Tag::Strikethrough => self.styles.push(Style::Struck),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.links.push(dest_url.to_string());
            }
            Tag::TableHead | Tag::TableRow => self.table.rows.push(Vec::new()),
            _ => {}
        }
    }

    fn close(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.end_block(),
            TagEnd::Heading(_) => {
                self.end_block();
                self.styles.pop();
            }
            TagEnd::BlockQuote(_) => {
                self.end_block();
                self.margins.pop();
            }
            TagEnd::CodeBlock => {
                self.in_code = false;
                self.gap = true;
            }
            TagEnd::List(_) => {
                self.flush();
                self.lists.pop();
                self.gap = self.lists.is_empty();
            }
            TagEnd::Item => {
                self.flush();
                if let Some(Margin::Item { written: false, .. }) = self.margins.last() {
                    // An empty item still has its mark.
                    let line = self.margin();
                    self.lines.push(line);
                }
                self.margins.pop();
                self.gap = false;
            }
            TagEnd::Strong | TagEnd::Emphasis | TagEnd::Strikethrough => {
                self.styles.pop();
            }
            TagEnd::Link | TagEnd::Image => self.end_link(),
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.words);
                if let Some(row) = self.table.rows.last_mut() {
                    row.push(cell);
                }
            }
            TagEnd::Table => self.end_table(),
            _ => {}
        }
    }

    fn say(&mut self, text: &str) {
        let style = self.styles.last().copied().unwrap_or_default();
        self.words.push((style, text.to_owned()));
    }

    /// Prints the target of a link, unless it is the link's text.
    fn end_link(&mut self) {
        let Some(target) = self.links.pop() else { return };
        let said = self.words.last().map(|(_, text)| text.as_str()).unwrap_or_default();
        if !target.is_empty() && said != target {
            self.words.push((Style::Plain, " ".to_owned()));
            self.words.push((Style::Link, target));
        }
    }

    /// Ends the previous block and prints a blank line if there should be one.
    fn begin_block(&mut self) {
        self.flush();
        if std::mem::take(&mut self.gap) && !self.lines.is_empty() {
            let quoted = self.margins.iter().any(|margin| matches!(margin, Margin::Quote));
            let line = if quoted { self.margin() } else { Line::new() };
            self.lines.push(line);
        }
    }

    fn end_block(&mut self) {
        self.flush();
        self.gap = true;
    }

    /// The margin of the next line. However deep the nesting, half of the line is left for text.
    fn margin(&mut self) -> Line {
        let mut line = Line::new();
        for margin in &mut self.margins {
            let (style, text) = match margin {
                Margin::Quote => (Style::Dim, "│ ".to_owned()),
                Margin::Item { mark, written: true } => (Style::Plain, " ".repeat(width(mark))),
                Margin::Item { mark, written } => {
                    *written = true;
                    (Style::Dim, mark.clone())
                }
            };
            if line.width() + width(&text) <= self.max / 2 {
                line.push(style, &text);
            }
        }
        line
    }

    fn code(&mut self, text: &str) {
        for code in text.lines() {
            // A tab would be measured as one column.
            let code = code.replace('\t', "    ");
            let line = self.margin().with(Style::Plain, "  ").with(Style::Code, code);
            self.lines.push(line);
        }
    }

    /// Prints the text of the block, wrapped.
    fn flush(&mut self) {
        let words = std::mem::take(&mut self.words);
        if words.iter().all(|(_, text)| text.trim().is_empty()) {
            return;
        }
        let text = words.iter().map(|(style, text)| (*style, text.as_str()));
        let max = self.max;
        let lines = flow(text, max, || self.margin());
        self.lines.extend(lines);
    }

    fn end_table(&mut self) {
        let table = std::mem::take(&mut self.table);
        let margin = self.margin();
        for (n, line) in table.lines(self.whole.saturating_sub(margin.width())).iter().enumerate() {
            let mut whole = if n == 0 { margin.clone() } else { self.margin() };
            whole.append(line);
            self.lines.push(whole);
        }
        self.gap = true;
    }
}

/// The text of elements without a layout of their own, such as mathematics and footnotes.
fn other_text(event: &Event<'_>) -> Option<String> {
    match event {
        Event::InlineMath(text) | Event::DisplayMath(text) | Event::FootnoteReference(text) => {
            Some(text.to_string())
        }
        _ => None,
    }
}
