//! Draws on a terminal: permanent lines that scroll up, and below them a block that is redrawn.
//!
//! The cursor stays at the end of the block, or where a text is typed in it. Each drawing is one write, to avoid flicker; a block that has
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
    /// The line and column of the cursor in the block, if it is not at its end.
    cursor: Option<(usize, usize)>,
}

impl Screen {
    pub(crate) fn new(terminal: Terminal) -> Self {
        Self { terminal, block: Vec::new(), width: 0, cursor: None }
    }

    /// Writes permanent lines, and the block below them. Returns how many bytes that took.
    pub(crate) fn draw(&mut self, permanent: &[Line], block: Vec<Line>, width: usize) -> usize {
        self.draw_within(permanent, block, width, usize::MAX)
    }

    /// The same; a block that takes more than so many bytes is left as it is, if nothing is permanent.
    pub(crate) fn draw_within(
        &mut self,
        permanent: &[Line],
        block: Vec<Line>,
        width: usize,
        allowance: usize,
    ) -> usize {
        self.draw_at(permanent, block, width, None, allowance)
    }

    /// The same, with the cursor at this line and column of the block.
    pub(crate) fn draw_at(
        &mut self,
        permanent: &[Line],
        block: Vec<Line>,
        width: usize,
        cursor: Option<(usize, usize)>,
        allowance: usize,
    ) -> usize {
        let same = permanent.is_empty() && block == self.block && width == self.width;
        if same && cursor == self.cursor {
            return 0;
        }
        let old =
            if width == self.width { Old::Known(&self.block) } else { Old::Wrapped(&self.block) };
        let drawn = if same {
            String::new()
        } else {
            drawing(old, permanent, &block, width, |line| self.terminal.paint(line))
        };
        let back = self.cursor.map_or_else(String::new, |cursor| to_end(&self.block, cursor));
        let to = cursor.map_or_else(String::new, |cursor| from_end(&block, cursor));
        let text = format!("{back}{drawn}{to}");
        if permanent.is_empty() && text.len() > allowance {
            return 0;
        }
        write_error(&text);
        (self.block, self.width, self.cursor) = (block, width, cursor);
        text.len()
    }

    /// Forgets the block, because something else was written to the terminal since.
    pub(crate) fn forget(&mut self) {
        write_error("\r\x1b[J");
        self.block.clear();
        self.cursor = None;
    }

    /// Removes the block.
    pub(crate) fn clear(&mut self) {
        self.draw(&[], Vec::new(), self.width);
    }
}

/// Moves the cursor from a place in the block to its end.
fn to_end(block: &[Line], (line, _): (usize, usize)) -> String {
    let mut text = "\r".to_owned();
    let down = block.len().saturating_sub(line + 1);
    if down > 0 {
        let _ = write!(text, "\x1b[{down}B");
    }
    let right = block.last().map_or(0, Line::width);
    if right > 0 {
        let _ = write!(text, "\x1b[{right}C");
    }
    text
}

/// Moves the cursor from the end of the block to a place in it.
fn from_end(block: &[Line], (line, column): (usize, usize)) -> String {
    let mut text = "\r".to_owned();
    let up = block.len().saturating_sub(line + 1);
    if up > 0 {
        let _ = write!(text, "\x1b[{up}A");
    }
    if column > 0 {
        let _ = write!(text, "\x1b[{column}C");
    }
    text
}

/// The block on the screen.
#[derive(Debug, Clone, Copy)]
enum Old<'a> {
    /// Each of its lines is one line of the screen.
    Known(&'a [Line]),
    /// The terminal has another width since, and may have wrapped it.
    Wrapped(&'a [Line]),
}

/// What to write to replace `old`, which ends at the cursor, with permanent lines and the new block. Lines at the
/// beginning that stay the same are not written again, and of one that only grew, only what is new.
fn drawing(
    old: Old<'_>,
    permanent: &[Line],
    block: &[Line],
    width: usize,
    paint: impl Fn(&Line) -> String,
) -> String {
    let (lines, same) = match old {
        Old::Known(lines) => {
            let pairs = lines.iter().zip(permanent.iter().chain(block));
            (lines, pairs.take_while(|(old, new)| old == new).count())
        }
        Old::Wrapped(lines) => (lines, 0),
    };
    let mut rest = permanent.iter().chain(block).skip(same).peekable();
    let mut text = String::new();
    if same < lines.len() {
        let gone = &lines[same..];
        let grown = rest.peek().and_then(|new| match (gone, old) {
            ([last], Old::Known(_)) => new.after(last),
            _ => None,
        });
        if let Some(grown) = grown {
            text.push_str(&paint(&grown));
            rest.next();
            if rest.peek().is_some() {
                text.push('\n');
            }
        } else {
            // A terminal that was made narrower has wrapped the old lines.
            let rows: usize =
                gone.iter().map(|line| line.width().div_ceil(width.max(1)).max(1)).sum();
            text.push('\r');
            if rows > 1 {
                let _ = write!(text, "\x1b[{}A", rows - 1);
            }
            text.push_str("\x1b[J");
        }
    } else if same > 0 && rest.peek().is_some() {
        text.push('\n');
    }
    let rest: Vec<String> = rest.map(paint).collect();
    text.push_str(&rest.join("\n"));
    // The cursor is at the end of the block, or below what is permanent.
    if block.is_empty() && !permanent.is_empty() {
        text.push('\n');
    }
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
            let text =
                drawing(Old::Known(&old), &lines(permanent), &block, size.1.into(), Line::plain);
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
    fn what_is_on_the_screen_already_is_not_written_again() {
        let write = |old: &[&str], permanent: &[&str], block: &[&str]| {
            let (old, permanent, block) = (lines(old), lines(permanent), lines(block));
            drawing(Old::Known(&old), &permanent, &block, 40, Line::plain)
        };
        assert_eq!(write(&["one", "two"], &[], &["one", "two and"]), " and");
        assert_eq!(write(&["one", "two"], &["one", "two"], &["three"]), "\nthree");
        assert_eq!(write(&["one", "tw"], &["one", "two"], &["three"]), "o\nthree");
        assert_eq!(write(&["one", "two"], &["one"], &["other"]), "\r\x1b[Jother");
        assert_eq!(write(&["one"], &["one"], &[]), "\n");
    }

    #[test]
    fn grown_and_kept_lines_end_where_they_should() {
        let shown = show(
            &[
                (&[], &["on"]),
                (&[], &["one", "tw"]),
                (&["one"], &["two"]),
                (&["two", "x"], &[]),
                (&["y"], &["z"]),
            ],
            (10, 20),
        );
        assert_eq!(shown, "one\ntwo\nx\ny\nz");
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
