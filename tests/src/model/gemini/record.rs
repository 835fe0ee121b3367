//! What gemini asked the model.

use serde_json::Value;

use crate::model::api::Prompt;
use crate::model::record::ToolOutput;

/// Starts of texts that have the role `user` but are gemini's own.
const CONTEXT: [&str; 2] = ["<session_context>", "<hook_context>"];

/// The user's own texts, latest first, each with the number of the model's contents behind it.
pub(super) fn prompts(body: &Value) -> Vec<Prompt> {
    let mut answered = 0;
    let mut prompts = Vec::new();
    for content in contents(body).iter().rev() {
        if content["role"] == "model" {
            answered += 1;
            continue;
        }
        let own = |text: &&str| !CONTEXT.iter().any(|start| text.starts_with(start));
        let texts = texts(content).filter(own).map(str::to_owned);
        prompts.extend(texts.map(|text| Prompt { text, step: Some(answered) }));
    }
    prompts
}

pub(super) fn assistant_texts(body: &Value) -> Vec<String> {
    let said = contents(body).iter().filter(|content| content["role"] == "model");
    said.map(|content| texts(content).collect::<String>()).filter(|text| !text.is_empty()).collect()
}

pub(super) fn tool_outputs(body: &Value) -> Vec<ToolOutput> {
    let results = contents(body).iter().flat_map(parts).map(|part| &part["functionResponse"]);
    results
        .filter(|result| result.is_object())
        .map(|result| ToolOutput {
            call_id: result["id"].as_str().unwrap_or_default().into(),
            text: match &result["response"]["output"] {
                Value::String(text) => text.clone(),
                _ => result["response"].to_string(),
            },
        })
        .collect()
}

fn contents(body: &Value) -> &[Value] {
    body["contents"].as_array().map_or(&[], Vec::as_slice)
}

fn parts(content: &Value) -> impl Iterator<Item = &Value> {
    content["parts"].as_array().into_iter().flatten()
}

fn texts(content: &Value) -> impl Iterator<Item = &str> {
    parts(content).filter_map(|part| part["text"].as_str())
}
