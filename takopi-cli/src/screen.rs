//! Draws on a terminal: permanent lines that scroll up, and below them a block that is redrawn.
//!
//! The cursor stays at the end of the block. Each drawing is one write, to avoid flicker; a block that has
//! not changed is not drawn again.

use std::fmt::Write as _;

use takopi_bridge::present::Line;

use crate::terminal::{Terminal, write_error};

/// The bottom of the terminal.
#[derive(Debug)]
pub(crate) struct Screen {
    terminal: Terminal,
    block: Vec<Line>,
    width: usize,
}

impl Screen {
    pub(crate) fn new(terminal: Terminal) -> Self {
        Self { terminal, block: Vec::new(), width: 0 }
    }

    /// Writes permanent lines, and the block below them.
    pub(crate) fn draw(&mut self, permanent: &[Line], block: Vec<Line>, width: usize) {
        if permanent.is_empty() && block == self.block && width == self.width {
            return;
        }
        let text = drawing(&self.block, permanent, &block, width, |line| self.terminal.paint(line));
        write_error(&text);
        (self.block, self.width) = (block, width);
    }

    /// Forgets the block, because something else was written to the terminal since.
    pub(crate) fn forget(&mut self) {
        write_error("\r\x1b[J");
        self.block.clear();
    }

    /// Removes the block.
    pub(crate) fn clear(&mut self) {
        self.draw(&[], Vec::new(), self.width);
    }
}

/// What to write to replace `old`, which ends at the cursor, with permanent lines and the new block.
fn drawing(
    old: &[Line],
    permanent: &[Line],
    block: &[Line],
    width: usize,
    paint: impl Fn(&Line) -> String,
) -> String {
    let mut text = String::new();
    if !old.is_empty() {
        // A terminal that was made narrower has wrapped the old lines.
        let rows: usize = old.iter().map(|line| line.width().div_ceil(width.max(1)).max(1)).sum();
        text.push('\r');
        if rows > 1 {
            let _ = write!(text, "\x1b[{}A", rows - 1);
        }
        text.push_str("\x1b[J");
    }
    for line in permanent {
        text.push_str(&paint(line));
        text.push('\n');
    }
    let block: Vec<String> = block.iter().map(paint).collect();
    text.push_str(&block.join("\n"));
    text
}

#[cfg(test)]
mod tests {
    use takopi_bridge::present::Style;

    use super::*;

    fn lines(texts: &[&str]) -> Vec<Line> {
        texts.iter().map(|text| Line::new().with(Style::Plain, text)).collect()
    }

    /// Shows drawings on an emulated terminal and returns its contents.
    fn show(drawings: &[(&[&str], &[&str])], size: (u16, u16)) -> String {
        let mut emulator =
            vt100::Parser::new(size.0.try_into().unwrap(), size.1.try_into().unwrap(), 100);
        let mut old = Vec::new();
        for (permanent, block) in drawings {
            let block = lines(block);
            let text = drawing(&old, &lines(permanent), &block, size.1.into(), Line::plain);
            emulator.process(text.replace('\n', "\r\n").as_bytes());
            old = block;
        }
        emulator.screen().contents()
    }

    #[test]
    fn permanent_lines_are_above_the_block_and_the_block_is_redrawn() {
        let shown = show(
            &[(&[], &["one", "two"]), (&["a"], &["three"]), (&["b", "c"], &["four", "five"])],
            (10, 20),
        );
        assert_eq!(shown, "a\nb\nc\nfour\nfive");
    }

    #[test]
    fn a_removed_block_leaves_nothing_behind() {
        assert_eq!(show(&[(&["a"], &["one", "two", "three"]), (&[], &[])], (10, 20)), "a");
    }

    #[test]
    fn it_scrolls_at_the_bottom_of_the_screen() {
        let shown = show(&[(&["a", "b", "c"], &["one"]), (&["d"], &["two", "three"])], (4, 20));
        assert_eq!(shown, "c\nd\ntwo\nthree");
    }
}
