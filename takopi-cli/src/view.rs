//! What is seen of a run while it goes on.
//!
//! Events, time and questions go in; lines go to standard error, or events to standard output. On a
//! terminal what goes on is drawn at the bottom; elsewhere each step is a line.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use takopi_bridge::present::terminal::{
    Asked, Feed, Frame, can_choose, choices, entry, live, question,
};
use takopi_bridge::present::{Line, Style};
use takopi_bridge::progress::Progress;
use takopi_core::TakopiEvent;
use tokio::time::Instant;

use crate::approve::{Question, decision};
use crate::keys::Keys;
use crate::screen::Screen;
use crate::terminal::{Terminal, write_output};

/// What is said while a run is being ended.
const ENDING: &str = "ending the run (again to leave at once)";

/// What is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The run, as it goes on.
    Progress,
    /// Nothing but questions.
    Quiet,
    /// The events on standard output; on standard error nothing but questions.
    Json,
}

/// The view of one run.
#[derive(Debug)]
pub(crate) struct View {
    mode: Mode,
    terminal: Terminal,
    screen: Screen,
    progress: Progress,
    begun: Instant,
    /// The question that is shown, and how.
    question: Option<(Question, Asked)>,
    /// Those that come after it.
    questions: VecDeque<Question>,
    keys: Option<Keys>,
    /// What stands below everything else, such as that the run is being ended.
    notice: Option<&'static str>,
    unread: bool,
    /// The last step that was written where nothing is drawn.
    said: Vec<Line>,
}

impl View {
    pub(crate) fn new(mode: Mode, terminal: Terminal) -> Self {
        Self {
            mode,
            terminal,
            screen: Screen::new(terminal),
            progress: Progress::default(),
            begun: Instant::now(),
            question: None,
            questions: VecDeque::new(),
            keys: None,
            notice: None,
            unread: false,
            said: Vec::new(),
        }
    }

    /// Takes an event in. An error means that nobody reads standard output any more.
    pub(crate) fn event(&mut self, event: &TakopiEvent) -> io::Result<()> {
        self.progress.apply(event, self.begun.elapsed());
        match (self.mode, event) {
            (Mode::Json, event) => {
                let mut line = serde_json::to_vec(event)?;
                line.push(b'\n');
                write_output(&line).inspect_err(|_| self.unread = true)?;
            }
            (Mode::Progress, TakopiEvent::Action(event)) if self.terminal.draws => {
                let lines = entry(event, Feed::Ends, Some(drawable_width()));
                // The rest is drawn when time has passed: news can come by the hundred.
                if !lines.is_empty() {
                    self.draw(&lines);
                }
            }
            (Mode::Progress, TakopiEvent::Action(event)) => {
                let lines = entry(event, Feed::All, None);
                // News that reads the same is none.
                if lines != self.said {
                    for line in &lines {
                        self.terminal.say(line);
                    }
                    self.said = lines;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether the picture changes with time.
    pub(crate) fn is_moving(&self) -> bool {
        self.question.is_some() || (self.terminal.draws && self.mode == Mode::Progress)
    }

    /// Some time passed.
    pub(crate) fn tick(&mut self) {
        self.question.take_if(|(question, _)| question.pending.is_withdrawn());
        if self.question.is_none() {
            self.next_question();
        }
        self.draw(&[]);
    }

    /// Shows a question, when it is its turn.
    pub(crate) fn ask(&mut self, question: Question) {
        self.questions.push_back(question);
        self.tick();
    }

    fn next_question(&mut self) {
        let waiting = |question: &Question| !question.pending.is_withdrawn();
        let next = std::iter::from_fn(|| self.questions.pop_front()).find(waiting);
        let Some(next) = next else {
            self.keys = None;
            return;
        };
        // Anew for each: what was typed before it was shown does not count, and what is typed from
        // then on does.
        drop(self.keys.take());
        self.keys = Keys::listen();
        let asked = question(&next.pending.request, drawable_width());
        let lines = asked.lines.clone();
        self.question = Some((next, asked));
        self.show(&lines);
    }

    /// Shows lines of the question, and what can be answered.
    fn show(&mut self, lines: &[Line]) {
        if self.terminal.draws {
            self.draw(lines);
        } else {
            for line in lines.iter().chain(&self.choices()) {
                self.terminal.say(line);
            }
        }
    }

    fn choices(&self) -> Vec<Line> {
        let Some((question, asked)) = &self.question else { return Vec::new() };
        choices(&question.pending.request, asked, question.left(), drawable_width())
    }

    /// The next key; `None` if there is no question.
    pub(crate) async fn key(&mut self) -> Option<char> {
        self.keys.as_mut()?.next().await
    }

    /// A key was pressed.
    pub(crate) fn pressed(&mut self, key: char) {
        let request = self.question.as_ref().map(|(question, _)| &question.pending.request);
        if let Some(decision) = decision(key)
            && request.is_some_and(|request| can_choose(request, decision))
            && let Some((question, _)) = self.question.take()
        {
            // It may have been withdrawn in this moment.
            let _ = question.pending.answer(decision);
        }
        let unfolded =
            self.question.as_mut().and_then(|(_, asked)| asked.unfolded.take_if(|_| key == 'v'));
        if let Some(lines) = unfolded {
            self.show(&lines);
        }
        self.tick();
    }

    /// Says that the run is being ended.
    pub(crate) fn ending(&mut self) {
        self.notice = Some(ENDING);
        if self.mode == Mode::Progress && !self.terminal.draws {
            self.terminal.note(ENDING);
        }
        self.draw(&[]);
    }

    /// The run is over: nothing is left at the bottom.
    pub(crate) fn close(mut self) -> Seen {
        self.keys = None;
        self.screen.clear();
        Seen { progress: self.progress, took: self.begun.elapsed(), unread: self.unread }
    }

    fn draw(&mut self, stay: &[Line]) {
        if !self.terminal.draws {
            return;
        }
        let (_, height) = Terminal::size();
        let width = drawable_width();
        let mut block = match &self.question {
            Some(_) => self.choices(),
            None if self.mode == Mode::Progress => {
                // Half of the screen at the most: the rest is for what scrolls by.
                let frame = Frame { elapsed: self.begun.elapsed(), width, height: height / 2 };
                live(&self.progress, frame)
            }
            None => Vec::new(),
        };
        if let Some(notice) = self.notice
            && self.mode == Mode::Progress
        {
            block.push(Line::new().with(Style::Warn, notice).cut(width));
        }
        self.screen.draw(stay, block, width);
    }
}

/// A run that is over, as far as it was seen.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) progress: Progress,
    pub(crate) took: Duration,
    /// Somebody should have read the events, and went away.
    pub(crate) unread: bool,
}

/// One column less than there is: a line that fills the last one wraps on some terminals.
fn drawable_width() -> usize {
    Terminal::size().0.saturating_sub(1).max(1)
}
