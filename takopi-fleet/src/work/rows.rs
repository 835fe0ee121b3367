//! The rows of a job that wait to be written.
//!
//! They are gathered for [`GATHER`], or until there are [`FULL`] bytes of them. Nobody may hold up a worker, a submitter that does not
//! read included, so a job that has written much ([`MUCH`]) writes less: it gathers for longer, and of several updates of one
//! action only the last is kept. Starts and ends of actions, pieces of the answer and questions are always written.

use std::time::Duration;

use serde_json::Value;
use takopi_core::model::{Phase, TakopiEvent};
use tokio::time::{Instant, sleep_until};

use crate::board::{ATTEMPT, JobRow};
use crate::frame::Frame;

const GATHER: Duration = Duration::from_millis(50);
const FULL: usize = 64 * 1024;
/// How long a job that has written much gathers.
const GATHER_LONG: Duration = Duration::from_secs(1);
/// A job has written much when it has written so many bytes.
const MUCH: usize = 8 * 1024 * 1024;

/// What waits to be written.
pub(super) struct Rows {
    job: String,
    waiting: Vec<Waiting>,
    /// What came since the last attempt to write.
    fresh: usize,
    /// What came at all.
    total: usize,
    next_seq: i64,
    due: Option<Instant>,
}

struct Waiting {
    row: JobRow,
    /// The action, if a later update of it can take the place of this one.
    update_of: Option<String>,
}

impl Rows {
    /// No rows of an attempt yet.
    pub(super) fn of(job: &str, attempt: u32) -> Self {
        let next_seq = i64::from(attempt) * ATTEMPT;
        Self { job: job.to_owned(), waiting: Vec::new(), fresh: 0, total: 0, next_seq, due: None }
    }

    /// Adds one.
    pub(super) fn push(&mut self, frame: &Frame) {
        let body = match serde_json::to_value(frame) {
            Ok(body) => without_nul(body),
            Err(error) => return tracing::warn!("an event cannot be written: {error}"),
        };
        let update_of = update_of(frame);
        let much = self.total >= MUCH;
        if much && update_of.is_some() {
            self.waiting.retain(|waiting| waiting.update_of != update_of);
        }
        let weight = body.to_string().len();
        (self.fresh, self.total) = (self.fresh + weight, self.total.saturating_add(weight));
        let row = JobRow { job: self.job.clone(), seq: self.next_seq, body };
        self.waiting.push(Waiting { row, update_of });
        self.next_seq += 1;
        self.due.get_or_insert_with(|| Instant::now() + if much { GATHER_LONG } else { GATHER });
    }

    /// Whether there is so much that it should be written now. What could not be written does not count.
    pub(super) fn is_full(&self) -> bool {
        self.fresh >= FULL && self.total < MUCH
    }

    /// Resolves when it is time to write.
    pub(super) async fn due(&self) {
        match self.due {
            Some(due) => sleep_until(due).await,
            None => std::future::pending().await,
        }
    }

    /// Whether something is not written yet.
    pub(super) fn are_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// All that wait, to be written now.
    pub(super) fn all(&mut self) -> Vec<JobRow> {
        (self.due, self.fresh) = (None, 0);
        self.waiting.iter().map(|waiting| waiting.row.clone()).collect()
    }

    /// They were written, or never can be.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// They could not be written, and are written with what follows, at this time at the latest.
    pub(super) fn again(&mut self, at: Instant) {
        self.due = Some(at);
    }
}

/// The action of which a frame is an update, unless it is a piece of the answer.
fn update_of(frame: &Frame) -> Option<String> {
    let Frame::Event(event) = frame else { return None };
    let TakopiEvent::Action(event) = &**event else { return None };
    let is_update = event.phase == Phase::Updated && event.answer_piece().is_none();
    is_update.then(|| event.action.id.clone())
}

/// A value that a database can store: PostgreSQL has no text with the character U+0000.
pub(super) fn without_nul(mut value: Value) -> Value {
    fn replace(value: &mut Value) {
        match value {
            Value::String(text) if text.contains('\0') => *text = text.replace('\0', "\u{fffd}"),
            Value::Array(items) => items.iter_mut().for_each(replace),
            Value::Object(fields) => fields.values_mut().for_each(replace),
            _ => {}
        }
    }
    replace(&mut value);
    value
}

#[cfg(test)]
mod tests {
    use takopi_core::model::{Action, ActionEvent, ActionKind};

    use super::*;

    fn frame(id: &str, kind: ActionKind, phase: Phase, message: &str) -> Frame {
        let event = ActionEvent::new("demo", Action::new(id, kind, "t"), phase).message(message);
        Frame::Event(Box::new(event.into()))
    }

    fn update(id: &str, message: &str) -> Frame {
        frame(id, ActionKind::Command, Phase::Updated, message)
    }

    fn messages(rows: &mut Rows) -> Vec<String> {
        let text = |row: JobRow| row.body["event"]["message"].as_str().unwrap().to_owned();
        rows.all().into_iter().map(text).collect()
    }

    #[tokio::test]
    async fn only_the_last_update_of_an_action_is_kept_once_a_job_has_written_much() {
        let mut rows = Rows::of("1", 1);
        rows.push(&update("a", "1"));
        rows.push(&update("a", "2"));
        assert_eq!(messages(&mut rows), ["1", "2"]);
        rows.clear();
        rows.push(&update("a", &"x".repeat(MUCH)));
        assert!(!rows.is_full(), "it gathers for longer");
        rows.clear();
        let piece = |text: &str| frame("answer", ActionKind::Answer, Phase::Updated, text);
        let start = frame("a", ActionKind::Command, Phase::Started, "start");
        for frame in
            [start, update("a", "3"), update("b", "4"), piece("p1"), update("a", "5"), piece("p2")]
        {
            rows.push(&frame);
        }
        assert_eq!(messages(&mut rows), ["start", "4", "p1", "5", "p2"]);
        let places: Vec<i64> = rows.all().iter().map(|row| row.seq).collect();
        assert!(places.is_sorted(), "and they stay in order");
    }

    #[tokio::test(start_paused = true)]
    async fn rows_are_due_after_a_while_and_full_before_that_if_there_are_many() {
        let mut rows = Rows::of("1", 2);
        rows.push(&update("a", "1"));
        let begun = Instant::now();
        rows.due().await;
        assert_eq!(begun.elapsed(), GATHER);
        assert_eq!(rows.all()[0].seq, 2_000_000_000);
        rows.again(Instant::now() + Duration::from_secs(5));
        rows.push(&update("a", &"x".repeat(FULL)));
        assert!(rows.is_full() && rows.all().len() == 2);
    }

    #[test]
    fn a_text_with_nul_can_be_stored() {
        let value = serde_json::json!({ "a": ["x\0y", { "b": "\0" }], "c": 1 });
        let expected = serde_json::json!({ "a": ["x\u{fffd}y", { "b": "\u{fffd}" }], "c": 1 });
        assert_eq!(without_nul(value), expected);
    }
}
