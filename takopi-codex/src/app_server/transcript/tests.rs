//! Transcripts of recordings, and of turns made by hand.

use std::collections::HashSet;

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// The turns of a recording: the notifications it received.
fn recording(version: &str, name: &str) -> Vec<Notification> {
    let path = format!("../fixtures/codex-{version}/app-server/{name}.txt");
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let text = std::fs::read_to_string(&path).unwrap();
    let received = text.lines().filter_map(|line| line.strip_prefix("< "));
    received
        .filter_map(|line| {
            let message: Value = serde_json::from_str(line).ok()?;
            let params = serde_json::value::to_raw_value(&message["params"]).ok()?;
            Some(Notification::new(message["method"].as_str()?.to_owned(), params))
        })
        .collect()
}

fn transcript(notifications: &[Notification]) -> Transcript {
    let mut transcript = Transcript::default();
    for notification in notifications {
        transcript.record(notification);
    }
    transcript
}

fn assistant(content: &str) -> Message {
    Message::Assistant { content: content.to_owned(), reasoning: None, tool_calls: Vec::new() }
}

/// The promises that hold for any turn.
fn check(messages: &[Message]) -> Result<(), TestCaseError> {
    let mut ids = HashSet::new();
    for (at, message) in messages.iter().enumerate() {
        match message {
            Message::Tool { tool_call_id, .. } => {
                let before = at.checked_sub(1).map(|before| &messages[before]);
                let Some(Message::Assistant { tool_calls, .. }) = before else {
                    return Err(TestCaseError::fail("a result without a call before it"));
                };
                prop_assert_eq!(&tool_calls[0].id, tool_call_id);
            }
            Message::Assistant { tool_calls, .. } => {
                prop_assert!(tool_calls.len() <= 1);
                if let Some(call) = tool_calls.first() {
                    prop_assert!(ids.insert(call.id.clone()), "two calls of one id");
                    prop_assert!(
                        matches!(messages.get(at + 1), Some(Message::Tool { .. })),
                        "a call without a result"
                    );
                }
            }
            Message::User { .. } => {}
        }
    }
    Ok(())
}

#[test]
fn every_recording_keeps_the_promises() {
    let fixtures = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
    let mut seen = 0;
    for version in ["0.125.0", "0.144.6", "0.166.0"] {
        let directory = fixtures.join(format!("codex-{version}/app-server"));
        for file in std::fs::read_dir(directory).unwrap() {
            let file = file.unwrap().path();
            let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
            let notifications = recording(version, &name);
            let messages = transcript(&notifications).messages();
            check(&messages).unwrap();
            let again = transcript(&notifications).messages();
            assert_eq!(
                serde_json::to_vec(&messages).unwrap(),
                serde_json::to_vec(&again).unwrap(),
                "{name}"
            );
            seen += 1;
        }
    }
    assert!(seen > 40, "{seen}");
}

#[test]
fn a_command_is_a_call_with_the_thinking_before_it_and_a_result() {
    let transcript = transcript(&recording("0.166.0", "shell"));
    let messages = transcript.messages();
    assert_eq!(transcript.tool_calls(), 1);
    let [Message::Assistant { content, reasoning, tool_calls }, result, last] = &messages[..]
    else {
        panic!("{messages:#?}");
    };
    assert_eq!((content.as_str(), reasoning.as_deref()), ("", Some("**Looking** around")));
    assert_eq!(tool_calls[0].name, "exec_command");
    assert_eq!(
        tool_calls[0].arguments,
        r#"{"command":"echo takopi-out; echo err >&2; exit 3","cwd":"/workspace"}"#
    );
    let output = Message::Tool {
        tool_call_id: tool_calls[0].id.clone(),
        content: "err\ntakopi-out\n[exit code 3]".to_owned(),
    };
    assert_eq!((result, last), (&output, &assistant("ran it")));
}

#[test]
fn the_json_is_a_chat_message() {
    let json: Vec<Value> = transcript(&recording("0.166.0", "mcp"))
        .messages()
        .iter()
        .map(|message| serde_json::to_value(message).unwrap())
        .collect();
    let call = &json[0]["tool_calls"][0];
    assert_eq!(json[0]["role"], "assistant");
    assert_eq!(call["name"], "mcp__lab__echo");
    assert_eq!(call["arguments"], r#"{"text":"yo"}"#);
    assert_eq!(json[1], json!({ "role": "tool", "tool_call_id": call["id"], "content": "yo" }));
    assert_eq!(json[2], json!({ "role": "assistant", "content": "called" }));
}

#[test]
fn the_echo_is_left_out_and_steering_is_not() {
    let user = |id: &str, text: &str| json!({ "type": "userMessage", "id": id, "content": [{ "type": "text", "text": text }] });
    let mut transcript = Transcript::default();
    for item in [user("u1", "go"), user("u2", "go"), user("u3", "faster")] {
        transcript.item_started(&item);
        transcript.item_completed(&item);
        transcript.item_completed(&item);
    }
    let steered = |text: &str| Message::User { content: text.to_owned() };
    assert_eq!(transcript.messages(), [steered("go"), steered("faster")]);
}

#[test]
fn what_did_not_complete_is_no_text_but_an_unfinished_call() {
    let mut transcript = Transcript::default();
    transcript
        .item_started(&json!({ "type": "commandExecution", "id": "c", "command": "sleep 9" }));
    transcript.item_started(&json!({ "type": "agentMessage", "id": "m", "text": "half" }));
    transcript.item_completed(&json!({ "type": "reasoning", "id": "r", "summary": ["so"] }));
    let messages = transcript.messages();
    assert_eq!(messages.len(), 2, "{messages:#?}");
    assert!(matches!(&messages[1], Message::Tool { content, .. } if content == "unfinished"));
}

#[test]
fn unknown_items_are_notes_and_marks_of_codex_are_nothing() {
    let mut transcript = Transcript::default();
    transcript.item_completed(&json!({ "type": "contextCompaction", "id": "x" }));
    transcript
        .item_completed(&json!({ "type": "agentMessage", "id": "a", "text": "<turn_aborted>" }));
    transcript
        .item_completed(&json!({ "type": "agentMessage", "id": "b", "text": "a <turn_aborted>" }));
    transcript.item_completed(&json!("odd"));
    assert_eq!(
        transcript.messages(),
        [assistant("[contextCompaction]"), assistant("a <turn_aborted>")]
    );
}

#[test]
fn the_order_of_keys_does_not_matter() {
    let item = |arguments: &str| -> Value {
        let item = format!(
            r#"{{"type":"mcpToolCall","id":"c","server":"s","tool":"t","arguments":{arguments}}}"#
        );
        serde_json::from_str(&item).unwrap()
    };
    let messages = |item: &Value| {
        let mut transcript = Transcript::default();
        transcript.item_completed(item);
        serde_json::to_string(&transcript.messages()).unwrap()
    };
    assert_eq!(
        messages(&item(r#"{"b":{"y":1,"x":[{"d":1,"c":2}]},"a":2}"#)),
        messages(&item(r#"{"a":2,"b":{"x":[{"c":2,"d":1}],"y":1}}"#))
    );
}

/// Something that happens to an item.
#[derive(Debug, Clone)]
enum Step {
    Started(Value),
    Completed(Value),
    Delta(String),
}

fn items() -> impl Strategy<Value = Value> {
    let kinds = prop::sample::select(vec![
        "agentMessage",
        "reasoning",
        "plan",
        "commandExecution",
        "fileChange",
        "mcpToolCall",
        "dynamicToolCall",
        "webSearch",
        "collabAgentToolCall",
        "contextCompaction",
        "an unknown status",
    ]);
    // Few ids, so that items meet themselves again.
    (kinds, 0..8_u8, "[a-c ]{0,6}").prop_map(|(kind, id, text)| {
        json!({
            "type": kind, "id": format!("{kind}-{id}"), "text": text, "command": text,
            "aggregatedOutput": text, "summary": [text], "server": "s", "tool": "t",
            "arguments": { "z": text, "a": 1 }, "query": text, "exitCode": id,
        })
    })
}

fn turns() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => items().prop_map(Step::Started),
        4 => items().prop_map(Step::Completed),
        1 => "[a-c]{0,6}".prop_map(Step::Delta),
    ];
    prop::collection::vec(step, 0..40)
}

const INPUT: &str = "what the user asked";

/// The turn with the echo of its input ahead, as codex sends it.
fn notifications(steps: &[Step]) -> Vec<Notification> {
    let echo = json!({
        "type": "userMessage", "id": "echo", "content": [{ "type": "text", "text": INPUT }],
    });
    let opening = [("item/started", echo.clone()), ("item/completed", echo)];
    let rest = steps.iter().map(|step| match step {
        Step::Started(item) => ("item/started", item.clone()),
        Step::Completed(item) => ("item/completed", item.clone()),
        Step::Delta(text) => ("item/agentMessage/delta", json!({ "delta": text })),
    });
    opening
        .into_iter()
        .chain(rest)
        .map(|(method, item)| {
            let params = json!({ "item": item, "itemId": "m", "delta": item["delta"] });
            let params = serde_json::value::to_raw_value(&params).unwrap();
            Notification::new(method.to_owned(), params)
        })
        .collect()
}

proptest! {
    #[test]
    fn any_turn_keeps_the_promises(steps in turns()) {
        let notifications = notifications(&steps);
        let once = transcript(&notifications);
        let messages = once.messages();
        check(&messages)?;
        let calls = messages.iter().filter(|message| matches!(message, Message::Tool { .. }));
        prop_assert_eq!(calls.count(), once.tool_calls());

        // A history that the host keeps has the user's message once.
        let mut history = vec![Message::User { content: INPUT.to_owned() }];
        history.extend(messages.clone());
        let input = Message::User { content: INPUT.to_owned() };
        prop_assert_eq!(history.iter().filter(|message| **message == input).count(), 1);

        let again = serde_json::to_vec(&transcript(&notifications).messages()).unwrap();
        prop_assert_eq!(serde_json::to_vec(&messages).unwrap(), again);
    }

    #[test]
    fn deltas_make_no_messages(steps in turns()) {
        let without: Vec<Step> =
            steps.iter().filter(|step| !matches!(step, Step::Delta(_))).cloned().collect();
        prop_assert_eq!(
            transcript(&notifications(&steps)).messages(),
            transcript(&notifications(&without)).messages()
        );
    }
}
