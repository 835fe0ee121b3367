//! A request of codex, read into a typed question.
//!
//! Fails closed: a field that is not known, has an odd shape or is too large is noted as not
//! understood. Only fields that grant nothing, whatever they hold, are passed over.

use std::borrow::Cow;
use std::path::Path;

use serde_json::{Map, Value};
use takopi_core::runner::{
    Command, Excerpt, FileChange, Form, Location, Network, Patch, Permissions, Question, ToolCall,
    Unknown, Unrecognized, UserQuestion,
};
use takopi_core::{ApprovalRequest, Decision};

use super::Method;
use super::fields::{Fields, TEXT_BYTES};
use super::forms::{Asks, Schema};
use super::patches::Patches;
use super::permissions::{NetworkContext, Profile};
use crate::CODEX;
use crate::common::without_shell;

/// How long a command may be.
const COMMAND_BYTES: usize = 256 * 1024;
/// How much is kept of a request that cannot be read, and of a tool's input.
const RAW_BYTES: usize = 16 * 1024;
/// Where shells are that a command is run by. One elsewhere is a program of its own: the agent may
/// have written it.
const SHELL_DIRECTORIES: &[&str] =
    &["/bin/", "/usr/bin/", "/usr/local/bin/", "/opt/homebrew/bin/", "/run/current-system/sw/bin/"];
/// Fields of every request that only name what it belongs to.
const IDS: &[&str] = &["threadId", "turnId", "itemId", "startedAtMs"];

/// Reads a request of this thread. One that cannot be read can only be declined.
pub(super) fn read(
    method: Method,
    params: Option<Map<String, Value>>,
    raw: &str,
    thread: &str,
    patches: &Patches,
    cwd: &Path,
) -> ApprovalRequest {
    let unknown = || {
        let raw = Excerpt::new(raw, RAW_BYTES);
        Question::Unknown(Unknown::new(method.name(), raw))
    };
    let Some(params) = params else { return only_no(unknown(), cwd) };
    let item = params.get("itemId").and_then(Value::as_str).map(str::to_owned);
    let mut fields = Fields::new(params);
    let at = fields.text("cwd", TEXT_BYTES);
    let at = at.map_or_else(|| cwd.to_owned(), |at| cwd.join(at));
    let reason = fields.text("reason", TEXT_BYTES);
    fields.ignore(IDS);
    let question = match method {
        Method::Command => command(&mut fields),
        Method::FileChange => {
            let files = item.as_deref().map(|item| patches.files(thread, item, cwd));
            Some(patch(&mut fields, files.unwrap_or_default(), cwd))
        }
        Method::Permissions => {
            environment(&mut fields);
            let profile = fields.typed::<Profile>("permissions");
            Some(Question::Permissions(profile.map(Permissions::from).unwrap_or_default()))
        }
        Method::Elicitation => elicitation(&mut fields),
        Method::UserInput => {
            fields.ignore(&["isBlocking", "autoResolutionMs"]);
            let asks = fields.typed::<Vec<Asks>>("questions").unwrap_or_default();
            Some(Question::Questions(asks.into_iter().map(UserQuestion::from).collect()))
        }
    };
    let Some(question) = question else { return only_no(unknown(), cwd) };
    let mut request = ApprovalRequest::new(CODEX, question, at);
    request.reason = reason;
    request.unrecognized = fields.finish();
    request
}

fn only_no(question: Question, cwd: &Path) -> ApprovalRequest {
    let mut request = ApprovalRequest::new(CODEX, question, cwd.to_owned());
    request.decisions.retain(|decision| !decision.is_yes());
    debug_assert_eq!(request.decisions, [Decision::Decline, Decision::Cancel]);
    request
}

fn command(fields: &mut Fields) -> Option<Question> {
    // How it is shown elsewhere, and what else the client could answer. takopi answers none of it.
    fields.ignore(&[
        "approvalId",
        "availableDecisions",
        "commandActions",
        "proposedExecpolicyAmendment",
        "proposedNetworkPolicyAmendments",
    ]);
    environment(fields);
    let kind = fields.text("kind", TEXT_BYTES);
    if let Some(odd) = kind.as_deref().filter(|kind| !["command", "writeStdin"].contains(kind)) {
        fields.reject("kind", &odd.into());
    }
    let mut extra: Permissions =
        fields.typed::<Profile>("additionalPermissions").map(Into::into).unwrap_or_default();
    if let Some(context) = fields.typed::<NetworkContext>("networkApprovalContext") {
        // All of the network is more than one host.
        extra.network = extra.network.or(Some(Network::from(context)));
    }
    let Some(command) = fields.text("command", COMMAND_BYTES) else {
        // A request without a command is about the network.
        return (!extra.is_empty()).then_some(Question::Permissions(extra));
    };
    let is_input = kind.as_deref() == Some("writeStdin");
    let command = if is_input { Cow::Borrowed(command.as_str()) } else { script(&command) };
    Some(Question::Command(Command::new(command).is_input(is_input).extra(extra)))
}

/// What the agent wants to run, without the shell that codex puts around it.
fn script(command: &str) -> Cow<'_, str> {
    let shell = command.split(' ').next().unwrap_or_default();
    let usual = SHELL_DIRECTORIES.iter().any(|directory| {
        shell.strip_prefix(directory).is_some_and(|name| !name.contains(['/', '\'', '"', '\\']))
    });
    if usual || !shell.contains(['/', '\'', '"', '\\']) {
        without_shell(command)
    } else {
        Cow::Borrowed(command)
    }
}

/// A command may be meant for another machine.
fn environment(fields: &mut Fields) {
    if let Some(other) = fields.text("environmentId", TEXT_BYTES).filter(|name| name != "local") {
        fields.reject("environmentId", &other.into());
    }
}

fn patch(
    fields: &mut Fields,
    (files, unrecognized): (Vec<FileChange>, Vec<Unrecognized>),
    cwd: &Path,
) -> Question {
    fields.reject_all(unrecognized);
    let root = fields.text("grantRoot", TEXT_BYTES).map(|root| Location::new(root, cwd));
    Question::Patch(Patch::new(files).grant_root(root))
}

fn elicitation(fields: &mut Fields) -> Option<Question> {
    let mode = fields.text("mode", TEXT_BYTES);
    let server = fields.text("serverName", TEXT_BYTES)?;
    let message = fields.text("message", TEXT_BYTES);
    match mode.as_deref().unwrap_or("form") {
        "form" | "openai/form" | "openaiForm" => {}
        "url" => {
            fields.ignore(&["elicitationId"]);
            let url = Some(fields.text("url", TEXT_BYTES)?);
            let message = message.unwrap_or_default();
            return Some(Question::Form(Form::default().server(server).message(message).url(url)));
        }
        _ => return None,
    }
    let schema = fields.typed::<Schema>("requestedSchema");
    let meta = fields.typed::<Map<String, Value>>("_meta");
    let is_call = meta.as_ref().is_some_and(|meta| meta.get(KIND) == Some(&"mcp_tool_call".into()));
    if is_call && schema.as_ref().is_some_and(Schema::is_empty) {
        return Some(Question::ToolCall(tool_call(fields, meta?, server, message)));
    }
    for (key, value) in meta.into_iter().flatten().filter(|(_, value)| !value.is_null()) {
        fields.reject(&format!("_meta.{key}"), &value);
    }
    let form = Form::default().server(server).message(message.unwrap_or_default());
    Some(Question::Form(form.fields(schema.map(Schema::into_fields).unwrap_or_default())))
}

/// Where codex marks a form as the approval of a tool call.
const KIND: &str = "codex_approval_kind";

fn tool_call(
    fields: &mut Fields,
    meta: Map<String, Value>,
    server: String,
    message: Option<String>,
) -> ToolCall {
    let mut meta = Fields::new(meta);
    // Names for people, and how long a yes could be remembered if the client asked for it.
    meta.ignore(&[
        KIND,
        "persist",
        "tool_params_display",
        "tool_title",
        "connector_id",
        "connector_name",
        "connector_description",
    ]);
    let description = meta.text("tool_description", TEXT_BYTES);
    let tool = meta.text("tool_name", TEXT_BYTES);
    let input = meta.typed::<Value>("tool_params");
    fields.reject_all(meta.finish());
    ToolCall::default()
        .server(Some(server))
        .tool(tool)
        .message(message)
        .description(description)
        .input(input.map(|input| Excerpt::new(&pretty(&input), RAW_BYTES)))
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(method: Method, params: &Value) -> ApprovalRequest {
        let raw = params.to_string();
        read(method, params.as_object().cloned(), &raw, "t", &Patches::default(), Path::new("/w"))
    }

    fn names(request: &ApprovalRequest) -> Vec<&str> {
        request.unrecognized.iter().map(|part| part.field.as_str()).collect()
    }

    /// A command as codex asks for it, with one more field.
    fn command(key: &str, value: &Value) -> ApprovalRequest {
        let mut params = json!({
            "kind": "command", "threadId": "t", "turnId": "u", "itemId": "i", "startedAtMs": 1,
            "environmentId": "local", "command": "/bin/bash -lc 'cargo test'", "cwd": "/w/sub",
            "commandActions": [], "proposedExecpolicyAmendment": ["x"], "reason": "to test",
            "availableDecisions": ["accept"],
        });
        params[key] = value.clone();
        asked(Method::Command, &params)
    }

    #[test]
    fn a_command_of_codex_is_understood() {
        let request = command("approvalId", &json!("a"));
        assert!(request.is_understood() && request.is_whole(), "{request:?}");
        assert_eq!(request.question, Question::command("cargo test"));
        assert_eq!(request.cwd, Path::new("/w/sub"));
        assert_eq!(request.reason.as_deref(), Some("to test"));
    }

    #[test]
    fn what_widens_a_command_is_typed_or_not_understood() {
        let network = json!({ "network": { "enabled": true } });
        let request = command("additionalPermissions", &network);
        let Question::Command(asked) = &request.question else { panic!("{request:?}") };
        assert_eq!(asked.extra.lines(), ["network access"]);
        assert!(request.is_understood());
        let request = command(
            "networkApprovalContext",
            &json!({ "host": "example.org", "protocol": "https" }),
        );
        let Question::Command(asked) = &request.question else { panic!("{request:?}") };
        assert_eq!(asked.extra.lines(), ["network access to example.org (https)"]);
        let large: Vec<String> = (0..10_000).map(|n| format!("/some/path/{n}")).collect();
        for (key, value) in [
            ("additionalPermissions", json!({ "fileSystem": { "write": large } })),
            ("additionalPermissions", json!({ "device": "camera" })),
            ("networkApprovalContext", json!({ "hosts": ["*"] })),
            ("sudo", json!(true)),
            ("kind", json!("script")),
            ("environmentId", json!("production")),
            ("cwd", json!(["/"])),
            ("command", json!("x".repeat(COMMAND_BYTES + 1))),
        ] {
            let request = command(key, &value);
            assert!(!request.is_understood(), "{key}: {request:?}");
            if key != "command" {
                assert_eq!(names(&request), [key]);
            }
        }
    }

    #[test]
    fn a_shell_in_an_odd_place_is_part_of_the_command() {
        for (shell, shown) in [
            ("/bin/bash", "cargo test"),
            ("/usr/bin/zsh", "cargo test"),
            ("sh", "cargo test"),
            ("./bash", "./bash -lc 'cargo test'"),
            ("/w/bash", "/w/bash -lc 'cargo test'"),
            ("/bin/../w/bash", "/bin/../w/bash -lc 'cargo test'"),
            ("'/w/bash'", "'/w/bash' -lc 'cargo test'"),
        ] {
            let request = command("command", &json!(format!("{shell} -lc 'cargo test'")));
            assert_eq!(request.title(), shown);
        }
    }

    #[test]
    fn input_for_a_running_command_is_not_a_command() {
        let request = command("kind", &json!("writeStdin"));
        let Question::Command(asked) = &request.question else { panic!("{request:?}") };
        assert!(asked.is_input);
    }

    #[test]
    fn a_request_that_cannot_be_read_can_only_be_declined() {
        for (method, params) in [
            (Method::Command, json!([])),
            (Method::Command, json!({ "cwd": "/w" })),
            (
                Method::Elicitation,
                json!({ "serverName": "lab", "mode": "openai/userVerification" }),
            ),
            (Method::Elicitation, json!({ "serverName": "lab", "mode": "url" })),
            (Method::Elicitation, json!({ "message": "hi" })),
        ] {
            let request = asked(method, &params);
            assert!(matches!(request.question, Question::Unknown(_)), "{request:?}");
            assert!(!request.offers(Decision::Accept) && request.offers(Decision::Decline));
        }
    }

    #[test]
    fn only_a_form_without_fields_that_codex_marks_is_a_tool_call() {
        let elicitation = |meta: Value, schema: Value| {
            let params = json!({
                "threadId": "t", "turnId": "u", "serverName": "lab", "mode": "form",
                "message": "Allow?", "_meta": meta, "requestedSchema": schema,
            });
            asked(Method::Elicitation, &params)
        };
        let empty = json!({ "type": "object", "properties": {} });
        let call = json!({
            KIND: "mcp_tool_call", "persist": ["session"], "tool_description": "Echoes.",
            "tool_params": { "text": "yo" }, "tool_params_display": [],
        });
        let request = elicitation(call.clone(), empty.clone());
        let Question::ToolCall(asked) = &request.question else { panic!("{request:?}") };
        assert!(request.is_understood());
        assert_eq!(asked.server.as_deref(), Some("lab"));
        assert_eq!(asked.input.as_ref().unwrap().text, "{\n  \"text\": \"yo\"\n}");
        let field = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
        let large: Map<String, Value> =
            (0..5000).map(|n| (format!("field{n}"), json!({ "type": "string" }))).collect();
        for (meta, schema, is_understood) in [
            (Value::Null, empty.clone(), true),
            (Value::Null, field.clone(), true),
            (call.clone(), field, false),
            (call.clone(), json!({ "type": "object", "properties": large }), false),
            (call.clone(), json!({ "type": "object", "properties": {}, "anyOf": [] }), false),
            (json!({ "other": 1 }), empty.clone(), false),
        ] {
            let request = elicitation(meta, schema);
            assert!(matches!(request.question, Question::Form(_)), "{request:?}");
            assert_eq!(request.is_understood(), is_understood, "{request:?}");
        }
        let mut wider = call;
        wider["sensitive"] = json!(true);
        assert_eq!(names(&elicitation(wider, empty)), ["sensitive"]);
    }

    #[test]
    fn questions_of_the_agent_are_read_with_their_options() {
        let question = json!({
            "id": "q", "header": "Branch", "question": "Which?", "isOther": true, "isSecret": false,
            "options": [{ "label": "main", "description": "the main one" }],
        });
        let params = json!({ "isBlocking": true, "questions": [question], "itemId": "i" });
        let request = asked(Method::UserInput, &params);
        let Question::Questions(asked) = &request.question else { panic!("{request:?}") };
        assert_eq!(asked[0].options[0].label, "main");
        assert!(request.is_understood());
    }
}
