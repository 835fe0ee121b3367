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

/// What takopi's extension asks.
pub(super) fn approval(asked: &Value, session: &str, cwd: &Path) -> ApprovalRequest {
    let (Some(tool), Some(input)) = (asked["tool"].as_str(), asked["input"].as_object()) else {
        let unknown = Unknown::new("tool_call", excerpt(&asked.to_string()));
        let mut request = ApprovalRequest::new(PI, Question::Unknown(unknown), cwd.into());
        request.decisions = vec![Decision::Decline, Decision::Cancel];
        return request;
    };
    let mut read = ReadFields::of(input);
    let question = question(tool, &mut read, cwd);
    let mut request = ApprovalRequest::new(PI, question, cwd.into());
    request.session = resume_codec().token(session);
    request.reason = input.get("description").and_then(Value::as_str).map(str::to_owned);
    let unread = read.unread();
    request.unrecognized =
        unread.map(|(name, value)| Unrecognized::new(name, excerpt(&value.to_string()))).collect();
    request
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
fn question(tool: &str, input: &mut ReadFields<'_>, cwd: &Path) -> Question {
    match tool {
        "bash" if input.has_text("command") => {
            let command = input.text("command").unwrap_or_default();
            // Is the reason.
            input.text("description");
            input.read("timeout", Value::as_f64);
            Question::Command(Command::new(command))
        }
        "write" | "edit" if input.text("path").is_some_and(|path| !is_plain(path)) => {
            let question = tool_call(tool, input);
            // Shown, and not understood: the text is not the file that pi would write to.
            input.read.retain(|name| *name != "path");
            question
        }
        "write" if input.has_text("path") => {
            let diff = prefixed('+', input.text("content").unwrap_or_default());
            patch(input.text("path").unwrap_or_default(), &diff, cwd)
        }
        "edit" if input.has_text("path") => {
            let diff = input.read("edits", replacements).unwrap_or_default();
            patch(input.text("path").unwrap_or_default(), &diff, cwd)
        }
        _ => tool_call(tool, input),
    }
}

/// The call of any tool. All of its input is part of the question.
fn tool_call(tool: &str, input: &mut ReadFields<'_>) -> Question {
    let mcp = tool.strip_prefix("mcp__").and_then(|rest| rest.split_once("__"));
    let (server, name) = match mcp {
        Some((server, name)) => (Some(server.to_owned()), name),
        None => (None, tool),
    };
    input.read = input.fields.keys().map(String::as_str).collect();
    let input = Value::Object(input.fields.clone()).to_string();
    let call =
        ToolCall::default().server(server).tool(Some(name.to_owned())).input(Some(excerpt(&input)));
    Question::ToolCall(call)
}

/// A file that is written to. Whether it exists is not known here.
fn patch(path: &str, diff: &str, cwd: &Path) -> Question {
    let change = FileChange::new(ChangeKind::Unknown, path, cwd).diff(excerpt(diff));
    Question::Patch(Patch::new([change]))
}

/// Whether pi takes a path as it stands. It drops an `@` at the beginning, has a home directory behind `~`, reads
/// addresses of files, and takes spaces of other kinds for plain ones.
fn is_plain(path: &str) -> bool {
    let is_odd_space =
        |c| matches!(c, '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}');
    !path.starts_with(['@', '~']) && !path.starts_with("file:") && !path.contains(is_odd_space)
}

fn excerpt(text: &str) -> Excerpt {
    Excerpt::new(text, TEXT_LIMIT)
}

/// What is replaced by what; none if anything in it is not read.
fn replacements(edits: &Value) -> Option<String> {
    let diffs = edits.as_array()?.iter().map(|edit| {
        let mut edit = ReadFields::of(edit.as_object()?);
        let old = prefixed('-', edit.text("oldText").unwrap_or_default());
        let new = prefixed('+', edit.text("newText").unwrap_or_default());
        edit.unread().next().is_none().then(|| old + &new)
    });
    Some(diffs.collect::<Option<Vec<_>>>()?.join("\n"))
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
    use takopi_core::approvals::Rules;
    use takopi_core::runner::ApprovalHandler as _;

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
    fn a_field_of_an_unexpected_type_is_shown_as_it_came_and_not_understood() {
        for (tool, field, input) in [
            ("bash", "description", json!({ "command": "x", "description": {} })),
            ("bash", "timeout", json!({ "command": "x", "timeout": "1; y" })),
            ("write", "content", json!({ "path": "a", "content": ["x"] })),
            ("edit", "edits", json!({ "path": "a", "edits": "x" })),
            ("edit", "edits", json!({ "path": "a", "edits": ["x"] })),
            ("edit", "edits", json!({ "path": "a", "edits": [{ "oldText": 1 }] })),
            ("edit", "edits", json!({ "path": "a", "edits": [{ "newText": "x", "more": "y" }] })),
        ] {
            let request = asked(tool, &input);
            assert!(!request.is_understood(), "{tool} {input}");
            let fields: Vec<&str> =
                request.unrecognized.iter().map(|it| it.field.as_str()).collect();
            assert_eq!(fields, [field], "{tool} {input}");
        }
    }

    #[test]
    fn a_path_that_pi_resolves_in_its_own_way_is_not_understood_and_shown_as_it_came() {
        for path in [
            "~",
            "~/.ssh/authorized_keys",
            "@/home/ada/.ssh/authorized_keys",
            "@~/.profile",
            "@a.rs",
            "file:///home/ada/.profile",
            "file://localhost/etc/hosts",
            "\u{a0}a.rs",
            "/srv/a\u{2003}b/c",
            "a\u{202f}b",
            "a\u{205f}b",
            "a\u{3000}b",
        ] {
            for (tool, input) in [
                ("write", json!({ "path": path, "content": "x" })),
                ("edit", json!({ "path": path, "edits": [{ "oldText": "x", "newText": "y" }] })),
            ] {
                let request = asked(tool, &input);
                let [unread] = &request.unrecognized[..] else { panic!("{path}: {request:?}") };
                assert_eq!(
                    (&*unread.field, unread.value.text.clone()),
                    ("path", json!(path).to_string())
                );
                // A person sees all of it.
                let Question::ToolCall(call) = &request.question else { panic!("{request:?}") };
                assert_eq!(call.input.as_ref().unwrap().text, input.to_string());
                assert!(request.is_whole());
            }
        }
        for path in ["a.rs", "/srv/a b", "src/@types/a.ts", "a~", "Ä.rs"] {
            let request = asked("write", &json!({ "path": path, "content": "x" }));
            assert!(request.is_understood(), "{path}");
            assert!(matches!(request.question, Question::Patch(_)), "{path}");
        }
    }

    #[tokio::test]
    async fn a_rule_for_a_directory_accepts_no_path_that_pi_resolves_in_its_own_way() {
        let directory = tempfile::tempdir().unwrap();
        let rules = Rules::new().writes_below(directory.path());
        let reply = async |path: &str| {
            let input = json!({ "path": path, "content": "x" });
            let asked = json!({ "kind": "approval", "id": "c1", "tool": "write", "input": input });
            rules.decide(approval(&asked, "s", directory.path())).await
        };
        assert_eq!(reply("a.rs").await, Decision::Accept);
        for path in
            ["@/home/ada/.ssh/authorized_keys", "~/.profile", "file:///etc/hosts", "a\u{a0}b"]
        {
            assert_eq!(reply(path).await, Decision::Decline, "{path}");
        }
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
