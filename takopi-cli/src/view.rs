//! The display of a run while it goes on.
//!
//! Events, time and approval requests go in; lines go to standard error, or events to standard output. On a
//! terminal the open steps are drawn at the bottom, and messages of the agent appear as they are written;
//! elsewhere each step is a line.

use std::collections::VecDeque;
use std::io;
use std::sync::LazyLock;
use std::time::Duration;

use crossterm::event::Event;
use takopi_bridge::answers::{names_option, questions, reply};
use takopi_bridge::present::terminal::{
    Asked, Feed, Viewport, can_choose, choices, entry, live, question,
};
use takopi_bridge::present::{Line, Style};
use takopi_bridge::progress::Progress;
use takopi_core::runner::Reply;
use takopi_core::{ActionEvent, ActionKind, Phase, TakopiEvent};
use tokio::time::Instant;

use crate::approve::{Question, decision};
use crate::editor::{Editor, History, Typed};
use crate::held::Held;
use crate::keys::{Keys, character};
use crate::screen::Screen;
use crate::stream::Stream;
use crate::terminal::{Terminal, write_output};

/// Shown while a run is being stopped.
const STOPPING: &str = "stopping the run (again to exit at once)";

/// The most lines of an answer to a question that are shown while it is typed.
const TYPED_LINES: usize = 5;

/// What is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The steps of the run.
    Progress,
    /// Only approval requests.
    Quiet,
    /// The events on standard output; only approval requests on standard error.
    Json,
}

/// The display of one run.
#[derive(Debug)]
pub(crate) struct View {
    mode: Mode,
    terminal: Terminal,
    screen: Screen,
    progress: Progress,
    begun: Instant,
    /// The approval request that is shown.
    shown: Option<ShownQuestion>,
    /// The requests after it.
    waiting: VecDeque<Question>,
    keys: Option<Keys>,
    /// The last line of the block, e.g. that the run is being stopped.
    notice: Option<&'static str>,
    /// The engine confirmed the session.
    started: bool,
    output: Output,
    /// The last step that was written where nothing is drawn.
    last_step: Vec<Line>,
    /// Warnings that may be the error that ends the run.
    held: Held,
    /// The message that is being written.
    stream: Option<Stream>,
    /// The answer was shown while it was written.
    answered: bool,
}

/// An approval request on the screen.
#[derive(Debug)]
struct ShownQuestion {
    question: Question,
    asked: Asked,
    /// The answer that is being typed, if it takes one.
    typed: Option<Editor>,
}

impl ShownQuestion {
    /// Handles a key; returns the reply that it completes.
    fn pressed(&mut self, key: Event) -> Option<Reply> {
        let request = &self.question.pending.request;
        let decided = |key: char| {
            let decision = decision(key).filter(|decision| can_choose(request, *decision));
            decision.map(Reply::from)
        };
        let Some(editor) = &mut self.typed else { return character(&key).and_then(decided) };
        let Typed::Line(line) = editor.handle(key) else { return None };
        let mut letters = line.trim().chars();
        let word = letters.next().filter(|_| letters.next().is_none());
        let answered = || reply(questions(request), &line).filter(|_| request.is_whole());
        let named = names_option(questions(request), line.trim()).then(answered).flatten();
        named.or_else(|| word.and_then(decided)).or_else(answered)
    }
}

/// Whether standard output can still be written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Open,
    /// Its reader has gone away.
    Closed,
    /// Writing to it failed, for this reason.
    Failed(String),
}

impl From<&io::Error> for Output {
    fn from(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Failed(error.to_string()),
        }
    }
}

impl View {
    pub(crate) fn new(mode: Mode, terminal: Terminal) -> Self {
        Self {
            mode,
            terminal,
            screen: Screen::new(terminal),
            progress: Progress::default(),
            begun: Instant::now(),
            shown: None,
            waiting: VecDeque::new(),
            keys: None,
            notice: None,
            started: false,
            output: Output::Open,
            last_step: Vec::new(),
            held: Held::default(),
            stream: None,
            answered: false,
        }
    }

    /// Whether messages of the agent are shown while they are written: where their Markdown is formatted.
    pub(crate) fn streams(mode: Mode, terminal: Terminal) -> bool {
        mode != Mode::Json && terminal.draws && terminal.formats()
    }

    /// Shows an event. An error means that standard output cannot be written to.
    pub(crate) fn event(&mut self, event: &TakopiEvent) -> io::Result<()> {
        self.progress.apply(event, self.begun.elapsed());
        self.started |= matches!(event, TakopiEvent::Started(_));
        match event {
            TakopiEvent::Action(event)
                if event.action.kind == ActionKind::Answer
                    && Self::streams(self.mode, self.terminal) =>
            {
                self.written(event);
            }
            TakopiEvent::Completed(completed) => {
                self.show_held(completed.error.as_deref().unwrap_or_default());
                self.answered = self.stream.is_some() || self.answered;
                self.end_stream();
                self.answered &= self.progress.streamed().trim() == completed.answer.trim();
            }
            // What was written is complete, and no answer, if the agent goes on.
            TakopiEvent::Action(event) if event.action.kind.is_tool() => self.end_stream(),
            _ => {}
        }
        match (self.mode, event) {
            (Mode::Json, event) => {
                let mut line = serde_json::to_vec(event)?;
                line.push(b'\n');
                if self.output == Output::Open {
                    write_output(&line).inspect_err(|error| self.output = error.into())?;
                }
            }
            (Mode::Progress, TakopiEvent::Action(event)) if self.terminal.draws => {
                let lines = entry(event, Feed::Ends, Some(drawable_width()));
                let lines = self.held.event(event, lines);
                // Open steps are drawn at the next tick: there can be hundreds of events a second.
                if !lines.is_empty() {
                    self.draw(&lines);
                }
            }
            (Mode::Progress, TakopiEvent::Action(event)) => {
                let lines = entry(event, Feed::All, None);
                // An update that looks the same is not repeated.
                if lines != self.last_step {
                    self.last_step.clone_from(&lines);
                    self.terminal.lines(&self.held.event(event, lines));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Shows the lines that wait, but what this error says.
    fn show_held(&mut self, error: &str) {
        let lines = self.held.take(error);
        if !lines.is_empty() {
            self.keep(&lines);
        }
    }

    /// Writes lines that stay.
    fn keep(&mut self, lines: &[Line]) {
        if self.terminal.draws {
            self.draw(lines);
        } else {
            self.terminal.lines(lines);
        }
    }

    /// Shows a piece of a message.
    fn written(&mut self, event: &ActionEvent) {
        self.show_held("");
        let id = &event.action.id;
        if self.stream.as_ref().is_none_or(|stream| !stream.is(id)) {
            self.end_stream();
            if event.phase == Phase::Completed {
                return;
            }
            self.draw(self.around());
            (self.stream, self.answered) = (Some(Stream::new(id)), true);
        }
        let piece = event.answer_piece().unwrap_or_default();
        let complete = self.stream.as_mut().map(|it| it.push(piece, drawable_width()));
        match complete {
            _ if event.phase == Phase::Completed => self.end_stream(),
            Some(lines) if !lines.is_empty() => self.draw(&lines),
            _ => {}
        }
    }

    /// Prints what is left of the message that was being written.
    fn end_stream(&mut self) {
        if let Some(stream) = self.stream.take() {
            let mut lines = stream.end(drawable_width());
            lines.extend_from_slice(self.around());
            self.draw(&lines);
        }
    }

    /// The blank line before and after what was written.
    fn around(&self) -> &'static [Line] {
        static BLANK: LazyLock<[Line; 1]> = LazyLock::new(|| [Line::new()]);
        if self.mode == Mode::Progress { &*BLANK } else { &[] }
    }

    /// When what is being written is to be drawn again.
    pub(crate) fn due(&self) -> Option<Instant> {
        let stream = self.stream.as_ref().and_then(Stream::due);
        stream.into_iter().chain(self.held.due()).min()
    }

    /// Shows what has waited, and draws what is being written.
    pub(crate) fn redraw(&mut self) {
        let lines = self.held.ripe();
        self.keep(&lines);
    }

    /// Whether the display changes with time.
    pub(crate) fn is_moving(&self) -> bool {
        self.shown.is_some() || (self.terminal.draws && self.mode == Mode::Progress)
    }

    /// Redraws.
    pub(crate) fn tick(&mut self) {
        self.shown.take_if(|shown| shown.question.pending.is_withdrawn());
        if self.shown.is_none() {
            self.next_question();
        }
        self.draw(&[]);
    }

    /// Shows an approval request once those before it are decided.
    pub(crate) fn ask(&mut self, question: Question) {
        self.show_held("");
        self.waiting.push_back(question);
        self.tick();
    }

    fn next_question(&mut self) {
        let is_open = |question: &Question| !question.pending.is_withdrawn();
        let next = std::iter::from_fn(|| self.waiting.pop_front()).find(is_open);
        let Some(next) = next else {
            self.keys = None;
            return;
        };
        // Keys pressed before it was shown do not count.
        match &mut self.keys {
            Some(keys) => keys.discard(),
            None => self.keys = Keys::listen(),
        }
        let asked = question(&next.pending.request, drawable_width());
        let lines = asked.lines.clone();
        let takes_text = !questions(&next.pending.request).is_empty();
        let typed = takes_text.then(|| Editor::new(History::default()));
        self.shown = Some(ShownQuestion { question: next, asked, typed });
        self.show(&lines);
    }

    /// Shows lines of the request, and the possible decisions.
    fn show(&mut self, lines: &[Line]) {
        if self.terminal.draws {
            self.draw(lines);
        } else {
            for line in lines.iter().chain(&self.choices()) {
                self.terminal.line(line);
            }
        }
    }

    fn choices(&self) -> Vec<Line> {
        let Some(ShownQuestion { question, asked, typed }) = &self.shown else { return Vec::new() };
        let (request, width) = (&question.pending.request, drawable_width());
        let mut lines = choices(request, asked, question.left(), width);
        let is_secret = questions(request).iter().any(|question| question.secret);
        if let Some(editor) = typed.as_ref().filter(|_| self.terminal.draws) {
            let prompt = "  › ";
            if is_secret {
                lines.push(Line::new().with(Style::Strong, prompt));
            } else {
                lines.extend(editor.drawn(prompt, width, TYPED_LINES).lines);
            }
        }
        lines
    }

    /// The next key; `None` if there is no approval request.
    pub(crate) async fn key(&mut self) -> Option<Event> {
        self.keys.as_mut()?.next().await
    }

    /// Handles a key.
    pub(crate) fn pressed(&mut self, key: Event) {
        let unfold = character(&key) == Some('v');
        let reply = self.shown.as_mut().and_then(|shown| shown.pressed(key));
        if let Some(reply) = reply
            && let Some(shown) = self.shown.take()
        {
            // It may have been withdrawn at this moment.
            let _ = shown.question.pending.answer(reply);
        }
        let unfolds = |shown: &ShownQuestion| unfold && shown.typed.is_none();
        let unfolded = self.shown.as_mut().filter(|shown| unfolds(shown));
        let unfolded = unfolded.and_then(|shown| shown.asked.unfolded.take());
        if let Some(lines) = unfolded {
            self.show(&lines);
        }
        self.tick();
    }

    /// Shows that the run is being stopped.
    pub(crate) fn stopping(&mut self) {
        self.notice = Some(STOPPING);
        if self.mode == Mode::Progress && !self.terminal.draws {
            self.terminal.note(STOPPING);
        }
        self.draw(&[]);
    }

    /// Ends the display; what was drawn at the bottom is removed.
    pub(crate) fn close(mut self) -> Seen {
        self.keys = None;
        self.end_stream();
        self.screen.clear();
        Seen {
            progress: self.progress,
            took: self.begun.elapsed(),
            started: self.started,
            output: self.output,
            answered: self.answered,
        }
    }

    fn draw(&mut self, stay: &[Line]) {
        if !self.terminal.draws {
            return;
        }
        let (_, height) = Terminal::size();
        let width = drawable_width();
        let writes = self.stream.as_ref().filter(|stream| !stream.pauses());
        let mut block = match &self.shown {
            Some(_) => self.choices(),
            None if writes.is_some() => Vec::new(),
            None if self.mode == Mode::Progress => {
                // At most half of the screen: the rest is for finished steps.
                let frame = Viewport { elapsed: self.begun.elapsed(), width, height: height / 2 };
                live(&self.progress, frame)
            }
            None => Vec::new(),
        };
        if let Some(notice) = self.notice
            && self.mode == Mode::Progress
        {
            block.push(Line::new().with(Style::Warn, notice).cut(width));
        }
        match &mut self.stream {
            Some(stream) => {
                let mut whole = stream.rest(width, height.saturating_sub(block.len() + 1));
                whole.append(&mut block);
                stream.draw(&mut self.screen, stay, whole, width);
            }
            None => {
                self.screen.draw(stay, block, width);
            }
        }
    }
}

/// A run that has ended.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) progress: Progress,
    pub(crate) took: Duration,
    /// The engine confirmed the session.
    pub(crate) started: bool,
    /// With `--json`, whether every event could be written.
    pub(crate) output: Output,
    /// The answer is on the screen already.
    pub(crate) answered: bool,
}

/// The width without the last column: a line that fills it wraps on some terminals.
fn drawable_width() -> usize {
    Terminal::size().0.saturating_sub(1).max(1)
}
