//! Standard output and standard error: whether they are terminals, and writing to them.
//!
//! A closed pipe is not an error: what cannot be written to standard error is dropped, and a broken pipe on
//! standard output is reported to the caller only where it matters.

mod closed;

use std::io::{self, IsTerminal as _, Write as _};

use takopi_bridge::present::{Line, Style, clean};
use terminal_size::{Height, Width, terminal_size_of};

use crate::args::Color;

/// The size of a terminal that does not report one.
const USUAL_SIZE: (usize, usize) = (80, 24);

/// The two outputs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terminal {
    /// Standard output is a terminal.
    pub(crate) shows_output: bool,
    /// Standard error is a terminal.
    pub(crate) shows_errors: bool,
    /// Standard error is a terminal with cursor control.
    pub(crate) draws: bool,
    output_color: bool,
    error_color: bool,
}

impl Terminal {
    /// Detects what the outputs are.
    pub(crate) fn detect(color: Color) -> Self {
        let dumb = is_dumb();
        let mut terminal = Self {
            shows_output: io::stdout().is_terminal(),
            shows_errors: io::stderr().is_terminal(),
            draws: io::stderr().is_terminal() && !dumb,
            output_color: false,
            error_color: false,
        };
        terminal.recolor(color);
        terminal
    }

    /// Chooses when to use colour.
    pub(crate) fn recolor(&mut self, color: Color) {
        let plain =
            std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) || is_dumb();
        let color = |terminal: bool| match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => terminal && !plain,
        };
        self.output_color = color(self.shows_output);
        self.error_color = color(self.shows_errors);
    }

    /// Turns drawing off, because logs are written to standard error too.
    pub(crate) fn draw_nothing(&mut self) {
        self.draws = false;
    }

    /// Columns and lines of standard error.
    pub(crate) fn size() -> (usize, usize) {
        size_of(terminal_size_of(io::stderr()))
    }

    /// Columns of standard output.
    pub(crate) fn output_width() -> usize {
        size_of(terminal_size_of(io::stdout())).0
    }

    /// A line with the colours of standard error.
    pub(crate) fn paint(self, line: &Line) -> String {
        if self.error_color { line.ansi() } else { line.plain() }
    }

    /// Writes a line to standard error.
    pub(crate) fn line(self, line: &Line) {
        write_error(&format!("{}\n", self.paint(line)));
    }

    /// Writes an error to standard error.
    pub(crate) fn error(self, text: &str) {
        self.lines(&labelled(Label::Error, text));
    }

    /// Writes a hint to standard error.
    pub(crate) fn hint(self, text: &str) {
        self.lines(&labelled(Label::Hint, text));
    }

    /// Writes a note to standard error.
    pub(crate) fn note(self, text: &str) {
        self.lines(&labelled(Label::Note, text));
    }

    /// Writes lines to standard error.
    pub(crate) fn lines(self, lines: &[Line]) {
        for line in lines {
            self.line(line);
        }
    }

    /// Whether the Markdown of answers is formatted: on a terminal, in colour.
    pub(crate) fn formats(self) -> bool {
        self.shows_output && self.output_color
    }

    /// Writes lines to standard output.
    pub(crate) fn print_lines(self, lines: &[Line]) -> anyhow::Result<()> {
        let mut text = String::new();
        for line in lines {
            let painted = if self.output_color { line.ansi() } else { line.plain() };
            text.push_str(painted.trim_end_matches(' '));
            text.push('\n');
        }
        print(text.as_bytes())
    }
}

/// What a message of takopi itself is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Label {
    Error,
    Hint,
    Note,
}

/// The lines of a message of takopi itself.
pub(crate) fn labelled(label: Label, text: &str) -> Vec<Line> {
    let (style, label) = match label {
        Label::Error => (Style::Bad, "error:"),
        Label::Hint => (Style::Good, "hint:"),
        Label::Note => (Style::Warn, "note:"),
    };
    let lines = text.trim_end().lines().enumerate();
    let lines = lines.map(|(n, text)| {
        let head = if n == 0 { label.to_owned() } else { " ".repeat(label.len()) };
        Line::new().with(style, head).with(Style::Plain, format!(" {text}"))
    });
    lines.collect()
}

/// Whether nothing is known about the terminal: it may have neither colours nor cursor control.
fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb")
}

/// Writes to standard output. A broken pipe is not an error.
pub(crate) fn print(bytes: &[u8]) -> anyhow::Result<()> {
    match write_output(bytes) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(anyhow::anyhow!("cannot write to standard output: {error}"))
        }
        _ => Ok(()),
    }
}

/// Text for a terminal, without control characters.
pub(crate) fn harmless(text: &str) -> String {
    text.split_inclusive('\n')
        .map(|line| match line.strip_suffix('\n') {
            Some(line) => format!("{}\n", clean(&line.replace('\t', "    "))),
            None => clean(&line.replace('\t', "    ")).into_owned(),
        })
        .collect()
}

/// Writes to standard output and flushes it.
pub(crate) fn write_output(bytes: &[u8]) -> io::Result<()> {
    if closed::output_was_closed() {
        return Err(io::Error::other("it is closed"));
    }
    let mut output = io::stdout().lock();
    output.write_all(bytes)?;
    output.flush()
}

/// Writes to standard error in one call. Errors are ignored: there is nowhere to report them.
pub(crate) fn write_error(text: &str) {
    let mut errors = io::stderr().lock();
    let _ = errors.write_all(text.as_bytes());
    let _ = errors.flush();
}

fn size_of(size: Option<(Width, Height)>) -> (usize, usize) {
    match size {
        Some((Width(columns), Height(lines))) if columns > 0 && lines > 0 => {
            (columns.into(), lines.into())
        }
        _ => USUAL_SIZE,
    }
}
