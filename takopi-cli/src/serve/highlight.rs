//! Code as HTML: colours for comments, strings, numbers, keywords, types and calls, and for the lines of a diff.
//!
//! A small lexer with a table of languages. A full set of grammars would double the time that the first build
//! takes, and slow a debug build down to seconds for each block; what a reader needs to find their way in an answer
//! are comments, strings and keywords. Promises:
//! - the text of the result is the code, escaped: nothing is added, removed or interpreted;
//! - one pass, in time and memory proportional to the code; longer code than [`MOST`] is not coloured;
//! - an unknown language is shown without colours.

mod languages;

use std::fmt::Write as _;

use languages::Language;

/// The most bytes of code that are coloured.
const MOST: usize = 256 * 1024;

/// Escapes a text for HTML.
pub(super) fn escape(text: &str) -> String {
    let mut html = String::with_capacity(text.len() + text.len() / 8);
    push(&mut html, text);
    html
}

fn push(html: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '&' => html.push_str("&amp;"),
            '"' => html.push_str("&quot;"),
            other => html.push(other),
        }
    }
}

fn push_span(html: &mut String, class: &str, text: &str) {
    let _ = write!(html, "<span class=\"{class}\">");
    push(html, text);
    html.push_str("</span>");
}

/// Code in this language.
pub(super) fn code(code: &str, name: &str) -> String {
    if code.len() > MOST {
        return escape(code);
    }
    let name = name.to_ascii_lowercase();
    if matches!(name.as_str(), "diff" | "patch") {
        return diff(code);
    }
    match Language::named(&name) {
        Some(language) => colored(code, language, name.contains("sql")),
        None => escape(code),
    }
}

/// The lines of a diff.
pub(super) fn diff(text: &str) -> String {
    if text.len() > MOST {
        return escape(text);
    }
    let mut html = String::with_capacity(text.len() * 3 / 2);
    for line in text.split_inclusive('\n') {
        let class = match line.as_bytes() {
            [b'+', ..] if !line.starts_with("+++ ") => "add",
            [b'-', ..] if !line.starts_with("--- ") => "del",
            [b'@', b'@', ..] => "hunk",
            _ => {
                push(&mut html, line);
                continue;
            }
        };
        push_span(&mut html, class, line);
    }
    html
}

fn colored(code: &str, language: &Language, folds_case: bool) -> String {
    let mut html = String::with_capacity(code.len() * 2);
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let (length, class) = token(rest, first, language, folds_case);
        let (text, behind) = rest.split_at(length);
        match class {
            Some(class) => push_span(&mut html, class, text),
            None => push(&mut html, text),
        }
        rest = behind;
    }
    html
}

/// The length of the next token, and its class.
fn token(
    rest: &str,
    first: char,
    language: &Language,
    folds_case: bool,
) -> (usize, Option<&'static str>) {
    let line_end = || rest.find('\n').unwrap_or(rest.len());
    if language.line.iter().any(|begin| rest.starts_with(begin)) {
        return (line_end(), Some("c"));
    }
    if let Some((begin, end)) = language.block
        && rest.starts_with(begin)
    {
        let length = rest[begin.len()..].find(end).map(|at| at + begin.len() + end.len());
        return (length.unwrap_or(rest.len()), Some("c"));
    }
    if language.quotes.contains(first) {
        return (quoted(rest, first), Some("s"));
    }
    if first.is_ascii_digit() {
        let length = rest.find(|it: char| !(it.is_ascii_alphanumeric() || it == '.' || it == '_'));
        return (length.unwrap_or(rest.len()), Some("n"));
    }
    if first.is_alphabetic() || first == '_' {
        let length =
            rest.find(|it: char| !(it.is_alphanumeric() || it == '_')).unwrap_or(rest.len());
        let word = &rest[..length];
        let lower = if folds_case { word.to_ascii_lowercase() } else { String::new() };
        let known = if folds_case { lower.as_str() } else { word };
        let class = if language.keywords.contains(&known) {
            Some("k")
        } else if rest[length..].starts_with('(') || rest[length..].starts_with("!(") {
            Some("f")
        } else {
            (language.types && first.is_uppercase()).then_some("t")
        };
        return (length, class);
    }
    (first.len_utf8(), None)
}

/// The length of a quoted text: to its end, or to the end of the line. Three quotes and backticks span lines.
fn quoted(rest: &str, quote: char) -> usize {
    let triple: String = [quote; 3].iter().collect();
    if quote != '`' && rest.starts_with(&triple) {
        return rest[3..].find(&triple).map_or(rest.len(), |at| at + 6);
    }
    let mut escaped = false;
    for (at, character) in rest.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '\n' if quote != '`' => return at,
            other if other == quote => return at + other.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The text of HTML.
    fn text(html: &str) -> String {
        let mut text = String::new();
        let mut rest = html;
        while let Some(at) = rest.find('<') {
            text.push_str(&rest[..at]);
            rest = &rest[at + rest[at..].find('>').unwrap() + 1..];
        }
        text.push_str(rest);
        text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
    }

    #[test]
    fn words_of_a_language_are_marked() {
        let shown = code("let a = f(1); // it's\n", "rust");
        assert_eq!(
            shown,
            "<span class=\"k\">let</span> a = <span class=\"f\">f</span>(<span class=\"n\">1</span>); \
             <span class=\"c\">// it's</span>\n"
        );
        assert_eq!(
            code("SELECT 'a'", "SQL"),
            "<span class=\"k\">SELECT</span> <span class=\"s\">'a'</span>"
        );
        assert_eq!(code("a < \"b\"", "martian"), "a &lt; &quot;b&quot;");
    }

    #[test]
    fn the_lines_of_a_diff_are_marked() {
        let shown = code("--- a\n+++ b\n@@ -1 +1 @@\n-<x>\n+y\n z\n", "diff");
        assert_eq!(
            shown,
            "--- a\n+++ b\n<span class=\"hunk\">@@ -1 +1 @@\n</span><span class=\"del\">-&lt;x&gt;\n</span>\
             <span class=\"add\">+y\n</span> z\n"
        );
    }

    proptest! {
        #[test]
        fn the_text_stays_the_same(
            source in r#"([<>/="'`\\ \n#*&;+-]|//|/\*|\*/|"""|let|fn|[a-zA-Z0-9é])*"#,
            name in prop::sample::select(vec!["rust", "py", "ts", "sh", "sql", "yaml", "json", "html", "css", "diff", ""])
        ) {
            prop_assert_eq!(text(&code(&source, name)), source);
        }
    }
}
