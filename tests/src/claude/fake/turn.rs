//! What happens in a turn, as steps: the lines of 2.1.325 without the fields that nobody reads, and requests to the client.

use serde_json::{Map, Value, json};

use super::Step;

/// A healthy turn behind its opening: one message, the result, the end.
pub fn answer(answer: &str) -> Vec<Step> {
    [text(answer)].into_iter().chain(over(answer)).collect()
}

/// The end of a turn that went well: the result and `idle`.
pub fn over(answer: &str) -> Vec<Step> {
    vec![result(answer), lifecycle("completed"), idle()]
}

/// Puts what comes at the start of a turn before `steps`.
pub fn opened(steps: impl IntoIterator<Item = Step>) -> Vec<Step> {
    let opening = [running(), lifecycle("queued"), lifecycle("started"), init()];
    opening.into_iter().chain(steps).collect()
}

/// A turn that nobody asked for, once the gate is open: what comes when a command in the background has ended.
pub fn unasked(gate: &str, answer: &str) -> Vec<Step> {
    let origin = json!({"origin": {"kind": "task-notification"}, "user_message_uuids": null});
    vec![Step::gate(gate), running(), init(), text(answer), result_with(answer, &origin), idle()]
}

/// A turn that fails behind its opening, with a status of the API: an error as `success` with `is_error`.
pub fn api_error(status: u16, error: &str, text: &str) -> Vec<Step> {
    let mut message = assistant(&json!({"type": "text", "text": text}));
    message["message"]["model"] = json!("<synthetic>");
    message["error"] = json!(error);
    message["is_api_error_message"] = json!(true);
    message["api_error_status"] = json!(status);
    let fields = json!({
        "is_error": true,
        "terminal_reason": "api_error",
        "api_error_status": status,
        "stop_reason": "stop_sequence",
    });
    vec![Step::json(&message), result_with(text, &fields), lifecycle("cancelled"), idle()]
}

/// The session is at work.
pub fn running() -> Step {
    Step::State("running".to_owned())
}

/// The session is idle: the turn is over.
pub fn idle() -> Step {
    Step::State("idle".to_owned())
}

/// An approval waits.
pub fn requires_action() -> Step {
    Step::State("requires_action".to_owned())
}

/// `system/init`.
pub fn init() -> Step {
    system(
        "init",
        &json!({
            "cwd": "$CWD",
            "tools": ["Bash", "Edit", "Read", "Write"],
            "mcp_servers": [],
            "model": "claude-opus-5-5",
            "permissionMode": "default",
            "apiKeySource": "ANTHROPIC_API_KEY",
            "claude_code_version": "$VERSION",
            "capabilities": [],
        }),
    )
}

/// A line of type `system`.
pub fn system(subtype: &str, fields: &Value) -> Step {
    let mut line = json!({
        "type": "system",
        "subtype": subtype,
        "uuid": uuid(),
        "session_id": "$SESSION",
    });
    merge(&mut line, fields);
    Step::json(&line)
}

/// How far a message of the user is: `queued`, `started`, `completed`, `cancelled`.
pub fn lifecycle(state: &str) -> Step {
    Step::json(&json!({
        "type": "command_lifecycle",
        "command_uuid": "$MESSAGE",
        "state": state,
        "uuid": uuid(),
        "session_id": "$SESSION",
    }))
}

/// A text block of a message of its own.
pub fn text(text: &str) -> Step {
    block("msg_$SEQ", &json!({"type": "text", "text": text}))
}

/// A thinking block of a message of its own.
pub fn thinking(text: &str) -> Step {
    block("msg_$SEQ", &json!({"type": "thinking", "thinking": text, "signature": "c2lnbmVk"}))
}

/// A call of a tool.
pub fn tool(id: &str, name: &str, input: &Value) -> Step {
    block("msg_$SEQ", &json!({"type": "tool_use", "id": id, "name": name, "input": input}))
}

/// A call of the Bash tool.
pub fn bash(id: &str, command: &str) -> Step {
    tool(id, "Bash", &json!({"command": command, "description": "a command"}))
}

/// Any block of the message of this id.
pub fn block(message: &str, block: &Value) -> Step {
    let mut line = assistant(block);
    line["message"]["id"] = json!(message);
    Step::json(&line)
}

/// The result of a tool that went well.
pub fn tool_result(id: &str, text: &str) -> Step {
    let result = json!({"stdout": text, "stderr": "", "interrupted": false});
    tool_outcome(id, text, false, &result)
}

/// The result of a tool that failed.
pub fn tool_failed(id: &str, text: &str) -> Step {
    tool_outcome(id, text, true, &json!(format!("Error: {text}")))
}

fn tool_outcome(id: &str, text: &str, is_error: bool, result: &Value) -> Step {
    let block =
        json!({"type": "tool_result", "tool_use_id": id, "content": text, "is_error": is_error});
    let mut line = user(&json!([block]));
    line["tool_use_result"] = result.clone();
    Step::json(&line)
}

/// A line of type `user` with a text of claude's own.
pub fn note(text: &str) -> Step {
    Step::json(&user(&json!([{"type": "text", "text": text}])))
}

/// A line as one of a sub-agent: of the tool call `parent`. Other steps stay as they are.
pub fn nested(parent: &str, step: Step) -> Step {
    match step {
        Step::Line(line) => {
            let mut line: Value = serde_json::from_str(&line).expect("a line of this module");
            line["parent_tool_use_id"] = json!(parent);
            Step::json(&line)
        }
        other => other,
    }
}

/// A piece of a streamed text block.
pub fn delta(text: &str) -> Step {
    let delta = json!({"type": "text_delta", "text": text});
    Step::json(&json!({
        "type": "stream_event",
        "event": {"type": "content_block_delta", "index": 0, "delta": delta},
        "parent_tool_use_id": null,
        "uuid": uuid(),
        "session_id": "$SESSION",
    }))
}

/// The result of a turn that went well.
pub fn result(text: &str) -> Step {
    result_with(text, &json!({}))
}

/// The result of a turn with other fields; one that is `null` is left out. So `{"user_message_uuids": null}` is the result of a
/// turn that nobody asked for, and `{"user_message_uuids": ["x"]}` that of somebody else's.
pub fn result_with(text: &str, fields: &Value) -> Step {
    let usage = json!({
        "input_tokens": 11,
        "cache_creation_input_tokens": 5,
        "cache_read_input_tokens": 3,
        "output_tokens": 7,
    });
    let models = json!({"claude-opus-5-5": {
        "inputTokens": 11,
        "outputTokens": 7,
        "cacheReadInputTokens": 3,
        "cacheCreationInputTokens": 5,
        "costUSD": 0.0002,
    }});
    let mut line = json!({
        "type": "result",
        "subtype": "success",
        "is_error": false,
        "duration_ms": 50,
        "duration_api_ms": 40,
        "num_turns": 1,
        "result": text,
        "stop_reason": "end_turn",
        "terminal_reason": "completed",
        "session_id": "$SESSION",
        "total_cost_usd": 0.0002,
        "usage": usage,
        "modelUsage": models,
        "model_usage_since_last_result": models,
        "permission_denials": [],
        "uuid": uuid(),
        "user_message_uuids": "$UUIDS",
        "queued_turn_count": 0,
        "result_index": "$INDEX",
    });
    merge(&mut line, fields);
    // These stand for JSON, not for text.
    let line = line.to_string();
    Step::Line(line.replace(r#""$UUIDS""#, "$UUIDS").replace(r#""$INDEX""#, "$INDEX"))
}

/// The result of a turn that failed with this subtype.
pub fn failure(subtype: &str, error: &str) -> Step {
    let fields = json!({"subtype": subtype, "is_error": true, "result": null, "errors": [error]});
    result_with("", &fields)
}

/// The result of an interrupted turn: `aborted_tools` or `aborted_streaming`.
pub fn aborted(reason: &str) -> Step {
    let fields = json!({
        "subtype": "error_during_execution",
        "is_error": true,
        "result": null,
        "errors": [],
        "terminal_reason": reason,
    });
    result_with("", &fields)
}

/// `system/api_retry`.
pub fn api_retry(attempt: u32, max: u32, status: Option<u16>, error: &str) -> Step {
    Step::json(&json!({
        "type": "system",
        "subtype": "api_retry",
        "attempt": attempt,
        "max_retries": max,
        "retry_delay_ms": 500,
        "error_status": status,
        "error": error,
        "uuid": uuid(),
        "session_id": "$SESSION",
    }))
}

/// `rate_limit_event` of a subscription: `allowed_warning` or `rejected`.
pub fn rate_limit(status: &str, resets: u64) -> Step {
    Step::json(&json!({
        "type": "rate_limit_event",
        "rate_limit_info": {"status": status, "resetsAt": resets, "rateLimitType": "five_hour"},
        "uuid": uuid(),
        "session_id": "$SESSION",
    }))
}

/// `system/task_started` of a command.
pub fn task_started(task: &str, tool: &str, in_background: bool) -> Step {
    system(
        "task_started",
        &json!({
            "task_id": task,
            "tool_use_id": tool,
            "description": "a command",
            "is_backgrounded": in_background,
            "task_type": "local_bash",
        }),
    )
}

/// `system/task_notification`: `completed`, `failed` or `stopped`.
pub fn task_ended(task: &str, tool: &str, status: &str) -> Step {
    let fields = json!({"task_id": task, "tool_use_id": tool, "status": status, "summary": "it"});
    system("task_notification", &fields)
}

/// `conversation_reset`: another session goes on from here.
pub fn reset(session: &str) -> Step {
    Step::json(&json!({
        "type": "conversation_reset",
        "new_conversation_id": session,
        "uuid": uuid(),
        "session_id": "$SESSION",
    }))
}

/// `keep_alive`.
pub fn keep_alive() -> Step {
    Step::json(&json!({"type": "keep_alive"}))
}

/// Many lines that belong to nobody.
pub fn flood(lines: usize) -> Step {
    let Step::Line(line) = system("informational", &json!({"content": "notice $SEQ ".repeat(16)}))
    else {
        unreachable!("a system line is a line");
    };
    Step::FloodStdout { line, lines }
}

/// A line of `len` bytes that is a message with a long text.
pub fn huge_text(len: usize) -> Step {
    let Step::Line(line) = text("FILLING") else { unreachable!("a text is a line") };
    let (head, tail) = line.split_once("FILLING").expect("the text is in it");
    Step::huge(head, tail, len)
}

/// Asks whether a tool may be used.
pub fn ask_tool(name: &str, id: &str, tool: &str, input: &Value) -> Step {
    let params = json!({
        "tool_name": tool,
        "display_name": tool,
        "input": input,
        "description": "a tool",
        "permission_suggestions": [],
        "tool_use_id": id,
    });
    Step::ask(name, "can_use_tool", params)
}

/// Asks whether a command may run.
pub fn ask_bash(name: &str, id: &str, command: &str) -> Step {
    ask_tool(name, id, "Bash", &json!({"command": command, "description": "a command"}))
}

/// Asks the person a question with two options, `yes` and `no`.
pub fn ask_question(name: &str, id: &str, question: &str) -> Step {
    let option = |label: &str| json!({"label": label, "description": ""});
    let question = json!({
        "question": question,
        "header": "Question",
        "options": [option("yes"), option("no")],
        "multiSelect": false,
    });
    ask_tool(name, id, "AskUserQuestion", &json!({"questions": [question]}))
        .with_param("requires_user_interaction", true)
}

/// Sends a message to an MCP server of the host.
pub fn host_message(name: &str, server: &str, message: &Value) -> Step {
    Step::ask(name, "mcp_message", json!({"server_name": server, "message": message}))
}

/// Connects to an MCP server of the host and asks for its tools: the answer to this is that of `name`.
pub fn connect_host(name: &str, server: &str) -> Vec<Step> {
    let hello = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "claude-code", "version": "$VERSION"},
    });
    let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello});
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    vec![
        host_message("initialize", server, &initialize),
        host_message("initialized", server, &initialized),
        host_message(name, server, &list),
    ]
}

/// Calls a tool of the host.
pub fn call_host(name: &str, server: &str, id: &str, tool: &str, arguments: &Value) -> Step {
    let meta = json!({"claudecode/toolUseId": id, "progressToken": 2});
    let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params});
    host_message(name, server, &call)
}

fn assistant(block: &Value) -> Value {
    json!({
        "type": "assistant",
        "message": {
            "id": "msg_$SEQ",
            "type": "message",
            "role": "assistant",
            "model": "claude-opus-5-5",
            "content": [block],
            "stop_reason": null,
            "usage": {"input_tokens": 11, "output_tokens": 1},
        },
        "parent_tool_use_id": null,
        "session_id": "$SESSION",
        "uuid": uuid(),
    })
}

fn user(content: &Value) -> Value {
    json!({
        "type": "user",
        "message": {"role": "user", "content": content},
        "parent_tool_use_id": null,
        "session_id": "$SESSION",
        "uuid": uuid(),
    })
}

/// The id of a line.
fn uuid() -> &'static str {
    "line-$START-$SEQ"
}

/// Sets fields of an object; those that are `null` are removed.
fn merge(line: &mut Value, fields: &Value) {
    let empty = Map::new();
    let line = line.as_object_mut().expect("a line is an object");
    for (name, value) in fields.as_object().unwrap_or(&empty) {
        if value.is_null() {
            line.remove(name);
        } else {
            line.insert(name.clone(), value.clone());
        }
    }
}
