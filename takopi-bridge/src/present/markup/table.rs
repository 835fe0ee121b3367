//! A table in a chat: aligned columns if they fit on a phone, else a list of its rows.

use super::super::limit::Limit;
use super::super::text::width;
use super::{RichSpan, RichStyle, RichText};

/// The widest table that is shown in columns.
const WIDEST: usize = 40;
const BETWEEN: &str = "  ";
/// How many times longer than its text a table may become because each row repeats the head, and how many bytes it may
/// always have more.
const LONGER: (usize, usize) = (8, 4096);
/// The most characters of the name of a column where it would become too long.
const NAME: usize = 12;

#[derive(Debug, Default)]
pub(super) struct Table {
    /// The first row is the head.
    rows: Vec<Vec<RichText>>,
}

impl Table {
    pub(super) fn row(&mut self) {
        self.rows.push(Vec::new());
    }

    pub(super) fn cell(&mut self, mut cell: RichText) {
        cell.normalize();
        if let Some(row) = self.rows.last_mut() {
            row.push(cell);
        }
    }

    pub(super) fn lay_out(self) -> RichText {
        let plain: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| row.iter().map(|cell| cell.plain().trim().to_owned()).collect())
            .collect();
        let columns = plain.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|at| plain.iter().filter_map(|row| row.get(at)).map(|cell| width(cell)).max())
            .map(Option::unwrap_or_default)
            .collect();
        let all = widths.iter().sum::<usize>() + BETWEEN.len() * columns.saturating_sub(1);
        if all <= WIDEST || self.rows.len() < 2 {
            in_columns(&plain, &widths)
        } else {
            self.into_list()
        }
    }

    /// Each row as an item: its first cell, then the others with the heads of their columns.
    ///
    /// Where that would be many times as long as the table, the head is an item of its own. The rows repeat the
    /// beginnings of its cells, and do not have cells that are empty.
    fn into_list(self) -> RichText {
        let own: usize = self.rows.iter().flatten().map(|cell| cell.text.len()).sum();
        let mut rows = self.rows.into_iter();
        let head = rows.next().unwrap_or_default();
        let mut names: Vec<String> =
            head.iter().map(|cell| cell.plain().trim().to_owned()).collect();
        let named = |row: &Vec<RichText>| {
            let names = names.iter().take(row.len());
            names.map(|name| name.len() + "\n  : ".len()).sum::<usize>()
        };
        let is_brief = rows.as_slice().iter().map(named).sum::<usize>() > LONGER.0 * own + LONGER.1;
        let mut list = RichText::default();
        if is_brief {
            push_row(&mut list, &head, &[], is_brief);
            names = names.iter().map(|name| Limit::Chars(NAME).cut(name, NAME)).collect();
        }
        for row in rows {
            push_row(&mut list, &row, &names, is_brief);
        }
        list
    }
}

fn push_row(list: &mut RichText, row: &[RichText], names: &[String], is_brief: bool) {
    for (at, cell) in row.iter().enumerate() {
        let is_left_out = is_brief && cell.is_empty();
        list.text.push_str(match at {
            0 if list.text.is_empty() => "• ",
            0 => "\n• ",
            _ if is_left_out => continue,
            _ => "\n  ",
        });
        let from = list.text.len();
        if let Some(name) = names.get(at).filter(|name| !name.is_empty() && !is_left_out) {
            list.text.push_str(name);
            list.text.push_str(": ");
        }
        push(list, cell);
        if at == 0 {
            let range = from..list.text.len();
            list.spans.push(RichSpan { range, style: RichStyle::Bold });
        }
    }
}

fn in_columns(rows: &[Vec<String>], widths: &[usize]) -> RichText {
    let mut lines = Vec::new();
    for (n, row) in rows.iter().enumerate() {
        let cells = row
            .iter()
            .zip(widths)
            .map(|(cell, all)| format!("{cell}{}", " ".repeat(all.saturating_sub(width(cell)))));
        lines.push(cells.collect::<Vec<_>>().join(BETWEEN).trim_end().to_owned());
        if n == 0 && rows.len() > 1 {
            let rules: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
            lines.push(rules.join(BETWEEN));
        }
    }
    let text = lines.join("\n");
    let range = 0..text.len();
    let style = RichStyle::CodeBlock { language: None };
    RichText { text, spans: vec![RichSpan { range, style }] }
}

fn push(list: &mut RichText, cell: &RichText) {
    let from = list.text.len();
    list.text.push_str(&cell.text);
    let moved = cell.spans.iter().map(|span| RichSpan {
        range: span.range.start + from..span.range.end + from,
        style: span.style.clone(),
    });
    list.spans.extend(moved);
}
