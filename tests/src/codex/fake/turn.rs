//! What happens in a turn of an app-server, as steps: notifications and requests to the client.

use serde_json::{Value, json};

use super::Step;

/// A healthy turn behind its opening: one streamed message, usage, the end.
pub fn answer(text: &str) -> Vec<Step> {
    let id = "msg_$TURN";
    vec![
        item_started(&message_item(id, "", None)),
        delta(id, text),
        item_completed(&message_item(id, text, None)),
        usage(),
        status("idle"),
        completed(),
    ]
}

/// A turn that fails behind its opening.
pub fn failed(message: &str) -> Vec<Step> {
    let error = error_object(message, &json!("other"), None);
    vec![status("systemError"), error_notice(&error, false), ended("failed", &error)]
}

/// Puts the reply, `turn/started` and the echo of the prompt before `steps`.
pub fn opened(steps: impl IntoIterator<Item = Step>) -> Vec<Step> {
    let opening = [Step::Reply, status("active"), started()];
    opening.into_iter().chain(user_message()).chain(steps).collect()
}

/// `turn/started`.
pub fn started() -> Step {
    Step::notify(
        "turn/started",
        json!({"threadId": "$THREAD", "turn": turn("inProgress", &Value::Null)}),
    )
}

/// `turn/completed`, status completed.
pub fn completed() -> Step {
    ended("completed", &Value::Null)
}

/// `turn/completed` with this status and error.
pub fn ended(status: &str, error: &Value) -> Step {
    Step::notify("turn/completed", json!({"threadId": "$THREAD", "turn": turn(status, error)}))
}

/// `thread/status/changed`.
pub fn status(kind: &str) -> Step {
    let status = if kind == "active" {
        json!({"type": kind, "activeFlags": []})
    } else {
        json!({"type": kind})
    };
    Step::notify("thread/status/changed", json!({"threadId": "$THREAD", "status": status}))
}

/// Usage of one model call as in the recordings: 11 (3 cached) in, 7 (2 reasoning) out.
pub fn usage() -> Step {
    Step::Usage { input: 11, cached: 3, output: 7, reasoning: 2 }
}

/// `item/started` and `item/completed` of the prompt's echo.
pub fn user_message() -> Vec<Step> {
    whole(&json!({
        "type": "userMessage",
        "id": "user_$TURN",
        "content": [{"type": "text", "text": "$PROMPT", "text_elements": []}],
    }))
}

/// A complete agent message without a phase.
pub fn message(id: &str, text: &str) -> Vec<Step> {
    whole(&message_item(id, text, None))
}

/// A complete agent message with a phase, `commentary` or `final_answer`.
pub fn message_in_phase(id: &str, text: &str, phase: &str) -> Vec<Step> {
    whole(&message_item(id, text, Some(phase)))
}

/// The message that reports an aborted turn.
pub fn aborted_message(id: &str) -> Vec<Step> {
    message(id, "<turn_aborted>")
}

/// `item/agentMessage/delta`.
pub fn delta(item: &str, text: &str) -> Step {
    progress("item/agentMessage/delta", item, text)
}

/// `item/commandExecution/outputDelta`.
pub fn output_delta(item: &str, text: &str) -> Step {
    progress("item/commandExecution/outputDelta", item, text)
}

/// `item/started` of a command.
pub fn command_started(id: &str, command: &str) -> Step {
    item_started(&command_item(id, command, None, None))
}

/// `item/completed` of a command.
pub fn command_completed(id: &str, command: &str, output: &str, exit_code: i32) -> Step {
    item_completed(&command_item(id, command, Some(output), Some(exit_code)))
}

/// `item/started` of a patch that adds these files.
pub fn patch_started(id: &str, paths: &[&str]) -> Step {
    item_started(&patch_item(id, paths, "inProgress"))
}

/// `item/completed` of a patch that adds these files: `completed`, `failed` or `declined`.
pub fn patch_completed(id: &str, paths: &[&str], status: &str) -> Step {
    item_completed(&patch_item(id, paths, status))
}

/// `item/started` of any item.
pub fn item_started(item: &Value) -> Step {
    item_notice("item/started", item)
}

/// `item/completed` of any item.
pub fn item_completed(item: &Value) -> Step {
    item_notice("item/completed", item)
}

/// An `error` that the server retries: `Reconnecting... n/m`.
pub fn reconnecting(attempt: u32, max: u32, reason: &str) -> Step {
    let info = json!({"responseStreamDisconnected": {"httpStatusCode": null}});
    let message = format!("Reconnecting... {attempt}/{max}");
    error_notice(&error_object(&message, &info, Some(reason)), true)
}

/// An `error` notification; `info` is its `codexErrorInfo`.
pub fn error(message: &str, info: &Value, will_retry: bool) -> Step {
    error_notice(&error_object(message, info, None), will_retry)
}

/// The same steps on another thread and turn, as those of a sub-agent: its notices and requests
/// name them, and its `turn/completed` does not end this turn.
pub fn elsewhere(thread: &str, turn: &str, steps: impl IntoIterator<Item = Step>) -> Vec<Step> {
    let rename = |value: Value| {
        let text = value.to_string().replace("$THREAD", thread).replace("$TURN", turn);
        serde_json::from_str(&text).expect("ids need no escaping")
    };
    let moved = steps.into_iter().map(|step| match step {
        Step::Notify { method, params } => Step::Notify { method, params: rename(params) },
        Step::Ask(mut ask) => {
            ask.params = rename(ask.params);
            Step::Ask(ask)
        }
        other => other,
    });
    moved.collect()
}

/// Asks whether a command may run.
pub fn ask_command(name: &str, item: &str, command: &str) -> Step {
    let command = shell(command);
    let params = json!({
        "kind": "command",
        "command": command,
        "cwd": "$CWD",
        "commandActions": [{"type": "unknown", "command": command}],
        "availableDecisions": ["accept", "cancel"],
    });
    ask_item(name, item, "item/commandExecution/requestApproval", params)
}

/// Asks whether a patch may be applied; its changes were in `item/started`.
pub fn ask_patch(name: &str, item: &str) -> Step {
    let params = json!({"reason": null, "grantRoot": null});
    ask_item(name, item, "item/fileChange/requestApproval", params)
}

/// Asks for the permission to write to `path` and to use the network.
pub fn ask_permissions(name: &str, item: &str, path: &str) -> Step {
    let params = json!({
        "cwd": "$CWD",
        "reason": "needs more",
        "permissions": {"fileSystem": {"write": [path]}, "network": {"enabled": true}},
    });
    ask_item(name, item, "item/permissions/requestApproval", params)
}

/// Asks whether an MCP tool may be called.
pub fn ask_elicitation(name: &str, server: &str, message: &str) -> Step {
    let params = json!({
        "threadId": "$THREAD",
        "turnId": "$TURN",
        "serverName": server,
        "mode": "form",
        "_meta": {"codex_approval_kind": "mcp_tool_call"},
        "message": message,
        "requestedSchema": {"type": "object", "properties": {}},
    });
    Step::ask(name, "mcpServer/elicitation/request", params)
}

/// Asks the person a question with two options, `yes` and `no`.
pub fn ask_user_input(name: &str, item: &str, question: &str) -> Step {
    let options = json!([{"label": "yes", "description": ""}, {"label": "no", "description": ""}]);
    let question =
        json!({"id": "q1", "header": "Question", "question": question, "options": options});
    let params = json!({"isBlocking": true, "questions": [question]});
    ask_item(name, item, "item/tool/requestUserInput", params)
}

/// Calls a tool of the host.
pub fn ask_tool(name: &str, call: &str, tool: &str, arguments: &Value) -> Step {
    let params = json!({
        "threadId": "$THREAD",
        "turnId": "$TURN",
        "callId": call,
        "namespace": null,
        "tool": tool,
        "arguments": arguments,
    });
    Step::ask(name, "item/tool/call", params)
}

fn ask_item(name: &str, item: &str, method: &str, mut params: Value) -> Step {
    params["threadId"] = json!("$THREAD");
    params["turnId"] = json!("$TURN");
    params["itemId"] = json!(item);
    params["startedAtMs"] = json!(0);
    Step::ask(name, method, params)
}

fn whole(item: &Value) -> Vec<Step> {
    vec![item_started(item), item_completed(item)]
}

fn item_notice(method: &str, item: &Value) -> Step {
    Step::notify(method, json!({"threadId": "$THREAD", "turnId": "$TURN", "item": item}))
}

fn progress(method: &str, item: &str, text: &str) -> Step {
    let params = json!({"threadId": "$THREAD", "turnId": "$TURN", "itemId": item, "delta": text});
    Step::notify(method, params)
}

fn error_object(message: &str, info: &Value, details: Option<&str>) -> Value {
    json!({"message": message, "codexErrorInfo": info, "additionalDetails": details})
}

fn error_notice(error: &Value, will_retry: bool) -> Step {
    let params = json!({
        "threadId": "$THREAD",
        "turnId": "$TURN",
        "error": error,
        "willRetry": will_retry,
    });
    Step::notify("error", params)
}

fn turn(status: &str, error: &Value) -> Value {
    json!({
        "id": "$TURN",
        "rootTurnId": "$TURN",
        "items": [],
        "itemsView": "notLoaded",
        "status": status,
        "error": error,
    })
}

fn message_item(id: &str, text: &str, phase: Option<&str>) -> Value {
    json!({"type": "agentMessage", "id": id, "text": text, "phase": phase})
}

fn command_item(id: &str, command: &str, output: Option<&str>, exit_code: Option<i32>) -> Value {
    let status = match exit_code {
        None => "inProgress",
        Some(0) => "completed",
        Some(_) => "failed",
    };
    json!({
        "type": "commandExecution",
        "id": id,
        "command": shell(command),
        "cwd": "$CWD",
        "status": status,
        "commandActions": [{"type": "unknown", "command": command}],
        "aggregatedOutput": output,
        "exitCode": exit_code,
    })
}

fn patch_item(id: &str, paths: &[&str], status: &str) -> Value {
    let change = |path: &&str| json!({"path": path, "kind": {"type": "add"}, "diff": "hello\n"});
    let changes: Vec<Value> = paths.iter().map(change).collect();
    json!({"type": "fileChange", "id": id, "changes": changes, "status": status})
}

fn shell(command: &str) -> String {
    format!("/bin/bash -lc '{command}'")
}
