//! Answers as they go over the wire: a pure translation of steps into chunks and pauses, or into one completion.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::answer::{Answer, Content, Usage};
use crate::model::answer::{End, Step};
use crate::model::api::Headers;
use crate::model::beat::{Beat, Serial, cut, without_stream};

/// Translates an answer to a request with this body.
pub(super) fn beats(answer: Answer, serial: Serial, body: &Value) -> (Headers, VecDeque<Beat>) {
    let mut writer = Writer::new(serial, body);
    for step in answer.steps {
        match step {
            Step::Start => writer.start(),
            Step::Content(Content::Text(text)) => writer.text(&text),
            Step::Content(Content::Reasoning(text)) => {
                writer.delta(&json!({ "reasoning_content": text }));
            }
            Step::Content(Content::Call { name, arguments }) => writer.call(&name, &arguments),
            Step::Wait(gate) => writer.beats.push_back(Beat::Wait(gate)),
            Step::Delay(time) => writer.beats.push_back(Beat::Delay(time)),
        }
    }
    match answer.end {
        End::Completed => writer.complete(answer.finish, answer.usage),
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
    let whole = writer.whole.to_string();
    (headers, without_stream(writer.beats, whole))
}

struct Writer {
    beats: VecDeque<Beat>,
    request: usize,
    head: Value,
    /// The completion so far.
    whole: Value,
    started: bool,
    text: String,
    calls: Vec<Value>,
}

impl Writer {
    fn new(serial: Serial, body: &Value) -> Self {
        let id = format!("chatcmpl-{:020}", serial.request);
        let head = |object: &str| json!({"id": id, "object": object, "created": 0, "model": body["model"]});
        Self {
            beats: VecDeque::new(),
            request: serial.request,
            head: head("chat.completion.chunk"),
            whole: head("chat.completion"),
            started: false,
            text: String::new(),
            calls: Vec::new(),
        }
    }

    fn chunk(&mut self, delta: &Value, finish: Option<&str>) {
        let mut chunk = self.head.clone();
        chunk["choices"] = json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
        self.beats.push_back(Beat::Event(format!("data: {chunk}\n\n")));
    }

    fn start(&mut self) {
        if !self.started {
            self.started = true;
            self.chunk(&json!({"role": "assistant", "content": ""}), None);
        }
    }

    fn delta(&mut self, delta: &Value) {
        self.start();
        self.chunk(delta, None);
    }

    fn text(&mut self, text: &str) {
        self.text.push_str(text);
        self.delta(&json!({ "content": text }));
    }

    fn call(&mut self, name: &str, arguments: &Value) {
        let at = self.calls.len();
        let mut call = json!({
            "id": format!("call_{:08}_{at}", self.request),
            "type": "function",
            "function": {"name": name, "arguments": arguments.to_string()},
        });
        self.calls.push(call.clone());
        call["index"] = at.into();
        self.delta(&json!({ "tool_calls": [call] }));
    }

    fn complete(&mut self, finish: Option<String>, usage: Usage) {
        self.start();
        let usual = if self.calls.is_empty() { "stop" } else { "tool_calls" };
        let finish = finish.unwrap_or_else(|| usual.to_owned());
        self.chunk(&json!({}), Some(&finish));
        let usage = figures(usage);
        let mut last = self.head.clone();
        last["choices"] = json!([]);
        last["usage"] = usage.clone();
        self.beats.push_back(Beat::Event(format!("data: {last}\n\n")));
        self.beats.push_back(Beat::Event("data: [DONE]\n\n".into()));
        let mut message = json!({"role": "assistant", "content": self.text});
        if !self.calls.is_empty() {
            message["tool_calls"] = json!(self.calls);
        }
        self.whole["choices"] = json!([{"index": 0, "message": message, "finish_reason": finish}]);
        self.whole["usage"] = usage;
    }
}

fn figures(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.input,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens": usage.output,
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input + usage.output,
    })
}
