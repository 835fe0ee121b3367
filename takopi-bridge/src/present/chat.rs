//! The chat presenter: a run as Markdown messages.
//!
//! A running run has one message, [`Chat::progress`], which is edited; when the run has ended,
//! [`Chat::finished`] gives the outcome with the answer, in as many messages as it takes. Promises,
//! for any text of an agent or a model:
//! - no message is over the limit, and none is blank; one of an ended run is not over it either as
//!   [`RichText`] shows it, where a table is longer than its Markdown;
//! - the resume line is complete, and appears once in the finished messages, in the last one. If it
//!   alone is longer than the limit it is omitted, never truncated;
//! - in a progress message the agent's text is escaped: it opens no code, no emphasis and no line.
//!   An answer is Markdown already and is kept, [`split`] so that every fence is closed in its
//!   message.

mod blocks;
pub(super) mod inline;
mod question;
mod split;
mod step;

use std::time::Duration;

use takopi_core::runner::WAIT_ACTION;
use takopi_core::{ActionKind, Reason};

use self::split::Packer;
use super::limit::Limit;
use super::markup::RichText;
use super::text;
use crate::progress::{Progress, Tracked};

pub use self::split::split;

/// The maximum width of a note.
const REMARK: usize = 200;
/// The maximum width of a line of an error.
const ERROR_LINE: usize = 1000;
/// The maximum width of a name or a plan in the header.
const NAME: usize = 60;
/// Notes that the answer continues, or is, in a file.
const REST_IN_FILE: &str = "the answer is long: all of it is in the file";
const IN_FILE: &str = "the answer is in the file";
/// Separates the parts of the header.
const DOT: &str = " · ";
/// The least room for a streamed answer.
const SHORTEST_END: usize = 200;
/// An answer is not split into smaller parts only because it grows when it is shown: so little grows over no limit that
/// matters.
const SMALLEST_PART: usize = 64;
const BLANK_LINE: &str = "\n\n";

/// Writes the messages of a chat. See the [module](self).
///
/// ```
/// use std::time::Duration;
/// use takopi_bridge::present::{Chat, Limit, Moment};
/// use takopi_bridge::progress::Progress;
/// use takopi_core::{Completed, ResumeToken, Started};
///
/// let mut progress = Progress::default();
/// let token = ResumeToken::new("codex", "0199");
/// progress.apply(&Started::new(token).title("Codex").into(), Duration::ZERO);
/// let chat = Chat::new(Limit::default()).last_actions(5);
/// let moment = Moment::at(Duration::from_secs(65)).resume_line("`codex resume 0199`");
/// assert_eq!(chat.progress(&progress, &moment), "working · Codex · 1m 05s\n\n`codex resume 0199`");
///
/// progress.apply(&Completed::success("codex", "It is **done**.").into(), Duration::from_secs(70));
/// let messages = chat.finished(&progress, &moment);
/// assert_eq!(messages, ["done · Codex · 1m 05s\n\nIt is **done**.\n\n`codex resume 0199`"]);
/// ```
#[derive(Debug, Clone)]
pub struct Chat {
    limit: Limit,
    last_actions: usize,
    max_messages: usize,
    streams: bool,
}

/// What a message shows besides the state of the run. Created with [`Moment::at`].
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct Moment<'a> {
    /// The time since the run started.
    pub elapsed: Duration,
    /// The line that resumes the session: `Runner::format_resume`.
    pub resume_line: Option<&'a str>,
    /// A note of the bridge, such as `queued behind 2`. A run with a note and without events is
    /// shown as waiting.
    pub note: Option<&'a str>,
}

impl<'a> Moment<'a> {
    /// This long after the start of the run.
    pub fn at(elapsed: Duration) -> Self {
        Self { elapsed, ..Self::default() }
    }

    /// Sets the line that resumes the session.
    pub fn resume_line(mut self, line: impl Into<Option<&'a str>>) -> Self {
        self.resume_line = line.into();
        self
    }

    /// Sets a note.
    pub fn note(mut self, note: impl Into<Option<&'a str>>) -> Self {
        self.note = note.into();
        self
    }

    fn footer(&self, limit: Limit) -> Option<&'a str> {
        let line = self.resume_line.map(str::trim).filter(|line| !line.is_empty())?;
        limit.fits(line).then_some(line)
    }

    fn remark_below(&self, header: &str) -> String {
        match self.note.map(|note| inline::plain(note, REMARK)) {
            Some(remark) if !remark.is_empty() => format!("{header}{}{remark}", inline::LINE_END),
            _ => header.to_owned(),
        }
    }
}

impl Default for Chat {
    fn default() -> Self {
        Self::new(Limit::default())
    }
}

impl Chat {
    /// Messages within a limit that show the last five actions.
    pub fn new(limit: Limit) -> Self {
        Self { limit, last_actions: 5, max_messages: 8, streams: false }
    }

    /// Sets how many actions a progress message shows.
    pub fn last_actions(mut self, count: usize) -> Self {
        self.last_actions = count;
        self
    }

    /// Sets how many messages an answer may take, if the chat can have the whole of it as a file; 8 by
    /// default, at least one.
    pub fn max_messages(mut self, count: usize) -> Self {
        self.max_messages = count.max(1);
        self
    }

    /// Sets whether a progress message shows what was [streamed](Progress::streamed) of the answer. A bridge
    /// sets it as the [`Streaming`](crate::transport::Streaming) of its chat says.
    pub fn streams(mut self, streams: bool) -> Self {
        self.streams = streams;
        self
    }

    /// The message for a running run.
    ///
    /// If it is too long, the beginning of a streamed answer is left out first. Then the oldest actions are dropped first, then the note, then the end of the
    /// header; the resume line stays.
    pub fn progress(&self, progress: &Progress, moment: &Moment<'_>) -> String {
        let header = header(&state(progress, moment), progress, moment, Count::Step);
        let footer = moment.footer(self.limit);
        let head = moment.remark_below(&header);
        let shown = progress.actions().rev().filter(|it| step::is_shown(it));
        let mut steps: Vec<String> = shown.take(self.last_actions).map(step::line).collect();
        steps.reverse();
        let streamed =
            if self.streams { inline::lines(progress.streamed()) } else { String::new() };
        let streamed = self.end_of(&streamed, self.limit.measure(&head), footer);
        let message = |steps: &[String]| {
            let parts = [head.clone(), steps.join(inline::LINE_END), streamed.clone()].into_iter();
            let parts = parts.chain(footer.map(str::to_owned)).filter(|part| !part.is_empty());
            parts.collect::<Vec<_>>().join(BLANK_LINE)
        };
        let mut messages = (0..=steps.len()).map(|from| message(&steps[from..]));
        let fitting = messages.find(|message| self.limit.fits(message));
        fitting.unwrap_or_else(|| self.narrow(&header, footer))
    }

    /// The end of a text that fits between a header of this length and the resume line, in valid Markdown.
    fn end_of(&self, text: &str, header: usize, footer: Option<&str>) -> String {
        let blank = self.limit.measure(BLANK_LINE);
        let footer = footer.map_or(0, |footer| self.limit.measure(footer) + blank);
        let room = self.limit.most().saturating_sub(header + blank + footer);
        // Less is not worth reading.
        if text.trim().is_empty() || room < SHORTEST_END {
            return String::new();
        }
        let mut parts = split(text, self.limit.with_most(room)).into_iter();
        parts.next_back().unwrap_or_default()
    }

    /// As much of the header as fits beside the resume line.
    fn narrow(&self, header: &str, footer: Option<&str>) -> String {
        let Some(footer) = footer else { return self.limit.cut(header, self.limit.most()) };
        let takes = self.limit.measure(footer) + self.limit.measure(BLANK_LINE);
        match self.limit.cut(header, self.limit.most().saturating_sub(takes)) {
            header if header.is_empty() => footer.to_owned(),
            header => format!("{header}{BLANK_LINE}{footer}"),
        }
    }

    /// The messages for a run that has ended, in order; at least one.
    ///
    /// They have the outcome, the answer or what there is of it, the error, and the resume line. A
    /// run without a completed event counts as cancelled.
    pub fn finished(&self, progress: &Progress, moment: &Moment<'_>) -> Vec<String> {
        let mut packer = Packer::new(self.limit);
        let header = header(&ending(progress), progress, moment, Count::Steps);
        packer.text(&moment.remark_below(&header));
        if let Some(outcome) = progress.outcome() {
            packer.text(&inline::lines(&outcome.answer));
            let told = outcome.ok || outcome.reason == Some(Reason::Interrupted);
            let error = outcome.error.as_deref().filter(|_| !told).unwrap_or_default();
            packer.text(&inline::paragraph(error, ERROR_LINE));
        }
        let mut messages = shown_whole(packer.finish(), self.limit);
        if let Some(line) = moment.footer(self.limit) {
            let below = messages.last().map(|last| format!("{last}{BLANK_LINE}{line}"));
            match (below.filter(|below| fits_shown(below, self.limit)), messages.last_mut()) {
                (Some(below), Some(last)) => *last = below,
                _ => messages.push(line.to_owned()),
            }
        }
        messages
    }

    /// The same for a chat that can have files: if the answer takes too many messages, the first of them and
    /// the whole answer for a file.
    pub fn finished_with_file(
        &self,
        progress: &Progress,
        moment: &Moment<'_>,
    ) -> (Vec<String>, Option<String>) {
        let mut messages = self.finished(progress, moment);
        let Some(outcome) = progress.outcome().filter(|_| messages.len() > self.max_messages)
        else {
            return (messages, None);
        };
        let note = if self.max_messages == 1 { IN_FILE } else { REST_IN_FILE };
        let head = if self.max_messages == 1 {
            self.ended(progress, &Moment { resume_line: None, note: Some(note), ..*moment })
        } else {
            note.to_owned()
        };
        messages.truncate(self.max_messages - 1);
        let error = outcome.error.as_deref().unwrap_or_default();
        let error = inline::paragraph(error, ERROR_LINE);
        let parts = [head.clone(), error, moment.footer(self.limit).unwrap_or_default().to_owned()];
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let last = parts.join(BLANK_LINE);
        let footer = moment.footer(self.limit);
        messages.push(if self.limit.fits(&last) { last } else { self.narrow(&head, footer) });
        (messages, Some(inline::lines(&outcome.answer)))
    }

    /// One message for a run that has ended, without its answer: if that could not be delivered, or
    /// is in another message.
    pub(crate) fn ended(&self, progress: &Progress, moment: &Moment<'_>) -> String {
        let header = header(&ending(progress), progress, moment, Count::Steps);
        let footer = moment.footer(self.limit);
        let parts = std::iter::once(moment.remark_below(&header));
        let parts = parts.chain(footer.map(str::to_owned));
        let message = parts.collect::<Vec<_>>().join(BLANK_LINE);
        if self.limit.fits(&message) { message } else { self.narrow(&header, footer) }
    }
}

/// Whether a text is within the limit, both as Markdown and as chats such as Telegram show it. A table grows: each of
/// its rows may name the columns again.
fn fits_shown(text: &str, limit: Limit) -> bool {
    // A chat without a limit shows any text, and lays it out by itself.
    limit.most() == usize::MAX
        || limit.fits(text) && limit.fits(RichText::from_markdown(text).text())
}

/// The parts, smaller where one would be cut when it is shown.
fn shown_whole(parts: Vec<String>, limit: Limit) -> Vec<String> {
    let mut whole = Vec::new();
    for part in parts {
        let mut smaller = limit.most();
        let mut pieces = vec![part.clone()];
        while smaller > SMALLEST_PART && !pieces.iter().all(|piece| fits_shown(piece, limit)) {
            smaller /= 2;
            pieces = split(&part, limit.with_most(smaller));
        }
        whole.append(&mut pieces);
    }
    whole
}

/// How the steps are counted.
#[derive(Debug, Clone, Copy)]
enum Count {
    /// The number of the current step.
    Step,
    /// The number of all steps.
    Steps,
}

/// `working · Codex · 12s · step 3 · todo 1/3: write the parser`.
fn header(state: &str, progress: &Progress, moment: &Moment<'_>, count: Count) -> String {
    let mut parts = vec![state.to_owned()];
    parts.extend(progress.label().map(|label| inline::plain(label, NAME)));
    parts.push(text::elapsed(moment.elapsed));
    match (progress.steps(), count) {
        (0, _) => {}
        (1, Count::Steps) => parts.push("1 step".to_owned()),
        (steps, Count::Steps) => parts.push(format!("{steps} steps")),
        (steps, Count::Step) => parts.push(format!("step {steps}")),
    }
    if let (Some(plan), Count::Step) = (progress.plan(), count) {
        parts.push(inline::plain(plan.title, NAME));
    }
    parts.join(DOT)
}

/// The state of a run as a label.
fn state(progress: &Progress, moment: &Moment<'_>) -> String {
    let waits = |tracked: &Tracked| {
        tracked.action.kind == ActionKind::Approval || tracked.action.id == WAIT_ACTION
    };
    if progress.outcome().is_some() {
        return ending(progress);
    }
    let is_queued = !progress.is_under_way() && moment.note.is_some();
    match progress.is_under_way() {
        _ if is_queued || progress.open().any(waits) => "waiting".to_owned(),
        true => "working".to_owned(),
        false => "starting".to_owned(),
    }
}

/// The outcome of a run as a label.
fn ending(progress: &Progress) -> String {
    match progress.outcome() {
        None => "cancelled".to_owned(),
        Some(outcome) if outcome.ok => "done".to_owned(),
        Some(outcome) => match &outcome.reason {
            None => "failed".to_owned(),
            Some(Reason::Interrupted) => "cancelled".to_owned(),
            Some(reason) => {
                format!("failed ({})", inline::plain(&text::reason_label(reason), NAME))
            }
        },
    }
}
