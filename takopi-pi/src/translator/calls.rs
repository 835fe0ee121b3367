//! Tool calls as actions: what a person reads, and the details.
//!
//! Details have the same names as those of codex's items for the same things, and are bounded.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

use serde_json::{Map, Value, json};
use takopi_core::model::{
    Action, ActionEvent, ActionKind, OUTPUT_TAIL_BYTES, Phase, TakopiEvent, tail,
};
use takopi_core::paths::Directory;
use takopi_core::redact::redact;

use crate::PI;
use crate::wire::ToolEnd;

/// How many bytes of a tool's main argument its title has.
const ARGUMENT_BYTES: usize = 256;
/// What a command without output returns.
const NO_OUTPUT: &str = "(no output)";

/// The calls of one run.
#[derive(Debug)]
pub(super) struct Calls {
    directory: Directory,
    /// The open ones, by pi's id.
    open: Vec<(String, Action)>,
    /// How often an id was used: some models number their calls anew in every message.
    used: HashMap<String, u32>,
}

impl Calls {
    pub(super) fn new(directory: &Path) -> Self {
        Self { directory: Directory::new([directory]), open: Vec::new(), used: HashMap::new() }
    }

    pub(super) fn is_running(&self) -> bool {
        !self.open.is_empty()
    }

    /// A call begins.
    pub(super) fn begin(
        &mut self,
        id: &str,
        tool: &str,
        input: &Map<String, Value>,
        events: &mut Vec<TakopiEvent>,
    ) {
        let unique = self.unique(id);
        let mut action = describe(unique, tool, input, &self.directory);
        action.detail.insert("status", "in_progress");
        events.push(ActionEvent::new(PI, action.clone(), Phase::Started).into());
        self.open.push((id.to_owned(), action));
    }

    /// An id that no other action of the run has, also for a call that comes without one.
    fn unique(&mut self, id: &str) -> String {
        let id = if id.trim().is_empty() { "call" } else { id };
        let used = self.used.entry(id.to_owned()).or_default();
        *used += 1;
        if *used == 1 { id.to_owned() } else { format!("{id}#{used}") }
    }

    /// A call has ended.
    pub(super) fn end(&mut self, end: &ToolEnd, events: &mut Vec<TakopiEvent>) {
        let place = self.open.iter().position(|(id, _)| *id == end.id);
        let mut action = if let Some(place) = place {
            self.open.remove(place).1
        } else {
            let unique = self.unique(&end.id);
            describe(unique, &end.name, &Map::new(), &self.directory)
        };
        let detail = &mut action.detail;
        detail.insert("status", if end.is_error { "failed" } else { "completed" });
        match action.kind {
            ActionKind::Command => {
                if let Some(code) = end.exit_code {
                    detail.insert("exit_code", code);
                }
                if !end.output.is_empty() && end.output != NO_OUTPUT {
                    detail.insert("output_tail", tail(&end.output, OUTPUT_TAIL_BYTES));
                }
            }
            ActionKind::FileChange => {
                if let Some(patch) = &end.patch {
                    detail.insert("diff", tail(patch, OUTPUT_TAIL_BYTES));
                }
            }
            _ => {
                let summary = json!({
                    "content_blocks": end.content_blocks,
                    "has_structured": end.has_structured,
                });
                detail.insert("result_summary", summary);
            }
        }
        let is_command = action.kind == ActionKind::Command;
        if end.is_error && !is_command {
            let error = redact(&end.output);
            action.detail.insert("error_message", tail(&error, OUTPUT_TAIL_BYTES));
        }
        events.push(ActionEvent::new(PI, action, Phase::Completed).ok(!end.is_error).into());
    }

    /// Closes what is open: it never ended.
    pub(super) fn close(&mut self, events: &mut Vec<TakopiEvent>) {
        for (_, mut action) in self.open.drain(..) {
            action.detail.insert("status", "unfinished");
            events.push(ActionEvent::new(PI, action, Phase::Completed).ok(false).into());
        }
    }
}

fn describe(id: String, tool: &str, input: &Map<String, Value>, directory: &Directory) -> Action {
    let text = |name: &str| input.get(name).and_then(Value::as_str);
    let relative = |path: &str| directory.relative(path).to_owned();
    match (tool, text("command"), text("path")) {
        ("bash", Some(command), _) => {
            let title = directory.relative_in(Cow::Borrowed(command)).into_owned();
            Action::new(id, ActionKind::Command, title)
        }
        ("edit" | "write", _, Some(path)) => {
            let kind = if tool == "edit" { "update" } else { "write" };
            let path = relative(path);
            let changes = json!([{ "path": path, "kind": kind }]);
            Action::new(id, ActionKind::FileChange, path).with("changes", changes)
        }
        _ => {
            let mcp = tool.strip_prefix("mcp__").and_then(|rest| rest.split_once("__"));
            if let Some((server, name)) = mcp {
                return Action::new(id, ActionKind::Tool, format!("{server}.{name}"))
                    .with("server", server)
                    .with("tool", name)
                    .with("arguments", Value::Object(input.clone()));
            }
            let argument = ["path", "pattern", "query", "url"].iter().find_map(|name| text(name));
            let argument = argument.map(|it| format!(" {}", head(directory.relative(it))));
            Action::new(id, ActionKind::Tool, format!("{tool}{}", argument.unwrap_or_default()))
                .with("tool", tool)
                .with("arguments", Value::Object(input.clone()))
        }
    }
}

fn head(text: &str) -> &str {
    let end = (0..=ARGUMENT_BYTES.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
}
