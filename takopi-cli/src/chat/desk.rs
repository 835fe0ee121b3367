//! The terminal as a chat: the [`Transport`], and what of it is on the screen.
//!
//! Where it can be drawn on, what goes on stands at the bottom, above the line that is typed; the rest
//! scrolls away. Elsewhere each step is a line on standard error. Answers go to standard output.

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

/// The changes that may wait to be shown; then the chat waits for the terminal.
const WAITING: usize = 64;
/// What to type when approval is asked for.
const CHOICES: [(Decision, &str); 4] = [
    (Decision::Accept, "y yes"),
    (Decision::AcceptForSession, "a yes for this session"),
    (Decision::Decline, "n no"),
    (Decision::Cancel, "c no and stop"),
];

/// What changed on the desk.
#[derive(Debug)]
pub(super) enum Change {
    Shows(MessageRef, Content),
    Gone(MessageRef),
}

/// The terminal, as the kit sees it.
#[derive(Debug)]
pub(super) struct Desk {
    changes: mpsc::Sender<Change>,
    last: AtomicU64,
}

impl Desk {
    pub(super) fn new() -> (Self, mpsc::Receiver<Change>) {
        let (changes, receiver) = mpsc::channel(WAITING);
        (Self { changes, last: AtomicU64::new(0) }, receiver)
    }

    async fn tell(&self, change: Change) -> Result<(), TransportError> {
        self.changes.send(change).await.map_err(TransportError::failed)
    }
}

impl Transport for Desk {
    async fn send(&self, message: Outgoing) -> Result<MessageId, TransportError> {
        // Of one length, so that they are in order.
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let id = MessageId::from(format!("{number:020}"));
        self.tell(Change::Shows(id.clone().at(message.place.chat), message.content)).await?;
        Ok(id)
    }

    async fn edit(&self, message: MessageRef, content: Content) -> Result<(), TransportError> {
        self.tell(Change::Shows(message, content)).await
    }

    async fn delete(&self, message: MessageRef) -> Result<(), TransportError> {
        self.tell(Change::Gone(message)).await
    }
}

/// What can be typed in answer to a message with these buttons.
fn choices(buttons: &[Press]) -> String {
    let offered = CHOICES.iter().filter(|(it, _)| buttons.contains(&Press::Choose(*it)));
    let keys: Vec<&str> = offered.map(|(_, key)| *key).collect();
    format!("{}; then Enter", keys.join(", "))
}

/// The desk on the screen.
#[derive(Debug)]
pub(super) struct View {
    pub(super) terminal: Terminal,
    draws: bool,
    screen: Screen,
    /// The messages in which something goes on.
    live: BTreeMap<String, (MessageRef, Content)>,
    /// The line that is typed, as it was last drawn.
    typed: Line,
}

impl View {
    /// With somebody who types the screen is drawn on.
    pub(super) fn new(terminal: Terminal, draws: bool) -> Self {
        if draws {
            write_error(MARK_PASTE);
        }
        let screen = Screen::new(terminal);
        Self { terminal, draws, screen, live: BTreeMap::new(), typed: Line::new() }
    }

    /// Takes the screen again after others had it.
    pub(super) fn take_again(&mut self) {
        if self.draws {
            write_error(MARK_PASTE);
            self.screen.forget();
        }
    }

    /// Whether the screen is drawn on.
    pub(super) fn is_drawn(&self) -> bool {
        self.draws
    }

    /// Takes in a change; returns the last word on a job.
    pub(super) fn change(&mut self, change: Change) -> Option<Content> {
        let (message, content) = match change {
            Change::Gone(message) => {
                self.live.remove(message.message.as_str());
                return None;
            }
            Change::Shows(message, content) => (message, content),
        };
        let before = self.live.remove(message.message.as_str());
        match content.kind {
            Kind::Final => return Some(content),
            Kind::Notice => {
                self.say(&content.text);
                return None;
            }
            Kind::Question if content.buttons.is_empty() && before.is_none() => {
                self.say(&content.text);
                return None;
            }
            Kind::Question if content.buttons.is_empty() => {
                let outcome = content.text.lines().last().unwrap_or_default();
                self.say(&format!("[{}] {outcome}", message.chat));
                return None;
            }
            Kind::Question if before.is_none() => {
                let choices = choices(&content.buttons);
                self.say(&format!("[{}] {}  \n{choices}", message.chat, content.text));
            }
            _ if !self.draws => {
                let known: Vec<String> = before.iter().flat_map(|(_, it)| steps(it)).collect();
                let mut news = steps(&content);
                news.retain(|step| !known.contains(step));
                if !news.is_empty() {
                    self.say(&news.join("\n"));
                }
            }
            _ => {}
        }
        self.live.insert(message.message.as_str().to_owned(), (message, content));
        None
    }

    /// The questions that wait for an answer, the oldest first.
    pub(super) fn questions(&self) -> impl Iterator<Item = &MessageRef> {
        let asked = self.live.values().filter(|(_, content)| content.kind == Kind::Question);
        asked.map(|(message, _)| message)
    }

    /// Writes Markdown that stays, to standard error.
    pub(super) fn say(&mut self, text: &str) {
        let width = self.width();
        // Line by line, as it stands; but a fence belongs together.
        let lines = if text.contains("```") {
            answer(text, width)
        } else {
            text.lines().flat_map(|line| answer(line, width)).collect()
        };
        self.stay(&lines);
    }

    /// Writes lines that stay, to standard error.
    pub(super) fn stay(&mut self, lines: &[Line]) {
        if self.draws {
            return self.screen.draw(lines, self.block(), self.width());
        }
        for line in lines {
            self.terminal.line(line);
        }
    }

    /// Runs something that writes to the terminal.
    pub(super) fn aside<T>(&mut self, write: impl FnOnce(Terminal) -> T) -> T {
        self.screen.clear();
        write(self.terminal)
    }

    /// Draws what goes on, and the line that is typed behind a prompt.
    pub(super) fn draw(&mut self, prompt: &str, editor: &Editor) {
        if !self.draws {
            return;
        }
        let room = self.width().saturating_sub(width(prompt) + 1);
        self.typed = Line::new().with(Style::Strong, prompt).with(Style::Plain, editor.shown(room));
        self.screen.draw(&[], self.block(), self.width());
    }

    /// What stands at the bottom.
    fn block(&self) -> Vec<Line> {
        let going = self.live.values().filter(|(_, content)| content.kind != Kind::Question);
        let mut block: Vec<Line> = going
            .flat_map(|(message, content)| {
                let head = content.text.lines().next().unwrap_or_default();
                let head = format!("[{}] {head}", message.chat);
                std::iter::once(head).chain(steps(content))
            })
            .flat_map(|line| answer(&line, usize::MAX))
            .map(|line| line.cut(self.width()))
            .collect();
        // Half of the screen at the most: the rest is for what scrolls by.
        let (_, height) = Terminal::size();
        block.drain(..block.len().saturating_sub(height / 2));
        block.push(self.typed.clone());
        block
    }

    fn width(&self) -> usize {
        if self.draws { Terminal::size().0.saturating_sub(1).max(1) } else { usize::MAX }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        if self.draws {
            self.screen.clear();
            write_error(MARK_NO_PASTE);
        }
    }
}

/// The steps of a message: all but its head, which counts the seconds, and the resume line.
fn steps(content: &Content) -> Vec<String> {
    let line = content.resume_line.as_deref().unwrap_or_default();
    let text = content.text.strip_suffix(line).unwrap_or(&content.text);
    let lines = text.lines().skip(1).map(str::trim);
    lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
}
