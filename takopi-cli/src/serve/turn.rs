//! A turn of the agent, as the page shows it: its steps, its answer while it is written, how it ended.
//!
//! Folded from the events of the run, without I/O. Promises:
//! - a step keeps its place; of many the last [`MOST_STEPS`] are kept, and the others counted;
//! - what a step unfolds to is bounded, as the details of actions are;
//! - a message of the agent that turns out not to be the answer becomes a step;
//! - a turn of a stored session looks as it did when it ran, as far as the engine stored it.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use takopi_bridge::present::{elapsed, one_line};
use takopi_core::catalog::{Role, TranscriptEntry};
use takopi_core::{ActionEvent, ActionKind, Completed, Phase, Reason, TakopiEvent};
use tokio::time::Instant;

use super::markdown::{self, Growing};
use super::step::{Step, said};
use crate::hints;

const MOST_STEPS: usize = 200;
/// The shortest time between two versions of an answer that is being written.
const INTERVAL: Duration = Duration::from_millis(25);
/// How many bytes of the last block are rendered in a second: a long block is rendered less often.
const BYTES_A_SECOND: f64 = 1_000_000.0;

/// What a change means for the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Nothing,
    /// This step is new or has changed. If it is new, the first one may have been omitted for it.
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
    pub(super) omitted: usize,
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
    /// The step of the last warning, and its words.
    #[serde(skip)]
    warning: Option<(String, String)>,
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

/// The blocks of an answer that are new since the last time.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Grown {
    /// The place of the first one.
    pub(super) from: usize,
    pub(super) blocks: Vec<String>,
}

impl Turn {
    /// A turn of a stored session: what came after a message of the user. The last message of the agent is the
    /// answer.
    pub(super) fn stored(entries: &[TranscriptEntry]) -> Self {
        let mut turn = Self::default();
        let answer = entries.iter().rposition(|entry| entry.role == Role::Agent);
        let steps = entries.iter().enumerate().filter(|(at, _)| Some(*at) != answer);
        let steps: Vec<_> = steps.collect();
        // Those that are not kept are not rendered either.
        turn.omitted = steps.len().saturating_sub(MOST_STEPS);
        let kept = steps[turn.omitted..].iter().map(|(at, entry)| Step::stored(*at, entry));
        turn.steps.extend(kept);
        if let Some(answer) = answer {
            turn.source.clone_from(&entries[answer].text);
            turn.answer = markdown::blocks(&turn.source);
            turn.outcome = Some("done");
        }
        turn
    }

    /// Applies an event that occurred now.
    pub(super) fn apply(
        &mut self,
        event: &TakopiEvent,
        directory: Option<&Path>,
        now: i64,
    ) -> Change {
        self.began.get_or_insert(now);
        if let TakopiEvent::Action(ActionEvent { action, .. }) = event
            && action.kind == ActionKind::Warning
        {
            self.warning = Some((action.id.clone(), action.title.trim().to_owned()));
        }
        match event {
            TakopiEvent::Started(started) => {
                self.engine = started.title.clone().or_else(|| Some(started.engine.to_string()));
                Change::Everything
            }
            TakopiEvent::Action(event) if event.action.kind == ActionKind::Answer => {
                self.write(event)
            }
            TakopiEvent::Action(event) => match Step::of(event, directory) {
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
            // Engines report many failures as a warning too.
            if let (Some(error), Some((id, words))) = (&self.error, self.warning.take())
                && !words.is_empty()
                && error.contains(&words)
            {
                self.steps.retain(|step| step.id != id);
            }
            self.hint = hints::of_run(completed);
        }
        self.usage = usage(completed);
    }

    /// Whether the engine confirmed the session.
    pub(super) fn has_started(&self) -> bool {
        self.engine.is_some()
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
        let length = window.window_minutes.map(span);
        let name =
            length.map_or_else(|| one_line(&window.name, 40), |length| format!("{length} limit"));
        parts.push(format!("{name} {:.0}% used", window.used_percent));
    }
    (!parts.is_empty()).then(|| parts.join(" · "))
}

/// `5h`, `7d`.
fn span(minutes: u64) -> String {
    match minutes {
        days if days > 0 && days.is_multiple_of(24 * 60) => format!("{}d", days / (24 * 60)),
        hours if hours > 0 && hours.is_multiple_of(60) => format!("{}h", hours / 60),
        minutes => elapsed(Duration::from_mins(minutes)),
    }
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
    use takopi_core::ResumeToken;
    use takopi_core::model::{RateLimitWindow, RateLimits};
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
    fn a_stored_turn_has_its_steps_and_its_answer() {
        let mut failed = TranscriptEntry::new(Role::Command, "cargo test");
        failed.exit_code = Some(101);
        failed.set_output("a < b\n1 failed\n");
        let entries = [
            TranscriptEntry::new(Role::Agent, "I will look."),
            failed,
            TranscriptEntry::new(Role::Agent, "It is **42**."),
            TranscriptEntry::new(Role::Note, "the turn was interrupted"),
        ];
        let turn = Turn::stored(&entries);
        let steps: Vec<(&str, &str)> =
            turn.steps.iter().map(|step| (step.state, step.title.as_str())).collect();
        assert_eq!(
            steps,
            [
                ("note", "I will look."),
                ("failed", "cargo test"),
                ("note", "the turn was interrupted")
            ]
        );
        assert_eq!(turn.steps[1].about.as_deref(), Some("exit 101"));
        assert!(turn.steps[1].body.contains("a &lt; b\n1 failed</code>"), "{}", turn.steps[1].body);
        assert_eq!((turn.source.as_str(), turn.outcome), ("It is **42**.", Some("done")));
        assert_eq!(Turn::stored(&entries[1..2]).outcome, None);

        let many = vec![entries[0].clone(); MOST_STEPS + 3];
        let turn = Turn::stored(&many);
        assert_eq!((turn.steps.len(), turn.omitted), (MOST_STEPS, 2));
    }

    #[test]
    fn a_warning_that_the_error_repeats_is_no_step() {
        let warning = |id: &str, text: &str| {
            let action = Action::new(id, ActionKind::Warning, text);
            TakopiEvent::from(ActionEvent::new("lab", action, Phase::Completed).ok(false))
        };
        let steps = |error: &str| {
            let end = Completed::failure("lab", Reason::EngineFailed, error);
            let turn = turn([warning("w0", "disk full"), warning("w1", "no model"), end.into()]);
            turn.steps.into_iter().map(|step| step.id).collect::<Vec<_>>()
        };
        assert_eq!(steps("rc=1: no model\n"), ["w0"]);
        assert_eq!(steps("something else"), ["w0", "w1"]);
    }

    #[test]
    fn limits_are_named_by_their_length() {
        let mut completed = Completed::success("lab", "");
        let window = |minutes: u64| {
            let mut window = RateLimitWindow::new("primary", 42.0);
            window.window_minutes = Some(minutes);
            window
        };
        completed.rate_limits = Some(RateLimits::new([300, 10_080, 90].map(window).into()));
        let expected = "5h limit 42% used · 7d limit 42% used · 1h 30m limit 42% used";
        assert_eq!(usage(&completed).as_deref(), Some(expected));
    }

    #[test]
    fn figures_are_for_people() {
        assert_eq!([0, 12, 1234, 1_234_567].map(grouped), ["0", "12", "1,234", "1,234,567"]);
    }
}
