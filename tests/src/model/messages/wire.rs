//! Answers as they go over the wire: a pure translation of steps into server-sent events and pauses, or into one message.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::answer::{Answer, Block, Content, Usage};
use crate::model::answer::{End, Step};
use crate::model::api::Headers;
use crate::model::beat::{Beat, Serial, cut, without_stream};

/// Translates an answer to a request with this body.
pub(super) fn beats(answer: Answer, serial: Serial, body: &Value) -> (Headers, VecDeque<Beat>) {
    let mut writer = Writer::new(&answer, serial, body);
    for step in answer.steps {
        match step {
            Step::Start => writer.start(),
            Step::Content(Content::Block(block)) => writer.block(block),
            Step::Content(Content::Delta(text)) => writer.delta(&text),
            Step::Wait(gate) => writer.beats.push_back(Beat::Wait(gate)),
            Step::Delay(time) => writer.beats.push_back(Beat::Delay(time)),
        }
    }
    match answer.end {
        End::Completed => writer.complete(),
        End::Failed { kind, message } => writer.error(&kind, &message),
        End::Short => writer.beats.push_back(Beat::Short),
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
    if let Some(Beat::Event(event)) = writer.beats.back()
        && let Some(error) = event.strip_prefix("event: error\ndata: ")
    {
        let body = error.trim_end().to_owned();
        writer.beats.push_back(Beat::Reply { status: 500, body });
    }
    (headers, without_stream(writer.beats, writer.message.to_string()))
}

struct Writer {
    beats: VecDeque<Beat>,
    request: usize,
    /// The message so far.
    message: Value,
    usage: Usage,
    stop: Option<String>,
    started: bool,
    /// The text of the block that is open.
    open: Option<String>,
    server_tool: String,
}

impl Writer {
    fn new(answer: &Answer, serial: Serial, body: &Value) -> Self {
        let message = json!({
            "id": format!("msg_{:020}", serial.request),
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": [],
            "stop_reason": null,
            "stop_sequence": null,
            "usage": usage(answer.usage, 1),
        });
        Self {
            beats: VecDeque::new(),
            request: serial.request,
            message,
            usage: answer.usage,
            stop: answer.finish.clone(),
            started: false,
            open: None,
            server_tool: String::new(),
        }
    }

    fn event(&mut self, kind: &str, mut data: Value) {
        data["type"] = kind.into();
        self.beats.push_back(Beat::Event(format!("event: {kind}\ndata: {data}\n\n")));
    }

    fn start(&mut self) {
        if !self.started {
            self.started = true;
            self.event("message_start", json!({ "message": self.message }));
            self.event("ping", json!({}));
        }
    }

    fn content(&mut self) -> &mut Vec<Value> {
        self.message["content"].as_array_mut().expect("content is a list")
    }

    fn block(&mut self, block: Block) {
        self.start();
        self.close_text();
        let at = self.content().len();
        let id = |kind: &str| format!("{kind}_{:020}_{at}", self.request);
        let (opened, deltas, whole) = match block {
            Block::Text(text) => {
                self.delta(&text);
                return self.close_text();
            }
            Block::Thinking(text) => {
                let opened = json!({"type": "thinking", "thinking": "", "signature": ""});
                let signature = "c2lnbmVk";
                let deltas = vec![
                    json!({"type": "thinking_delta", "thinking": text}),
                    json!({"type": "signature_delta", "signature": signature}),
                ];
                let whole = json!({"type": "thinking", "thinking": text, "signature": signature});
                (opened, deltas, whole)
            }
            Block::Tool { server, name, input } => {
                let kind = if server { "server_tool_use" } else { "tool_use" };
                let id = id(if server { "srvtoolu" } else { "toolu" });
                if server {
                    self.server_tool.clone_from(&id);
                }
                let tool =
                    |input: Value| json!({"type": kind, "id": id, "name": name, "input": input});
                let delta = json!({"type": "input_json_delta", "partial_json": input.to_string()});
                (tool(json!({})), vec![delta], tool(input))
            }
            Block::ServerResult { kind, content } => {
                let id = &self.server_tool;
                let result = json!({"type": kind, "tool_use_id": id, "content": content});
                (result.clone(), Vec::new(), result)
            }
            Block::Raw(block) => (block.clone(), Vec::new(), block),
        };
        self.event("content_block_start", json!({"index": at, "content_block": opened}));
        for delta in deltas {
            self.event("content_block_delta", json!({"index": at, "delta": delta}));
        }
        self.event("content_block_stop", json!({"index": at}));
        self.content().push(whole);
    }

    fn delta(&mut self, text: &str) {
        self.start();
        let at = self.content().len();
        if self.open.is_none() {
            let block = json!({"type": "text", "text": ""});
            self.event("content_block_start", json!({"index": at, "content_block": block}));
        }
        self.open.get_or_insert_default().push_str(text);
        let delta = json!({"type": "text_delta", "text": text});
        self.event("content_block_delta", json!({"index": at, "delta": delta}));
    }

    fn close_text(&mut self) {
        if let Some(text) = self.open.take() {
            let at = self.content().len();
            self.event("content_block_stop", json!({"index": at}));
            self.content().push(json!({"type": "text", "text": text}));
        }
    }

    fn complete(&mut self) {
        self.start();
        self.close_text();
        let calls = self.content().iter().any(|block| block["type"] == "tool_use");
        let usual = if calls { "tool_use" } else { "end_turn" };
        let stop = self.stop.take().unwrap_or_else(|| usual.to_owned());
        let usage = usage(self.usage, self.usage.output);
        self.message["stop_reason"] = json!(stop);
        self.message["usage"] = usage.clone();
        let delta = json!({"stop_reason": stop, "stop_sequence": null});
        self.event("message_delta", json!({"delta": delta, "usage": usage}));
        self.event("message_stop", json!({}));
    }

    fn error(&mut self, kind: &str, message: &str) {
        self.event("error", json!({"error": {"type": kind, "message": message}}));
    }
}

fn usage(usage: Usage, output: u64) -> Value {
    json!({
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_creation,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": output,
    })
}
