use serde_json::json;

use super::*;

fn raw(value: &serde_json::Value) -> Box<RawValue> {
    RawValue::from_string(value.to_string()).unwrap()
}

fn tokens(value: &serde_json::Value) -> Option<Tokens> {
    PromptReply::read(&raw(value)).tokens
}

#[test]
fn input_tokens_include_cached_ones_however_the_agent_counts() {
    let beside = json!({ "usage": {
        "inputTokens": 8, "outputTokens": 7, "totalTokens": 18, "cachedReadTokens": 3,
    } });
    let inside = json!({ "usage": {
        "inputTokens": 11, "outputTokens": 7, "totalTokens": 18, "cachedReadTokens": 3,
    } });
    for reply in [beside, inside] {
        let tokens = tokens(&reply).unwrap();
        assert_eq!((tokens.input, tokens.cached, tokens.output), (11, 3, 7), "{reply}");
    }
    let quota = json!({ "_meta": { "quota": { "token_count": { "input_tokens": 22, "output_tokens": 14 } } } });
    assert_eq!(tokens(&quota).map(|tokens| (tokens.input, tokens.output)), Some((22, 14)));
    assert_eq!(tokens(&json!({ "usage": null })), None);
}

#[test]
fn what_is_not_known_is_kept_by_its_name_and_spoils_nothing() {
    for (update, name) in [
        (json!({ "sessionUpdate": "new_thing", "x": 1 }), "new_thing"),
        (json!({ "sessionUpdate": "tool_call", "title": "without an id" }), "tool_call"),
        (json!([]), ""),
    ] {
        let read =
            SessionUpdate::read(&raw(&json!({ "sessionId": "s", "update": update }))).unwrap();
        assert!(matches!(&read.update, Update::Other(kind) if kind == name), "{read:?}");
    }
    let odd = json!({ "sessionUpdate": "agent_message_chunk", "content": ["x"], "messageId": 7 });
    for nobodys in [json!({ "sessionId": 7, "update": odd }), json!({ "update": odd })] {
        assert!(SessionUpdate::read(&raw(&nobodys)).is_none(), "{nobodys}");
    }
    let read = SessionUpdate::read(&raw(&json!({ "sessionId": "s", "update": odd }))).unwrap();
    assert!(matches!(read.update, Update::Message { id: None, ref text, .. } if text.is_empty()));
}

#[test]
fn a_request_for_permission_without_options_call_or_readable_session_is_not_read() {
    let option = json!({ "optionId": "once", "kind": "allow_once", "name": "Allow" });
    let read = |value: serde_json::Value| Permission::read(&raw(&value));
    let call = json!({ "toolCallId": "1" });
    assert!(read(json!({ "sessionId": "s", "toolCall": call, "options": [] })).is_none());
    assert!(read(json!({ "sessionId": "s", "toolCall": {}, "options": [option] })).is_none());
    assert!(read(json!({ "toolCall": call, "options": [option] })).is_none());
    assert!(read(json!({ "sessionId": 7, "toolCall": call, "options": [option] })).is_none());
    let wide = json!({ "toolCallId": "1", "grant": "all" });
    let wide = read(json!({ "sessionId": "s", "toolCall": wide, "options": [option, 7] })).unwrap();
    assert_eq!(wide.unknown, [("grant".to_owned(), "\"all\"".to_owned())]);
    assert_eq!(wide.options.len(), 1);
}
