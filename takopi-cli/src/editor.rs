//! The text that a person types: a message of the chat, or an answer to a question of the agent.
//!
//! Keys, editing and the history file are those of reedline, with the keys of Emacs and most shells. What is
//! typed is drawn by [`Screen`](crate::screen::Screen), below what runs: reedline's own drawing knows nothing of
//! lines that are redrawn above the prompt. Promises:
//! - a long paste is one piece of the text, shown as a note of its size: the time to draw does not depend on it;
//! - the text keeps its tabs and line ends; only the drawing replaces them;
//! - a line that ends in a backslash, and Alt-Enter, continue the text on another line.

mod history;

use std::collections::BTreeMap;

use crossterm::event::Event;
use reedline::{EditCommand, EditMode as _, Emacs, Reedline, ReedlineEvent};
use takopi_bridge::present::{Line, Style, clean, width};
use unicode_segmentation::UnicodeSegmentation as _;

pub(crate) use self::history::History;

/// Pasted text that is longer is shown as a note of its size.
const LONG_PASTE: (usize, usize) = (12, 2000);
/// The width of a tab.
const TAB: &str = "    ";

/// The effect of a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Typed {
    /// The text may have changed.
    Edit,
    /// The text is finished.
    Line(String),
    /// Something that may be completed stands before the cursor.
    Complete,
    /// The end of the input.
    End,
}

/// The text, its cursor and the history.
pub(crate) struct Editor {
    core: Reedline,
    keys: Emacs,
    history: History,
    /// The entry of the history that is shown, and the text that was typed before.
    browsed: Option<(usize, String)>,
    search: Option<Search>,
    /// Long pasted texts by the note that stands for them.
    pasted: BTreeMap<String, String>,
    /// What can follow, shown below the text.
    offered: Vec<String>,
}

/// A search in the history.
#[derive(Debug, Default)]
struct Search {
    text: String,
    found: Option<usize>,
}

/// The text as it is drawn.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Drawn {
    pub(crate) lines: Vec<Line>,
    /// The line and the column of the cursor.
    pub(crate) cursor: (usize, usize),
}

impl Editor {
    pub(crate) fn new(history: History) -> Self {
        Self {
            core: Reedline::create(),
            keys: Emacs::default(),
            history,
            browsed: None,
            search: None,
            pasted: BTreeMap::new(),
            offered: Vec::new(),
        }
    }

    /// Handles a key, or pasted text.
    pub(crate) fn handle(&mut self, event: Event) -> Typed {
        self.offered.clear();
        if let Event::Paste(text) = event {
            self.search = None;
            self.paste(&text.replace("\r\n", "\n").replace('\r', "\n"));
            return Typed::Edit;
        }
        if let Event::Key(key) = &event
            && key.code == crossterm::event::KeyCode::Tab
        {
            return Typed::Complete;
        }
        let Ok(event) = event.try_into() else { return Typed::Edit };
        let event = self.keys.parse_event(event);
        match self.search.take() {
            Some(search) => self.searching(search, event),
            None => self.apply(event).unwrap_or(Typed::Edit),
        }
    }

    /// Applies an event; `None` if it means nothing here.
    fn apply(&mut self, event: ReedlineEvent) -> Option<Typed> {
        let edit = |editor: &mut Self, command| editor.core.run_edit_commands(&[command]);
        match event {
            ReedlineEvent::Edit(commands) => self.core.run_edit_commands(&commands),
            ReedlineEvent::Enter | ReedlineEvent::Submit | ReedlineEvent::SubmitOrNewline => {
                return Some(self.enter());
            }
            ReedlineEvent::CtrlD if self.is_empty() => return Some(Typed::End),
            ReedlineEvent::CtrlD => edit(self, EditCommand::Delete),
            ReedlineEvent::Left => edit(self, EditCommand::MoveLeft { select: false }),
            ReedlineEvent::Right => edit(self, EditCommand::MoveRight { select: false }),
            ReedlineEvent::ToStart => edit(self, EditCommand::MoveToStart { select: false }),
            ReedlineEvent::ToEnd => edit(self, EditCommand::MoveToEnd { select: false }),
            ReedlineEvent::Up if self.before_cursor().contains('\n') => {
                edit(self, EditCommand::MoveLineUp { select: false });
            }
            ReedlineEvent::Down if self.after_cursor().contains('\n') => {
                edit(self, EditCommand::MoveLineDown { select: false });
            }
            ReedlineEvent::Up | ReedlineEvent::PreviousHistory => self.browse_back(),
            ReedlineEvent::Down | ReedlineEvent::NextHistory => self.browse_forward(),
            ReedlineEvent::SearchHistory => self.search = Some(Search::default()),
            ReedlineEvent::Multiple(events) => {
                for event in events {
                    self.apply(event);
                }
            }
            ReedlineEvent::UntilFound(events) => {
                return events.into_iter().find_map(|event| self.apply(event));
            }
            _ => return None,
        }
        Some(Typed::Edit)
    }

    fn enter(&mut self) -> Typed {
        if self.before_cursor().ends_with('\\') && self.after_cursor().is_empty() {
            let lines = [EditCommand::Backspace, EditCommand::InsertNewline];
            self.core.run_edit_commands(&lines);
            return Typed::Edit;
        }
        let mut text = self.text().to_owned();
        for (note, pasted) in std::mem::take(&mut self.pasted) {
            text = text.replace(&note, &pasted);
        }
        self.clear();
        Typed::Line(text)
    }

    /// Adds a text to the history.
    pub(crate) fn keep(&mut self, text: &str) {
        self.history.add(text);
    }

    fn paste(&mut self, text: &str) {
        let lines = text.lines().count();
        if lines <= LONG_PASTE.0 && text.len() <= LONG_PASTE.1 {
            return self.insert(text);
        }
        let number = self.pasted.len() + 1;
        let size =
            if lines > 1 { format!("{lines} lines") } else { format!("{} bytes", text.len()) };
        let note = format!("[pasted text {number}: {size}]");
        self.insert(&note);
        self.pasted.insert(note, text.to_owned());
    }

    /// Inserts text at the cursor.
    pub(crate) fn insert(&mut self, text: &str) {
        self.core.run_edit_commands(&[EditCommand::InsertString(text.to_owned())]);
    }

    /// Shows what can follow.
    pub(crate) fn offer(&mut self, what: Vec<String>) {
        self.offered = what;
    }

    /// Drops the text; whether there was one.
    pub(crate) fn clear(&mut self) -> bool {
        let had = !self.is_empty() || self.search.is_some();
        self.core.run_edit_commands(&[EditCommand::Clear]);
        (self.browsed, self.search) = (None, None);
        self.offered.clear();
        self.pasted.clear();
        had
    }

    /// The text before the cursor.
    pub(crate) fn before_cursor(&self) -> &str {
        self.text().get(..self.core.current_insertion_point()).unwrap_or_default()
    }

    fn after_cursor(&self) -> &str {
        self.text().get(self.core.current_insertion_point()..).unwrap_or_default()
    }

    pub(crate) fn text(&self) -> &str {
        self.core.current_buffer_contents()
    }

    /// Whether nothing is typed.
    pub(crate) fn is_empty(&self) -> bool {
        self.text().is_empty()
    }

    fn replace(&mut self, text: &str) {
        self.core
            .run_edit_commands(&[EditCommand::Clear, EditCommand::InsertString(text.to_owned())]);
    }

    fn browse_back(&mut self) {
        let (next, typed) = match self.browsed.take() {
            Some((at, typed)) => (at + 1, typed),
            None => (0, self.text().to_owned()),
        };
        let entry = self.history.entry(next).map(str::to_owned);
        let at = if entry.is_some() { next } else { next.saturating_sub(1) };
        if entry.is_some() || next > 0 {
            self.browsed = Some((at, typed));
        }
        if let Some(entry) = entry {
            self.replace(&entry);
        }
    }

    fn browse_forward(&mut self) {
        let Some((at, typed)) = self.browsed.take() else { return };
        let text = match at.checked_sub(1).and_then(|at| self.history.entry(at)) {
            Some(entry) => entry.to_owned(),
            None => return self.replace(&typed),
        };
        self.replace(&text);
        self.browsed = Some((at - 1, typed));
    }

    /// Handles a key of a search.
    fn searching(&mut self, mut search: Search, event: ReedlineEvent) -> Typed {
        let from = match event {
            ReedlineEvent::Edit(commands) => {
                for command in commands {
                    match command {
                        EditCommand::InsertChar(letter) => search.text.push(letter),
                        EditCommand::InsertString(text) => search.text.push_str(&text),
                        EditCommand::Backspace => drop(search.text.pop()),
                        // The entry is edited from here on.
                        command => {
                            self.accept(&search);
                            self.core.run_edit_commands(&[command]);
                            return Typed::Edit;
                        }
                    }
                }
                0
            }
            ReedlineEvent::SearchHistory => search.found.map_or(0, |at| at + 1),
            ReedlineEvent::Esc | ReedlineEvent::None => return Typed::Edit,
            event => {
                self.accept(&search);
                return self.apply(event).unwrap_or(Typed::Edit);
            }
        };
        search.found = self.history.find(&search.text, from).or(search.found.filter(|_| from > 0));
        self.search = Some(search);
        Typed::Edit
    }

    fn accept(&mut self, search: &Search) {
        if let Some(entry) = search.found.and_then(|at| self.history.entry(at)).map(str::to_owned) {
            self.replace(&entry);
        }
    }

    /// The text after a prompt, and what can follow below it: of a long one the lines around the cursor.
    pub(crate) fn drawn(&self, prompt: &str, columns: usize, height: usize) -> Drawn {
        if let Some(search) = &self.search {
            let found = search.found.and_then(|at| self.history.entry(at)).unwrap_or_default();
            let head = format!("search: {} ", search.text);
            let line = Line::new().with(Style::Strong, &head);
            let line =
                line.with(Style::Plain, found.lines().next().unwrap_or_default()).cut(columns);
            return Drawn {
                lines: vec![line],
                cursor: (0, width(&head).saturating_sub(1).min(columns)),
            };
        }
        let indent = " ".repeat(width(prompt));
        let mut rows = Rows::new(prompt, &indent, columns);
        rows.add(self.before_cursor());
        let cursor = rows.end();
        rows.add(self.after_cursor());
        let mut drawn = Drawn { lines: rows.lines, cursor };
        // The window moves with the cursor.
        let height = height.max(1);
        let last = (cursor.0 + 1).max(height).min(drawn.lines.len());
        drawn.lines.truncate(last);
        let first = drawn.lines.len().saturating_sub(height);
        drawn.lines.drain(..first);
        drawn.cursor.0 -= first;
        if !self.offered.is_empty() {
            let offered = self.offered.join("  ");
            drawn.lines.push(Line::new().with(Style::Dim, offered).cut(columns));
        }
        drawn
    }
}

/// Text wrapped between grapheme clusters, behind a prompt.
struct Rows<'a> {
    lines: Vec<Line>,
    taken: usize,
    indent: &'a str,
    columns: usize,
}

impl<'a> Rows<'a> {
    fn new(prompt: &str, indent: &'a str, columns: usize) -> Self {
        let lines = vec![Line::new().with(Style::Strong, prompt)];
        Self { lines, taken: width(prompt), indent, columns }
    }

    fn end(&self) -> (usize, usize) {
        (self.lines.len() - 1, self.taken)
    }

    fn next(&mut self) {
        self.lines.push(Line::new().with(Style::Plain, self.indent));
        self.taken = width(self.indent);
    }

    fn add(&mut self, text: &str) {
        for cluster in text.graphemes(true) {
            if cluster == "\n" {
                self.next();
                continue;
            }
            let cluster = if cluster == "\t" { TAB.into() } else { clean(cluster) };
            let takes = width(&cluster);
            if self.taken + takes > self.columns && self.taken > width(self.indent) {
                self.next();
            }
            if let Some(line) = self.lines.last_mut() {
                line.push(Style::Plain, &cluster);
            }
            self.taken += takes;
        }
    }
}

impl std::fmt::Debug for Editor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Editor").field("text", &self.text()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
