//! Text of an agent inside a line of Markdown, escaped so that it cannot break out.

use super::super::text::{clean, one_line};

/// A line end that Markdown keeps.
pub(super) const LINE_END: &str = "  \n";
/// Text as code, on one line of at most `max` columns, in as many backticks as needed.
pub(super) fn code(text: &str, max: usize) -> String {
    let text = one_line(text, max);
    if text.is_empty() {
        return text;
    }
    let ticks = "`".repeat(longest_run(&text, '`') + 1);
    // A backtick at an end would become part of the fence; Markdown strips these spaces.
    let pad = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{ticks}{pad}{text}{pad}{ticks}")
}

/// Whether the text is unchanged on one line: no white space is collapsed.
pub(super) fn is_one_line(text: &str) -> bool {
    one_line(text, usize::MAX) == text
}

/// Escaped text, on one line of at most `max` columns before escaping.
pub(super) fn plain(text: &str, max: usize) -> String {
    let mut plain = String::new();
    for character in one_line(text, max).chars() {
        if matches!(character, '\\' | '`' | '*' | '_' | '~' | '[' | ']' | '<' | '&' | '|') {
            plain.push('\\');
        }
        plain.push(character);
    }
    plain
}

/// The same at the beginning of a line, where it opens no heading, list, quote or table either: of these
/// Markdown does not show everything, such as the cells of a row that its table has no column for.
pub(super) fn plain_line(text: &str, max: usize) -> String {
    let mut line = plain(text, max);
    let digits = line.len() - line.trim_start_matches(|it: char| it.is_ascii_digit()).len();
    let marks: &[char] = if digits > 0 { &['.', ')'] } else { &['#', '>', '-', '+', '=', ':'] };
    if line[digits..].starts_with(marks) {
        line.insert(digits, '\\');
    }
    line
}

/// A multi-line text as code, in a fence as long as needed.
pub(super) fn fence(text: &str) -> String {
    fence_of(text, "")
}

/// The same, with a language.
pub(super) fn fence_of(text: &str, language: &str) -> String {
    let text = lines(text);
    let ticks = "`".repeat((longest_run(&text, '`') + 1).max(3));
    format!("{ticks}{language}\n{}\n{ticks}", text.trim_end_matches('\n'))
}

/// A multi-line text, escaped, with lines of at most `max` columns and without blank lines.
pub(super) fn paragraph(text: &str, max: usize) -> String {
    let lines = text.lines().map(|line| plain_line(line, max)).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(LINE_END)
}

/// A multi-line text without control characters; line ends and tabs stay.
pub(in crate::present) fn lines(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let lines = text.split('\n').map(|line| {
        let cells: Vec<_> = line.split('\t').map(clean).collect();
        cells.join("\t")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The length of the longest run of the character.
pub(super) fn longest_run(text: &str, character: char) -> usize {
    text.split(|other| other != character).map(|run| run.chars().count()).max().unwrap_or(0)
}
