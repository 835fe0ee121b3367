//! What codex asked the model.

use serde_json::Value;

use super::Responses;
use crate::model::record::{Recorded, ToolOutput};

impl Recorded<Responses> {
    /// The texts of all user messages in the conversation so far, oldest first, without those codex writes itself
    /// (the environment, project instructions, notes about an interrupted turn).
    pub fn user_texts(&self) -> Vec<String> {
        user_texts(&self.body)
    }

    /// The text of the latest user message: the prompt this request is about.
    pub fn last_user_text(&self) -> Option<String> {
        self.user_texts().pop()
    }

    /// The texts of all assistant messages in the conversation so far, oldest first.
    pub fn assistant_texts(&self) -> Vec<String> {
        message_texts(&self.body, "assistant")
    }

    /// The results of all tool calls in the conversation so far, oldest first.
    pub fn tool_outputs(&self) -> Vec<ToolOutput> {
        let is_output = |item: &&Value| {
            matches!(kind(item), "function_call_output" | "custom_tool_call_output")
        };
        input(&self.body)
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

fn message_texts(body: &Value, role: &str) -> Vec<String> {
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
