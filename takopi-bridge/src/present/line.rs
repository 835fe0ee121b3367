//! Lines of styled text for a terminal.

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthChar;

use super::text;

/// The style of a piece of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Style {
    /// Ordinary text.
    #[default]
    Plain,
    /// Less important.
    Dim,
    /// Bold.
    Strong,
    /// Italic.
    Emphasis,
    /// Struck through.
    Struck,
    /// Code.
    Code,
    /// A heading.
    Heading,
    /// The target of a link.
    Link,
    /// Something is running.
    Busy,
    /// Success.
    Good,
    /// A warning.
    Warn,
    /// A failure.
    Bad,
}

impl Style {
    /// The parameters of the terminal's "select graphic rendition".
    fn sgr(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Dim => "2",
            Self::Strong => "1",
            Self::Emphasis => "3",
            Self::Struck => "9",
            Self::Code | Self::Busy => "36",
            Self::Heading => "1;35",
            Self::Link => "2;4",
            Self::Good => "32",
            Self::Warn => "33",
            Self::Bad => "31",
        }
    }
}

/// A piece of text in one style.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Span {
    /// The text: one line, without control characters.
    pub text: String,
    /// Its style.
    pub style: Style,
}

/// One line of styled text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use = "a line is not on a screen until it is written"]
pub struct Line {
    spans: Vec<Span>,
}

impl Line {
    /// An empty line.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds text at the end. Control characters are replaced.
    pub fn with(mut self, style: Style, text: impl AsRef<str>) -> Self {
        self.push(style, text.as_ref());
        self
    }

    /// Adds text at the end. Control characters are replaced.
    pub fn push(&mut self, style: Style, text: &str) {
        if text.is_empty() {
            return;
        }
        let text = text::clean(text);
        match self.spans.last_mut() {
            Some(last) if last.style == style => last.text.push_str(&text),
            _ => self.spans.push(Span { text: text.into_owned(), style }),
        }
    }

    /// Adds another line at the end.
    pub(super) fn append(&mut self, other: &Self) {
        for span in &other.spans {
            self.push(span.style, &span.text);
        }
    }

    /// The pieces of the line.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Whether the line has no text.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Its width in columns.
    pub fn width(&self) -> usize {
        self.spans.iter().map(|span| text::width(&span.text)).sum()
    }

    /// The line truncated to `width` columns; a truncated line ends in `…`.
    pub fn cut(mut self, width: usize) -> Self {
        if self.width() <= width {
            return self;
        }
        let mut left = width;
        let mut kept = Vec::new();
        for mut span in self.spans {
            let takes = text::width(&span.text);
            if takes < left {
                left -= takes;
                kept.push(span);
                continue;
            }
            // With one more column, so that it is truncated even if this piece alone would fit:
            // more text follows.
            let cut = if takes == left { format!("{} ", span.text) } else { span.text };
            span.text = text::cut(&cut, left).into_owned();
            kept.push(span);
            break;
        }
        self.spans = kept;
        self
    }

    /// The line without the spaces at its end.
    pub(super) fn trimmed(mut self) -> Self {
        while let Some(last) = self.spans.last_mut() {
            last.text.truncate(last.text.trim_end().len());
            if !last.text.is_empty() {
                break;
            }
            self.spans.pop();
        }
        self
    }

    /// What this line has after `beginning`, if it begins with it.
    pub fn after(&self, beginning: &Self) -> Option<Self> {
        let mut rest = self.spans.clone();
        for (n, span) in beginning.spans.iter().enumerate() {
            let is_last = n + 1 == beginning.spans.len();
            let own = rest.get_mut(n).filter(|own| own.style == span.style)?;
            let grown = own.text.strip_prefix(span.text.as_str())?;
            // A combining character belongs to the one before it.
            if grown.chars().next().is_some_and(|first| UnicodeWidthChar::width(first) == Some(0))
                || !(grown.is_empty() || is_last)
            {
                return None;
            }
            own.text = grown.to_owned();
        }
        rest.retain(|span| !span.text.is_empty());
        Some(Self { spans: rest })
    }

    /// The text without styles.
    pub fn plain(&self) -> String {
        self.spans.iter().map(|span| span.text.as_str()).collect()
    }

    /// The text with escape sequences for the styles.
    pub fn ansi(&self) -> String {
        let mut painted = String::new();
        for span in &self.spans {
            match span.style.sgr() {
                "" => painted.push_str(&span.text),
                sgr => painted.extend(["\x1b[", sgr, "m", &span.text, "\x1b[0m"]),
            }
        }
        painted
    }
}

/// Wraps text into lines of at most `max` columns, between words where possible; each line begins
/// with a margin.
pub(super) fn flow<'a>(
    text: impl IntoIterator<Item = (Style, &'a str)>,
    max: usize,
    mut margin: impl FnMut() -> Line,
) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut line = margin();
    let mut bare = true;
    for (style, text) in text {
        // A word and the space after it.
        for piece in text::clean(text).split_inclusive(' ') {
            let word = piece.trim_end_matches(' ');
            if !bare && line.width() + text::width(word) > max {
                lines.push(std::mem::replace(&mut line, margin()).trimmed());
                bare = true;
            }
            for grapheme in word.graphemes(true) {
                if !bare && line.width() + text::width(grapheme) > max {
                    lines.push(std::mem::replace(&mut line, margin()).trimmed());
                }
                line.push(style, grapheme);
                bare = false;
            }
            // Spaces indent the first line and are dropped at the beginning of others.
            if !bare || lines.is_empty() {
                line.push(style, &piece[word.len()..]);
                bare = false;
            }
        }
    }
    lines.push(line.trimmed());
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn styles_become_escape_sequences_and_text_never_does() {
        let line = Line::new().with(Style::Good, "✓").with(Style::Plain, " a\x1b[2Jb");
        assert_eq!(line.ansi(), "\x1b[32m✓\x1b[0m a�[2Jb");
        assert_eq!(line.plain(), "✓ a�[2Jb");
    }

    #[test]
    fn a_cut_shows() {
        let line = Line::new().with(Style::Good, "one ").with(Style::Plain, "two");
        assert_eq!(line.clone().cut(7).plain(), "one two");
        assert_eq!(line.clone().cut(6).plain(), "one t…");
        assert_eq!(line.clone().cut(4).plain(), "one…");
        assert_eq!(line.cut(0).plain(), "");
    }

    proptest! {
        #[test]
        fn a_cut_line_is_never_too_wide(pieces in proptest::collection::vec(".{0,12}", 0..6), width in 0..40_usize) {
            let mut line = Line::new();
            for (n, piece) in pieces.iter().enumerate() {
                line.push(if n % 2 == 0 { Style::Plain } else { Style::Dim }, piece);
            }
            let whole = line.plain();
            let cut = line.cut(width);
            prop_assert!(cut.width() <= width);
            let text = cut.plain();
            prop_assert!(text == whole || width == 0 || text.ends_with('…'));
        }
    }
}
