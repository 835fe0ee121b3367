//! A request to use a tool, as a typed question.

use std::path::Path;

use serde_json::{Map, Value};
use takopi_core::runner::{
    ChangeKind, Command, Excerpt, FileChange, Patch, Question, QuestionOption, ToolCall, Unknown,
    Unrecognized, UserQuestion,
};
use takopi_core::{ApprovalRequest, Decision};

use super::rule::session_rule;
use crate::CLAUDE;
use crate::control::ControlRequest;
use crate::resume_codec;

/// How much of a text is kept.
const TEXT_LIMIT: usize = 64 * 1024;

/// The fields of a request that grant nothing by themselves.
const KNOWN: [&str; 14] = [
    "subtype",
    "tool_name",
    "display_name",
    "title",
    "input",
    "description",
    // Never sent back: a rule for the session is made here.
    "permission_suggestions",
    "blocked_path",
    "decision_reason",
    "tool_use_id",
    "agent_id",
    "mcp_server",
    "requires_user_interaction",
    "server_policy_ask_only",
];

/// A request that waits for a decision.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) request: ApprovalRequest,
    /// What the tool would be called with.
    pub(super) input: Map<String, Value>,
    /// The call of the tool.
    pub(super) call: Option<String>,
    /// What a yes for the session allows from now on.
    pub(super) session_rule: Option<Value>,
}

impl Asked {
    pub(super) fn read(request: &ControlRequest, session: &str, cwd: &Path) -> Self {
        Self::from_json(request.json(), session, cwd)
    }

    pub(super) fn from_json(json: &str, session: &str, cwd: &Path) -> Self {
        let fields: Option<Map<String, Value>> = serde_json::from_str(json).ok();
        let tool = fields.as_ref().and_then(|fields| fields.get("tool_name")?.as_str());
        let input = fields.as_ref().and_then(|fields| fields.get("input")?.as_object());
        let (Some(fields), Some(tool), Some(input)) = (&fields, tool, input) else {
            let unknown = Unknown::new("can_use_tool", Excerpt::new(json, TEXT_LIMIT));
            let mut request = ApprovalRequest::new(CLAUDE, Question::Unknown(unknown), cwd.into());
            // Without its input the tool cannot be called as asked for.
            request.decisions = vec![Decision::Decline, Decision::Cancel];
            return Self { request, input: Map::new(), call: None, session_rule: None };
        };
        let text = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
        let (question, known) = question(tool, input, text("description"), cwd);
        let mut request = ApprovalRequest::new(CLAUDE, question, cwd.into());
        request.session = resume_codec().token(session);
        request.subagent = text("agent_id");
        request.reason = reason(fields, input);
        let unknown = fields.iter().filter(|(name, _)| !KNOWN.contains(&name.as_str()));
        let unknown_input = input.iter().filter(|(name, _)| !known.contains(&name.as_str()));
        request.unrecognized = unknown
            .chain(unknown_input.filter(|_| known != ANY))
            .map(|(name, value)| {
                Unrecognized::new(name, Excerpt::new(&value.to_string(), TEXT_LIMIT))
            })
            .collect();
        let session_rule = session_rule(tool, input);
        if session_rule.is_none() {
            request.decisions.retain(|decision| *decision != Decision::AcceptForSession);
        }
        Self { request, input: input.clone(), call: text("tool_use_id"), session_rule }
    }
}

/// All fields of the input are part of the question.
const ANY: &[&str] = &["*"];

/// What is asked, and the fields of the input that it shows.
fn question(
    tool: &str,
    input: &Map<String, Value>,
    description: Option<String>,
    cwd: &Path,
) -> (Question, &'static [&'static str]) {
    let text = |name: &str| input.get(name).and_then(Value::as_str);
    match tool {
        "Bash" if text("command").is_some() => {
            let command = text("command").unwrap_or_default();
            // That it runs in the background, or outside of the sandbox, is shown as it came.
            (Question::Command(Command::new(command)), &["command", "description", "timeout"])
        }
        "Write" if text("file_path").is_some() => {
            let content = text("content").unwrap_or_default();
            let change = change(text("file_path"), cwd).diff(excerpt(&prefixed('+', content)));
            (Question::Patch(Patch::new([change])), &["file_path", "content"])
        }
        "Edit" if text("file_path").is_some() => {
            let diff = replacement(input);
            let change = change(text("file_path"), cwd).diff(excerpt(&diff));
            let known = &["file_path", "old_string", "new_string", "replace_all"];
            (Question::Patch(Patch::new([change])), known)
        }
        "MultiEdit" if text("file_path").is_some() => {
            let edits = input.get("edits").and_then(Value::as_array).into_iter().flatten();
            let diffs = edits.filter_map(Value::as_object).map(replacement);
            let diff = diffs.collect::<Vec<_>>().join("\n");
            let change = change(text("file_path"), cwd).diff(excerpt(&diff));
            (Question::Patch(Patch::new([change])), &["file_path", "edits"])
        }
        "NotebookEdit" if text("notebook_path").is_some() => {
            let source = text("new_source").unwrap_or_default();
            let change = change(text("notebook_path"), cwd).diff(excerpt(&prefixed('+', source)));
            (
                Question::Patch(Patch::new([change])),
                &["notebook_path", "new_source", "cell_id", "cell_type", "edit_mode"],
            )
        }
        "AskUserQuestion" => {
            let questions = input.get("questions").and_then(Value::as_array);
            let questions = questions.into_iter().flatten().filter_map(user_question).collect();
            (Question::Questions(questions), &["questions"])
        }
        "ExitPlanMode" => {
            let plan = text("plan").unwrap_or("the plan that the agent wrote before");
            (Question::Plan(excerpt(plan)), &["plan", "planFilePath"])
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
                .description(description)
                .input(Some(excerpt(&input)));
            (Question::ToolCall(call), ANY)
        }
    }
}

fn excerpt(text: &str) -> Excerpt {
    Excerpt::new(text, TEXT_LIMIT)
}

/// A file that is written to. Whether it exists is not known here.
fn change(path: Option<&str>, cwd: &Path) -> FileChange {
    FileChange::new(ChangeKind::Unknown, path.unwrap_or_default(), cwd)
}

/// What is replaced by what.
fn replacement(edit: &Map<String, Value>) -> String {
    let text = |name: &str| edit.get(name).and_then(Value::as_str).unwrap_or_default();
    let all = edit.get("replace_all").and_then(Value::as_bool) == Some(true);
    let heading = if all { "@@ every occurrence @@\n" } else { "" };
    format!("{heading}{}{}", prefixed('-', text("old_string")), prefixed('+', text("new_string")))
}

/// Every line of a text with a mark, as in a diff.
fn prefixed(mark: char, text: &str) -> String {
    let mut marked = String::with_capacity(text.len() + 16);
    for line in text.lines() {
        marked.push(mark);
        marked.push_str(line);
        marked.push('\n');
    }
    marked
}

fn user_question(question: &Value) -> Option<UserQuestion> {
    let text = question["question"].as_str()?;
    let options = question["options"].as_array().into_iter().flatten();
    let option = |option: &Value| {
        let description = option["description"].as_str().map(str::to_owned);
        let label = option["label"].as_str()?.to_owned();
        Some(QuestionOption::default().label(label).description(description))
    };
    Some(
        UserQuestion::default()
            .id(text.to_owned())
            .header(question["header"].as_str().map(str::to_owned))
            .question(text.to_owned())
            .options(options.filter_map(option).collect())
            .multi(question["multiSelect"] == true),
    )
}

/// Why it is asked: as Claude Code has it, and as the model described the command.
fn reason(fields: &Map<String, Value>, input: &Map<String, Value>) -> Option<String> {
    let text = |fields: &Map<String, Value>, name: &str| {
        fields.get(name).and_then(Value::as_str).map(str::to_owned)
    };
    let blocked = text(fields, "blocked_path").map(|path| format!("it concerns {path}"));
    let reasons =
        [text(input, "description"), text(fields, "decision_reason"), blocked].into_iter();
    let reasons: Vec<String> = reasons.flatten().collect();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(request: &Value) -> Asked {
        Asked::from_json(&request.to_string(), "s", Path::new("/srv"))
    }

    fn tool(name: &str, input: &Value) -> Asked {
        asked(&json!({ "subtype": "can_use_tool", "tool_name": name, "input": input }))
    }

    #[test]
    fn a_command_is_shown_with_everything_that_widens_it() {
        let plain = tool("Bash", &json!({ "command": "cargo test", "description": "test" }));
        assert!(plain.request.is_understood());
        assert_eq!(plain.request.question, Question::command("cargo test"));
        let wide = json!({ "command": "cargo test", "dangerouslyDisableSandbox": true });
        let wide = tool("Bash", &wide);
        assert_eq!(wide.request.unrecognized[0].field, "dangerouslyDisableSandbox");
        let background = tool("Bash", &json!({ "command": "x", "run_in_background": true }));
        assert!(!background.request.is_understood());
    }

    #[test]
    fn an_unknown_field_of_the_request_is_not_understood() {
        let request = json!({
            "subtype": "can_use_tool", "tool_name": "Bash", "input": { "command": "x" },
            "grant": "everything",
        });
        assert_eq!(asked(&request).request.unrecognized[0].field, "grant");
    }

    #[test]
    fn files_are_shown_with_their_path_and_what_is_written() {
        let write = tool("Write", &json!({ "file_path": "/etc/hosts", "content": "a\nb\n" }));
        let Question::Patch(patch) = &write.request.question else { panic!("{write:?}") };
        assert_eq!(patch.files[0].diff.as_ref().unwrap().text, "+a\n+b\n");
        let edit = json!({ "file_path": "/srv/a", "old_string": "x", "new_string": "y" });
        let edit = tool("Edit", &edit);
        let Question::Patch(patch) = &edit.request.question else { panic!("{edit:?}") };
        assert_eq!(patch.files[0].diff.as_ref().unwrap().text, "-x\n+y\n");
        assert!(edit.request.is_understood() && edit.request.is_whole());
    }

    #[test]
    fn tools_of_servers_are_named_and_their_input_is_whole_or_marked() {
        let call = tool("mcp__lab__echo", &json!({ "text": "yo" }));
        let Question::ToolCall(asked) = &call.request.question else { panic!("{call:?}") };
        assert_eq!((asked.server.as_deref(), asked.tool.as_deref()), (Some("lab"), Some("echo")));
        assert!(call.request.is_understood() && call.request.is_whole());
        let large = tool("WebFetch", &json!({ "url": "x".repeat(TEXT_LIMIT) }));
        assert!(!large.request.is_whole());
    }

    #[test]
    fn a_request_that_cannot_be_read_can_only_be_declined() {
        for json in ["[]", "{}", r#"{"tool_name":"Bash"}"#, r#"{"tool_name":1,"input":{}}"#] {
            let asked = Asked::from_json(json, "s", Path::new("/srv"));
            assert!(!asked.request.is_understood(), "{json}");
            assert!(!asked.request.offers(Decision::Accept), "{json}");
        }
    }
}
