//! The terminal as a chat: the [`Transport`], and the display of its messages.
//!
//! On a terminal the messages of running jobs are drawn at the bottom, above the text that is being typed;
//! everything else scrolls up: each step that ended, and answers as they are written, one at a time. What there is to
//! show meanwhile waits for the end of that answer, so that nothing lands inside it; what takopi itself says is drawn
//! below it until then. Elsewhere each step is a line on standard error. Answers go to standard output.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use takopi_bridge::JobId;
use takopi_bridge::present::terminal::{Feed, answer, entry};
use takopi_bridge::present::{Line, Style};
use takopi_bridge::transport::{
    Content, Kind, MessageId, MessageRef, Outgoing, Place, Press, Streaming, Transport,
    TransportError,
};
use takopi_core::{ActionEvent, ActionKind, Decision, Phase, TakopiEvent};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::asked::Asked;
use super::watch::Watch;
use crate::editor::{Drawn, Editor};
use crate::held::Held;
use crate::screen::Screen;
use crate::stream::Stream;
use crate::terminal::{Terminal, write_error};

/// Switches the terminal's marks around pasted text on and off.
const MARK_PASTE: &str = "\x1b[?2004h";
const MARK_NO_PASTE: &str = "\x1b[?2004l";
/// The most lines of the text that is being typed.
const TYPED_LINES: usize = 8;
/// The most changes that wait to be shown; then the bridge waits for the terminal.
const WAITING: usize = 64;
/// What to type to decide an approval request.
const CHOICES: [(Decision, &str); 4] = [
    (Decision::Accept, "y yes"),
    (Decision::AcceptForSession, "a yes for this session"),
    (Decision::Decline, "n no"),
    (Decision::Cancel, "c no and stop"),
];

/// The conversation of a message of the user, and the message.
pub(super) type Prompt = (usize, String);

/// A change of a message.
#[derive(Debug)]
pub(super) enum Change {
    Shown(MessageRef, Content),
    Deleted(MessageRef),
}

impl Change {
    /// The message.
    pub(super) fn message(&self) -> &MessageRef {
        match self {
            Self::Shown(message, _) | Self::Deleted(message) => message,
        }
    }

    /// The job that asks, if this is a question.
    pub(super) fn asks(&self) -> Option<JobId> {
        match self {
            Self::Shown(_, content) if content.kind == Kind::Question => content.job,
            _ => None,
        }
    }
}

/// The terminal, as the bridge sees it.
#[derive(Debug)]
pub(super) struct TerminalTransport {
    changes: mpsc::Sender<Change>,
    last: AtomicU64,
    /// Gets the events of running jobs.
    watch: Arc<Watch>,
    streaming: Streaming,
}

impl TerminalTransport {
    /// A transport; answers are shown while they are written if it `streams`.
    pub(super) fn new(watch: Arc<Watch>, streams: bool) -> (Self, mpsc::Receiver<Change>) {
        let (changes, receiver) = mpsc::channel(WAITING);
        let streaming = if streams { Streaming::Events } else { Streaming::Off };
        (Self { changes, last: AtomicU64::new(0), watch, streaming }, receiver)
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

    fn streaming(&self) -> Streaming {
        self.streaming
    }

    fn event(&self, _place: &Place, job: JobId, event: &TakopiEvent) {
        self.watch.add(job, event);
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

/// A message of a running job.
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
    /// The open approval requests.
    pub(super) requests: Asked,
    /// The messages that wait for git.
    placing: Vec<String>,
    /// The text that is being typed, as it was last drawn.
    typed: Drawn,
    /// The job whose message is being written, and that message.
    stream: Option<(JobId, Stream)>,
    /// What the last message of a job that was shown while it was written says.
    streamed: BTreeMap<JobId, String>,
    /// What waits for the end of that message.
    waiting: Vec<Line>,
    /// What of that is drawn below the message meanwhile.
    notices: Vec<Line>,
    /// A notice or a key is not on the screen yet: it does not count as drawing the message.
    urgent: bool,
    /// The jobs that asked a person: their decisions are not those of a policy.
    asked: HashSet<JobId>,
    /// Warnings that may be the error that ends their job.
    held: BTreeMap<JobId, Held>,
}

impl View {
    pub(super) fn new(terminal: Terminal, mode: Mode) -> Self {
        if mode == Mode::Drawn {
            write_error(MARK_PASTE);
        }
        let screen = Screen::new(terminal);
        Self {
            terminal,
            mode,
            screen,
            live: BTreeMap::new(),
            requests: Asked::default(),
            placing: Vec::new(),
            typed: Drawn::default(),
            stream: None,
            streamed: BTreeMap::new(),
            waiting: Vec::new(),
            notices: Vec::new(),
            urgent: false,
            asked: HashSet::new(),
            held: BTreeMap::new(),
        }
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
                let next = self.requests.remove(&message);
                self.ask(&message.chat, &next);
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
            Kind::Question => {
                if let Some(job) = content.job {
                    self.show_held(job, "");
                    self.asked.insert(job);
                }
                let chat = message.chat.clone();
                let next = self.requests.change(message, content);
                self.ask(&chat, &next);
                return None;
            }
            Kind::Queued if !self.is_drawn() => {
                let known: Vec<String> = before.iter().flat_map(|it| steps(&it.content)).collect();
                let mut added = steps(&content);
                added.retain(|step| !known.contains(step));
                for step in &added {
                    self.print_lines(&answer(step, self.width()));
                }
            }
            _ => {}
        }
        let id = message.message.as_str().to_owned();
        self.live.insert(id, LiveMessage { message, content });
        None
    }

    /// Writes what a chat is asked now.
    fn ask(&mut self, chat: &str, contents: &[Content]) {
        for content in contents {
            if content.buttons.is_empty() {
                self.print(&content.text);
            } else {
                let choices = choices(&content.buttons);
                self.print(&format!("[{chat}] {}  \n{choices}", content.text));
            }
        }
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
        self.say(&lines);
    }

    /// Writes what takopi itself has to say; while a message is being written, below it.
    pub(super) fn say(&mut self, lines: &[Line]) {
        if self.stream.is_some() {
            self.notices.extend_from_slice(lines);
            self.urgent = true;
        }
        self.print_lines(lines);
    }

    /// Shows what waits of a job, but what the error that it ends with says.
    pub(super) fn show_held(&mut self, job: JobId, error: &str) {
        let lines = self.held.remove(&job).map(|mut held| held.take(error)).unwrap_or_default();
        self.print_lines(&lines);
    }

    /// Shows what has waited long enough.
    pub(super) fn show_ripe(&mut self) {
        let lines: Vec<Line> = self.held.values_mut().flat_map(Held::ripe).collect();
        self.print_lines(&lines);
    }

    /// Writes lines to standard error, above the block that is drawn.
    pub(super) fn print_lines(&mut self, lines: &[Line]) {
        if !self.is_drawn() {
            for line in lines {
                self.terminal.line(line);
            }
        } else if self.stream.is_some() {
            self.waiting.extend_from_slice(lines);
        } else if !lines.is_empty() {
            self.show(lines);
        }
    }

    /// Shows an event of a job. Its conversation is named before a decision, and with its message before an answer.
    pub(super) fn event(&mut self, job: JobId, event: &ActionEvent, prompt: Option<&Prompt>) {
        let width = self.width();
        let is_stream = |it: &Stream| it.is(&event.action.id);
        if event.action.kind != ActionKind::Answer {
            if event.action.kind.is_tool() {
                self.end_stream_of(job);
            }
            let is_decision =
                event.action.kind == ActionKind::Approval && self.asked.contains(&job);
            let asked = prompt.filter(|_| is_decision);
            let head = asked.map(|(conversation, _)| format!("[{conversation}] "));
            let head = Line::new().with(Style::Dim, head.unwrap_or_default());
            let mut lines = entry(event, Feed::Ends, Some(width.saturating_sub(head.width())));
            if let Some(first) = lines.first_mut() {
                let spans = first.spans().iter();
                *first =
                    spans.fold(head, |line, span| line.with(span.style, &span.text)).cut(width);
            }
            let lines = self.held.entry(job).or_default().event(event, lines);
            return self.print_lines(&lines);
        }
        match &self.stream {
            // An answer is not torn apart: another one is shown as a whole.
            Some((other, _)) if *other != job => return,
            Some((_, stream)) if is_stream(stream) => {}
            _ if event.phase == Phase::Completed => return,
            _ => {
                self.end_stream_of(job);
                self.show_held(job, "");
                self.show(&[Line::new(), answered(prompt)]);
                self.stream = Some((job, Stream::new(&event.action.id)));
                self.streamed.insert(job, String::new());
            }
        }
        let piece = event.answer_piece().unwrap_or_default();
        let Some((_, stream)) = &mut self.stream else { return };
        let complete = stream.push(piece, width);
        self.streamed.entry(job).or_default().push_str(piece);
        if event.phase == Phase::Completed {
            self.end_stream_of(job);
        } else if !complete.is_empty() {
            self.show(&complete);
        }
    }

    /// Prints what is left of the message of this job, and what waited for it.
    pub(super) fn end_stream_of(&mut self, job: JobId) {
        if self.stream.as_ref().is_some_and(|(it, _)| *it == job)
            && let Some((_, stream)) = self.stream.take()
        {
            let mut lines = stream.end(self.width());
            lines.push(Line::new());
            lines.append(&mut self.waiting);
            self.notices.clear();
            self.show(&lines);
        }
    }

    /// Ends the message of a job that has ended; whether that was this answer.
    pub(super) fn has_shown(&mut self, job: JobId, answer: &str) -> bool {
        self.end_stream_of(job);
        self.asked.remove(&job);
        self.streamed.remove(&job).is_some_and(|text| text.trim() == answer.trim())
    }

    /// When what is being written is to be drawn again.
    pub(super) fn due(&self) -> Option<Instant> {
        let stream = self.stream.as_ref().and_then(|(_, stream)| stream.due());
        stream.into_iter().chain(self.held.values().filter_map(Held::due)).min()
    }

    /// Prints a whole answer.
    pub(super) fn answer(&mut self, text: &str) -> anyhow::Result<()> {
        if self.is_drawn() && self.terminal.formats() {
            self.print_lines(&answer(text, self.width()));
            return Ok(());
        }
        self.aside(|terminal| crate::answer::print(text, terminal))
    }

    /// Clears the block, then runs something that writes to the terminal.
    pub(super) fn aside<T>(&mut self, write: impl FnOnce(Terminal) -> T) -> T {
        self.screen.clear();
        write(self.terminal)
    }

    /// Draws running jobs, the messages that wait for git, with their conversations, and the text that is being typed
    /// after a prompt.
    pub(super) fn draw(
        &mut self,
        prompt: &str,
        editor: &Editor,
        placing: impl Iterator<Item = (usize, String)>,
    ) {
        if self.is_drawn() {
            let line = |(conversation, text)| format!("[{conversation}] waiting for git: {text}");
            self.placing = placing.map(line).collect();
            let typed = editor.drawn(prompt, self.width(), TYPED_LINES);
            self.urgent |= typed != self.typed;
            self.typed = typed;
            self.show(&[]);
        }
    }

    /// Writes permanent lines, and the block below them.
    fn show(&mut self, permanent: &[Line]) {
        let width = self.width();
        let (_, height) = Terminal::size();
        let mut block = self.running();
        // At most half of the screen: the rest is for finished messages.
        let notices = self.notices.iter().map(|line| line.clone().cut(width));
        block.splice(..0, notices);
        block.drain(..block.len().saturating_sub(height / 2));
        if let Some((_, stream)) = &mut self.stream {
            let room = height.saturating_sub(block.len() + self.typed.lines.len() + 1);
            let mut whole = stream.rest(width, room);
            whole.append(&mut block);
            block = whole;
        }
        let (line, column) = self.typed.cursor;
        let cursor = (block.len() + line, column);
        block.extend(self.typed.lines.iter().cloned());
        match &mut self.stream {
            Some((_, stream)) if !self.urgent => {
                stream.draw_at(&mut self.screen, permanent, block, width, Some(cursor));
            }
            _ => {
                self.screen.draw_at(permanent, block, width, Some(cursor), usize::MAX);
            }
        }
        self.urgent = false;
    }

    /// The running jobs and what they are doing.
    fn running(&self) -> Vec<Line> {
        let lines = self.live.values().flat_map(|LiveMessage { message, content }| {
            let head = content.text.lines().next().unwrap_or_default();
            let head = format!("[{}] {head}", message.chat);
            // Those that have ended are above.
            let open =
                steps(content).into_iter().filter(|step| !step.starts_with(['✓', '✗', '•', '!']));
            std::iter::once(head).chain(open)
        });
        let lines = lines.chain(self.placing.iter().cloned());
        let lines = lines.flat_map(|line| answer(&line, usize::MAX));
        lines.map(|line| line.cut(self.width())).collect()
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

/// The line before an answer: the conversation and the message that it answers.
pub(super) fn answered(prompt: Option<&Prompt>) -> Line {
    let (conversation, prompt) = prompt.map_or((0, ""), |it| (it.0, it.1.as_str()));
    Line::new().with(Style::Dim, format!("[{conversation}] ↳ {prompt}"))
}

/// The steps of a message, without its head, which counts seconds, and without the resume line.
fn steps(content: &Content) -> Vec<String> {
    let line = content.resume_line.as_deref().unwrap_or_default();
    let text = content.text.strip_suffix(line).unwrap_or(&content.text);
    let lines = text.lines().skip(1).map(str::trim);
    lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
}
