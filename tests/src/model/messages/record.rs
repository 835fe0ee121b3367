//! What Claude Code asked the model.

use serde_json::Value;

use super::Messages;
use crate::model::api::Prompt;
use crate::model::record::{Recorded, ToolOutput};

impl Recorded<Messages> {
    /// The conversation as the model was sent it, one line per block: `user: TEXT`, `assistant: TEXT`, `call: NAME INPUT`,
    /// `result: TEXT`; `error: TEXT` for the result of a call that failed. What Claude Code adds itself is left out.
    pub fn history(&self) -> Vec<String> {
        let mut history = Vec::new();
        for message in messages(&self.body) {
            let role = message["role"].as_str().unwrap_or_default();
            if role == "system" {
                continue;
            }
            if let Some(text) = message["content"].as_str() {
                history.extend((!is_own(text)).then(|| format!("{role}: {}", text.trim())));
            }
            history.extend(blocks(message).filter_map(|block| line(role, block)));
        }
        history
    }

    /// The names of the tools that were offered.
    pub fn tools(&self) -> Vec<String> {
        let tools = self.body["tools"].as_array().into_iter().flatten();
        tools.filter_map(|tool| tool["name"].as_str()).map(str::to_owned).collect()
    }

    /// All of the system prompt.
    pub fn system(&self) -> String {
        match &self.body["system"] {
            Value::String(text) => text.clone(),
            blocks => {
                let blocks = blocks.as_array().into_iter().flatten();
                let texts: Vec<&str> = blocks.filter_map(|block| block["text"].as_str()).collect();
                texts.join("\n")
            }
        }
    }

    /// The session that asks.
    pub fn session(&self) -> Option<String> {
        let user = self.body["metadata"]["user_id"].as_str()?;
        if let Ok(user) = serde_json::from_str::<Value>(user) {
            return user["session_id"].as_str().map(str::to_owned);
        }
        // Old releases: `user_…_account_…_session_ID`.
        user.rsplit_once("_session_").map(|(_, session)| session.to_owned())
    }
}

pub(super) fn assistant_texts(body: &Value) -> Vec<String> {
    let assistant = messages(body).iter().filter(|message| message["role"] == "assistant");
    assistant.map(texts).filter(|texts| !texts.is_empty()).map(|it| it.join("\n")).collect()
}

pub(super) fn tool_outputs(body: &Value) -> Vec<ToolOutput> {
    let blocks = messages(body).iter().flat_map(blocks);
    let results = blocks.filter(|block| block["type"] == "tool_result");
    results
        .map(|block| ToolOutput {
            call_id: block["tool_use_id"].as_str().unwrap_or_default().into(),
            text: output(block),
        })
        .collect()
}

/// The user's own texts, block by block, latest first, each with the number of the assistant's messages behind it.
pub(super) fn prompts(body: &Value) -> Vec<Prompt> {
    let mut answered = 0;
    let mut prompts = Vec::new();
    for message in messages(body).iter().rev() {
        match message["role"].as_str() {
            Some("assistant") => answered += 1,
            Some("user") => {
                // Behind an interrupted turn one message may hold two prompts.
                let texts = texts(message).into_iter().rev().map(str::to_owned);
                prompts.extend(texts.map(|text| Prompt { text, step: Some(answered) }));
            }
            _ => {}
        }
    }
    prompts
}

/// The texts of a message, without those that Claude Code adds itself.
fn texts(message: &Value) -> Vec<&str> {
    let text = message["content"].as_str();
    let blocks = blocks(message).filter(|block| block["type"] == "text");
    let texts = text.into_iter().chain(blocks.filter_map(|block| block["text"].as_str()));
    texts.filter(|text| !is_own(text)).map(str::trim).collect()
}

fn is_own(text: &str) -> bool {
    let text = text.trim_start();
    text.starts_with("<system-reminder>") || text.starts_with("[Request interrupted by user")
}

fn line(role: &str, block: &Value) -> Option<String> {
    match block["type"].as_str()? {
        "text" => {
            let text = block["text"].as_str()?;
            (!is_own(text)).then(|| format!("{role}: {}", text.trim()))
        }
        "thinking" => Some(format!("thinking: {}", block["thinking"].as_str()?)),
        "tool_use" => Some(format!("call: {} {}", block["name"].as_str()?, block["input"])),
        "tool_result" => {
            let failed = block["is_error"] == true;
            Some(format!("{}: {}", if failed { "error" } else { "result" }, output(block)))
        }
        other => Some(format!("{other}: {block}")),
    }
}

/// The text of a tool's result; what is not text is given as JSON.
fn output(result: &Value) -> String {
    match &result["content"] {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let text = |block: &Value| {
                block["text"].as_str().map_or_else(|| block.to_string(), str::to_owned)
            };
            blocks.iter().map(text).collect::<Vec<_>>().join("\n")
        }
        other => other.to_string(),
    }
}

fn messages(body: &Value) -> &[Value] {
    body["messages"].as_array().map_or(&[], Vec::as_slice)
}

fn blocks(message: &Value) -> impl Iterator<Item = &Value> {
    message["content"].as_array().into_iter().flatten()
}
