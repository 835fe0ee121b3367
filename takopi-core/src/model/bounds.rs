//! How large an event may be.
//!
//! The run's buffer applies these bounds to every event, whatever engine it is of. Text that is too
//! long keeps its beginning and ends in `…`; of details that are too large the first are kept, and
//! `truncated: true` is added. An event that is within its bounds is not touched.
//!
//! No bound holds for the answer: `Completed.answer`, and the `message` of actions of kind `answer`,
//! which carry pieces of it.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Map, Value};

use super::event::entries_weight;
use super::{ActionEvent, ActionKind, Completed, Detail, RateLimits, Started, TakopiEvent};

/// The most bytes of a title, a message, an error, or a text among the details.
pub const TEXT_BYTES: usize = 16 * 1024;
/// The most bytes of all details of an action, by [`TakopiEvent::weight`].
pub const DETAIL_BYTES: usize = 64 * 1024;
/// The most bytes of an action's id. A longer one is cut, and ends in a hash of the whole.
pub const ID_BYTES: usize = 512;
/// The most bytes of an event, by [`TakopiEvent::weight`], without its answer.
pub const EVENT_BYTES: usize = DETAIL_BYTES + 3 * TEXT_BYTES;

/// The detail that marks others as truncated or omitted.
const TRUNCATED: &str = "truncated";
/// How many windows of rate limits are kept.
const WINDOWS: usize = 16;
/// What every value of a list or an object costs beside its text.
const VALUE_COST: usize = 32;

impl TakopiEvent {
    /// Cuts an action's id, whatever else the event has: one action keeps one id in all its events.
    pub(crate) fn truncate_id(&mut self) {
        if let Self::Action(event) = self {
            truncate_id(&mut event.action.id);
        }
    }

    /// Cuts what is over the bounds of this module.
    pub fn truncate(&mut self) {
        match self {
            Self::Started(started) => truncate_started(started),
            Self::Action(event) => truncate_action(event),
            Self::Completed(completed) => truncate_completed(completed),
        }
    }
}

fn truncate_started(started: &mut Started) {
    if let Some(title) = &mut started.title {
        truncate_text(title);
    }
    let mut left = DETAIL_BYTES;
    truncate_map(&mut started.meta, &mut left);
}

fn truncate_action(event: &mut ActionEvent) {
    truncate_id(&mut event.action.id);
    truncate_text(&mut event.action.title);
    if let Some(message) = &mut event.message
        && event.action.kind != ActionKind::Answer
    {
        truncate_text(message);
    }
    truncate_detail(&mut event.action.detail);
}

fn truncate_completed(completed: &mut Completed) {
    if let Some(error) = &mut completed.error {
        truncate_text(error);
    }
    if let Some(usage) = &mut completed.usage {
        let mut left = TEXT_BYTES;
        truncate_map(&mut usage.others, &mut left);
    }
    if let Some(RateLimits { windows, .. }) = &mut completed.rate_limits {
        windows.truncate(WINDOWS);
        for window in windows {
            truncate_to(&mut window.name, ID_BYTES);
        }
    }
}

fn truncate_id(id: &mut String) {
    if id.len() > ID_BYTES {
        // Two ids that differ only in their ends stay two.
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        let hash = format!("…{:016x}", hasher.finish());
        id.truncate(id.floor_char_boundary(ID_BYTES - hash.len()));
        id.push_str(&hash);
    }
}

fn truncate_text(text: &mut String) {
    truncate_to(text, TEXT_BYTES);
}

fn truncate_to(text: &mut String, max: usize) {
    if text.len() > max {
        text.truncate(text.floor_char_boundary(max.saturating_sub('…'.len_utf8())));
        text.push('…');
        text.shrink_to_fit();
    }
}

fn truncate_detail(detail: &mut Detail) {
    let fits = entries_weight(detail.iter()) <= DETAIL_BYTES;
    // Room for the mark itself.
    let mut left = DETAIL_BYTES - VALUE_COST - TRUNCATED.len() - 8;
    let mut whole = true;
    detail.retain_mut(|name, value| {
        // If they do not fit, a large one leaves room for those behind it.
        let share = if fits { left } else { left / 2 };
        let mut rest = share;
        let fit = truncate_entry(name.len(), value, &mut rest);
        left -= share - rest;
        whole &= fit == Fit::Whole;
        fit != Fit::No
    });
    if !whole {
        detail.insert(TRUNCATED, true);
    }
}

/// What became of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fit {
    Whole,
    Cut,
    No,
}

fn truncate_entry(name: usize, value: &mut Value, left: &mut usize) -> Fit {
    let Some(rest) = left.checked_sub(name + VALUE_COST) else {
        // Nothing behind it fits either.
        *left = 0;
        return Fit::No;
    };
    *left = rest;
    truncate_value(value, left)
}

/// Cuts a value to what is left, and takes that much from it.
fn truncate_value(value: &mut Value, left: &mut usize) -> Fit {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => match left.checked_sub(8) {
            Some(rest) => {
                *left = rest;
                Fit::Whole
            }
            None => Fit::No,
        },
        Value::String(text) => {
            let (before, max) = (text.len(), TEXT_BYTES.min(*left));
            if max < 4 {
                return if text.is_empty() { Fit::Whole } else { Fit::No };
            }
            truncate_to(text, max);
            *left -= text.len();
            if text.len() == before { Fit::Whole } else { Fit::Cut }
        }
        Value::Array(values) => {
            let mut whole = true;
            values.retain_mut(|value| {
                let fits = truncate_entry(0, value, left);
                whole &= fits == Fit::Whole;
                fits != Fit::No
            });
            fit(whole, values.is_empty())
        }
        Value::Object(map) => truncate_map(map, left),
    }
}

fn truncate_map(map: &mut Map<String, Value>, left: &mut usize) -> Fit {
    let mut whole = true;
    map.retain(|name, value| {
        let fits = truncate_entry(name.len(), value, left);
        whole &= fits == Fit::Whole;
        fits != Fit::No
    });
    fit(whole, map.is_empty())
}

/// What became of a list or an object.
fn fit(whole: bool, empty: bool) -> Fit {
    match (whole, empty) {
        (true, _) => Fit::Whole,
        (false, false) => Fit::Cut,
        (false, true) => Fit::No,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::model::{Action, ActionKind, Phase, RateLimitWindow, Reason, ResumeToken, Usage};

    fn action(title: &str, detail: Value) -> TakopiEvent {
        let Value::Object(detail) = detail else { panic!("no object") };
        let mut action = Action::new("1", ActionKind::Tool, title);
        action.detail = detail.into();
        ActionEvent::new("lab", action, Phase::Completed).into()
    }

    fn truncated(mut event: TakopiEvent) -> TakopiEvent {
        event.truncate();
        event
    }

    #[test]
    fn an_event_within_its_bounds_is_not_touched() {
        let detail = json!({
            "output_tail": "x".repeat(8 * 1024),
            "changes": [{ "path": "a", "kind": "add" }],
            "arguments": { "deep": [[[{ "a": null }]]], "empty": "" },
        });
        let event = action(&"é".repeat(8 * 1024), detail);
        assert_eq!(truncated(event.clone()), event);
    }

    #[test]
    fn long_texts_keep_their_beginning_and_are_marked_as_truncated() {
        let event = truncated(action(&"é".repeat(TEXT_BYTES), json!({ "a": "b".repeat(100_000) })));
        let TakopiEvent::Action(event) = event else { panic!("no action") };
        assert!(event.action.title.starts_with("éé") && event.action.title.ends_with("é…"));
        assert!(event.action.title.len() <= TEXT_BYTES);
        assert!(event.action.detail["a"].as_str().unwrap().ends_with("b…"));
        assert_eq!(event.action.detail["truncated"], true);
    }

    #[test]
    fn of_a_long_list_the_first_are_kept() {
        let many: Vec<Value> = (0..20_000).map(|n| json!({ "path": format!("f{n}") })).collect();
        let event = truncated(action("t", json!({ "changes": many.clone(), "status": "done" })));
        let TakopiEvent::Action(event) = &event else { panic!("no action") };
        let kept = event.action.detail["changes"].as_array().unwrap();
        assert!(kept.len() > 100 && kept.len() < many.len());
        assert!(kept[..] == many[..kept.len()], "not the first {}", kept.len());
        assert_eq!(event.action.detail["status"], "done");
        assert_eq!(event.action.detail["truncated"], true);
    }

    #[test]
    fn long_ids_that_differ_stay_different_and_the_same_stay_the_same() {
        let id = |end: &str| {
            let action = Action::new("x".repeat(5_000) + end, ActionKind::Note, "");
            match truncated(ActionEvent::new("lab", action, Phase::Started).into()) {
                TakopiEvent::Action(event) => event.action.id,
                _ => panic!("no action"),
            }
        };
        assert!(id("a").len() <= ID_BYTES);
        assert_eq!(id("a"), id("a"));
        assert_ne!(id("a"), id("b"));
    }

    #[test]
    fn starts_and_ends_are_bounded_but_for_the_answer() {
        let huge = "x".repeat(1_000_000);
        let mut started = Started::new(ResumeToken::new("lab", "a")).title(huge.clone());
        started.meta.insert("m".to_owned(), json!(vec![huge.clone(); 9]));
        assert!(truncated(started.into()).weight() <= EVENT_BYTES);

        let mut usage = Usage::default();
        usage.others.insert("m".to_owned(), json!([huge]));
        let windows = vec![RateLimitWindow::new(huge.clone(), 1.0); 1000];
        let completed = Completed::failure("lab", Reason::EngineFailed, huge.clone())
            .answer(huge.clone())
            .usage(Some(usage))
            .rate_limits(Some(RateLimits::new(windows)));
        let event = truncated(completed.into());
        assert!(event.weight() <= EVENT_BYTES + huge.len());
        let TakopiEvent::Completed(completed) = event else { panic!("no end") };
        assert_eq!(completed.answer, huge);
    }

    #[test]
    fn pieces_of_the_answer_are_whole() {
        let huge = "x".repeat(1_000_000);
        let kind = ActionKind::Answer;
        let event = ActionEvent::new("lab", Action::new("m", kind, ""), Phase::Updated);
        let event: TakopiEvent = event.message(huge.clone()).into();
        assert_eq!(truncated(event.clone()), event);
    }

    fn value() -> impl Strategy<Value = Value> {
        let text = (0..40_000_usize, "[a-zé]{0,3}").prop_map(|(n, piece)| piece.repeat(n).into());
        let leaf = prop_oneof![Just(Value::Null), any::<i64>().prop_map(Value::from), text];
        leaf.prop_recursive(6, 64, 12, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..12).prop_map(Value::from),
                prop::collection::vec(("[a-z]{0,9}", inner), 0..12)
                    .prop_map(|entries| Value::Object(entries.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_event_is_over_its_bound_and_cutting_twice_changes_nothing(
            details in prop::collection::vec(("[a-z]{0,9}", value()), 0..8), title in 0..100_000_usize,
        ) {
            let detail = Value::Object(details.into_iter().collect());
            let mut event = action(&"t".repeat(title), detail);
            event.truncate();
            prop_assert!(event.weight() <= EVENT_BYTES, "{}", event.weight());
            prop_assert_eq!(truncated(event.clone()), event);
        }
    }
}
