//! What codex asked the model: every request, in the order of arrival.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::Value;

/// How far the answer to a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is still being answered.
    Open,
    /// All of the scripted answer was sent, cuts and errors included.
    Answered,
    /// Codex hung up before the answer was over.
    HungUp,
}

/// One request to `/v1/responses`.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    /// Its place in the order of arrival, from 0.
    pub index: usize,
    /// The body as it came.
    pub body: Value,
    /// The headers, names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The needle of the script that answered it; none for the `otherwise` script and for unexpected requests.
    pub needle: Option<String>,
    /// When it came.
    pub started: Instant,
    /// When its answer was over. This is taken just before the last bytes are sent, so two requests that codex makes one
    /// after the other never seem to overlap.
    pub ended: Option<Instant>,
    /// How its answer ended.
    pub outcome: Outcome,
}

/// The result of a tool call, as codex reports it to the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOutput {
    /// The call it answers.
    pub call_id: String,
    /// The output's text; an output that is not a string is given as JSON.
    pub text: String,
}

impl RecordedRequest {
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

    /// The model that was asked for.
    pub fn model(&self) -> &str {
        self.body["model"].as_str().unwrap_or_default()
    }

    /// Whether a stream of events was asked for.
    pub fn stream(&self) -> bool {
        self.body["stream"].as_bool().unwrap_or_default()
    }

    /// The session (thread) that asks, if codex names it.
    pub fn session(&self) -> Option<&str> {
        self.body["prompt_cache_key"].as_str()
    }

    /// The value of a header, named in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// Whether this request and the other were being answered at the same time. A request without an end goes on.
    pub fn overlaps(&self, other: &Self) -> bool {
        let ends_before = |a: &Self, b: &Self| a.ended.is_some_and(|ended| ended <= b.started);
        !ends_before(self, other) && !ends_before(other, self)
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
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn request(started: Instant, ended: Option<Instant>) -> RecordedRequest {
        RecordedRequest {
            index: 0,
            body: Value::Null,
            headers: BTreeMap::new(),
            needle: None,
            started,
            ended,
            outcome: Outcome::Open,
        }
    }

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

    #[test]
    fn requests_overlap_unless_one_ended_before_the_other_began() {
        let zero = Instant::now();
        let at = |second: u64| zero + Duration::from_secs(second);
        let early = request(at(0), Some(at(2)));
        assert!(!early.overlaps(&request(at(2), None)));
        assert!(!request(at(2), None).overlaps(&early));
        assert!(early.overlaps(&request(at(1), Some(at(3)))));
        assert!(request(at(0), None).overlaps(&request(at(9), None)));
    }
}
