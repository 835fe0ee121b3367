//! Markdown as HTML that is safe to show, whoever wrote it.
//!
//! HTML in the text is escaped; only links to the web and to mail addresses are kept, and addresses of the web
//! in the text become links; images are replaced by their descriptions. A single line break is kept, as in chats.
//! There are no inline styles, which the policy of the page would block: the alignment of a column is a class.
//!
//! A text is rendered block by block (a paragraph, a list, a table), so that a text that grows is not rendered
//! again from its beginning: [`Growing`] closes a block as soon as the next one has begun. What closes
//! it cannot change any more, except for links that are defined later; [`blocks`] of the whole text has those.

use std::fmt::Write as _;
use std::ops::Range;

use pulldown_cmark::{
    Alignment, CodeBlockKind, CowStr, Event, LinkType, Options, Parser, Tag, TagEnd,
    TextMergeWithOffset, html,
};

use super::highlight::{self, escape};

/// The most bytes of an address that becomes a link.
const ADDRESS: usize = 2048;

fn options() -> Options {
    Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS
}

/// Renders a text.
pub(super) fn html(text: &str) -> String {
    blocks(text).concat()
}

/// Renders the blocks of a text.
pub(super) fn blocks(text: &str) -> Vec<String> {
    ranged_blocks(text, true).into_iter().map(|(_, html)| html).collect()
}

/// A text that is being written.
#[derive(Debug, Default)]
pub(super) struct Growing {
    /// What is not rendered for good yet: the last block.
    open: String,
    closed: Vec<String>,
}

impl Growing {
    pub(super) fn push(&mut self, text: &str) {
        self.open.push_str(text);
    }

    /// The length of the part that is rendered at each call of [`Self::render`].
    pub(super) fn open_bytes(&self) -> usize {
        self.open.len()
    }

    /// The blocks that are closed for good.
    pub(super) fn closed(&self) -> &[String] {
        &self.closed
    }

    /// Closes the blocks that are complete, and returns the others as they are now. Code in them is not coloured yet.
    pub(super) fn render(&mut self) -> Vec<String> {
        // Only whole lines say where a block begins: `#` may go on as `#1`, in the paragraph before it.
        let lines = self.open.rfind('\n').map_or(0, |end| end + 1);
        let last =
            ranged_blocks(&self.open[..lines], false).pop().map_or(0, |(last, _)| last.start);
        // With its indentation.
        let last = self.open[..last].rfind('\n').map_or(0, |end| end + 1);
        let done = ranged_blocks(&self.open[..last], true);
        self.closed.extend(done.into_iter().map(|(_, html)| html));
        self.open.drain(..last);
        ranged_blocks(&self.open, false).into_iter().map(|(_, html)| html).collect()
    }
}

/// The blocks of a text, with their places in it.
fn ranged_blocks(text: &str, colored: bool) -> Vec<(Range<usize>, String)> {
    let mut blocks = Vec::new();
    let mut depth = 0_usize;
    let mut start = 0;
    let mut events = Vec::new();
    let parser = Parser::new_ext(text, options()).into_offset_iter();
    for (event, range) in TextMergeWithOffset::new(parser) {
        if depth == 0 {
            start = range.start;
        }
        match &event {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
        events.push(event);
        if depth == 0 {
            let mut page = String::new();
            html::push_html(&mut page, safe(std::mem::take(&mut events), colored).into_iter());
            blocks.push((start..range.end, page));
        }
    }
    blocks
}

/// Replaces what must not be shown as it is.
fn safe(given: Vec<Event<'_>>, colored: bool) -> Vec<Event<'_>> {
    let mut events = Vec::with_capacity(given.len());
    // Whether each open link is kept. Links can be nested, inside of an image.
    let mut links: Vec<bool> = Vec::new();
    let mut code: Option<(String, String)> = None;
    let mut table = Table::default();
    for event in given {
        if let Some((_, text)) = &mut code
            && let Event::Text(part) = &event
        {
            text.push_str(part);
            continue;
        }
        match event {
            Event::Start(Tag::CodeBlock(kind)) => code = Some((language(&kind), String::new())),
            Event::End(TagEnd::CodeBlock) => {
                let (name, text) = code.take().unwrap_or_default();
                events.push(raw(code_block(&text, &name, colored)));
            }
            Event::Start(Tag::Table(columns)) => {
                table = Table { columns, ..Table::default() };
                events.push(raw(TABLE));
                events.push(Event::Start(Tag::Table(Vec::new())));
            }
            Event::End(TagEnd::Table) => {
                events.push(event);
                events.push(raw("</div>"));
            }
            Event::Start(Tag::TableHead | Tag::TableRow) => {
                table.column = 0;
                table.is_head = matches!(event, Event::Start(Tag::TableHead));
                events.push(event);
            }
            Event::Start(Tag::TableCell) => events.push(raw(table.cell())),
            Event::End(TagEnd::TableCell) => {
                events.push(raw(if table.is_head { "</th>" } else { "</td>" }));
            }
            Event::Html(text) | Event::InlineHtml(text) => events.push(Event::Text(text)),
            Event::SoftBreak => events.push(Event::HardBreak),
            Event::TaskListMarker(done) => events.push(raw(if done { DONE } else { OPEN })),
            Event::Start(Tag::Image { .. }) | Event::End(TagEnd::Image) => {}
            Event::Start(Tag::Link { link_type, ref dest_url, .. }) => {
                let kept = link_type == LinkType::Email || is_external(dest_url);
                links.push(kept);
                events.extend(kept.then_some(event));
            }
            Event::End(TagEnd::Link) => {
                events.extend(links.pop().unwrap_or(false).then_some(event));
            }
            Event::Text(text) if links.is_empty() => events.push(with_links(text)),
            event => events.push(event),
        }
    }
    // A block of code that the text does not end yet.
    if let Some((name, text)) = code {
        events.push(raw(code_block(&text, &name, colored)));
    }
    events
}

/// A table that is wider than its message can be scrolled, with the keyboard too.
const TABLE: &str = "<div class=\"table\" tabindex=\"0\" role=\"group\" aria-label=\"Table\">";
const DONE: &str = "<span role=\"img\" aria-label=\"done\">☑</span> ";
const OPEN: &str = "<span role=\"img\" aria-label=\"to do\">☐</span> ";

#[derive(Default)]
struct Table {
    columns: Vec<Alignment>,
    column: usize,
    is_head: bool,
}

impl Table {
    fn cell(&mut self) -> &'static str {
        let alignment = self.columns.get(self.column);
        self.column += 1;
        match (alignment, self.is_head) {
            (Some(Alignment::Right), true) => "<th class=\"right\">",
            (Some(Alignment::Right), false) => "<td class=\"right\">",
            (Some(Alignment::Center), true) => "<th class=\"center\">",
            (Some(Alignment::Center), false) => "<td class=\"center\">",
            (_, true) => "<th>",
            (_, false) => "<td>",
        }
    }
}

fn raw<'a>(html: impl Into<CowStr<'a>>) -> Event<'a> {
    Event::Html(html.into())
}

/// The language of a block of code, from the first word behind its fence.
fn language(kind: &CodeBlockKind<'_>) -> String {
    let info = match kind {
        CodeBlockKind::Fenced(info) => info.as_ref(),
        CodeBlockKind::Indented => "",
    };
    let name = info.split(|it: char| it.is_whitespace() || it == ',').next().unwrap_or_default();
    name.chars().filter(|it| it.is_alphanumeric() || "+-#_".contains(*it)).take(24).collect()
}

/// A block of code with its language and a button that copies it.
fn code_block(text: &str, name: &str, colored: bool) -> String {
    let shown = if colored { highlight::code(text, name) } else { escape(text) };
    let name = escape(name);
    format!(
        "<div class=\"code\"><div class=\"bar\"><span>{name}</span><button type=\"button\" class=\"copy\">Copy\
         <span class=\"unseen\"> code</span></button></div>\
         <pre tabindex=\"0\"><code>{shown}</code></pre></div>\n"
    )
}

/// A text in which the addresses of the web are links. Looks at each of its parts once, however many addresses it has.
fn with_links(text: CowStr<'_>) -> Event<'_> {
    if !text.contains("://") {
        return Event::Text(text);
    }
    let mut shown = String::new();
    let mut done = 0;
    for (slashes, _) in text.match_indices("://") {
        // What is behind those in an address belongs to it.
        let before = text.get(done..slashes).unwrap_or_default();
        let Some(scheme) = ["https", "http"].iter().find(|it| before.ends_with(*it)) else {
            continue;
        };
        let (before, address) = text[done..].split_at(before.len() - scheme.len());
        let end =
            address.find(|it: char| it.is_whitespace() || it.is_control() || "<>\"`|".contains(it));
        let address = trimmed(&address[..end.unwrap_or(address.len())]);
        shown.push_str(&escape(before));
        done += before.len() + address.len();
        let is_link = !before.ends_with(char::is_alphanumeric)
            && !address.ends_with("://")
            && address.len() <= ADDRESS;
        let address = escape(address);
        if is_link {
            let _ = write!(shown, "<a href=\"{address}\">{address}</a>");
        } else {
            shown.push_str(&address);
        }
    }
    shown.push_str(&escape(&text[done..]));
    Event::InlineHtml(shown.into())
}

/// An address without the punctuation of the sentence it stands in.
fn trimmed(address: &str) -> &str {
    let surplus = |open: char, close: char| {
        address.matches(close).count().saturating_sub(address.matches(open).count())
    };
    // The closing brackets that were opened before the address.
    let (mut round, mut square) = (surplus('(', ')'), surplus('[', ']'));
    address.trim_end_matches(|last: char| {
        let left = match last {
            ')' => &mut round,
            ']' => &mut square,
            _ => return ".,;:!?'*_~".contains(last),
        };
        let is_over = *left > 0;
        *left = left.saturating_sub(1);
        is_over
    })
}

/// Whether an address is on the web or a mail address.
fn is_external(address: &str) -> bool {
    // Without the slashes `http:press` would be an address on this server.
    ["http://", "https://", "mailto:"].iter().any(|begin| {
        address.get(..begin.len()).is_some_and(|given| given.eq_ignore_ascii_case(begin))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn markdown_is_rendered() {
        let text =
            "**Done**: `a < b`\nand so on\n\n```rust\nlet a = 1 < 2;\n```\n\n| a |\n|---|\n| b |";
        insta::assert_snapshot!(html(text), @r#"
        <p><strong>Done</strong>: <code>a &lt; b</code><br />
        and so on</p>
        <div class="code"><div class="bar"><span>rust</span><button type="button" class="copy">Copy<span class="unseen"> code</span></button></div><pre tabindex="0"><code><span class="k">let</span> a = <span class="n">1</span> &lt; <span class="n">2</span>;
        </code></pre></div>
        <div class="table" tabindex="0" role="group" aria-label="Table"><table><thead><tr><th>a</th></tr></thead><tbody>
        <tr><td>b</td></tr>
        </tbody></table>
        </div>
        "#);
    }

    #[test]
    fn html_in_an_answer_is_escaped() {
        for text in [
            "<script>alert(1)</script>",
            "a <img src=x onerror=alert(1)> b",
            "<svg/onload=alert(1)>",
            "<!-- <script> -->",
            "`<script>`",
            "    <script>",
            "```<script>\n<script>\n```",
        ] {
            let shown = html(text);
            let shown = shown.replace("<span", "");
            assert!(!shown.contains("<s") && !shown.contains("<img"), "{text}: {shown}");
        }
    }

    #[test]
    fn only_links_to_the_web_and_to_mail_are_kept() {
        let good = html("[a](https://x.y) <http://x.y> <me@x.y> [m](MAILTO:me@x.y)");
        assert_eq!(good.matches("<a href").count(), 4, "{good}");
        for text in [
            "[a](javascript:alert(1))",
            "[a](JaVaScRiPt&colon;alert(1))",
            "[a](java\tscript:alert(1))",
            "[a](data:text/html,x)",
            "[a](file:///etc/passwd)",
            "[a](/press)",
            "[a](//x.y)",
            "[a](http:press)",
            "[a](https:/press)",
            "<javascript:alert(1)>",
            "[a]: javascript:alert(1)\n\n[a]",
            "![a](https://x.y/z.png)",
        ] {
            let shown = html(text);
            assert!(!shown.contains("<a ") && !shown.contains("<img"), "{text}: {shown}");
        }
        let nested = html("[![a [b](https://x.y) c](https://x.y)](javascript:x) [d](https://x.y)");
        assert_eq!(nested.matches("<a ").count(), nested.matches("</a>").count(), "{nested}");
    }

    #[test]
    fn addresses_in_the_text_are_links() {
        let links = |text: &str| {
            let shown = html(text);
            let found =
                shown.split("href=\"").skip(1).map(|it| it.split('"').next().unwrap().to_owned());
            found.collect::<Vec<_>>()
        };
        assert_eq!(
            links("see https://x.y/a_b_c, or (http://x.y/d_(e))."),
            ["https://x.y/a_b_c", "http://x.y/d_(e)"]
        );
        assert_eq!(links("https://x.y/?a=1&b=\"2"), ["https://x.y/?a=1&amp;b="]);
        assert_eq!(links("[a](https://x.y) `https://x.y` xhttps://x.y https://"), ["https://x.y"]);
        assert_eq!(
            links("://x http://a://b https://x.y,http://z"),
            ["http://a://b", "https://x.y,http://z"]
        );
        assert_eq!(
            links("http://x.y/[a(b)]), and http://x.y)])."),
            ["http://x.y/[a(b)]", "http://x.y"]
        );
    }

    #[test]
    fn an_address_that_is_too_long_is_text() {
        let long = format!("https://x.y/{}", "a".repeat(ADDRESS));
        assert_eq!(html(&long), format!("<p>{long}</p>\n"));
        assert!(html(&long[..ADDRESS]).starts_with("<p><a href="));
    }

    /// Looking at all of the text again for each address, or for each bracket, would not come to an end.
    #[test]
    fn a_long_text_of_addresses_or_brackets_is_converted() {
        let addresses = "http://x.y ".repeat(200_000);
        assert_eq!(html(&addresses).matches("<a href").count(), 200_000);
        let brackets = format!("http://x.y{}", ")]".repeat(1_000_000));
        assert!(html(&brackets).starts_with("<p><a href=\"http://x.y\">http://x.y</a>)]"));
    }

    #[test]
    fn columns_are_aligned_by_classes() {
        let shown = html("| a | b | c |\n|:--|--:|:-:|\n| 1 | 2 | 3 |");
        assert!(
            shown.contains("<th>a</th><th class=\"right\">b</th><th class=\"center\">c</th>"),
            "{shown}"
        );
        assert!(
            shown.contains("<td>1</td><td class=\"right\">2</td><td class=\"center\">3</td>"),
            "{shown}"
        );
        assert!(!shown.contains("style"), "{shown}");
    }

    proptest! {
        #[test]
        fn a_text_that_grows_ends_as_if_it_were_whole(
            words in prop::collection::vec(r"([-*|`#>a-z1. ]{1,6}|\n|\n\n|```\n|- a\n)", 0..40)
        ) {
            let mut growing = Growing::default();
            let mut last = Vec::new();
            for word in &words {
                growing.push(word);
                last = growing.render();
            }
            let text = words.concat();
            let shown: String = growing.closed().iter().cloned().chain(last).collect();
            // Code is coloured when its block is closed, and no language is named here.
            prop_assert_eq!(shown, html(&text), "{:?}", text);
        }

        #[test]
        fn only_tags_of_markdown_are_emitted(
            text in r#"([<>/="' \n`*_#!()\[\]:&;-]|script|img|on[a-z]{3}|javascript|https|[a-z])*"#
        ) {
            const TAGS: [&str; 37] = [
                "p", "br", "em", "strong", "del", "code", "pre", "a", "ul", "ol", "li", "blockquote",
                "hr", "h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td",
                "span", "div", "button", "/div", "/p", "/a", "/li", "/ul", "/ol", "/em", "/code", "/pre",
            ];
            let shown = html(&text);
            for tag in shown.split('<').skip(1) {
                let name = tag.split(|it: char| !(it.is_alphanumeric() || it == '/')).next().unwrap();
                let name = if TAGS.contains(&name) { name } else { name.trim_start_matches('/') };
                prop_assert!(TAGS.contains(&name), "{name:?} of {text:?}: {shown}");
                let attributes = tag.split('>').next().unwrap();
                prop_assert!(!attributes.contains(" on"), "{text:?}: {shown}");
                if let Some(address) = attributes.split("href=\"").nth(1) {
                    prop_assert!(is_external(address), "{text:?}: {shown}");
                }
            }
        }
    }
}
