//! Text of an agent inside a line of Markdown, which it must not break out of.

use super::super::text::{clean, one_line};

/// A line end that Markdown keeps.
pub(super) const LINE_END: &str = "  \n";
/// How wide a line of a text may be.
const LINE: usize = 1000;

/// Text as code, on one line of at most `max` columns, in as many backticks as it takes.
pub(super) fn code(text: &str, max: usize) -> String {
    let text = one_line(text, max);
    if text.is_empty() {
        return text;
    }
    let ticks = "`".repeat(longest_run(&text, '`') + 1);
    // A backtick at an end would be taken for one of the fence; Markdown takes these spaces off.
    let pad = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{ticks}{pad}{text}{pad}{ticks}")
}

/// Text as it stands, on one line of at most `max` columns before it is escaped.
pub(super) fn plain(text: &str, max: usize) -> String {
    let mut plain = String::new();
    for character in one_line(text, max).chars() {
        if matches!(character, '\\' | '`' | '*' | '_' | '~' | '[' | ']' | '<' | '&') {
            plain.push('\\');
        }
        plain.push(character);
    }
    plain
}

/// Text of many lines as it stands, but for blank ones.
pub(super) fn paragraph(text: &str) -> String {
    let lines = text.lines().map(|line| plain(line, LINE)).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(LINE_END)
}

/// Text of many lines without what could steer a chat; its line ends and tabs stay.
pub(super) fn lines(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let lines = text.split('\n').map(|line| {
        let cells: Vec<_> = line.split('\t').map(clean).collect();
        cells.join("\t")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// How often the character stands in a row, at the most.
pub(super) fn longest_run(text: &str, character: char) -> usize {
    text.split(|other| other != character).map(|run| run.chars().count()).max().unwrap_or(0)
}
