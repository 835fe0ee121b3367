//! A request to use a tool, as a typed question.

use std::path::Path;

use serde_json::{Map, Value};
use takopi_core::runner::{
    ChangeKind, Command, Excerpt, FileChange, Patch, Question, ToolCall, Unknown, Unrecognized,
};
use takopi_core::{ApprovalRequest, Decision};

use crate::{PI, resume_codec};

/// How much of a text is kept.
const TEXT_LIMIT: usize = 64 * 1024;

/// All fields of the input are part of the question.
const ANY: &[&str] = &["*"];

/// What takopi's extension asks.
pub(super) fn approval(asked: &Value, session: &str, cwd: &Path) -> ApprovalRequest {
    let (Some(tool), Some(input)) = (asked["tool"].as_str(), asked["input"].as_object()) else {
        let unknown = Unknown::new("tool_call", excerpt(&asked.to_string()));
        let mut request = ApprovalRequest::new(PI, Question::Unknown(unknown), cwd.into());
        request.decisions = vec![Decision::Decline, Decision::Cancel];
        return request;
    };
    let (question, known) = question(tool, input, cwd);
    let mut request = ApprovalRequest::new(PI, question, cwd.into());
    request.session = resume_codec().token(session);
    request.reason = input.get("description").and_then(Value::as_str).map(str::to_owned);
    let unknown = input.iter().filter(|(name, _)| known != ANY && !known.contains(&name.as_str()));
    request.unrecognized =
        unknown.map(|(name, value)| Unrecognized::new(name, excerpt(&value.to_string()))).collect();
    request
}

/// What is asked, and the fields of the input that it shows.
fn question(
    tool: &str,
    input: &Map<String, Value>,
    cwd: &Path,
) -> (Question, &'static [&'static str]) {
    let text = |name: &str| input.get(name).and_then(Value::as_str);
    match (tool, text("command"), text("path")) {
        ("bash", Some(command), _) => {
            (Question::Command(Command::new(command)), &["command", "description", "timeout"])
        }
        ("write", _, Some(path)) => {
            let diff = prefixed('+', text("content").unwrap_or_default());
            (patch(path, &diff, cwd), &["path", "content"])
        }
        ("edit", _, Some(path)) => {
            let edits = input.get("edits").and_then(Value::as_array).into_iter().flatten();
            let diffs = edits.filter_map(Value::as_object).map(replacement);
            (patch(path, &diffs.collect::<Vec<_>>().join("\n"), cwd), &["path", "edits"])
        }
        _ => {
            let mcp = tool.strip_prefix("mcp__").and_then(|rest| rest.split_once("__"));
            let (server, name) = match mcp {
                Some((server, name)) => (Some(server.to_owned()), name),
                None => (None, tool),
            };
            let input = Value::Object(input.clone()).to_string();
            let call = ToolCall::default()
                .server(server)
                .tool(Some(name.to_owned()))
                .input(Some(excerpt(&input)));
            (Question::ToolCall(call), ANY)
        }
    }
}

/// A file that is written to. Whether it exists is not known here.
fn patch(path: &str, diff: &str, cwd: &Path) -> Question {
    let change = FileChange::new(ChangeKind::Unknown, path, cwd).diff(excerpt(diff));
    Question::Patch(Patch::new([change]))
}

fn excerpt(text: &str) -> Excerpt {
    Excerpt::new(text, TEXT_LIMIT)
}

/// What is replaced by what.
fn replacement(edit: &Map<String, Value>) -> String {
    let text = |name: &str| edit.get(name).and_then(Value::as_str).unwrap_or_default();
    format!("{}{}", prefixed('-', text("oldText")), prefixed('+', text("newText")))
}

/// Every line of a text with a mark, as in a diff.
fn prefixed(mark: char, text: &str) -> String {
    text.lines().fold(String::with_capacity(text.len() + 16), |mut marked, line| {
        marked.push(mark);
        marked.push_str(line);
        marked.push('\n');
        marked
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(tool: &str, input: &Value) -> ApprovalRequest {
        let asked = json!({ "kind": "approval", "id": "c1", "tool": tool, "input": input });
        approval(&asked, "s", Path::new("/srv"))
    }

    #[test]
    fn a_command_is_shown_with_everything_that_widens_it() {
        let plain = asked("bash", &json!({ "command": "cargo test", "description": "test" }));
        assert!(plain.is_understood());
        assert_eq!(plain.question, Question::command("cargo test"));
        assert_eq!(plain.reason.as_deref(), Some("test"));
        let wide = asked("bash", &json!({ "command": "x", "sudo": true }));
        assert_eq!(wide.unrecognized[0].field, "sudo");
    }

    #[test]
    fn files_are_shown_with_what_is_written() {
        let diff = |request: &ApprovalRequest| match &request.question {
            Question::Patch(patch) => patch.files[0].diff.as_ref().unwrap().text.clone(),
            other => panic!("{other:?}"),
        };
        let write = asked("write", &json!({ "path": "a", "content": "x\ny\n" }));
        assert_eq!(diff(&write), "+x\n+y\n");
        let edits = json!([{ "oldText": "x", "newText": "y" }]);
        let edit = asked("edit", &json!({ "path": "a", "edits": edits }));
        assert_eq!(diff(&edit), "-x\n+y\n");
        assert!(edit.is_understood() && edit.is_whole());
    }

    #[test]
    fn tools_of_servers_are_named() {
        let call = asked("mcp__lab__echo", &json!({ "text": "yo" }));
        let Question::ToolCall(tool) = &call.question else { panic!("{call:?}") };
        assert_eq!((tool.server.as_deref(), tool.tool.as_deref()), (Some("lab"), Some("echo")));
        assert!(call.is_understood());
    }

    #[test]
    fn a_request_that_cannot_be_read_can_only_be_declined() {
        for odd in [json!({}), json!({ "tool": "bash" }), json!({ "tool": 1, "input": {} })] {
            let request = approval(&odd, "s", Path::new("/srv"));
            assert!(!request.is_understood() && !request.offers(Decision::Accept), "{odd}");
        }
    }
}
