//! What codex asked the model.

use serde_json::Value;

use super::Responses;
use crate::model::record::{Recorded, ToolOutput};

impl Recorded<Responses> {
    /// The session (thread) that asks, if codex names it.
    pub fn session(&self) -> Option<&str> {
        self.body["prompt_cache_key"].as_str()
    }
}

/// Starts of messages that have the role `user` but are codex's own.
const CONTEXT: [&str; 4] =
    ["<environment_context>", "<user_instructions>", "<turn_aborted>", "# AGENTS.md instructions"];

pub(super) fn user_texts(body: &Value) -> Vec<String> {
    let mut texts = message_texts(body, "user");
    texts.retain(|text| !CONTEXT.iter().any(|start| text.starts_with(start)));
    texts
}

pub(super) fn tool_outputs(body: &Value) -> Vec<ToolOutput> {
    let is_output =
        |item: &&Value| matches!(kind(item), "function_call_output" | "custom_tool_call_output");
    input(body)
        .iter()
        .filter(is_output)
        .map(|item| ToolOutput {
            call_id: item["call_id"].as_str().unwrap_or_default().into(),
            text: match &item["output"] {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            },
        })
        .collect()
}

pub(super) fn message_texts(body: &Value, role: &str) -> Vec<String> {
    let texts = |item: &Value| -> Vec<String> {
        let parts = item["content"].as_array().into_iter().flatten();
        parts.filter_map(|part| part["text"].as_str()).map(str::to_owned).collect()
    };
    input(body)
        .iter()
        .filter(|item| kind(item) == "message" && item["role"] == role)
        .map(|item| texts(item).join("\n"))
        .collect()
}

fn input(body: &Value) -> &[Value] {
    body["input"].as_array().map_or(&[], Vec::as_slice)
}

fn kind(item: &Value) -> &str {
    item["type"].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_prompt_is_the_last_message_the_user_wrote() {
        let message = |role: &str, text: &str| json!({"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]});
        let body = json!({"input": [
            message("developer", "be kind"),
            message("user", "first"),
            message("assistant", "done"),
            message("user", "second"),
            message("user", "<environment_context>\n</environment_context>"),
            {"type": "function_call_output", "call_id": "c", "output": "out"},
        ]});
        assert_eq!(user_texts(&body), ["first", "second"]);
    }
}
