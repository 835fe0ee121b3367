//! The description of an action, the same in every presenter.

use std::fmt::Write as _;

use serde_json::Value;
use takopi_core::{Action, ActionKind};

use super::text::one_line;
use crate::progress::ActionStatus;

/// How many changed files are listed by name.
const FILES_NAMED: usize = 3;

/// An action in one line of at most `max` columns, the same in every presenter.
pub fn describe(action: &Action, max: usize) -> String {
    let title = &action.title;
    match &action.kind {
        ActionKind::Tool => one_line(&format!("tool: {title}"), max),
        ActionKind::WebSearch => one_line(&format!("search: {title}"), max),
        ActionKind::Subagent => one_line(&format!("subagent: {title}"), max),
        ActionKind::Approval => one_line(&format!("asked: {title}"), max),
        ActionKind::FileChange => one_line(&format!("files: {}", files(action)), max),
        ActionKind::Other(kind) => one_line(&format!("{kind}: {title}"), max),
        _ => one_line(title, max),
    }
}

/// Details to append: the exit code of a command that failed, the reason of a reconnect.
pub(super) fn particulars(action: &Action) -> Option<String> {
    match action.kind {
        ActionKind::Command => {
            let code = action.detail.get("exit_code").and_then(Value::as_i64)?;
            (code != 0).then(|| format!("(exit {code})"))
        }
        ActionKind::Note => {
            let reason = action.detail.get("reason").and_then(Value::as_str)?;
            Some(format!("({})", one_line(reason, 200)))
        }
        _ => None,
    }
}

/// What a lost connection is called when it came back; `None` for every other action.
pub fn reconnected(action: &Action) -> Option<String> {
    let attempts = action.detail.get("attempt").and_then(Value::as_u64)?;
    let times = if attempts == 1 { "attempt" } else { "attempts" };
    (action.kind == ActionKind::Note).then(|| format!("reconnected after {attempts} {times}"))
}

/// The changed files, up to three by name: `add a.rs, update b.rs`.
fn files(action: &Action) -> String {
    let Some(changes) = Changes::of(action) else { return action.title.clone() };
    let named = changes.named.iter().map(|(kind, path)| format!("{kind} {path}"));
    let mut files = named.map(|it| it.trim().to_owned()).collect::<Vec<_>>().join(", ");
    if changes.more > 0 {
        let _ = write!(files, ", {} more", changes.more);
    }
    files
}

/// The files an action changed.
pub(super) struct Changes<'a> {
    /// Kind and path of the first three changes.
    pub(super) named: Vec<(&'a str, &'a str)>,
    /// How many more there are.
    pub(super) more: usize,
}

impl<'a> Changes<'a> {
    /// The changes in the details of the action, if there are any.
    pub(super) fn of(action: &'a Action) -> Option<Self> {
        let changes = action.detail.get("changes").and_then(Value::as_array)?;
        let part = |change: &'a Value, key: &str| {
            change.get(key).and_then(Value::as_str).unwrap_or_default()
        };
        let named = changes.iter().take(FILES_NAMED);
        let named = named.map(|change| (part(change, "kind"), part(change, "path"))).collect();
        let more = changes.len().saturating_sub(FILES_NAMED);
        (!changes.is_empty()).then_some(Self { named, more })
    }
}

/// The mark before an action.
pub(super) fn mark(status: ActionStatus) -> &'static str {
    match status {
        ActionStatus::Running => "▸",
        ActionStatus::Updated => "↻",
        ActionStatus::Done => "✓",
        ActionStatus::Failed => "✗",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn three_files_are_named_and_the_rest_counted() {
        let change = |path: &str| json!({ "path": path, "kind": "update" });
        let changes: Vec<Value> = ["a", "b", "c", "d", "e"].map(change).into();
        let action = Action::new("1", ActionKind::FileChange, "a, b, c, d, e");
        let described = describe(&action.with("changes", changes), 80);
        assert_eq!(described, "files: update a, update b, update c, 2 more");
    }

    #[test]
    fn a_file_change_without_particulars_has_its_title() {
        let action = Action::new("1", ActionKind::FileChange, "a.rs").with("changes", json!([]));
        assert_eq!(describe(&action, 80), "files: a.rs");
    }

    #[test]
    fn only_a_failed_command_shows_its_exit_code() {
        let command =
            |code: i32| Action::new("1", ActionKind::Command, "x").with("exit_code", code);
        assert_eq!(particulars(&command(0)), None);
        assert_eq!(particulars(&command(101)).as_deref(), Some("(exit 101)"));
    }

    #[test]
    fn an_unknown_kind_is_named() {
        let action = Action::new("1", ActionKind::from("dance"), "tango");
        assert_eq!(describe(&action, 80), "dance: tango");
    }
}
