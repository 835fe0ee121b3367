//! Items as actions: what a person reads, and the particulars.
//!
//! This is the part of the table in which both transports give the same events for the same thing; only the
//! diffs of changed files are app-server's alone.
//! Details are bounded: however much an item carries, an action carries a few KiB of it.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use takopi_core::model::{ActionKind, Detail, OUTPUT_TAIL_BYTES};
use takopi_core::paths::Directory;

use super::command::without_shell;
use super::item::{Body, Change, Step, ToolCall};
use super::labels::Status;

/// An item as it is shown.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) kind: ActionKind,
    pub(crate) title: String,
    pub(crate) detail: Detail,
    /// Whether it went well, if it is over.
    pub(crate) ok: bool,
    /// Why it did not.
    pub(crate) message: Option<String>,
}

impl Shown {
    fn new(kind: ActionKind, title: impl Into<String>) -> Self {
        Self { kind, title: title.into(), detail: Detail::new(), ok: true, message: None }
    }

    pub(super) fn note(title: impl Into<String>) -> Self {
        Self::new(ActionKind::Note, title)
    }

    /// With room for so many particulars.
    fn room(mut self, particulars: usize) -> Self {
        self.detail = Detail::with_capacity(particulars);
        self
    }

    pub(super) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.detail.insert(name, value);
        self
    }

    fn with_some(self, name: &'static str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    fn with_status(self, status: Option<&Status>) -> Self {
        self.with_some("status", status.map(Status::as_str))
    }

    fn ok(mut self, ok: bool) -> Self {
        self.ok = ok;
        self
    }
}

/// Shows an item; messages and errors are not shown here but by the translation, which keeps them.
pub(super) fn show(body: Body<'_>, directory: &Directory) -> Option<Shown> {
    match body {
        Body::UserMessage | Body::AgentMessage { .. } | Body::Error { .. } => None,
        Body::Thought { text } => not_blank(text).map(Shown::note),
        Body::Command { command, status, exit_code, output } => {
            let title = match &command {
                Some(command) => directory.relative_in(without_shell(command)),
                None => Cow::Borrowed("command"),
            };
            let ok = status == Some(Status::Completed) && exit_code == Some(0);
            let output = output.map(|tail| tail.0).filter(|tail| !tail.is_empty());
            Some(
                Shown::new(ActionKind::Command, title)
                    .room(1 + usize::from(exit_code.is_some()) + usize::from(output.is_some()))
                    .with_some("exit_code", exit_code)
                    .with_status(status.as_ref())
                    .with_some("output_tail", output.map(Cow::into_owned))
                    .ok(ok),
            )
        }
        Body::FileChange { changes, status } => {
            Some(file_change(&changes, status.as_ref(), directory))
        }
        Body::ToolCall(call) => Some(tool_call(&call)),
        Body::Subagent { tool, prompt, threads, status } => {
            let tool = tool.unwrap_or(Cow::Borrowed("subagent"));
            let title = match prompt.and_then(not_blank) {
                Some(prompt) => format!("{tool}: {prompt}"),
                None => tool.clone().into_owned(),
            };
            let ok = status.as_ref().is_none_or(|status| *status == Status::Completed);
            let threads: Vec<&str> =
                within_bounds(&threads, |thread| thread.len()).map(AsRef::as_ref).collect();
            let threads = (!threads.is_empty()).then_some(threads);
            Some(
                Shown::new(ActionKind::Subagent, title)
                    .with("tool", tool)
                    .with_status(status.as_ref())
                    .with_some("threads", threads)
                    .ok(ok),
            )
        }
        Body::WebSearch { query } => {
            let query = query.and_then(not_blank);
            Some(Shown::new(ActionKind::WebSearch, query.unwrap_or(Cow::Borrowed("web search"))))
        }
        Body::Todo { steps } => Some(todo(&steps)),
        Body::Unknown { kind, status } => {
            let title = kind.and_then(not_blank).unwrap_or(Cow::Borrowed("unknown item"));
            let ok =
                !matches!(status, Some(Status::Failed | Status::Declined | Status::Interrupted));
            Some(Shown::note(title).with_status(status.as_ref()).ok(ok))
        }
    }
}

/// A text that is not blank.
pub(super) fn not_blank(text: Cow<'_, str>) -> Option<Cow<'_, str>> {
    (!text.trim().is_empty()).then_some(text)
}

fn file_change(changes: &[Change<'_>], status: Option<&Status>, directory: &Directory) -> Shown {
    let mut title = String::new();
    let mut listed = Vec::new();
    let mut diffs_left = OUTPUT_TAIL_BYTES;
    for change in within_bounds(changes, |change| change.path.len()) {
        if !title.is_empty() {
            title.push_str(", ");
        }
        title.push_str(directory.relative(&change.path));
        let mut shown = json!({ "path": change.path, "kind": change.kind });
        if let Some(diff) = diff(change).filter(|diff| diff.len() <= diffs_left) {
            diffs_left -= diff.len();
            shown["diff"] = diff.into();
        }
        listed.push(shown);
    }
    let more = changes.len() - listed.len();
    if more > 0 {
        let _ = write!(title, " and {more} more");
    }
    if title.is_empty() {
        title.push_str("file change");
    }
    Shown::new(ActionKind::FileChange, title)
        .with("changes", listed)
        .with_some("changes_omitted", (more > 0).then_some(more))
        .with_status(status)
        .ok(status == Some(&Status::Completed))
}

/// What a change did, as lines of a diff. One that is too long is not shown: half of a diff misleads.
fn diff(change: &Change<'_>) -> Option<String> {
    let text = change
        .diff
        .as_deref()
        .filter(|text| !text.is_empty() && text.len() <= OUTPUT_TAIL_BYTES)?;
    let sign = match change.kind.as_deref() {
        Some("add") => '+',
        Some("delete") => '-',
        _ => return Some(text.to_owned()),
    };
    let mut signed = String::with_capacity(text.len() * 2);
    for line in text.lines() {
        signed.push(sign);
        signed.push_str(line);
        signed.push('\n');
    }
    Some(signed)
}

fn tool_call(call: &ToolCall<'_>) -> Shown {
    let tool = call.tool.as_deref().unwrap_or("tool");
    let title = match call.server.as_deref() {
        Some(server) => format!("{server}.{tool}"),
        None => tool.to_owned(),
    };
    let error = call.error.as_ref().map(|error| head(&error.0).into_owned());
    let ok =
        error.is_none() && call.status.as_ref().is_none_or(|status| *status == Status::Completed);
    let summary = call.result.map(|result| {
        json!({ "content_blocks": result.content_blocks, "has_structured": result.has_structured })
    });
    let mut shown = Shown::new(ActionKind::Tool, title)
        .with_some("server", call.server.as_deref())
        .with("tool", tool)
        .with_status(call.status.as_ref())
        .with_some("arguments", call.arguments.map(arguments))
        .with_some("error_message", error.clone())
        .with_some("result_summary", summary)
        .ok(ok);
    shown.message = error;
    shown
}

fn todo(steps: &[Step<'_>]) -> Shown {
    let total = steps.len();
    let done = steps.iter().filter(|step| step.done).count();
    let next = steps.iter().find(|step| !step.done).map_or("done", |step| step.text.as_ref());
    let title = if total == 0 { "todo".to_owned() } else { format!("todo {done}/{total}: {next}") };
    Shown::note(title).with("done", done).with("total", total)
}

/// The arguments of a call; of overlong ones the beginning of their text.
fn arguments(raw: &RawValue) -> Value {
    let text = raw.get();
    let small =
        (text.len() <= OUTPUT_TAIL_BYTES).then(|| serde_json::from_str(text).ok()).flatten();
    small.unwrap_or_else(|| Value::String(head(text).into_owned()))
}

/// The beginning of a text.
fn head(text: &str) -> Cow<'_, str> {
    if text.len() <= OUTPUT_TAIL_BYTES {
        return Cow::Borrowed(text);
    }
    let end = text.floor_char_boundary(OUTPUT_TAIL_BYTES - '…'.len_utf8());
    Cow::Owned(format!("{}…", &text[..end]))
}

/// The first of many, up to as many bytes as a detail may have.
fn within_bounds<'a, T>(
    many: &'a [T],
    bytes: impl Fn(&T) -> usize + 'a,
) -> impl Iterator<Item = &'a T> {
    many.iter().scan(OUTPUT_TAIL_BYTES, move |room, one| {
        *room = room.checked_sub(bytes(one))?;
        Some(one)
    })
}
