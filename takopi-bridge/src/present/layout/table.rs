//! A table on a terminal.
//!
//! Nothing of a cell is lost: what does not fit is wrapped within its column, and a table with too many columns
//! for the width becomes a list, one entry for each row. Columns are aligned as the Markdown asks.

use pulldown_cmark::Alignment;

use super::super::line::{Line, Style, flow};
use super::super::text::width;

/// The space between two columns.
const GAP: usize = 2;
/// A column that is wrapped is at least this wide: below it words are torn apart.
const NARROWEST: usize = 8;

/// The styled text of a cell.
pub(super) type Cell = Vec<(Style, String)>;

/// A table; its first row is the head.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) alignments: Vec<Alignment>,
    pub(super) rows: Vec<Vec<Cell>>,
}

impl Table {
    /// The table in lines of at most `max` columns.
    pub(super) fn lines(&self, max: usize) -> Vec<Line> {
        let natural: Vec<usize> = (0..self.columns()).map(|n| self.natural_width(n)).collect();
        match fit(&natural, max) {
            Some(widths) => self.grid(&widths),
            None => self.list(max),
        }
    }

    fn columns(&self) -> usize {
        self.rows.iter().map(Vec::len).max().unwrap_or(0)
    }

    fn natural_width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.iter().map(|(_, text)| width(text)).sum()).max().unwrap_or(0)
    }

    fn grid(&self, widths: &[usize]) -> Vec<Line> {
        let rows = self.rows.iter().enumerate().map(|(n, row)| {
            let cells = row.iter().zip(widths);
            cells.map(|(cell, width)| wrapped(cell, n == 0, *width)).collect::<Vec<_>>()
        });
        let rows: Vec<Vec<Vec<Line>>> = rows.collect();
        let height = |row: &Vec<Vec<Line>>| row.iter().map(Vec::len).max().unwrap_or(1);
        // Where a row takes several lines, a rule shows where the next one begins.
        let ruled = rows.iter().skip(1).any(|row| height(row) > 1);
        let total = widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
        let mut lines = Vec::new();
        for (n, row) in rows.iter().enumerate() {
            if ruled && n > 0 {
                lines.push(Line::new().with(Style::Dim, "─".repeat(total)));
            }
            for at in 0..height(row) {
                let mut line = Line::new();
                for (column, wide) in widths.iter().enumerate() {
                    let empty = Line::new();
                    let cell = row.get(column).and_then(|cell| cell.get(at)).unwrap_or(&empty);
                    let spare = wide.saturating_sub(cell.width());
                    let before = match self.alignments.get(column) {
                        Some(Alignment::Right) => spare,
                        Some(Alignment::Center) => spare / 2,
                        _ => 0,
                    };
                    line.push(Style::Plain, &" ".repeat(before));
                    line.append(cell);
                    line.push(Style::Plain, &" ".repeat(spare - before + GAP));
                }
                lines.push(line.trimmed());
            }
        }
        lines
    }

    /// Each row as a list of its cells, with the names of their columns.
    fn list(&self, max: usize) -> Vec<Line> {
        let Some((head, rows)) = self.rows.split_first() else { return Vec::new() };
        if rows.is_empty() {
            let cells = head.iter().flat_map(|cell| wrapped(cell, true, max));
            return cells.filter(|line| !line.is_empty()).collect();
        }
        let mut lines = Vec::new();
        for (n, row) in rows.iter().enumerate() {
            if n > 0 {
                lines.push(Line::new());
            }
            for (column, cell) in row.iter().enumerate() {
                let name: String =
                    head.get(column).into_iter().flatten().map(|it| &*it.1).collect();
                let name =
                    if name.is_empty() { Cell::new() } else { vec![(Style::Strong, name + ": ")] };
                let words = name.iter().chain(cell).map(|(style, text)| (*style, text.as_str()));
                let entry = flow(words, max, Line::new);
                lines.extend(entry.into_iter().filter(|line| !line.is_empty()));
            }
        }
        lines
    }
}

fn wrapped(cell: &Cell, head: bool, max: usize) -> Vec<Line> {
    let style = |style: Style| if head && style == Style::Plain { Style::Strong } else { style };
    flow(cell.iter().map(|(it, text)| (style(*it), text.as_str())), max.max(1), Line::new)
}

/// The widths of the columns if they fit: the widest ones are made narrower, all to the same width. `None` if
/// that would be too narrow.
fn fit(natural: &[usize], max: usize) -> Option<Vec<usize>> {
    let room = max.checked_sub(GAP * natural.len().saturating_sub(1))?;
    let taken = |cap: usize| natural.iter().map(|width| *width.min(&cap)).sum::<usize>();
    let widest = natural.iter().copied().max().unwrap_or(0);
    if taken(widest) <= room {
        return Some(natural.to_vec());
    }
    let cap = (NARROWEST..widest).rev().find(|cap| taken(*cap) <= room)?;
    let mut widths: Vec<usize> = natural.iter().map(|width| *width.min(&cap)).collect();
    // The columns that were left over by equal shares.
    let mut spare = room - taken(cap);
    for (width, natural) in widths.iter_mut().zip(natural) {
        if *width < *natural && spare > 0 {
            *width += 1;
            spare -= 1;
        }
    }
    Some(widths)
}
