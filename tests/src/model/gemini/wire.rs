//! Answers as they go over the wire: a pure translation of steps into events and pauses, or into one response.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::Answer;
use crate::model::answer::{End, Step};
use crate::model::api::Headers;
use crate::model::beat::{Beat, cut, without_stream};
use crate::model::chat::{Content, Usage};

/// Translates an answer to a request with this body.
pub(super) fn beats(answer: Answer, body: &Value) -> (Headers, VecDeque<Beat>) {
    let mut writer = Writer { beats: VecDeque::new(), parts: Vec::new(), model: &body["model"] };
    for step in answer.steps {
        match step {
            // Nothing announces an answer here.
            Step::Start => {}
            Step::Content(Content::Text(text)) => writer.part(json!({ "text": text })),
            Step::Content(Content::Reasoning(text)) => {
                writer.part(json!({ "text": text, "thought": true }));
            }
            Step::Content(Content::Call { name, arguments }) => {
                writer.part(json!({ "functionCall": { "name": name, "args": arguments } }));
            }
            Step::Wait(gate) => writer.beats.push_back(Beat::Wait(gate)),
            Step::Delay(time) => writer.beats.push_back(Beat::Delay(time)),
        }
    }
    let mut whole = String::new();
    match answer.end {
        End::Completed => whole = writer.complete(answer.finish.as_deref(), answer.usage),
        // This API reports no failures in a stream.
        End::Failed { .. } | End::Short => writer.beats.push_back(Beat::Short),
        End::Cut { after } => cut(&mut writer.beats, after),
        End::Drop => writer.beats.push_back(Beat::Drop),
        End::Hang => writer.beats.push_back(Beat::Hang),
        End::Status { status, body } => writer.beats.push_back(Beat::Reply { status, body }),
    }
    let mut headers = answer.headers;
    if body["stream"] == true {
        return (headers, writer.beats);
    }
    headers.push(("content-type".into(), "application/json".into()));
    (headers, without_stream(writer.beats, whole))
}

struct Writer<'a> {
    beats: VecDeque<Beat>,
    parts: Vec<Value>,
    model: &'a Value,
}

impl Writer<'_> {
    fn part(&mut self, part: Value) {
        let response = self.response(&json!([part]), None);
        self.parts.push(part);
        self.event(&response);
    }

    fn event(&mut self, response: &Value) {
        self.beats.push_back(Beat::Event(format!("data: {response}\n\n")));
    }

    fn response(&self, parts: &Value, finish: Option<&str>) -> Value {
        let mut candidate = json!({ "index": 0, "content": { "role": "model", "parts": parts } });
        if let Some(finish) = finish {
            candidate["finishReason"] = finish.into();
        }
        json!({ "candidates": [candidate], "modelVersion": self.model, "responseId": "scripted" })
    }

    /// Ends the stream; the same answer as one response.
    fn complete(&mut self, finish: Option<&str>, usage: Usage) -> String {
        let finish = finish.unwrap_or("STOP");
        let figures = json!({
            "promptTokenCount": usage.input,
            "cachedContentTokenCount": usage.cached,
            "candidatesTokenCount": usage.output,
            "thoughtsTokenCount": usage.reasoning,
            "totalTokenCount": usage.input + usage.output,
        });
        let mut last = self.response(&json!([{ "text": "" }]), Some(finish));
        last["usageMetadata"] = figures.clone();
        self.event(&last);
        let mut whole = self.response(&json!(self.parts), Some(finish));
        whole["usageMetadata"] = figures;
        // What the address for counting tokens is asked for.
        whole["totalTokens"] = json!(usage.input);
        whole.to_string()
    }
}
