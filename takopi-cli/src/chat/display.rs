//! The terminal as a chat: the [`Transport`], and the display of its messages.
//!
//! On a terminal the messages of running jobs are drawn at the bottom, above the line that is being typed;
//! everything else scrolls up. Elsewhere each step is a line on standard error. Answers go to standard
//! output.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use takopi_bridge::present::terminal::answer;
use takopi_bridge::present::{Line, Style, width};
use takopi_bridge::transport::{
    Content, Kind, MessageId, MessageRef, Outgoing, Press, Transport, TransportError,
};
use takopi_core::Decision;
use tokio::sync::mpsc;

use super::editor::{Editor, MARK_NO_PASTE, MARK_PASTE};
use crate::screen::Screen;
use crate::terminal::{Terminal, write_error};

/// The most changes that wait to be shown; then the bridge waits for the terminal.
const WAITING: usize = 64;
/// What to type to decide an approval request.
const CHOICES: [(Decision, &str); 4] = [
    (Decision::Accept, "y yes"),
    (Decision::AcceptForSession, "a yes for this session"),
    (Decision::Decline, "n no"),
    (Decision::Cancel, "c no and stop"),
];

/// A change of a message.
#[derive(Debug)]
pub(super) enum Change {
    Shown(MessageRef, Content),
    Deleted(MessageRef),
}

/// The terminal, as the bridge sees it.
#[derive(Debug)]
pub(super) struct TerminalTransport {
    changes: mpsc::Sender<Change>,
    last: AtomicU64,
}

impl TerminalTransport {
    pub(super) fn new() -> (Self, mpsc::Receiver<Change>) {
        let (changes, receiver) = mpsc::channel(WAITING);
        (Self { changes, last: AtomicU64::new(0) }, receiver)
    }

    async fn publish(&self, change: Change) -> Result<(), TransportError> {
        self.changes.send(change).await.map_err(TransportError::failed)
    }
}

impl Transport for TerminalTransport {
    async fn send(&self, message: Outgoing) -> Result<MessageId, TransportError> {
        // All of one length, so that their order as text is their order as numbers.
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let id = MessageId::from(format!("{number:020}"));
        self.publish(Change::Shown(id.clone().at(message.place.chat), message.content)).await?;
        Ok(id)
    }

    async fn edit(&self, message: MessageRef, content: Content) -> Result<(), TransportError> {
        self.publish(Change::Shown(message, content)).await
    }

    async fn delete(&self, message: MessageRef) -> Result<(), TransportError> {
        self.publish(Change::Deleted(message)).await
    }
}

/// The keys that decide a message with these buttons.
fn choices(buttons: &[Press]) -> String {
    let offered = CHOICES.iter().filter(|(it, _)| buttons.contains(&Press::Choose(*it)));
    let keys: Vec<&str> = offered.map(|(_, key)| *key).collect();
    format!("{}; then Enter", keys.join(", "))
}

/// How messages are displayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Drawn on the screen, above the line that is being typed.
    Drawn,
    /// As lines.
    Lines,
}

/// A message of a running job, or an open approval request.
#[derive(Debug)]
struct LiveMessage {
    message: MessageRef,
    content: Content,
}

/// The display of the chat.
#[derive(Debug)]
pub(super) struct View {
    pub(super) terminal: Terminal,
    mode: Mode,
    screen: Screen,
    /// By the id of the message.
    live: BTreeMap<String, LiveMessage>,
    /// The line that is being typed, as it was last drawn.
    typed: Line,
}

impl View {
    pub(super) fn new(terminal: Terminal, mode: Mode) -> Self {
        if mode == Mode::Drawn {
            write_error(MARK_PASTE);
        }
        let screen = Screen::new(terminal);
        Self { terminal, mode, screen, live: BTreeMap::new(), typed: Line::new() }
    }

    /// Redraws everything after another program used the terminal.
    pub(super) fn redraw(&mut self) {
        if self.is_drawn() {
            write_error(MARK_PASTE);
            self.screen.forget();
        }
    }

    /// Whether messages are drawn on the screen.
    pub(super) fn is_drawn(&self) -> bool {
        self.mode == Mode::Drawn
    }

    /// Applies a change; returns the final message of a job.
    pub(super) fn change(&mut self, change: Change) -> Option<Content> {
        let (message, content) = match change {
            Change::Deleted(message) => {
                self.live.remove(message.message.as_str());
                return None;
            }
            Change::Shown(message, content) => (message, content),
        };
        let before = self.live.remove(message.message.as_str());
        match content.kind {
            Kind::Final => return Some(content),
            Kind::Notice => {
                self.print(&content.text);
                return None;
            }
            Kind::Question if content.buttons.is_empty() && before.is_none() => {
                self.print(&content.text);
                return None;
            }
            Kind::Question if content.buttons.is_empty() => {
                let outcome = content.text.lines().last().unwrap_or_default();
                self.print(&format!("[{}] {outcome}", message.chat));
                return None;
            }
            Kind::Question if before.is_none() => {
                let choices = choices(&content.buttons);
                self.print(&format!("[{}] {}  \n{choices}", message.chat, content.text));
            }
            _ if !self.is_drawn() => {
                let known: Vec<String> = before.iter().flat_map(|it| steps(&it.content)).collect();
                let mut added = steps(&content);
                added.retain(|step| !known.contains(step));
                if !added.is_empty() {
                    self.print(&added.join("\n"));
                }
            }
            _ => {}
        }
        let id = message.message.as_str().to_owned();
        self.live.insert(id, LiveMessage { message, content });
        None
    }

    /// The open approval requests, oldest first.
    pub(super) fn questions(&self) -> impl Iterator<Item = &MessageRef> {
        let open = self.live.values().filter(|it| it.content.kind == Kind::Question);
        open.map(|it| &it.message)
    }

    /// Writes Markdown to standard error.
    pub(super) fn print(&mut self, text: &str) {
        let width = self.width();
        // Line by line, so that single line breaks stay; a code block is kept together.
        let lines = if text.contains("```") {
            answer(text, width)
        } else {
            text.lines().flat_map(|line| answer(line, width)).collect()
        };
        self.print_lines(&lines);
    }

    /// Writes lines to standard error, above the block that is drawn.
    pub(super) fn print_lines(&mut self, lines: &[Line]) {
        if self.is_drawn() {
            return self.screen.draw(lines, self.block(), self.width());
        }
        for line in lines {
            self.terminal.line(line);
        }
    }

    /// Clears the block, then runs something that writes to the terminal.
    pub(super) fn aside<T>(&mut self, write: impl FnOnce(Terminal) -> T) -> T {
        self.screen.clear();
        write(self.terminal)
    }

    /// Draws running jobs, and the line that is being typed after a prompt.
    pub(super) fn draw(&mut self, prompt: &str, editor: &Editor) {
        if !self.is_drawn() {
            return;
        }
        let room = self.width().saturating_sub(width(prompt) + 1);
        self.typed = Line::new().with(Style::Strong, prompt).with(Style::Plain, editor.shown(room));
        self.screen.draw(&[], self.block(), self.width());
    }

    /// The block at the bottom.
    fn block(&self) -> Vec<Line> {
        let running = self.live.values().filter(|it| it.content.kind != Kind::Question);
        let mut block: Vec<Line> = running
            .flat_map(|LiveMessage { message, content }| {
                let head = content.text.lines().next().unwrap_or_default();
                let head = format!("[{}] {head}", message.chat);
                std::iter::once(head).chain(steps(content))
            })
            .flat_map(|line| answer(&line, usize::MAX))
            .map(|line| line.cut(self.width()))
            .collect();
        // At most half of the screen: the rest is for finished messages.
        let (_, height) = Terminal::size();
        block.drain(..block.len().saturating_sub(height / 2));
        block.push(self.typed.clone());
        block
    }

    fn width(&self) -> usize {
        if self.is_drawn() { Terminal::size().0.saturating_sub(1).max(1) } else { usize::MAX }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        if self.is_drawn() {
            self.screen.clear();
            write_error(MARK_NO_PASTE);
        }
    }
}

/// The steps of a message, without its head, which counts seconds, and without the resume line.
fn steps(content: &Content) -> Vec<String> {
    let line = content.resume_line.as_deref().unwrap_or_default();
    let text = content.text.strip_suffix(line).unwrap_or(&content.text);
    let lines = text.lines().skip(1).map(str::trim);
    lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
}
