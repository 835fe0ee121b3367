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
    tool: String,
    /// What the tool would be called with.
    pub(super) input: Map<String, Value>,
    /// The call of the tool.
    pub(super) call: Option<String>,
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
            return Self { request, tool: String::new(), input: Map::new(), call: None };
        };
        let text = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
        let mut read = ReadFields::of(input);
        let question = question(tool, &mut read, text("description"), cwd);
        let mut request = ApprovalRequest::new(CLAUDE, question, cwd.into());
        request.session = resume_codec().token(session);
        request.subagent = text("agent_id");
        request.reason = reason(fields, input);
        let unknown = fields.iter().filter(|(name, _)| !KNOWN.contains(&name.as_str()));
        request.unrecognized = unknown
            .chain(read.unread())
            .map(|(name, value)| {
                Unrecognized::new(name, Excerpt::new(&value.to_string(), TEXT_LIMIT))
            })
            .collect();
        if session_rule(tool, input).is_none() {
            request.decisions.retain(|decision| *decision != Decision::AcceptForSession);
        }
        let (tool, input) = (tool.to_owned(), input.clone());
        Self { request, tool, input, call: text("tool_use_id") }
    }

    /// What a yes for the session to this input allows from now on.
    pub(super) fn session_rule(&self, input: &Map<String, Value>) -> Option<Value> {
        let is_offered = self.request.offers(Decision::AcceptForSession);
        session_rule(&self.tool, input).filter(|_| is_offered)
    }
}

/// The fields of a tool's input, and which of them the question has. One of an unexpected type was not read, and is
/// shown as it came.
struct ReadFields<'a> {
    fields: &'a Map<String, Value>,
    read: Vec<&'a str>,
}

impl<'a> ReadFields<'a> {
    fn of(fields: &'a Map<String, Value>) -> Self {
        Self { fields, read: Vec::new() }
    }

    /// Reads a field, if `read` accepts its value.
    fn read<T>(&mut self, name: &str, read: impl FnOnce(&'a Value) -> Option<T>) -> Option<T> {
        let (name, value) = self.fields.get_key_value(name)?;
        let value = read(value)?;
        self.read.push(name);
        Some(value)
    }

    fn text(&mut self, name: &str) -> Option<&'a str> {
        self.read(name, Value::as_str)
    }

    fn has_text(&self, name: &str) -> bool {
        self.fields.get(name).is_some_and(Value::is_string)
    }

    /// The fields that were not read.
    fn unread(&self) -> impl Iterator<Item = (&'a String, &'a Value)> {
        self.fields.iter().filter(|(name, _)| !self.read.contains(&name.as_str()))
    }
}

/// What is asked.
fn question(
    tool: &str,
    input: &mut ReadFields<'_>,
    description: Option<String>,
    cwd: &Path,
) -> Question {
    match tool {
        "Bash" if input.has_text("command") => {
            // That it runs in the background, or outside of the sandbox, is shown as it came.
            let command = input.text("command").unwrap_or_default();
            // Is the reason.
            input.text("description");
            input.read("timeout", Value::as_f64);
            Question::Command(Command::new(command))
        }
        "Write" | "Edit" | "MultiEdit" | "NotebookEdit" if !has_plain_path(input) => {
            let question = tool_call(tool, input, description);
            // Shown, and not understood: the text is not the file that would be written to.
            input.read.retain(|name| !PATHS.contains(name));
            question
        }
        "Write" if input.has_text("file_path") => {
            let content = input.text("content").unwrap_or_default();
            patch(input, "file_path", &prefixed('+', content), cwd)
        }
        "Edit" if input.has_text("file_path") => {
            let diff = replacement(input);
            patch(input, "file_path", &diff, cwd)
        }
        "MultiEdit" if input.has_text("file_path") => {
            let diff = input.read("edits", replacements).unwrap_or_default();
            patch(input, "file_path", &diff, cwd)
        }
        "NotebookEdit" if input.has_text("notebook_path") => {
            let heading = cell(input);
            let source = input.text("new_source").unwrap_or_default();
            let diff = format!("{heading}{}", prefixed('+', source));
            patch(input, "notebook_path", &diff, cwd)
        }
        "AskUserQuestion" => {
            let mut questions = Vec::new();
            input.read("questions", |asked| {
                let asked = asked.as_array()?;
                questions.extend(asked.iter().filter_map(user_question));
                (questions.len() == asked.len()).then_some(())
            });
            Question::Questions(questions)
        }
        "ExitPlanMode" => {
            let plan = input.text("plan").unwrap_or("the plan that the agent wrote before");
            input.text("planFilePath");
            Question::Plan(excerpt(plan))
        }
        _ => tool_call(tool, input, description),
    }
}

/// The call of any tool. All of its input is part of the question.
fn tool_call(tool: &str, input: &mut ReadFields<'_>, description: Option<String>) -> Question {
    let mcp = tool.strip_prefix("mcp__").and_then(|rest| rest.split_once("__"));
    let (server, name) = match mcp {
        Some((server, name)) => (Some(server.to_owned()), name),
        None => (None, tool),
    };
    input.read = input.fields.keys().map(String::as_str).collect();
    let input = Value::Object(input.fields.clone()).to_string();
    let call = ToolCall::default()
        .server(server)
        .tool(Some(name.to_owned()))
        .description(description)
        .input(Some(excerpt(&input)));
    Question::ToolCall(call)
}

/// The fields that name the file of a change.
const PATHS: [&str; 2] = ["file_path", "notebook_path"];

/// Whether Claude Code takes the path of a change as it stands. A relative one begins where its shell is by now, `~` is
/// a home directory, and white space at the ends is dropped. Newer releases ask with the path that comes of all that.
fn has_plain_path(input: &ReadFields<'_>) -> bool {
    let is_dropped = |c: char| c.is_whitespace() || c == '\u{feff}';
    let mut paths = PATHS.iter().filter_map(|name| input.fields.get(*name)?.as_str());
    paths.all(|path| path.starts_with('/') && !path.ends_with(is_dropped))
}

fn excerpt(text: &str) -> Excerpt {
    Excerpt::new(text, TEXT_LIMIT)
}

/// A file that is written to. Whether it exists is not known here.
fn patch(input: &mut ReadFields<'_>, path: &str, diff: &str, cwd: &Path) -> Question {
    let path = input.text(path).unwrap_or_default();
    let change = FileChange::new(ChangeKind::Unknown, path, cwd).diff(excerpt(diff));
    Question::Patch(Patch::new([change]))
}

/// What is replaced by what.
fn replacement(edit: &mut ReadFields<'_>) -> String {
    let all = edit.read("replace_all", Value::as_bool) == Some(true);
    let heading = if all { "@@ every occurrence @@\n" } else { "" };
    let old = prefixed('-', edit.text("old_string").unwrap_or_default());
    let new = prefixed('+', edit.text("new_string").unwrap_or_default());
    format!("{heading}{old}{new}")
}

/// Several of them; none if anything in them is not read.
fn replacements(edits: &Value) -> Option<String> {
    let diffs = edits.as_array()?.iter().map(|edit| {
        let mut edit = ReadFields::of(edit.as_object()?);
        let diff = replacement(&mut edit);
        edit.unread().next().is_none().then_some(diff)
    });
    Some(diffs.collect::<Option<Vec<_>>>()?.join("\n"))
}

/// Which cell of a notebook is changed, and how. The names are quoted: a line break in one must not look like a line of
/// the diff.
fn cell(input: &mut ReadFields<'_>) -> String {
    let parts = ["edit_mode", "cell_id", "cell_type"].into_iter();
    let parts = parts.filter_map(|name| Some(format!("{name} {:?}", input.text(name)?)));
    let parts = parts.collect::<Vec<_>>().join(", ");
    if parts.is_empty() { parts } else { format!("@@ {parts} @@\n") }
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
    use takopi_core::approvals::Rules;
    use takopi_core::runner::ApprovalHandler as _;

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

    fn diff(asked: &Asked) -> &str {
        let Question::Patch(patch) = &asked.request.question else { panic!("{asked:?}") };
        &patch.files[0].diff.as_ref().unwrap().text
    }

    #[test]
    fn how_a_cell_of_a_notebook_is_changed_is_part_of_the_diff() {
        let delete = json!({ "notebook_path": "/srv/n", "edit_mode": "delete", "cell_id": "c\n+" });
        let delete = tool("NotebookEdit", &delete);
        assert_eq!(diff(&delete), "@@ edit_mode \"delete\", cell_id \"c\\n+\" @@\n");
        assert!(delete.request.is_understood());
        let edit = json!({ "notebook_path": "/srv/n", "new_source": "x" });
        assert_eq!(diff(&tool("NotebookEdit", &edit)), "+x\n");
    }

    #[test]
    fn several_edits_are_all_shown() {
        let edits = json!([
            { "old_string": "a", "new_string": "b", "replace_all": true },
            { "old_string": "c", "new_string": "d" },
        ]);
        let edit = tool("MultiEdit", &json!({ "file_path": "/srv/a", "edits": edits }));
        assert_eq!(diff(&edit), "@@ every occurrence @@\n-a\n+b\n\n-c\n+d\n");
        assert!(edit.request.is_understood());
    }

    #[test]
    fn a_field_of_an_unexpected_type_is_shown_as_it_came_and_not_understood() {
        for (name, field, input) in [
            ("Bash", "description", json!({ "command": "x", "description": {} })),
            ("Bash", "timeout", json!({ "command": "x", "timeout": "1; y" })),
            ("Write", "content", json!({ "file_path": "/srv/a", "content": ["x"] })),
            (
                "Edit",
                "new_string",
                json!({ "file_path": "/srv/a", "old_string": "x", "new_string": 1 }),
            ),
            ("Edit", "replace_all", json!({ "file_path": "/srv/a", "replace_all": "true" })),
            ("MultiEdit", "edits", json!({ "file_path": "/srv/a", "edits": "x" })),
            ("MultiEdit", "edits", json!({ "file_path": "/srv/a", "edits": ["x"] })),
            (
                "MultiEdit",
                "edits",
                json!({ "file_path": "/srv/a", "edits": [{ "old_string": 1 }] }),
            ),
            ("MultiEdit", "edits", json!({ "file_path": "/srv/a", "edits": [{ "more": "x" }] })),
            (
                "NotebookEdit",
                "new_source",
                json!({ "notebook_path": "/srv/n", "new_source": ["x"] }),
            ),
            ("NotebookEdit", "edit_mode", json!({ "notebook_path": "/srv/n", "edit_mode": 1 })),
            ("AskUserQuestion", "questions", json!({ "questions": [{ "text": "x" }] })),
            ("ExitPlanMode", "plan", json!({ "plan": ["x"] })),
        ] {
            let asked = tool(name, &input).request;
            assert!(!asked.is_understood(), "{name} {input}");
            let fields: Vec<&str> = asked.unrecognized.iter().map(|it| it.field.as_str()).collect();
            assert_eq!(fields, [field], "{name} {input}");
        }
    }

    #[tokio::test]
    async fn a_path_that_is_not_the_file_by_itself_is_not_understood_and_accepted_by_no_rule() {
        let directory = tempfile::tempdir().unwrap();
        let rules = Rules::new().writes_below(directory.path());
        let inside = directory.path().join("a").display().to_string();
        let input = json!({ "file_path": inside, "content": "x" });
        assert_eq!(rules.decide(tool("Write", &input).request).await, Decision::Accept);
        for path in [
            "~",
            "~/.ssh/authorized_keys",
            " /etc/hosts",
            "a.rs",
            &format!("{inside} "),
            &format!("{inside}\u{feff}"),
        ] {
            for (name, field) in [
                ("Write", "file_path"),
                ("Edit", "file_path"),
                ("MultiEdit", "file_path"),
                ("NotebookEdit", "notebook_path"),
            ] {
                let mut input = json!({ "content": "x" });
                input[field] = path.into();
                let request = tool(name, &input).request;
                let [unread] = &request.unrecognized[..] else { panic!("{path}: {request:?}") };
                assert_eq!(
                    (&*unread.field, &*unread.value.text),
                    (field, &*json!(path).to_string())
                );
                // A person sees all of it.
                let Question::ToolCall(call) = &request.question else { panic!("{request:?}") };
                assert_eq!(call.input.as_ref().unwrap().text, input.to_string());
                assert!(request.is_whole());
                assert_eq!(rules.decide(request).await, Decision::Decline, "{name} {path:?}");
            }
        }
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
