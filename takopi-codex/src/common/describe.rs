//! Items as actions: what a person reads, and the particulars.
//!
//! This is the part of the table in which both transports give the same events for the same thing; only the
//! diffs of changed files are app-server's alone.
//! Details are bounded: however much an item carries, an action carries a few KiB of it.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use takopi_core::model::{ActionKind, Detail, DetailWriter, OUTPUT_TAIL_BYTES};
use takopi_core::paths::Directory;
use takopi_core::redact::redact;

use super::command::into_without_shell;
use super::item::{Body, Change, Step, ToolCall};
use super::labels::Status;
use super::tail::Tail;

/// Room for names and short values, so that details are written in one piece of memory.
const SHORT_DETAILS: usize = 96;

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

    pub(super) fn details(mut self, detail: Detail) -> Self {
        self.detail = detail;
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
            let title = match command {
                Some(command) => directory.relative_in(into_without_shell(command)),
                None => Cow::Borrowed("command"),
            };
            let ok = status == Some(Status::Completed) && exit_code == Some(0);
            let detail = command_detail(status.as_ref(), exit_code, output.as_ref());
            Some(Shown::new(ActionKind::Command, title).details(detail).ok(ok))
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

fn command_detail(
    status: Option<&Status>,
    exit_code: Option<i64>,
    output: Option<&Tail<'_>>,
) -> Detail {
    if (status, exit_code, output.is_none()) == (Some(&Status::InProgress), None, true) {
        // What every command begins with.
        return Detail::from_static(r#"{"status":"in_progress"}"#);
    }
    let mut detail = DetailWriter::with_capacity(SHORT_DETAILS + output.map_or(0, Tail::len));
    add_some(&mut detail, "exit_code", exit_code.as_ref());
    add_some(&mut detail, "status", status.map(Status::as_str));
    add_some(&mut detail, "output_tail", output);
    detail.finish()
}

fn add_some<T: Serialize + ?Sized>(
    detail: &mut DetailWriter,
    name: &'static str,
    value: Option<&T>,
) {
    if let Some(value) = value {
        detail.add(name, value);
    }
}

/// A text that is not blank.
pub(super) fn not_blank(text: Cow<'_, str>) -> Option<Cow<'_, str>> {
    (!text.trim().is_empty()).then_some(text)
}

/// A change as it is listed.
#[derive(Serialize)]
struct Listed<'a> {
    path: &'a str,
    kind: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<Cow<'a, str>>,
}

fn file_change(changes: &[Change<'_>], status: Option<&Status>, directory: &Directory) -> Shown {
    let mut title = String::with_capacity(SHORT_DETAILS);
    let mut listed = Vec::with_capacity(changes.len().min(64));
    let mut diffs_left = OUTPUT_TAIL_BYTES;
    for change in within_bounds(changes, |change| change.path.len()) {
        if !title.is_empty() {
            title.push_str(", ");
        }
        title.push_str(directory.relative(&change.path));
        let diff = diff(change).filter(|diff| diff.len() <= diffs_left);
        diffs_left -= diff.as_ref().map_or(0, |diff| diff.len());
        listed.push(Listed { path: &change.path, kind: change.kind.as_deref(), diff });
    }
    let more = changes.len() - listed.len();
    if more > 0 {
        let _ = write!(title, " and {more} more");
    }
    if title.is_empty() {
        title.push_str("file change");
    }
    let diffs = OUTPUT_TAIL_BYTES - diffs_left;
    let mut detail = DetailWriter::with_capacity(SHORT_DETAILS + title.len() + diffs + diffs / 8);
    detail.add("changes", &listed);
    add_some(&mut detail, "changes_omitted", Some(&more).filter(|more| **more > 0));
    add_some(&mut detail, "status", status.map(Status::as_str));
    Shown::new(ActionKind::FileChange, title)
        .details(detail.finish())
        .ok(status == Some(&Status::Completed))
}

/// What a change did, as lines of a diff. One that is too long is not shown: half of a diff misleads.
fn diff<'a>(change: &'a Change<'_>) -> Option<Cow<'a, str>> {
    let text = change
        .diff
        .as_deref()
        .filter(|text| !text.is_empty() && text.len() <= OUTPUT_TAIL_BYTES)?;
    let sign = match change.kind.as_deref() {
        Some("add") => '+',
        Some("delete") => '-',
        _ => return Some(Cow::Borrowed(text)),
    };
    let mut signed = String::with_capacity(text.len() * 2);
    for line in text.lines() {
        signed.push(sign);
        signed.push_str(line);
        signed.push('\n');
    }
    Some(Cow::Owned(signed))
}

fn tool_call(call: &ToolCall<'_>) -> Shown {
    let tool = call.tool.as_deref().unwrap_or("tool");
    let title = match call.server.as_deref() {
        Some(server) => [server, ".", tool].concat(),
        None => tool.to_owned(),
    };
    // Redacted first: half a credential is not recognized as one.
    let error = call.error.as_ref().map(|error| head(&redact(&error.0)).into_owned());
    let ok =
        error.is_none() && call.status.as_ref().is_none_or(|status| *status == Status::Completed);
    let arguments = call.arguments.map(arguments);
    let long = arguments.as_ref().map_or(0, Arguments::len) + error.as_ref().map_or(0, String::len);
    let mut detail = DetailWriter::with_capacity(2 * SHORT_DETAILS + long);
    add_some(&mut detail, "server", call.server.as_deref());
    detail.add("tool", tool);
    add_some(&mut detail, "status", call.status.as_ref().map(Status::as_str));
    add_some(&mut detail, "arguments", arguments.as_ref());
    add_some(&mut detail, "error_message", error.as_deref());
    add_some(&mut detail, "result_summary", call.result.as_ref());
    let mut shown = Shown::new(ActionKind::Tool, title).details(detail.finish()).ok(ok);
    shown.message = error;
    shown
}

fn todo(steps: &[Step<'_>]) -> Shown {
    let total = steps.len();
    let done = steps.iter().filter(|step| step.done).count();
    let next = steps.iter().find(|step| !step.done).map_or("done", |step| step.text.as_ref());
    let title = if total == 0 { "todo".to_owned() } else { format!("todo {done}/{total}: {next}") };
    let mut detail = DetailWriter::with_capacity(SHORT_DETAILS);
    detail.add("done", &done);
    detail.add("total", &total);
    Shown::note(title).details(detail.finish())
}

/// The arguments of a call; of overlong ones the beginning of their text.
#[derive(Serialize)]
#[serde(untagged)]
enum Arguments<'a> {
    Whole(&'a RawValue),
    Head(Cow<'a, str>),
}

impl Arguments<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Whole(raw) => raw.get().len(),
            Self::Head(text) => text.len() + text.len() / 8,
        }
    }
}

fn arguments(raw: &RawValue) -> Arguments<'_> {
    let text = raw.get();
    if text.len() <= OUTPUT_TAIL_BYTES {
        Arguments::Whole(raw)
    } else {
        Arguments::Head(head(text))
    }
}

/// The beginning of a text.
pub(crate) fn head(text: &str) -> Cow<'_, str> {
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
