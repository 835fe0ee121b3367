//! Answers as they go over the wire: a pure translation of steps into server-sent events and pauses.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::answer::{Answer, Content, Item, Phase, Usage};
use crate::model::answer::{End, Step};
use crate::model::beat::{Beat, Serial, cut};

/// Translates an answer.
pub(super) fn beats(answer: Answer, serial: Serial) -> VecDeque<Beat> {
    let mut writer = Writer::new(serial);
    for step in answer.steps {
        match step {
            Step::Start => writer.start(),
            Step::Content(Content::Item(item)) => writer.item(item),
            Step::Content(Content::Delta { phase, text }) => writer.delta(phase, &text),
            Step::Wait(gate) => writer.beats.push_back(Beat::Wait(gate)),
            Step::Delay(time) => writer.beats.push_back(Beat::Delay(time)),
        }
    }
    match answer.end {
        End::Completed => writer.complete(answer.usage),
        End::Failed { kind, message } => writer.fail(&kind, &message),
        End::Short => writer.beats.push_back(Beat::Short),
        End::Cut { after } => cut(&mut writer.beats, after),
        End::Drop => writer.beats.push_back(Beat::Drop),
        End::Hang => writer.beats.push_back(Beat::Hang),
        End::Status { status, body } => {
            writer.beats.push_back(Beat::Reply { status, body });
        }
    }
    writer.beats
}

struct Writer {
    serial: Serial,
    beats: VecDeque<Beat>,
    started: bool,
    items: usize,
    open: Option<OpenMessage>,
}

struct OpenMessage {
    id: String,
    phase: Option<Phase>,
    text: String,
}

impl Writer {
    fn new(serial: Serial) -> Self {
        Self { serial, beats: VecDeque::new(), started: false, items: 0, open: None }
    }

    fn event(&mut self, kind: &str, mut data: Value) {
        data["type"] = kind.into();
        self.beats.push_back(Beat::Event(format!("event: {kind}\ndata: {data}\n\n")));
    }

    fn start(&mut self) {
        if !self.started {
            self.started = true;
            let id = self.response_id();
            self.event("response.created", json!({ "response": { "id": id } }));
        }
    }

    fn item(&mut self, item: Item) {
        self.start();
        self.close_message();
        let item = match item {
            Item::Message { phase, text } => message(&self.next_id("msg"), phase, &text),
            Item::Reasoning { summary } => json!({
                "type": "reasoning",
                "id": self.next_id("rs"),
                "summary": [{ "type": "summary_text", "text": summary }],
                "encrypted_content": null,
            }),
            Item::FunctionCall { namespace, name, arguments } => {
                let mut call = json!({
                    "type": "function_call",
                    "call_id": self.next_id("call"),
                    "name": name,
                    "arguments": arguments.to_string(),
                });
                if let Some(namespace) = namespace {
                    call["namespace"] = namespace.into();
                }
                call
            }
            Item::CustomCall { name, input } => json!({
                "type": "custom_tool_call",
                "call_id": self.next_id("call"),
                "name": name,
                "input": input,
            }),
            Item::WebSearch { query } => json!({
                "type": "web_search_call",
                "id": self.next_id("ws"),
                "status": "completed",
                "action": { "type": "search", "query": query },
            }),
        };
        self.event("response.output_item.done", json!({ "item": item }));
    }

    fn delta(&mut self, phase: Option<Phase>, text: &str) {
        self.start();
        if self.open.as_ref().is_some_and(|open| open.phase != phase) {
            self.close_message();
        }
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.open_message(phase),
        };
        open.text.push_str(text);
        self.event(
            "response.output_text.delta",
            json!({ "item_id": open.id, "output_index": 0, "content_index": 0, "delta": text }),
        );
        self.open = Some(open);
    }

    fn open_message(&mut self, phase: Option<Phase>) -> OpenMessage {
        let id = self.next_id("msg");
        let mut item = message(&id, phase, "");
        item["content"] = json!([]);
        self.event("response.output_item.added", json!({ "item": item }));
        OpenMessage { id, phase, text: String::new() }
    }

    fn close_message(&mut self) {
        if let Some(OpenMessage { id, phase, text }) = self.open.take() {
            let item = message(&id, phase, &text);
            self.event("response.output_item.done", json!({ "item": item }));
        }
    }

    fn complete(&mut self, usage: Usage) {
        self.start();
        self.close_message();
        let response = json!({
            "id": self.response_id(),
            "usage": {
                "input_tokens": usage.input,
                "input_tokens_details": { "cached_tokens": usage.cached },
                "output_tokens": usage.output,
                "output_tokens_details": { "reasoning_tokens": usage.reasoning },
                "total_tokens": usage.input + usage.output,
            },
        });
        self.event("response.completed", json!({ "response": response }));
    }

    fn fail(&mut self, code: &str, message: &str) {
        self.start();
        let response = json!({
            "id": self.response_id(),
            "error": { "code": code, "message": message },
        });
        self.event("response.failed", json!({ "response": response }));
    }

    fn response_id(&self) -> String {
        format!("resp_{}_{}", self.serial.script, self.serial.answer)
    }

    fn next_id(&mut self, kind: &str) -> String {
        let Serial { script, answer, .. } = self.serial;
        let item = self.items;
        self.items += 1;
        format!("{kind}_{script}_{answer}_{item}")
    }
}

fn message(id: &str, phase: Option<Phase>, text: &str) -> Value {
    let mut item = json!({
        "type": "message",
        "id": id,
        "role": "assistant",
        "content": [{ "type": "output_text", "text": text }],
    });
    if let Some(phase) = phase {
        item["phase"] = phase.name().into();
    }
    item
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::gate::Gate;

    fn shape(answer: Answer) -> Vec<String> {
        let serial = Serial { script: 1, answer: 0, request: 0 };
        let name = |beat: &Beat| match beat {
            Beat::Event(event) => {
                let (kind, _) = event.split_once('\n').unwrap();
                kind.trim_start_matches("event: response.").to_owned()
            }
            other => format!("{other:?}").split([' ', '(']).next().unwrap().into(),
        };
        beats(answer, serial).iter().map(name).collect()
    }

    #[test]
    fn pieces_in_a_row_are_one_message() {
        let gate = Gate::new();
        let answer = Answer::new().delta("hel").wait_for(&gate).delta("lo").message("next");
        assert_eq!(
            shape(answer),
            [
                "created",
                "output_item.added",
                "output_text.delta",
                "Wait",
                "output_text.delta",
                "output_item.done",
                "output_item.done",
                "completed",
            ]
        );
    }

    #[test]
    fn waits_written_first_come_before_the_first_event() {
        let answer = Answer::new().wait_for(&Gate::new()).message("late");
        assert_eq!(shape(answer), ["Wait", "created", "output_item.done", "completed"]);
    }

    #[test]
    fn a_cut_leaves_so_many_events_and_no_end() {
        let answer = || Answer::new().deltas(["a", "b"]);
        assert_eq!(
            shape(answer().cut_after(3)),
            ["created", "output_item.added", "output_text.delta", "Cut"]
        );
        assert_eq!(shape(answer().cut()).last().unwrap(), "Cut");
        assert_eq!(shape(answer().cut_after(0)), ["Cut"]);
    }
}
