//! Tables: Markdown, aligned so that a terminal shows them well too, and their places in a page.

use std::fmt::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;

/// A table. The first column is the label, the others are figures.
pub(crate) struct Table {
    heading: String,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(heading: impl Into<String>, columns: &[&str]) -> Self {
        Self { heading: heading.into(), rows: vec![columns.iter().map(|&c| c.into()).collect()] }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "**{}**\n", self.heading)?;
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        for (number, row) in self.rows.iter().enumerate() {
            f.write_char('|')?;
            for (column, cell) in row.iter().enumerate() {
                let width = width(column);
                match column {
                    0 => write!(f, " {cell:<width$} |")?,
                    _ => write!(f, " {cell:>width$} |")?,
                }
            }
            f.write_char('\n')?;
            if number == 0 {
                f.write_char('|')?;
                for column in 0..row.len() {
                    let rule = "-".repeat(width(column) + 1);
                    f.write_str(&if column == 0 {
                        format!("{rule}-|")
                    } else {
                        format!("{rule}:|")
                    })?;
                }
                f.write_char('\n')?;
            }
        }
        Ok(())
    }
}

pub(crate) fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

pub(crate) fn ratio(of: Duration, to: Duration) -> String {
    format!("{:.2}", of.as_secs_f64() / to.as_secs_f64())
}

pub(crate) fn mib(kib: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let mib = kib as f64 / 1024.0;
    format!("{mib:.1} MiB")
}

/// Whether a goal is met, for the line below a table.
pub(crate) fn goal(what: &str, measured: &str, met: bool) -> String {
    format!("Goal: {what}. Measured: {measured}, {}.\n", if met { "met" } else { "missed" })
}

/// Puts a section's figures into a page, between its marks.
pub(crate) fn put(page: &Path, section: &str, figures: &str) -> anyhow::Result<()> {
    let text =
        std::fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?;
    let text = replaced(&text, section, figures)
        .with_context(|| format!("{} has no place for {section}", page.display()))?;
    std::fs::write(page, text).with_context(|| format!("cannot write {}", page.display()))
}

fn replaced(text: &str, section: &str, figures: &str) -> Option<String> {
    let begin = format!("<!-- figures: {section} -->\n");
    let end = format!("<!-- end of figures: {section} -->");
    let (before, rest) = text.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n{}\n\n{end}{after}", figures.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_markdown_with_aligned_figures() {
        let mut table = Table::new("times", &["what", "time"]);
        table.row(["one".into(), "1.0 ms".into()]);
        table.row(["twenty".into(), "20.0 ms".into()]);
        let expected = "**times**\n\n| what   |    time |\n|--------|--------:|\n\
                        | one    |  1.0 ms |\n| twenty | 20.0 ms |\n";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn only_what_is_between_the_marks_of_a_section_is_replaced() {
        let page = "a\n<!-- figures: x -->\nold\n<!-- end of figures: x -->\nb\n";
        let once = replaced(page, "x", "new\n").unwrap();
        assert_eq!(once, "a\n<!-- figures: x -->\n\nnew\n\n<!-- end of figures: x -->\nb\n");
        assert_eq!(replaced(&once, "x", "new\n").as_deref(), Some(once.as_str()));
        assert_eq!(replaced(page, "y", "new\n"), None);
    }
}
