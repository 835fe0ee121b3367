//! A message of the agent on the terminal while it is being written.
//!
//! What is complete is printed once; the rest is drawn below it, at most every [`FRAME`]. Drawing never takes
//! more than about three times the bytes of the text, however it comes: a rest that would cost more than what is
//! left is drawn later, at the latest when it is complete.

use std::time::Duration;

use takopi_bridge::present::Line;
use takopi_bridge::present::terminal::Written;
use tokio::time::Instant;

use crate::screen::Screen;

/// The least time between two drawings of the rest.
pub(crate) const FRAME: Duration = Duration::from_millis(16);
/// After this time without a new piece the run's status is shown again.
const PAUSE: Duration = Duration::from_secs(1);
/// What drawing may take for a text of any length.
const BASE: usize = 256;

/// A message that is being written.
#[derive(Debug)]
pub(crate) struct Stream {
    id: String,
    written: Written,
    /// The bytes that drawing took.
    spent: usize,
    last_piece: Instant,
    last_drawn: Option<Instant>,
    /// Something is new since it was drawn.
    changed: bool,
}

impl Stream {
    pub(crate) fn new(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            written: Written::default(),
            spent: 0,
            last_piece: Instant::now(),
            last_drawn: None,
            changed: false,
        }
    }

    /// Whether it is the message with this id.
    pub(crate) fn is(&self, id: &str) -> bool {
        self.id == id
    }

    /// Adds a piece; returns the lines that are complete with it.
    pub(crate) fn push(&mut self, piece: &str, width: usize) -> Vec<Line> {
        self.changed = true;
        self.last_piece = Instant::now();
        self.written.push(piece, width)
    }

    /// When the rest is to be drawn again.
    pub(crate) fn due(&self) -> Option<Instant> {
        let now = self.last_piece;
        self.changed.then(|| self.last_drawn.map_or(now, |drawn| drawn + FRAME))
    }

    /// Whether nothing was written for a while.
    pub(crate) fn pauses(&self) -> bool {
        self.last_piece.elapsed() >= PAUSE
    }

    /// The rest, as much as fits on so many lines.
    pub(crate) fn rest(&self, width: usize, height: usize) -> Vec<Line> {
        let mut lines = self.written.rest(width);
        lines.drain(..lines.len().saturating_sub(height.max(1)));
        lines.into_iter().map(|line| line.cut(width)).collect()
    }

    /// Draws what is complete, and a block with the rest below it.
    pub(crate) fn draw(
        &mut self,
        screen: &mut Screen,
        permanent: &[Line],
        block: Vec<Line>,
        width: usize,
    ) {
        self.draw_at(screen, permanent, block, width, None);
    }

    /// The same, with the cursor at this line and column of the block.
    pub(crate) fn draw_at(
        &mut self,
        screen: &mut Screen,
        permanent: &[Line],
        block: Vec<Line>,
        width: usize,
        cursor: Option<(usize, usize)>,
    ) {
        let allowance = (2 * self.written.bytes() + BASE).saturating_sub(self.spent);
        self.spent += screen.draw_at(permanent, block, width, cursor, allowance);
        (self.last_drawn, self.changed) = (Some(Instant::now()), false);
    }

    /// The remaining lines: nothing follows.
    pub(crate) fn end(self, width: usize) -> Vec<Line> {
        self.written.end(width)
    }
}
