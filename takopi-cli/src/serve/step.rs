//! One thing the agent did, as the page shows it: a line, and what it unfolds to.
//!
//! Without I/O. What an agent wrote is escaped, and as long as the details of its action are.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;
use serde_json::Value;
use takopi_bridge::present::{describe, one_line, reconnected};
use takopi_core::catalog::{Role, TranscriptEntry};
use takopi_core::{ActionEvent, ActionKind, Level, Phase};

use super::highlight::{self, escape};
use super::markdown;

/// The most characters of the line of a step.
const TITLE: usize = 160;

/// One thing the agent did.
#[derive(Debug, Serialize)]
pub(super) struct Step {
    pub(super) id: String,
    /// `running`, `done`, `failed`, `note` or `warning`.
    pub(super) state: &'static str,
    pub(super) title: String,
    /// Whether the title is code.
    code: bool,
    /// The exit code of a command.
    pub(super) about: Option<String>,
    /// What it unfolds to, as HTML; empty if there is nothing more.
    pub(super) body: String,
    /// Whether it is unfolded without being asked.
    pub(super) open: bool,
}

impl Step {
    /// The step of an action; `None` if the page does not show it.
    pub(super) fn of(event: &ActionEvent, directory: Option<&Path>) -> Option<Self> {
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
        let mut step = Self {
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
                let code =
                    detail("exit_code").and_then(Value::as_i64).filter(|_| state == "failed");
                step.about = code.map(|code| format!("exit {code}"));
                if !is_short(&action.title) {
                    step.body = command(&action.title);
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
                if let Some(title) = reconnected(action).filter(|_| state == "done") {
                    return Some(Self { title, ..step });
                }
                return Some(Self { title: heading(&step.title), ..note(step, &action.title) });
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
        if let Some(message) = event.message.as_deref().filter(|message| !message.trim().is_empty())
        {
            let _ = write!(step.body, "<p>{}</p>", escape(message.trim()));
            step.open |= state == "failed";
        }
        Some(step)
    }

    /// The step of an entry of a stored session: a command, a note, or a message on the way to the answer.
    pub(super) fn stored(at: usize, entry: &TranscriptEntry) -> Self {
        let step = said(at.to_string(), &entry.text);
        if entry.role != Role::Command {
            return step;
        }
        let code = entry.exit_code.filter(|code| *code != 0);
        let mut body = if is_short(&entry.text) { String::new() } else { command(&entry.text) };
        if let Some(output) = &entry.output_tail {
            body += &pre(&escape(output), "Output");
        }
        Self {
            state: if code.is_some() { "failed" } else { "done" },
            title: one_line(&entry.text, TITLE),
            code: true,
            about: code.map(|code| format!("exit {code}")),
            body,
            ..step
        }
    }
}

/// A message of the agent on its way to the answer.
pub(super) fn said(id: String, text: &str) -> Step {
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

/// A command with all of its lines.
fn command(text: &str) -> String {
    pre(&highlight::code(text, "sh"), "Command")
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use takopi_core::Action;

    use super::*;

    fn step(event: &ActionEvent) -> Step {
        Step::of(event, Some(Path::new("/srv"))).unwrap()
    }

    #[test]
    fn a_failed_command_is_unfolded_with_the_end_of_its_output() {
        let action = Action::new("1", ActionKind::Command, "cargo test");
        let action = action.with("exit_code", 101).with("output_tail", "a < b\nfailed\n");
        let failed = ActionEvent::new("lab", action, Phase::Completed).ok(false);
        let step = step(&failed);
        assert_eq!(
            (step.state, step.about.as_deref(), step.open),
            ("failed", Some("exit 101"), true)
        );
        assert!(step.body.contains("a &lt; b\nfailed</code>"), "{}", step.body);
    }

    #[test]
    fn a_connection_that_came_back_is_no_attempt_any_more() {
        let action = Action::new("codex.reconnect", ActionKind::Note, "Reconnecting... 3/5");
        let event = |phase| {
            let action = action.clone().with("attempt", 3);
            ActionEvent::new("lab", action, phase).level(Level::Info)
        };
        assert_eq!(step(&event(Phase::Updated)).title, "Reconnecting... 3/5");
        let again = step(&event(Phase::Completed).ok(true));
        assert_eq!((again.state, again.title.as_str()), ("done", "reconnected after 3 attempts"));
    }

    #[test]
    fn changed_files_have_their_diffs_and_paths_in_the_directory() {
        let change =
            json!([{ "path": "/srv/a.rs", "kind": "update", "diff": "@@ -1 +1 @@\n-a\n+b\n" }]);
        let action = Action::new("1", ActionKind::FileChange, "a.rs").with("changes", change);
        let body = step(&ActionEvent::new("lab", action, Phase::Completed).ok(true)).body;
        assert!(
            body.contains("update a.rs</p>") && body.contains("<span class=\"add\">+b</span>"),
            "{body}"
        );
    }
}
