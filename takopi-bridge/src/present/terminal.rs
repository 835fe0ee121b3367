//! The terminal presenter: a run as lines on a screen.
//!
//! What is over leaves its [`entry`] behind for good, and scrolls away; what goes on is the [`live`]
//! block at the bottom, drawn anew whenever something changed or time passed; in the end stand the
//! [`summary`] and the [`answer`]. Where there is no screen to draw on, the entries alone tell the
//! story: [`Feed::All`].

mod ask;

use std::time::Duration;

use takopi_core::model::UsageScope;
use takopi_core::{ActionEvent, ActionKind, Level, Phase, Reason, Usage};

use super::line::{Line, Style};
use super::text::{elapsed, one_line, wrap};
use super::{action, layout};
use crate::progress::{Progress, Standing, Tracked, plan_of};

pub use self::ask::{Asked, can_choose, choices, question};

/// One picture of the spinner each.
const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
/// How long a picture of the spinner stays.
pub const TICK: Duration = Duration::from_millis(100);
/// How many lines a thing that was said may take.
const SAID_LINES: usize = 4;
/// How wide a line is at the most where there is no screen.
const UNBOUNDED: usize = 500;
/// Prose wider than this is hard to read.
const PROSE_WIDTH: usize = 100;
/// What stands between the parts of a line.
const DOT: &str = " · ";

/// The moment and the room for a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// The time since the run began.
    pub elapsed: Duration,
    /// The columns of the screen.
    pub width: usize,
    /// The lines the picture may take.
    pub height: usize,
}

/// What leaves an entry behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feed {
    /// What is over; what goes on is on the screen.
    Ends,
    /// What begins as well, and what changes on the way, for where there is no screen.
    All,
}

/// What goes on: one line for each open action, and one for the run.
pub fn live(progress: &Progress, frame: Frame) -> Vec<Line> {
    let open: Vec<&Tracked> = progress.open().filter(|tracked| shows_live(tracked)).collect();
    let room = frame.height.saturating_sub(1);
    let shown = if open.len() > room { room.saturating_sub(1) } else { open.len() };
    let mut lines = Vec::new();
    if open.len() > shown && room > 0 {
        let more = format!("  … {} more", open.len() - shown);
        lines.push(Line::new().with(Style::Dim, more));
    }
    for tracked in &open[open.len() - shown..] {
        lines.push(running(tracked, frame));
    }
    lines.push(status(progress, frame));
    lines.into_iter().map(|line| line.cut(frame.width)).collect()
}

/// Whether an open action has a line of its own. The plan is part of the status, a question is asked
/// in lines of its own, and an open turn says nothing.
fn shows_live(tracked: &Tracked) -> bool {
    let kind = &tracked.action.kind;
    !matches!(kind, ActionKind::Turn | ActionKind::Telemetry | ActionKind::Approval)
        && plan_of(&tracked.action).is_none()
}

fn running(tracked: &Tracked, frame: Frame) -> Line {
    let since = frame.elapsed.saturating_sub(tracked.began);
    let since =
        if since.as_secs() > 0 { format!("{DOT}{}", elapsed(since)) } else { String::new() };
    let (mark, style) = mark(tracked.standing);
    // The time stays in sight, however long the title.
    let room = frame.width.saturating_sub(2 + since.chars().count());
    let mut line = Line::new().with(style, mark).with(Style::Plain, " ");
    line.push(Style::Plain, &action::describe(&tracked.action, room));
    if let Some(particulars) = action::particulars(&tracked.action) {
        line.push(Style::Dim, &format!(" {particulars}"));
    }
    line.cut(2 + room).with(Style::Dim, since)
}

fn status(progress: &Progress, frame: Frame) -> Line {
    let pictures = SPINNER.len() as u128;
    let picture = frame.elapsed.as_millis() / TICK.as_millis() % pictures;
    let spinner = SPINNER.get(usize::try_from(picture).unwrap_or(0)).copied().unwrap_or(" ");
    let mut line = Line::new().with(Style::Busy, spinner).with(Style::Plain, " ");
    match progress.label() {
        Some(label) if progress.is_under_way() => line.push(Style::Strong, label),
        _ => line.push(Style::Dim, "starting"),
    }
    line.push(Style::Dim, &format!("{DOT}{}", elapsed(frame.elapsed)));
    if progress.steps() > 0 {
        line.push(Style::Dim, &format!("{DOT}step {}", progress.steps()));
    }
    if let Some(plan) = progress.plan() {
        line.push(Style::Dim, &format!("{DOT}{}", one_line(plan.title, frame.width)));
    }
    line
}

/// What an event leaves behind; nothing, for most.
///
/// `width` is that of the screen; without one, lines are whole.
pub fn entry(event: &ActionEvent, feed: Feed, width: Option<usize>) -> Vec<Line> {
    let standing = Standing::of(event);
    let action = &event.action;
    if matches!(action.kind, ActionKind::Turn | ActionKind::Telemetry)
        || event.level == Some(Level::Debug)
        || (standing.is_open() && (feed == Feed::Ends || is_in_passing(event)))
    {
        return Vec::new();
    }
    let (mark, style) = match (&action.kind, standing) {
        (ActionKind::Warning, _) => ("!", Style::Warn),
        (_, Standing::Done) if is_talk(event) => ("•", Style::Dim),
        // It ended, and nobody said how.
        (kind, Standing::Done) if kind.is_tool() && event.ok.is_none() => ("•", Style::Dim),
        _ => mark(standing),
    };
    let head = || Line::new().with(style, mark).with(Style::Plain, " ");
    let room = width.unwrap_or(UNBOUNDED).saturating_sub(2);
    if is_speech(&action.kind)
        && let Some(width) = width
    {
        let said = if action.kind == ActionKind::Warning { Style::Warn } else { Style::Plain };
        return speech(&action.title, room, &head(), said)
            .into_iter()
            .map(|line| line.cut(width))
            .collect();
    }
    let mut line = head().with(Style::Plain, action::describe(action, room));
    if let Some(particulars) = action::particulars(action) {
        line.push(Style::Dim, &format!(" {particulars}"));
    }
    if let Some(message) = &event.message {
        line.push(Style::Dim, &format!(": {}", one_line(message, room)));
    }
    vec![line.cut(width.unwrap_or(UNBOUNDED))]
}

/// Whether its title is text that somebody wrote, rather than the name of a deed.
fn is_speech(kind: &ActionKind) -> bool {
    matches!(kind, ActionKind::Note | ActionKind::Warning)
}

/// Something that was said, on a few lines.
fn speech(text: &str, room: usize, head: &Line, style: Style) -> Vec<Line> {
    let mut lines = Vec::new();
    let whole = wrap(text.trim(), room);
    let kept = whole.iter().filter(|line| !line.is_empty());
    for (n, text) in kept.clone().take(SAID_LINES).enumerate() {
        let line = if n == 0 { head.clone() } else { Line::new().with(Style::Plain, "  ") };
        lines.push(line.with(style, text));
    }
    if kept.count() > SAID_LINES
        && let Some(last) = lines.pop()
    {
        lines.push(last.with(Style::Dim, " …").cut(room + 2));
    }
    lines
}

/// Whether a note is only something the agent says, and no news of the run.
fn is_talk(event: &ActionEvent) -> bool {
    event.action.kind == ActionKind::Note
        && event.level.is_none()
        && plan_of(&event.action).is_none()
}

/// Whether it is not worth a line: half a sentence, or more output of what was begun.
fn is_in_passing(event: &ActionEvent) -> bool {
    is_talk(event) || (event.phase == Phase::Updated && event.action.kind.is_tool())
}

fn mark(standing: Standing) -> (&'static str, Style) {
    let style = match standing {
        Standing::Running => Style::Busy,
        Standing::Updated => Style::Warn,
        Standing::Done => Style::Good,
        Standing::Failed => Style::Bad,
    };
    (action::mark(standing), style)
}

/// How it ended, in one line: `✓ Codex · 12s · 5 steps · 22 tokens in, 14 out`.
pub fn summary(progress: &Progress, took: Duration) -> Line {
    let outcome = progress.outcome();
    let ok = outcome.is_some_and(|outcome| outcome.ok);
    let mut line = Line::new();
    if ok {
        line.push(Style::Good, "✓ ");
    } else {
        line.push(Style::Bad, "✗ ");
    }
    line.push(Style::Strong, progress.label().unwrap_or("takopi"));
    if let Some(reason) = outcome.and_then(|outcome| outcome.reason.as_ref()).filter(|_| !ok) {
        line.push(Style::Bad, &format!("{DOT}{}", word(reason)));
    }
    line.push(Style::Dim, &format!("{DOT}{}", elapsed(took)));
    match progress.steps() {
        0 => {}
        1 => line.push(Style::Dim, &format!("{DOT}1 step")),
        steps => line.push(Style::Dim, &format!("{DOT}{steps} steps")),
    }
    if let Some(usage) = progress.usage() {
        line.push(Style::Dim, &format!("{DOT}{}", tokens(usage)));
    }
    line
}

fn word(reason: &Reason) -> String {
    reason.as_str().replace('_', " ")
}

fn tokens(usage: &Usage) -> String {
    let whole = if usage.scope == UsageScope::Thread { " in all" } else { "" };
    format!("{} tokens in, {} out{whole}", usage.input_tokens, usage.output_tokens)
}

/// An answer in Markdown, laid out for reading.
pub fn answer(text: &str, width: usize) -> Vec<Line> {
    layout::render(text, width.min(PROSE_WIDTH))
}
