//! A text with styled ranges in the forms that write styles into the text.

use std::fmt::Write as _;

use super::{RichSpan, RichStyle, RichText, without};

/// Invisible, and a word boundary for Slack.
const BOUNDARY: char = '\u{200b}';

/// A piece of the text, in order.
#[derive(Debug)]
enum Piece<'a> {
    Open(&'a RichStyle),
    Text(&'a str),
    /// With the text of the range.
    Close(&'a RichStyle, &'a str),
}

impl RichText {
    /// The text without styles: addresses stand behind their links, quotes have a `>`.
    pub fn plain(&self) -> String {
        let mut plain = String::with_capacity(self.text.len());
        let mut quoted = false;
        walk(&self.text, &self.spans, |piece| match piece {
            Piece::Open(RichStyle::Quote) => {
                quoted = true;
                plain.push_str("> ");
            }
            Piece::Close(RichStyle::Quote, _) => quoted = false,
            Piece::Text(text) if quoted => plain.push_str(&text.replace('\n', "\n> ")),
            Piece::Text(text) => plain.push_str(text),
            Piece::Close(RichStyle::Link(url), text) if !is_address(text, url) => {
                let _ = write!(plain, " ({url})");
            }
            Piece::Open(_) | Piece::Close(..) => {}
        });
        plain
    }

    /// As HTML with the tags `b`, `i`, `s`, `code`, `pre`, `a` and `blockquote`, which is what Telegram's
    /// `parse_mode=HTML` knows. Line ends stay line ends.
    pub fn html(&self) -> String {
        let mut html = String::with_capacity(self.text.len());
        walk(&self.text, &self.spans, |piece| match piece {
            Piece::Text(text) => html.push_str(&escaped(text)),
            Piece::Open(style) => match style {
                RichStyle::Bold => html.push_str("<b>"),
                RichStyle::Italic => html.push_str("<i>"),
                RichStyle::Strikethrough => html.push_str("<s>"),
                RichStyle::Code => html.push_str("<code>"),
                RichStyle::CodeBlock { language: None } => html.push_str("<pre>"),
                RichStyle::CodeBlock { language: Some(name) } => {
                    let _ = write!(html, "<pre><code class=\"language-{}\">", escaped(name));
                }
                RichStyle::Link(url) => {
                    let _ = write!(html, "<a href=\"{}\">", escaped(url).replace('"', "&quot;"));
                }
                RichStyle::Quote => html.push_str("<blockquote>"),
            },
            Piece::Close(style, _) => html.push_str(match style {
                RichStyle::Bold => "</b>",
                RichStyle::Italic => "</i>",
                RichStyle::Strikethrough => "</s>",
                RichStyle::Code => "</code>",
                RichStyle::CodeBlock { language: None } => "</pre>",
                RichStyle::CodeBlock { language: Some(_) } => "</code></pre>",
                RichStyle::Link(_) => "</a>",
                RichStyle::Quote => "</blockquote>",
            }),
        });
        html
    }

    /// As Slack's mrkdwn. It is escaped: nobody is mentioned by an answer. Slack has no way to write a
    /// `*`, `_` or `~` around a word that is not a style, so such a text may be shown in that style; code
    /// with a backtick in it is shown without a style.
    pub fn mrkdwn(&self) -> String {
        let mut slack = Slack::default();
        walk(&self.text, &for_slack(&self.text, &self.spans), |piece| slack.take(&piece));
        slack.text
    }
}

#[derive(Debug, Default)]
struct Slack {
    text: String,
    in_quote: bool,
    in_link: bool,
    /// Whether a mark was just closed.
    closed: bool,
}

impl Slack {
    fn take(&mut self, piece: &Piece<'_>) {
        match piece {
            Piece::Text(text) => {
                // Inside a word a mark is not a mark.
                if self.closed && text.starts_with(char::is_alphanumeric) {
                    self.text.push(BOUNDARY);
                }
                let text = escaped(text);
                self.text += &match (self.in_link, self.in_quote) {
                    (true, _) => text.replace('\n', " "),
                    (false, true) => text.replace('\n', "\n> "),
                    (false, false) => text,
                };
            }
            Piece::Open(style) => match style {
                RichStyle::CodeBlock { .. } => self.text.push_str("```\n"),
                RichStyle::Link(url) => {
                    let _ = write!(self.text, "<{}|", escaped(url).replace('|', "%7C"));
                    self.in_link = true;
                }
                RichStyle::Quote => {
                    self.text.push_str("> ");
                    self.in_quote = true;
                }
                style => {
                    if self.text.ends_with(char::is_alphanumeric) {
                        self.text.push(BOUNDARY);
                    }
                    self.text.push_str(slack_mark(style));
                }
            },
            Piece::Close(style, _) => match style {
                RichStyle::CodeBlock { .. } => {
                    self.text.push_str(if self.in_quote { "\n> ```" } else { "\n```" });
                }
                RichStyle::Link(_) => {
                    self.text.push('>');
                    self.in_link = false;
                }
                RichStyle::Quote => self.in_quote = false,
                style => self.text.push_str(slack_mark(style)),
            },
        }
        self.closed = matches!(piece, Piece::Close(style, _) if !slack_mark(style).is_empty());
    }
}

fn slack_mark(style: &RichStyle) -> &'static str {
    match style {
        RichStyle::Bold => "*",
        RichStyle::Italic => "_",
        RichStyle::Strikethrough => "~",
        RichStyle::Code => "`",
        RichStyle::CodeBlock { .. } | RichStyle::Link(_) | RichStyle::Quote => "",
    }
}

/// The ranges as Slack can show them: styles within one line and without white space at their ends, none
/// inside of a link, no code with a backtick.
fn for_slack(text: &str, spans: &[RichSpan]) -> Vec<RichSpan> {
    let mut shown: Vec<RichSpan> = Vec::new();
    let mut link_end = 0;
    for span in spans {
        let inner = &text[span.range.clone()];
        match span.style {
            RichStyle::CodeBlock { .. } | RichStyle::Quote => shown.push(span.clone()),
            RichStyle::Link(_) => {
                link_end = span.range.end;
                shown.push(span.clone());
            }
            _ if span.range.start < link_end
                || span.style == RichStyle::Code && inner.contains('`') => {}
            _ => {
                let ends = inner.match_indices('\n').map(|(at, _)| span.range.start + at);
                let ends: Vec<_> = ends.map(|at| at..at + 1).collect();
                shown.extend(
                    without(span, &ends).into_iter().filter_map(|part| trimmed(text, part)),
                );
            }
        }
    }
    // Pieces of an outer range may come after the pieces of an inner one.
    shown.sort_by_key(|span| (span.range.start, std::cmp::Reverse(span.range.end)));
    shown
}

fn trimmed(text: &str, mut span: RichSpan) -> Option<RichSpan> {
    let inner = &text[span.range.clone()];
    let start = span.range.start + inner.len() - inner.trim_start().len();
    span.range = start..start + inner.trim().len();
    (!span.range.is_empty()).then_some(span)
}

/// Calls a function for each piece of the text, in order.
fn walk<'a>(text: &'a str, spans: &'a [RichSpan], mut each: impl FnMut(Piece<'a>)) {
    let mut at = 0;
    let mut open: Vec<&RichSpan> = Vec::new();
    let mut say = |upto: usize, each: &mut dyn FnMut(Piece<'a>)| {
        if at < upto {
            each(Piece::Text(&text[at..upto]));
            at = upto;
        }
    };
    for span in spans {
        while let Some(last) = open.pop_if(|last| last.range.end <= span.range.start) {
            say(last.range.end, &mut each);
            each(Piece::Close(&last.style, &text[last.range.clone()]));
        }
        say(span.range.start, &mut each);
        each(Piece::Open(&span.style));
        open.push(span);
    }
    while let Some(last) = open.pop() {
        say(last.range.end, &mut each);
        each(Piece::Close(&last.style, &text[last.range.clone()]));
    }
    say(text.len(), &mut each);
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Whether the text of a link is its address.
fn is_address(text: &str, url: &str) -> bool {
    let bare = |address: &str| {
        let address = address.trim().trim_end_matches('/');
        let scheme = address.find("://").map_or(0, |at| at + 3);
        address[scheme..].to_owned()
    };
    bare(text) == bare(url)
}
