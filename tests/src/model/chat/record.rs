//! What an agent asked the model.

use serde_json::Value;

use super::Chat;
use crate::model::api::Prompt;
use crate::model::record::{Recorded, ToolOutput};

impl Recorded<Chat> {
    /// The conversation as the model was sent it, one line each: `user: TEXT`, `assistant: TEXT`, `call: NAME ARGUMENTS`,
    /// `result: TEXT`. The system prompt is left out.
    pub fn history(&self) -> Vec<String> {
        let mut history = Vec::new();
        for message in messages(&self.body) {
            let text = text(message);
            match message["role"].as_str().unwrap_or_default() {
                "system" | "developer" => {}
                "tool" => history.push(format!("result: {text}")),
                role => history.extend((!text.is_empty()).then(|| format!("{role}: {text}"))),
            }
            let calls = message["tool_calls"].as_array().into_iter().flatten();
            history.extend(calls.map(|call| {
                let function = &call["function"];
                let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                format!("call: {} {}", word(&function["name"]), word(&function["arguments"]))
            }));
        }
        history
    }

    /// The names of the tools that were offered.
    pub fn tools(&self) -> Vec<String> {
        let tools = self.body["tools"].as_array().into_iter().flatten();
        tools.filter_map(|it| it["function"]["name"].as_str()).map(str::to_owned).collect()
    }

    /// The system prompt.
    pub fn system(&self) -> String {
        let system =
            |message: &&Value| message["role"] == "system" || message["role"] == "developer";
        messages(&self.body).iter().filter(system).map(text).collect::<Vec<_>>().join("\n")
    }

    /// How many images are in the latest message of the user.
    pub fn images(&self) -> usize {
        let user = messages(&self.body).iter().rfind(|message| message["role"] == "user");
        let parts = user.and_then(|message| message["content"].as_array()).into_iter().flatten();
        parts.filter(|part| part["type"] == "image_url").count()
    }
}

pub(super) fn assistant_texts(body: &Value) -> Vec<String> {
    let assistant = messages(body).iter().filter(|it| it["role"] == "assistant");
    assistant.map(text).filter(|text| !text.is_empty()).collect()
}

pub(super) fn tool_outputs(body: &Value) -> Vec<ToolOutput> {
    let results = messages(body).iter().filter(|message| message["role"] == "tool");
    results
        .map(|message| ToolOutput {
            call_id: message["tool_call_id"].as_str().unwrap_or_default().into(),
            text: text(message),
        })
        .collect()
}

/// The user's texts, latest first, each with the number of the assistant's messages behind it.
pub(super) fn prompts(body: &Value) -> Vec<Prompt> {
    let mut answered = 0;
    let mut prompts = Vec::new();
    for message in messages(body).iter().rev() {
        match message["role"].as_str() {
            Some("assistant") => answered += 1,
            Some("user") => prompts.push(Prompt { text: text(message), step: Some(answered) }),
            _ => {}
        }
    }
    prompts
}

/// The text of a message, its parts joined by newlines.
fn text(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        content => {
            let parts = content.as_array().into_iter().flatten();
            parts.filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n")
        }
    }
}

fn messages(body: &Value) -> &[Value] {
    body["messages"].as_array().map_or(&[], Vec::as_slice)
}
