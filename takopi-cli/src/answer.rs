//! The answer on standard output.

use takopi_bridge::present::terminal::answer;

use crate::terminal::{self, Terminal, harmless};

/// Prints an answer: unchanged and with a final newline, or on a terminal with its Markdown formatted. An
/// empty answer prints nothing.
pub(crate) fn print(text: &str, terminal: Terminal) -> anyhow::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    if terminal.formats() {
        return terminal.print_lines(&answer(text, Terminal::output_width()));
    }
    let mut text = if terminal.shows_output { harmless(text) } else { text.to_owned() };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    terminal::print(text.as_bytes())
}
