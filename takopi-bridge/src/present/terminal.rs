//! The terminal presenter: a run as lines on a screen.
//!
//! An action that has ended leaves its [`entry`] on the screen, which scrolls away; the [`live`]
//! block at the bottom shows what is running and is redrawn on changes and ticks; at the end come
//! the [`summary`] and the [`answer`]. Without a screen to draw on, only entries are printed:
//! [`Feed::All`].

mod ask;
mod written;

use std::time::Duration;

use takopi_core::model::UsageScope;
use takopi_core::{Action, ActionEvent, ActionKind, Level, Phase, Usage};

use super::line::{Line, Style};
use super::text::{self, elapsed, one_line, reason_label, wrap};
use super::{action, layout};
use crate::progress::{ActionStatus, Progress, Tracked, plan_of};

pub use self::ask::{Asked, can_choose, choices, question};
pub use self::written::Written;

/// The frames of the spinner.
const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
/// How long a frame of the spinner is shown.
pub const TICK: Duration = Duration::from_millis(100);
/// How many lines a note or a warning may take.
const SAID_LINES: usize = 4;
/// How many lines of the output of a failed command are shown.
pub const TAIL_LINES: usize = 5;
/// The maximum width of a line without a screen.
const UNBOUNDED: usize = 500;
/// The least columns that a title gets beside how its action ended.
const SHORTEST_TITLE: usize = 12;
/// Separates the parts of a line.
const DOT: &str = " · ";

/// The time and the size of the live block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Viewport {
    /// The time since the run started.
    pub elapsed: Duration,
    /// The width of the screen in columns.
    pub width: usize,
    /// The maximum number of lines.
    pub height: usize,
}

/// Which events have an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feed {
    /// Only ends; running actions are in the live block.
    Ends,
    /// Starts and updates as well, for output without a screen.
    All,
}

/// What is running: one line for each open action, and one for the run.
pub fn live(progress: &Progress, frame: Viewport) -> Vec<Line> {
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

/// Whether an open action has a line of its own. The plan is part of the status line, an approval
/// request has lines of its own, and a turn has none.
fn shows_live(tracked: &Tracked) -> bool {
    let kind = &tracked.action.kind;
    !matches!(kind, ActionKind::Turn | ActionKind::Telemetry | ActionKind::Approval)
        && plan_of(&tracked.action).is_none()
}

fn running(tracked: &Tracked, frame: Viewport) -> Line {
    let since = frame.elapsed.saturating_sub(tracked.began);
    let since =
        if since.as_secs() > 0 { format!("{DOT}{}", elapsed(since)) } else { String::new() };
    let (mark, style) = mark(tracked.status);
    // The time stays visible, however long the title is.
    let room = frame.width.saturating_sub(2 + since.chars().count());
    let mut line = Line::new().with(style, mark).with(Style::Plain, " ");
    line.push(Style::Plain, &describe(&tracked.action, room));
    if let Some(particulars) = action::particulars(&tracked.action) {
        line.push(Style::Dim, &format!(" {particulars}"));
    }
    line.cut(2 + room).with(Style::Dim, since)
}

fn status(progress: &Progress, frame: Viewport) -> Line {
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

/// The entry of an event; empty for most.
///
/// `width` is that of the screen; without one, lines are not truncated.
pub fn entry(event: &ActionEvent, feed: Feed, width: Option<usize>) -> Vec<Line> {
    let status = ActionStatus::of(event);
    let action = &event.action;
    if matches!(action.kind, ActionKind::Turn | ActionKind::Telemetry | ActionKind::Answer)
        || event.level == Some(Level::Debug)
        || (status.is_open() && (feed == Feed::Ends || is_in_passing(event)))
    {
        return Vec::new();
    }
    let (mark, style) = match (&action.kind, status) {
        (ActionKind::Warning, _) => ("!", Style::Warn),
        (_, ActionStatus::Done) if is_talk(event) => ("•", Style::Dim),
        // It ended without a result.
        (kind, ActionStatus::Done) if kind.is_tool() && event.ok.is_none() => ("•", Style::Dim),
        _ => mark(status),
    };
    let head = || Line::new().with(style, mark).with(Style::Plain, " ");
    let room = width.unwrap_or(UNBOUNDED).saturating_sub(2);
    if status == ActionStatus::Done
        && let Some(again) = action::reconnected(action)
    {
        return vec![head().with(Style::Plain, again).cut(width.unwrap_or(UNBOUNDED))];
    }
    if is_speech(&action.kind)
        && let Some(width) = width
    {
        let said = if action.kind == ActionKind::Warning {
            let lines = wrap(action.title.trim(), room).into_iter();
            lines.map(|line| Line::new().with(Style::Warn, line)).collect()
        } else {
            layout::render(&action.title, room)
        };
        return speech(said, room, &head()).into_iter().map(|line| line.cut(width)).collect();
    }
    let mut lines = ended(event, head(), room, width.is_some());
    if action.kind == ActionKind::Command && status == ActionStatus::Failed {
        let output = action.detail.get("output_tail").and_then(serde_json::Value::as_str);
        lines.extend(output_tail(output.unwrap_or_default(), TAIL_LINES, width));
    }
    lines.into_iter().map(|line| line.cut(width.unwrap_or(UNBOUNDED))).collect()
}

/// What an action was and how it ended, which counts for more than the end of a long title: beside it or, if
/// the screen is too narrow for that, on lines of its own.
fn ended(event: &ActionEvent, head: Line, room: usize, on_screen: bool) -> Vec<Line> {
    let action = &event.action;
    let particulars = action::particulars(action).map(|it| format!(" {it}"));
    let message = event.message.as_ref().map(|it| format!(": {}", one_line(it, UNBOUNDED)));
    let ended = particulars.into_iter().chain(message).collect::<String>();
    let beside = room.saturating_sub(text::width(&ended));
    let shortest = text::width(&describe(action, SHORTEST_TITLE));
    if beside >= shortest || !on_screen {
        let title = describe(action, beside.max(SHORTEST_TITLE));
        return vec![head.with(Style::Plain, title).with(Style::Dim, ended)];
    }
    let below = wrap(ended.trim_start_matches([':', ' ']), room).into_iter();
    let below = below.map(|line| Line::new().with(Style::Dim, line)).collect();
    let mut lines = vec![head.with(Style::Plain, describe(action, room))];
    lines.extend(speech(below, room, &Line::new().with(Style::Plain, "  ")));
    lines
}

/// The action in at most `max` columns. Notes are Markdown: their markup is not shown.
fn describe(action: &Action, max: usize) -> String {
    if action.kind != ActionKind::Note {
        return action::describe(action, max);
    }
    let words = layout::render(&action.title, UNBOUNDED);
    let words: Vec<String> = words.iter().map(Line::plain).collect();
    one_line(&words.join(" "), max)
}

/// The last lines that a command printed, at most `most`, so that nobody has to ask why it failed.
///
/// `width` is that of the screen; without one, lines are not truncated.
pub fn output_tail(output: &str, most: usize, width: Option<usize>) -> Vec<Line> {
    let width = width.unwrap_or(UNBOUNDED);
    let lines: Vec<&str> =
        output.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let hidden = lines.len().saturating_sub(most);
    let plural = if hidden == 1 { "" } else { "s" };
    let more = (hidden > 0).then(|| format!("… {hidden} more line{plural}"));
    let shown = lines[hidden..].iter().map(|line| line.replace('\t', "    "));
    let tail = more.into_iter().chain(shown);
    let line = |text: String| Line::new().with(Style::Dim, "  │ ").with(Style::Dim, text);
    tail.map(|text| line(text).cut(width)).collect()
}

/// Whether its title is prose rather than the name of an operation.
fn is_speech(kind: &ActionKind) -> bool {
    matches!(kind, ActionKind::Note | ActionKind::Warning)
}

/// Prose, as far as it fits on a few lines.
fn speech(said: Vec<Line>, room: usize, head: &Line) -> Vec<Line> {
    let mut lines = Vec::new();
    let kept: Vec<Line> = said.into_iter().filter(|line| !line.is_empty()).collect();
    for (n, text) in kept.iter().take(SAID_LINES).enumerate() {
        let mut line = if n == 0 { head.clone() } else { Line::new().with(Style::Plain, "  ") };
        line.append(text);
        lines.push(line);
    }
    if kept.len() > SAID_LINES
        && let Some(last) = lines.pop()
    {
        lines.push(last.with(Style::Dim, " …").cut(room + 2));
    }
    lines
}

/// Whether it is a note of the agent rather than an event of the run.
fn is_talk(event: &ActionEvent) -> bool {
    event.action.kind == ActionKind::Note
        && event.level.is_none()
        && plan_of(&event.action).is_none()
}

/// Whether it is not worth a line: a partial note, or more output of a running tool.
fn is_in_passing(event: &ActionEvent) -> bool {
    is_talk(event) || (event.phase == Phase::Updated && event.action.kind.is_tool())
}

fn mark(status: ActionStatus) -> (&'static str, Style) {
    let style = match status {
        ActionStatus::Running => Style::Busy,
        ActionStatus::Updated => Style::Warn,
        ActionStatus::Done => Style::Good,
        ActionStatus::Failed => Style::Bad,
    };
    (action::mark(status), style)
}

/// The outcome in one line: `✓ Codex · 12s · 5 steps · 22 tokens in, 14 out`.
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
        line.push(Style::Bad, &format!("{DOT}{}", reason_label(reason)));
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

fn tokens(usage: &Usage) -> String {
    let whole = match usage.scope {
        UsageScope::Thread => " in all",
        UsageScope::LastCall => " in the last call",
        _ => "",
    };
    format!("{} tokens in, {} out{whole}", usage.input_tokens, usage.output_tokens)
}

/// An answer in Markdown, laid out for reading.
pub fn answer(text: &str, width: usize) -> Vec<Line> {
    layout::render(text, width)
}
