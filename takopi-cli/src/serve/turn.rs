//! A turn of the agent, as the page shows it: its steps, its answer while it is written, how it ended.
//!
//! Folded from the events of the run, without I/O. Promises:
//! - a step keeps its place; of many the last [`MOST_STEPS`] are kept, and the others counted;
//! - what a step unfolds to is bounded, as the details of actions are;
//! - a message of the agent that turns out not to be the answer becomes a step.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use takopi_bridge::present::{describe, elapsed, one_line};
use takopi_core::{ActionEvent, ActionKind, Completed, Level, Phase, Reason, TakopiEvent};
use tokio::time::Instant;

use super::highlight::{self, escape};
use super::markdown::{self, Growing};
use crate::hints;

const MOST_STEPS: usize = 200;
/// The most characters of the line of a step.
const TITLE: usize = 160;
/// The shortest time between two versions of an answer that is being written.
const INTERVAL: Duration = Duration::from_millis(25);
/// How many bytes of the last block are rendered in a second: a long block is rendered less often.
const BYTES_A_SECOND: f64 = 1_000_000.0;

/// What a change means for the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Nothing,
    /// This step is new or has changed.
    Step(usize),
    /// The answer has grown.
    Answer,
    /// Everything is to be shown anew.
    Everything,
}

/// A turn of the agent.
#[derive(Debug, Default, Serialize)]
pub(super) struct Turn {
    /// When it began, in milliseconds since 1970.
    pub(super) began: Option<i64>,
    ended: Option<i64>,
    /// The name of the engine.
    engine: Option<String>,
    /// `done`, `failed` or `cancelled`.
    outcome: Option<&'static str>,
    steps: Vec<Step>,
    /// How many steps came before these.
    omitted: usize,
    /// The blocks of the answer, as HTML.
    answer: Vec<String>,
    /// The answer as the agent wrote it, when it is complete.
    source: String,
    error: Option<String>,
    hint: Option<String>,
    /// Tokens and limits, for people.
    usage: Option<String>,
    #[serde(skip)]
    writing: Option<Writing>,
}

/// A message that is being written.
#[derive(Debug)]
struct Writing {
    id: String,
    text: String,
    growing: Growing,
    /// How many of its blocks are on the page for good.
    shown: usize,
    rendered: Option<Instant>,
    is_scheduled: bool,
    is_complete: bool,
}

/// One thing the agent did.
#[derive(Debug, Serialize)]
pub(super) struct Step {
    id: String,
    /// `running`, `done`, `failed`, `note` or `warning`.
    state: &'static str,
    title: String,
    /// Whether the title is code.
    code: bool,
    /// The exit code of a command.
    about: Option<String>,
    /// What it unfolds to, as HTML; empty if there is nothing more.
    body: String,
    /// Whether it is unfolded without being asked.
    open: bool,
}

/// The blocks of an answer that are new since the last time.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Grown {
    /// The place of the first one.
    pub(super) from: usize,
    pub(super) blocks: Vec<String>,
}

impl Turn {
    /// Applies an event that occurred now.
    pub(super) fn apply(
        &mut self,
        event: &TakopiEvent,
        directory: Option<&Path>,
        now: i64,
    ) -> Change {
        self.began.get_or_insert(now);
        match event {
            TakopiEvent::Started(started) => {
                self.engine = started.title.clone().or_else(|| Some(started.engine.to_string()));
                Change::Everything
            }
            TakopiEvent::Action(event) if event.action.kind == ActionKind::Answer => {
                self.write(event)
            }
            TakopiEvent::Action(event) => match step(event, directory) {
                Some(step) => {
                    // A message that the agent goes on after was not the answer.
                    let is_new = self.steps.iter().all(|known| known.id != step.id);
                    let is_over = self.writing.as_ref().is_some_and(|writing| writing.is_complete);
                    if is_new && is_over {
                        self.close_writing();
                        self.put(step);
                        return Change::Everything;
                    }
                    self.put(step)
                }
                None => Change::Nothing,
            },
            TakopiEvent::Completed(completed) => {
                self.end(completed, now);
                // The final message follows at once, with everything.
                Change::Nothing
            }
            _ => Change::Nothing,
        }
    }

    fn write(&mut self, event: &ActionEvent) -> Change {
        let is_other = self.writing.as_ref().is_some_and(|writing| writing.id != event.action.id);
        if is_other {
            self.close_writing();
        }
        let writing = self.writing.get_or_insert_with(|| Writing {
            id: event.action.id.clone(),
            text: String::new(),
            growing: Growing::default(),
            shown: 0,
            rendered: None,
            is_scheduled: false,
            is_complete: false,
        });
        writing.is_complete = event.phase == Phase::Completed;
        let piece =
            event.message.as_deref().filter(|_| event.phase == Phase::Updated).unwrap_or_default();
        writing.text.push_str(piece);
        writing.growing.push(piece);
        match (is_other, piece.is_empty()) {
            (true, _) => Change::Everything,
            (false, true) => Change::Nothing,
            (false, false) => Change::Answer,
        }
    }

    /// The message that was being written is not the answer.
    fn close_writing(&mut self) {
        self.answer.clear();
        if let Some(writing) = self.writing.take().filter(|writing| !writing.text.trim().is_empty())
        {
            self.put(said(writing.id, &writing.text));
        }
    }

    fn put(&mut self, step: Step) -> Change {
        if let Some(at) = self.steps.iter().position(|known| known.id == step.id) {
            self.steps[at] = step;
            return Change::Step(at);
        }
        self.steps.push(step);
        if self.steps.len() > MOST_STEPS {
            self.steps.remove(0);
            self.omitted += 1;
            return Change::Everything;
        }
        Change::Step(self.steps.len() - 1)
    }

    fn end(&mut self, completed: &Completed, now: i64) {
        let answer = completed.answer.trim();
        let is_answer = |writing: &Writing| writing.text.trim() == answer || answer.is_empty();
        if let Some(writing) = self.writing.take_if(|writing| is_answer(writing)) {
            self.source = writing.text;
        } else {
            self.close_writing();
            self.source.clone_from(&completed.answer);
        }
        self.answer = markdown::blocks(&self.source);
        for step in self.steps.iter_mut().filter(|step| step.state == "running") {
            step.state = "done";
        }
        self.ended = Some(now);
        let is_cancelled = completed.reason == Some(Reason::Interrupted);
        self.outcome = Some(match completed.ok {
            true => "done",
            false if is_cancelled => "cancelled",
            false => "failed",
        });
        if !completed.ok && !is_cancelled {
            self.error.clone_from(&completed.error);
            self.hint = hints::of_run(completed);
        }
        self.usage = usage(completed);
    }

    /// The job ended without a run.
    pub(super) fn end_without_run(&mut self) {
        self.outcome.get_or_insert("cancelled");
    }

    pub(super) fn step(&self, at: usize) -> Option<&Step> {
        self.steps.get(at)
    }

    /// When the answer may be rendered again; `None` if it is scheduled already. Whoever gets a time in the
    /// future calls [`Self::grown`] then.
    pub(super) fn schedule(&mut self) -> Option<Instant> {
        let writing = self.writing.as_mut().filter(|writing| !writing.is_scheduled)?;
        writing.is_scheduled = true;
        let Some(rendered) = writing.rendered else { return Some(Instant::now()) };
        #[expect(clippy::cast_precision_loss, reason = "about as long is enough")]
        let pause = Duration::from_secs_f64(writing.growing.open_bytes() as f64 / BYTES_A_SECOND);
        Some(rendered + INTERVAL.max(pause))
    }

    /// Renders what was written since the last time.
    pub(super) fn grown(&mut self) -> Option<Grown> {
        let writing = self.writing.as_mut()?;
        writing.is_scheduled = false;
        writing.rendered = Some(Instant::now());
        let last = writing.growing.render();
        let from = writing.shown;
        let blocks: Vec<String> =
            writing.growing.closed()[from..].iter().cloned().chain(last).collect();
        writing.shown = writing.growing.closed().len();
        self.answer.truncate(from);
        self.answer.extend(blocks.iter().cloned());
        Some(Grown { from, blocks })
    }

    /// About how many bytes the page gets of it.
    pub(super) fn bytes(&self) -> usize {
        let steps: usize = self.steps.iter().map(|step| step.title.len() + step.body.len()).sum();
        let answer: usize = self.answer.iter().map(String::len).sum();
        steps + answer + self.source.len()
    }
}

/// A message of the agent on its way to the answer.
fn said(id: String, text: &str) -> Step {
    let title = heading(text);
    let body = if is_short(text) { String::new() } else { markdown::html(text) };
    Step { id, state: "note", title, code: false, about: None, body, open: false }
}

/// The first line of a text without the marks of Markdown.
fn heading(text: &str) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    one_line(&line.trim().trim_start_matches('#').replace("**", "").replace('`', ""), TITLE)
}

fn is_short(text: &str) -> bool {
    let text = text.trim();
    !text.contains('\n') && text.chars().count() <= TITLE
}

fn step(event: &ActionEvent, directory: Option<&Path>) -> Option<Step> {
    let action = &event.action;
    if matches!(action.kind, ActionKind::Turn | ActionKind::Telemetry)
        || event.level == Some(Level::Debug)
    {
        return None;
    }
    let is_note = action.kind == ActionKind::Note && event.level.is_none();
    let state = match (event.phase, event.ok) {
        _ if action.kind == ActionKind::Warning => "warning",
        (Phase::Completed, Some(false)) => "failed",
        (Phase::Completed, _) if is_note => "note",
        (Phase::Completed, _) => "done",
        _ => "running",
    };
    let detail = |key: &str| action.detail.get(key);
    let mut step = Step {
        id: action.id.clone(),
        state,
        title: describe(action, TITLE),
        code: action.kind == ActionKind::Command,
        about: None,
        body: String::new(),
        open: false,
    };
    match action.kind {
        ActionKind::Command => {
            let code = detail("exit_code").and_then(Value::as_i64).filter(|_| state == "failed");
            step.about = code.map(|code| format!("exit {code}"));
            if !is_short(&action.title) {
                step.body = pre(&highlight::code(&action.title, "sh"), "Command");
            }
            if let Some(output) =
                detail("output_tail").and_then(Value::as_str).filter(|it| !it.trim().is_empty())
            {
                step.body += &pre(&escape(output.trim_end_matches('\n')), "Output");
                step.open = state == "failed";
            }
        }
        ActionKind::FileChange => {
            let files = files(detail("changes"), directory);
            if !files.is_empty() {
                step.title = one_line(
                    &files.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", "),
                    TITLE,
                );
            }
            step.body = changes(&files);
        }
        ActionKind::Note | ActionKind::Warning => {
            return Some(Step { title: heading(&step.title), ..note(step, &action.title) });
        }
        _ => {
            if let Some(arguments) = detail("arguments").filter(|it| !it.is_null()) {
                let text = serde_json::to_string_pretty(arguments).unwrap_or_default();
                step.body = pre(&highlight::code(&text, "json"), "Arguments");
            }
            step.body += &changes(&files(detail("changes"), directory));
            if !is_short(&action.title) {
                step.body += &markdown::html(&action.title);
            }
        }
    }
    if let Some(message) = event.message.as_deref().filter(|message| !message.trim().is_empty()) {
        let _ = write!(step.body, "<p>{}</p>", escape(message.trim()));
        step.open |= state == "failed";
    }
    Some(step)
}

/// A note with all of its text.
fn note(step: Step, text: &str) -> Step {
    let body = if is_short(text) { step.body } else { markdown::html(text) };
    Step { body, ..step }
}

fn pre(html: &str, label: &str) -> String {
    format!("<pre tabindex=\"0\" role=\"group\" aria-label=\"{label}\"><code>{html}</code></pre>")
}

/// The changed files, as `update src/lib.rs`, each with its diff if it is known.
fn files<'a>(changes: Option<&'a Value>, directory: Option<&Path>) -> Vec<(String, &'a str)> {
    let file = |change: &'a Value| {
        let text = |key: &str| change.get(key).and_then(Value::as_str).unwrap_or_default();
        let path = Path::new(text("path"));
        let path =
            directory.and_then(|directory| path.strip_prefix(directory).ok()).unwrap_or(path);
        (
            format!("{} {}", text("kind"), path.display()).trim().to_owned(),
            text("diff").trim_end_matches('\n'),
        )
    };
    changes.and_then(Value::as_array).into_iter().flatten().map(file).collect()
}

/// The files with their diffs; nothing if the line of the step has it all.
fn changes(files: &[(String, &str)]) -> String {
    if files.len() < 2 && files.iter().all(|(_, diff)| diff.is_empty()) {
        return String::new();
    }
    let mut html = String::new();
    for (name, diff) in files {
        let _ = write!(html, "<p class=\"file\">{}</p>", escape(name));
        if !diff.is_empty() {
            html += &pre(&highlight::diff(diff), "Changes");
        }
    }
    html
}

/// `12,345 tokens in (11,000 cached), 678 out · primary 40% used`.
fn usage(completed: &Completed) -> Option<String> {
    let mut parts = Vec::new();
    if let Some(usage) =
        completed.usage.as_ref().filter(|usage| usage.input_tokens + usage.output_tokens > 0)
    {
        let cached = match usage.cached_input_tokens {
            0 => String::new(),
            cached => format!(" ({} cached)", grouped(cached)),
        };
        let (input, output) = (grouped(usage.input_tokens), grouped(usage.output_tokens));
        parts.push(format!("{input} tokens in{cached}, {output} out"));
    }
    parts.extend(completed.cost_usd.map(|cost| format!("${cost:.2}")));
    for window in completed.rate_limits.iter().flat_map(|limits| &limits.windows) {
        let length = window.window_minutes.map(|minutes| elapsed(Duration::from_mins(minutes)));
        let name =
            length.map_or_else(|| one_line(&window.name, 40), |length| format!("{length} limit"));
        parts.push(format!("{name} {:.0}% used", window.used_percent));
    }
    (!parts.is_empty()).then(|| parts.join(" · "))
}

/// A number with a comma before every third digit.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use takopi_core::ResumeToken;
    use takopi_core::{Action, Started};

    use super::*;

    fn piece(id: &str, text: &str) -> TakopiEvent {
        let action = Action::new(id, ActionKind::Answer, "");
        ActionEvent::new("lab", action, Phase::Updated).message(text).into()
    }

    fn turn(events: impl IntoIterator<Item = TakopiEvent>) -> Turn {
        let mut turn = Turn::default();
        for event in events {
            turn.apply(&event, Some(Path::new("/srv")), 7);
        }
        turn
    }

    #[test]
    fn an_answer_grows_block_by_block_and_only_its_end_is_sent_again() {
        let mut turn = turn([piece("m", "One **two")]);
        let grown = turn.grown().unwrap();
        assert_eq!(grown, Grown { from: 0, blocks: vec!["<p>One **two</p>\n".into()] });
        turn.apply(&piece("m", "**\n\n- a\n- b"), None, 7);
        let grown = turn.grown().unwrap();
        assert_eq!((grown.from, grown.blocks.len()), (0, 2));
        turn.apply(&piece("m", "\n- c"), None, 7);
        let grown = turn.grown().unwrap();
        assert_eq!((grown.from, grown.blocks.len()), (1, 1));
        assert_eq!(turn.answer.concat(), markdown::html("One **two**\n\n- a\n- b\n- c"));
    }

    #[test]
    fn a_message_that_is_not_the_answer_becomes_a_step() {
        let turn = turn([
            Started::new(ResumeToken::new("lab", "1")).title("Lab").into(),
            piece("m1", "I will look."),
            piece("m2", "It is **42**."),
            Completed::success("lab", "It is **42**.").into(),
        ]);
        assert_eq!(
            turn.steps.iter().map(|step| step.title.as_str()).collect::<Vec<_>>(),
            ["I will look."]
        );
        assert_eq!(
            (turn.answer.concat().as_str(), turn.source.as_str()),
            ("<p>It is <strong>42</strong>.</p>\n", "It is **42**.")
        );
        assert_eq!((turn.outcome, turn.engine.as_deref()), (Some("done"), Some("Lab")));
    }

    #[test]
    fn a_failed_command_is_unfolded_with_the_end_of_its_output() {
        let action = Action::new("1", ActionKind::Command, "cargo test");
        let action = action.with("exit_code", 101).with("output_tail", "a < b\nfailed\n");
        let failed = ActionEvent::new("lab", action, Phase::Completed).ok(false);
        let turn = turn([failed.into()]);
        let step = &turn.steps[0];
        assert_eq!(
            (step.state, step.about.as_deref(), step.open),
            ("failed", Some("exit 101"), true)
        );
        assert!(step.body.contains("a &lt; b\nfailed</code>"), "{}", step.body);
    }

    #[test]
    fn changed_files_have_their_diffs_and_paths_in_the_directory() {
        let change =
            json!([{ "path": "/srv/a.rs", "kind": "update", "diff": "@@ -1 +1 @@\n-a\n+b\n" }]);
        let action = Action::new("1", ActionKind::FileChange, "a.rs").with("changes", change);
        let turn = turn([ActionEvent::new("lab", action, Phase::Completed).ok(true).into()]);
        let body = &turn.steps[0].body;
        assert!(
            body.contains("update a.rs</p>") && body.contains("<span class=\"add\">+b</span>"),
            "{body}"
        );
    }

    #[test]
    fn many_steps_are_counted_and_the_last_ones_kept() {
        let command = |number: usize| {
            let action = Action::new(number.to_string(), ActionKind::Command, format!("c{number}"));
            TakopiEvent::from(ActionEvent::new("lab", action, Phase::Completed).ok(true))
        };
        let turn = turn((0..MOST_STEPS + 3).map(command));
        assert_eq!(
            (turn.steps.len(), turn.omitted, turn.steps[0].title.as_str()),
            (MOST_STEPS, 3, "c3")
        );
    }

    #[test]
    fn figures_are_for_people() {
        assert_eq!([0, 12, 1234, 1_234_567].map(grouped), ["0", "12", "1,234", "1,234,567"]);
    }
}
