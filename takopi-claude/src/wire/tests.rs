//! Lines that are not what they should be, and what must survive as it came.

use super::*;

fn parse(line: &str) -> Message {
    Message::parse(line).unwrap()
}

#[test]
fn a_result_is_read_wherever_its_type_stands() {
    let line = r#"{"result":"x","subtype":"success","is_error":false,"type":"result"}"#;
    let Message::Result(result) = parse(line) else { panic!("no result") };
    assert!(result.is_ok());
    assert_eq!(result.text.as_deref(), Some("x"));
}

#[test]
fn a_request_keeps_its_input_as_it_came() {
    let request =
        r#"{"subtype":"can_use_tool","input":{"b":1.10,"a":12345678901234567890123,"b":2}}"#;
    let line = format!(r#"{{"type":"control_request","request":{request},"request_id":"r"}}"#);
    let Message::ControlRequest { id, subtype, request: kept } = parse(&line) else {
        panic!("no request")
    };
    assert_eq!((id.as_str(), subtype.as_str(), kept.get()), ("r", "can_use_tool", request));
}

#[test]
fn a_response_is_an_outcome_and_one_without_content_is_empty() {
    let outcome = |response: &str| {
        let line = format!(r#"{{"type":"control_response","response":{response}}}"#);
        match parse(&line) {
            Message::ControlResponse { id, outcome } => {
                assert_eq!(id, "r");
                outcome.map(|raw| raw.get().to_owned())
            }
            other => panic!("{other:?}"),
        }
    };
    let success = r#"{"subtype":"success","request_id":"r","response":{"still_queued":[]}}"#;
    assert_eq!(outcome(success).as_deref(), Ok(r#"{"still_queued":[]}"#));
    assert_eq!(outcome(r#"{"subtype":"success","request_id":"r"}"#).as_deref(), Ok("{}"));
    let error = outcome(r#"{"subtype":"error","request_id":"r","error":"no"}"#);
    assert_eq!(error, Err("no".to_owned()));
    assert!(outcome(r#"{"subtype":"error","request_id":"r"}"#).is_err());
}

#[test]
fn unknown_lines_and_lines_without_what_names_them_are_others() {
    for line in [
        "{}",
        "[]",
        "1",
        r#"{"type":7}"#,
        r#"{"type":"tool_use_summary"}"#,
        r#"{"type":"system"}"#,
        r#"{"type":"system","subtype":"background_tasks_changed"}"#,
        r#"{"type":"control_request"}"#,
        r#"{"type":"control_response"}"#,
        r#"{"type":"control_cancel_request"}"#,
        r#"{"type":"command_lifecycle","state":"queued"}"#,
    ] {
        assert!(matches!(parse(line), Message::Other { .. }), "{line}");
    }
    for line in ["[SandboxDebug] x", "{\"type\":", ""] {
        assert!(Message::parse(line).is_err(), "{line}");
    }
}

#[test]
fn a_heartbeat_names_the_call_and_not_a_sub_agent() {
    let line = r#"{"type":"tool_progress","tool_use_id":"t-heartbeat-0","parent_tool_use_id":"t","elapsed_time_seconds":30}"#;
    let Message::ToolProgress(progress) = parse(line) else { panic!("no progress") };
    assert_eq!(progress.tool_use_id.as_deref(), Some("t"));
}

#[test]
fn content_is_read_as_text_and_as_a_list() {
    let results = |content: &str| {
        let line = format!(
            r#"{{"type":"user","message":{{"content":[{{"type":"tool_result","tool_use_id":"t","content":{content}}}]}},"tool_use_result":"Error: x"}}"#
        );
        let Message::User(user) = parse(&line) else { panic!("no user") };
        let result = &user.results[0];
        (result.text.clone(), result.blocks)
    };
    assert_eq!(results(r#""a""#), ("a".to_owned(), 1));
    let list = r#"[{"type":"text","text":"a"},{"type":"image"},{"type":"text","text":"b"}]"#;
    assert_eq!(results(list), ("a\nb".to_owned(), 3));
    assert_eq!(results("{}"), (String::new(), 0));
    let Message::User(user) = parse(r#"{"type":"user","message":{"content":"text"}}"#) else {
        panic!("no user")
    };
    assert_eq!(user.texts, ["text"]);
}

#[test]
fn a_raw_line_separator_and_half_a_surrogate_pair_are_no_obstacle() {
    let line = "{\"type\":\"assistant\",\"message\":{\"id\":\"m\",\"content\":[{\"type\":\"text\",\"text\":\"a\u{2028}b\\ud800\"}]}}";
    let Message::Assistant(assistant) = parse(line) else { panic!("no message") };
    assert_eq!(assistant.text(), Some("a\u{2028}b\u{fffd}"));
}

#[test]
fn an_error_of_a_response_that_is_no_text_is_shown() {
    let error = |error: &str| {
        let line = format!(
            r#"{{"type":"control_response","response":{{"subtype":"error","request_id":"r","error":{error}}}}}"#
        );
        let Message::ControlResponse { outcome, .. } = parse(&line) else { panic!("{line}") };
        outcome.unwrap_err()
    };
    assert_eq!(error(r#""no""#), "no");
    assert!(error(r#"{"code":7}"#).contains(r#"{"code":7}"#));
    assert_eq!(error("null"), "no reason given");
}
