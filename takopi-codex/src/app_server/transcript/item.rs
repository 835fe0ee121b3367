//! What an item is to a conversation.

use serde_json::{Value, json};
use takopi_core::model::tail;

use crate::app_server::translator::is_turn_aborted;
use crate::common::without_shell;

/// Of a longer result only the end is kept.
const RESULT_BYTES: usize = 64 * 1024;

/// The content of an item.
#[derive(Debug, Clone)]
pub(super) enum Content {
    User(String),
    Text(String),
    Thought(String),
    Tool { name: String, arguments: Value, result: String },
    Nothing,
}

pub(super) fn read(item: &Value) -> Content {
    let text = |key: &str| item[key].as_str().unwrap_or_default().to_owned();
    let status = status(item);
    match item["type"].as_str().unwrap_or_default() {
        "userMessage" => Content::User(texts(&item["content"], "\n")),
        "agentMessage" => match text("text") {
            // Codex's own mark, not a text of the agent.
            marker if is_turn_aborted(&marker) => Content::Nothing,
            text => Content::Text(text),
        },
        "reasoning" => Content::Thought(match texts(&item["summary"], "\n") {
            none if none.is_empty() => texts(&item["content"], "\n"),
            summary => summary,
        }),
        "plan" => Content::Thought(text("text")),
        "commandExecution" => {
            let command = text("command");
            let arguments = json!({ "command": without_shell(&command), "cwd": item["cwd"] });
            let mut result = text("aggregatedOutput");
            match item["exitCode"].as_i64() {
                Some(0) => {}
                Some(code) => result = noted(&result, &format!("exit code {code}")),
                None => result = noted(&result, &status),
            }
            tool("exec_command", arguments, &result)
        }
        "fileChange" => {
            let changes = item["changes"].as_array().into_iter().flatten().map(|change| {
                let kind = change["kind"].as_str().or_else(|| change["kind"]["type"].as_str());
                json!({ "path": change["path"], "kind": kind, "diff": change["diff"] })
            });
            let arguments = json!({ "changes": changes.collect::<Vec<_>>() });
            tool("apply_patch", arguments, &status)
        }
        "mcpToolCall" => {
            let name = format!("mcp__{}__{}", text("server"), text("tool"));
            let error = item["error"]["message"].as_str().or_else(|| item["error"].as_str());
            let result = match (error, texts(&item["result"]["content"], "\n")) {
                (Some(error), _) => error.to_owned(),
                (None, content) if !content.is_empty() => content,
                (None, _) => match &item["result"]["structuredContent"] {
                    Value::Null => status,
                    structured => super::sorted(structured).to_string(),
                },
            };
            tool(&name, item["arguments"].clone(), &result)
        }
        "dynamicToolCall" => {
            let name = match item["namespace"].as_str() {
                Some(namespace) => format!("{namespace}__{}", text("tool")),
                None => text("tool"),
            };
            let result = match texts(&item["contentItems"], "\n") {
                none if none.is_empty() => status,
                content => content,
            };
            tool(&name, item["arguments"].clone(), &result)
        }
        "collabAgentToolCall" | "collabToolCall" => {
            let name = crate::common::snake_case(text("tool").into()).into_owned();
            let arguments = json!({
                "prompt": item["prompt"],
                "agents": item["receiverThreadIds"],
            });
            tool(&name, arguments, &status)
        }
        "webSearch" => {
            let result = match &item["results"] {
                Value::Null => status,
                results => super::sorted(results).to_string(),
            };
            tool("web_search", json!({ "query": item["query"] }), &result)
        }
        "error" => Content::Text(format!("[error] {}", text("message"))),
        "" => Content::Nothing,
        unknown => Content::Text(format!("[{unknown}]")),
    }
}

fn tool(name: &str, arguments: Value, result: &str) -> Content {
    let result = tail(result, RESULT_BYTES).to_owned();
    Content::Tool { name: name.to_owned(), arguments, result }
}

/// The status of a tool; without one it is done when it is completed.
fn status(item: &Value) -> String {
    let status = item["status"].as_str().filter(|status| *status != "inProgress");
    status.unwrap_or("completed").to_owned()
}

/// An output and what is to be known beside it.
fn noted(output: &str, note: &str) -> String {
    let between = if output.is_empty() || output.ends_with('\n') { "" } else { "\n" };
    format!("{output}{between}[{note}]")
}

/// The texts of a list, whether they stand there as such or in objects.
fn texts(list: &Value, between: &str) -> String {
    let text = |part: &Value| part.as_str().or_else(|| part["text"].as_str()).map(str::to_owned);
    let texts: Vec<String> = list.as_array().into_iter().flatten().filter_map(text).collect();
    texts.join(between)
}
