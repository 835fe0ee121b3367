//! Tool calls as actions: what a person reads, and the details.
//!
//! Details have the same names as those of codex's items for the same things, and are bounded:
//! however much a tool returns, an action carries a few KiB of it.

use std::borrow::Cow;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use takopi_core::model::{Action, ActionEvent, ActionKind, OUTPUT_TAIL_BYTES, Phase, tail};
use takopi_core::paths::Directory;
use takopi_core::redact::redact;

use super::diff;
use super::plan::Plan;
use crate::CLAUDE;
use crate::wire::{Denial, Nested, Object, Task, ToolResult, value};

/// How many bytes of its main argument the title of a tool has.
const ARGUMENT_BYTES: usize = 256;
/// What a command without output returns.
const NO_OUTPUT: &str = "(Bash completed with no output)";

/// A call that was started and has not ended.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) action: Action,
    /// The tool's own name.
    pub(super) tool: String,
    pub(super) input: Option<Box<RawValue>>,
    /// Whether the call itself returned and its work goes on.
    pub(super) in_background: bool,
    /// Whether a sub-agent made it.
    is_nested: bool,
    /// It was refused.
    pub(super) is_denied: bool,
    /// Its task, once it has one.
    pub(super) task: Option<String>,
    /// How its task ended, if that was known before the call returned.
    pub(super) ended: Option<Task>,
}

impl Call {
    /// A call, as it begins.
    pub(super) fn new(
        id: String,
        tool: &str,
        input: Option<&RawValue>,
        nested: Option<&Nested>,
        directory: &Directory,
    ) -> Self {
        let fields = input.map(Object::of).unwrap_or_default();
        let mut action = describe(id, tool, input, &fields, directory);
        action.detail.insert("status", "in_progress");
        if let Some(nested) = nested {
            let agent = nested.description.as_ref().or(nested.kind.as_ref());
            action.detail.insert("subagent", head(agent.unwrap_or(&nested.parent)));
        }
        Self {
            action,
            tool: tool.to_owned(),
            input: input.map(ToOwned::to_owned),
            in_background: false,
            is_nested: nested.is_some(),
            is_denied: false,
            task: None,
            ended: None,
        }
    }

    /// Whether it is about the agent's list of tasks, and shown as such.
    pub(super) fn is_of_plan(&self) -> bool {
        !self.is_nested && Plan::is_about(&self.tool)
    }

    /// Whether the agent waits for it.
    pub(super) fn is_running(&self) -> bool {
        let is_command = self.action.kind == ActionKind::Command;
        self.action.kind.is_tool() && !(self.in_background && is_command)
    }

    /// It begins. Of a sub-agent this is the only event with its prompt.
    pub(super) fn started(&self) -> ActionEvent {
        let mut action = self.action.clone();
        let input = self.input.as_deref().map(Object::of).unwrap_or_default();
        if action.kind == ActionKind::Subagent
            && let Some(prompt) = input.text("prompt")
        {
            action.detail.insert("prompt", head(&prompt));
        }
        ActionEvent::new(CLAUDE, action, Phase::Started)
    }

    /// There is news of it.
    pub(super) fn updated(&self) -> ActionEvent {
        ActionEvent::new(CLAUDE, self.action.clone(), Phase::Updated)
    }

    /// The call returned. With its work left in the background it is not over.
    pub(super) fn returned(
        mut self,
        result: &ToolResult,
        output: Option<&RawValue>,
        was_asked: bool,
    ) -> Result<ActionEvent, Box<Self>> {
        let output = output.map(Object::of).unwrap_or_default();
        if !result.is_error && went_to_background(&self.action.kind, result, &output) {
            self.in_background = true;
            self.action.detail.insert("background", true);
            if let Some(text) = output.text("stdout").filter(|text| !text.is_empty()) {
                self.action.detail.insert("output_tail", tail(&text, OUTPUT_TAIL_BYTES));
            }
            return match self.ended.take() {
                Some(task) => Ok(self.task_ended(&task)),
                None => Err(Box::new(self)),
            };
        }
        let refusal = self.refusal(result, was_asked);
        Ok(match refusal {
            Some(status) => {
                let message = match status {
                    "declined" if result.not_executed.as_deref() != Some("user-rejected") => {
                        error_head(&result.text)
                    }
                    _ => status.to_owned(),
                };
                self.closed(status, false, Some(message))
            }
            None => self.outcome(result, &output),
        })
    }

    /// Its task in the background ended.
    pub(super) fn task_ended(mut self, task: &Task) -> ActionEvent {
        let status = task.status.as_deref().unwrap_or("completed");
        let ok = status == "completed";
        let summary = task.summary.as_deref().unwrap_or_default();
        if self.action.kind == ActionKind::Command {
            if let Some(code) = exit_code_in(summary) {
                self.action.detail.insert("exit_code", code);
            }
        } else if !summary.is_empty() {
            self.action.detail.insert("output_tail", tail(summary, OUTPUT_TAIL_BYTES));
        }
        let message = (!ok).then(|| status.to_owned());
        let status = if status == "stopped" { "interrupted" } else { status };
        self.closed(status, ok, message)
    }

    /// The run ended before the call did.
    pub(super) fn abandoned(self) -> ActionEvent {
        if self.in_background {
            let action = self.action.with("status", "background");
            let event = ActionEvent::new(CLAUDE, action, Phase::Completed);
            return event.message("goes on in the background");
        }
        let action = self.action.with("status", "unfinished");
        ActionEvent::new(CLAUDE, action, Phase::Completed).message("unfinished")
    }

    /// The result of a tool that the model's service ran.
    pub(super) fn served(self, error: Option<&str>) -> ActionEvent {
        match error {
            Some(error) => self.closed("failed", false, Some(error_head(error))),
            None => self.closed("completed", true, None),
        }
    }

    /// The call was refused, and nobody else shows that.
    pub(super) fn denied(&self, id: String, denial: &Denial, cwd: String) -> ActionEvent {
        denied(id, &self.action, &self.tool, denial, cwd)
    }

    /// Whether it was refused or interrupted, as the status has it.
    fn refusal(&self, result: &ToolResult, was_asked: bool) -> Option<&'static str> {
        if !result.is_error {
            return None;
        }
        if result.is_rejected || self.is_denied {
            return Some("declined");
        }
        let kind = result.not_executed.as_deref()?;
        let declined = kind != "user-rejected" || was_asked;
        Some(if declined { "declined" } else { "interrupted" })
    }

    fn outcome(mut self, result: &ToolResult, output: &Object<'_>) -> ActionEvent {
        let ok = !result.is_error;
        let status = if ok { "completed" } else { "failed" };
        match self.action.kind {
            ActionKind::Command => {
                let message = self.command_output(result, output);
                return self.closed(status, ok, message);
            }
            ActionKind::FileChange if ok => self.changed(output),
            ActionKind::Subagent if ok => {
                let text = tail(&result.text, OUTPUT_TAIL_BYTES);
                self.action.detail.insert("output_tail", text);
            }
            ActionKind::Tool if ok => {
                let structured = output.has("structuredContent");
                let summary =
                    json!({ "content_blocks": result.blocks, "has_structured": structured });
                self.action.detail.insert("result_summary", summary);
            }
            _ => {}
        }
        if ok {
            return self.closed(status, ok, None);
        }
        let error = error_head(without_advice(without_tags(&result.text)));
        if self.action.kind == ActionKind::Tool {
            self.action.detail.insert("error_message", error.clone());
        }
        self.closed(status, ok, Some(error))
    }

    /// Adds exit code and output. Returns why there is neither.
    fn command_output(&mut self, result: &ToolResult, output: &Object<'_>) -> Option<String> {
        let mut text = match (output.text("stdout"), output.text("stderr")) {
            (Some(out), Some(err)) if !err.is_empty() => Cow::Owned(format!("{out}\n{err}")),
            (Some(out), _) => Cow::Owned(out),
            (None, _) if result.text == NO_OUTPUT => Cow::Borrowed(""),
            (None, _) => Cow::Borrowed(result.text.as_str()),
        };
        let mut code = None;
        if result.is_error {
            // The text is the only place where the code stands.
            let failed = text.strip_prefix("Exit code ").map(|rest| {
                let (number, rest) = rest.split_once('\n').unwrap_or((rest, ""));
                (number.trim().parse::<i64>().ok(), rest.to_owned())
            });
            match failed {
                Some((Some(number), rest)) => {
                    code = Some(number);
                    text = Cow::Owned(rest);
                }
                _ => return Some(error_head(without_tags(&result.text))),
            }
        } else if !output.has("returnCodeInterpretation") {
            // With an interpretation ("no matches found") the code was another one.
            code = Some(0);
        }
        if let Some(code) = code {
            self.action.detail.insert("exit_code", code);
        }
        if !text.is_empty() {
            self.action.detail.insert("output_tail", tail(&text, OUTPUT_TAIL_BYTES));
        }
        None
    }

    fn changed(&mut self, output: &Object<'_>) {
        let Some(path) = output.text("filePath").or_else(|| self.path()) else { return };
        let kind = if diff::is_new(output) { "add" } else { "update" };
        let mut change = json!({ "path": head(&path), "kind": kind });
        if let Some(diff) = diff::unified(output) {
            change["diff"] = diff.into();
        }
        self.action.detail.insert("changes", vec![change]);
    }

    fn path(&self) -> Option<String> {
        path_of(&Object::of(self.input.as_deref()?))
    }

    fn closed(mut self, status: &str, ok: bool, message: Option<String>) -> ActionEvent {
        self.action.detail.insert("status", status);
        let mut event = ActionEvent::new(CLAUDE, self.action, Phase::Completed).ok(ok);
        event.message = message;
        event
    }
}

/// A refusal of a call of which nothing else is known.
pub(super) fn denied_unseen(
    id: String,
    denial: &Denial,
    cwd: String,
    directory: &Directory,
) -> ActionEvent {
    let tool = denial.tool.as_deref().unwrap_or("tool");
    let call = Call::new(String::new(), tool, denial.input.as_deref(), None, directory);
    denied(id, &call.action, tool, denial, cwd)
}

fn denied(id: String, of: &Action, tool: &str, denial: &Denial, cwd: String) -> ActionEvent {
    let asks_for = match of.kind {
        ActionKind::Command => "command",
        ActionKind::FileChange => "file_change",
        _ => "tool_call",
    };
    let mut action = Action::new(id, ActionKind::Approval, of.title.clone())
        .with("asks_for", asks_for)
        .with("cwd", cwd)
        .with("tool", head(tool))
        .with("decision", "decline");
    for name in ["changes", "subagent"] {
        if let Some(value) = of.detail.get(name) {
            action.detail.insert(name, value.clone());
        }
    }
    let message = match denial.message.as_deref() {
        Some(message) => format!("declined: {}", head(without_advice(message))),
        None => "declined: by the permission mode or a rule".to_owned(),
    };
    ActionEvent::new(CLAUDE, action, Phase::Completed).ok(false).message(message)
}

/// What a call is.
fn describe(
    id: String,
    tool: &str,
    input: Option<&RawValue>,
    fields: &Object<'_>,
    directory: &Directory,
) -> Action {
    match tool {
        "Bash" => {
            let command = fields.text("command").unwrap_or_else(|| "command".to_owned());
            let title = directory.relative_in(command.into());
            Action::new(id, ActionKind::Command, title)
        }
        "Write" | "Edit" | "MultiEdit" | "NotebookEdit" => {
            let path = path_of(fields);
            let title = path.as_deref().map_or("file change", |path| directory.relative(path));
            let mut change = json!({ "path": path.as_deref().map(head) });
            if tool != "Write" {
                change["kind"] = "update".into();
            }
            let changes = if path.is_some() { vec![change] } else { Vec::new() };
            Action::new(id, ActionKind::FileChange, title).with("changes", changes)
        }
        "Agent" | "Task" => {
            let what = fields.text("description").or_else(|| fields.text("prompt"));
            let title = match (fields.text("subagent_type"), what) {
                (Some(kind), Some(what)) => format!("{kind}: {what}"),
                (None, Some(what)) => what,
                (Some(kind), None) => kind,
                (None, None) => "sub-agent".to_owned(),
            };
            Action::new(id, ActionKind::Subagent, title).with("tool", tool)
        }
        "WebSearch" | "web_search" => {
            let query = fields.text("query").filter(|query| !query.trim().is_empty());
            let title = query.unwrap_or_else(|| "web search".to_owned());
            Action::new(id, ActionKind::WebSearch, title)
        }
        _ => {
            let mcp = tool.strip_prefix("mcp__").and_then(|name| name.split_once("__"));
            let mut action = if let Some((server, name)) = mcp {
                Action::new(id, ActionKind::Tool, format!("{server}.{name}"))
                    .with("server", head(server))
                    .with("tool", head(name))
            } else {
                let name = if tool.trim().is_empty() { "tool" } else { tool };
                let title = match main_argument(fields, directory) {
                    Some(argument) => format!("{name} {argument}"),
                    None => name.to_owned(),
                };
                Action::new(id, ActionKind::Tool, title).with("tool", head(name))
            };
            if let Some(input) = input {
                action.detail.insert("arguments", arguments(input));
            }
            action
        }
    }
}

fn path_of(input: &Object<'_>) -> Option<String> {
    input.text("file_path").or_else(|| input.text("notebook_path"))
}

/// The argument that says most about a call: the file, the pattern, the address.
fn main_argument(input: &Object<'_>, directory: &Directory) -> Option<String> {
    let path = |name| input.text(name).map(|path| directory.relative(&path).to_owned());
    let text = ["pattern", "url", "query", "skill", "command", "subject", "description"]
        .into_iter()
        .find_map(|name| input.text(name));
    let argument = path_of(input)
        .map(|path| directory.relative(&path).to_owned())
        .or(text)
        .or_else(|| path("path"))?;
    let line = argument.lines().next().unwrap_or_default().trim();
    let short = &line[..line.floor_char_boundary(ARGUMENT_BYTES)];
    (!short.is_empty()).then(|| short.to_owned())
}

/// The arguments of a call; of overlong ones the beginning of their text.
fn arguments(raw: &RawValue) -> Value {
    let text = raw.get();
    if text.len() <= OUTPUT_TAIL_BYTES { value(raw) } else { head(text).into() }
}

/// Whether a call returned because its work goes on without it.
fn went_to_background(kind: &ActionKind, result: &ToolResult, output: &Object<'_>) -> bool {
    match kind {
        // Results of sub-agents' calls come without data.
        ActionKind::Command => {
            output.has("backgroundTaskId")
                || result.text.starts_with("Command running in background with ID:")
        }
        ActionKind::Subagent => {
            output.flag("isAsync") == Some(true) || result.text.starts_with("Async agent launched")
        }
        _ => false,
    }
}

/// The code in `… completed (exit code 0)`.
fn exit_code_in(summary: &str) -> Option<i64> {
    let (_, rest) = summary.rsplit_once("exit code ")?;
    let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// `<tool_use_error>…</tool_use_error>` is for the model.
fn without_tags(text: &str) -> &str {
    let inside = text.trim().strip_prefix("<tool_use_error>");
    inside.and_then(|text| text.strip_suffix("</tool_use_error>")).unwrap_or(text)
}

/// The beginning of a text.
pub(super) fn head(text: &str) -> String {
    if text.len() <= OUTPUT_TAIL_BYTES {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(OUTPUT_TAIL_BYTES - '…'.len_utf8());
    format!("{}…", &text[..end])
}

/// The beginning of an error. Credentials are removed first: half of one cannot be recognised.
fn error_head(text: &str) -> String {
    head(&redact(text))
}

/// The text of a refusal without what it tells the model to do about it.
fn without_advice(text: &str) -> &str {
    text.split_once(" IMPORTANT: You *may*").map_or(text, |(text, _)| text)
}
