//! Items, row by row of the table of translations, on scripted lines.

use crate::support::{DONE, STARTED, TURN, actions, item_line, message, outline, translate};
use serde_json::json;
use takopi_codex::exec::ExecTranslator;
use takopi_core::jsonl::{NotJsonError, Translator};
use takopi_core::model::OUTPUT_TAIL_BYTES;

#[test]
fn a_command_is_shown_as_the_agent_ran_it() {
    let item = |status, code: Option<i32>, output: &str| {
        json!({"id":"item_1","type":"command_execution","command":"/bin/bash -lc 'cat /workspace/a.txt'",
               "aggregated_output":output,"exit_code":code,"status":status})
    };
    let events = translate([
        STARTED,
        TURN,
        &item_line("started", &item("in_progress", None, "")),
        &item_line("updated", &item("in_progress", None, "half")),
        &item_line("completed", &item("completed", Some(0), "half\nand half\n")),
        &item_line("completed", &item("completed", Some(3), "")),
        &item_line("completed", &item("declined", None, "")),
        DONE,
    ]);
    assert_eq!(
        outline(&events)[2..7],
        [
            r#"command started "cat a.txt""#,
            r#"command updated "cat a.txt""#,
            r#"command completed ok "cat a.txt""#,
            r#"command completed failed "cat a.txt""#,
            r#"command completed failed "cat a.txt""#,
        ]
    );
    let details: Vec<_> = actions(&events)[1..]
        .iter()
        .map(|event| serde_json::Value::from(event.action.detail.clone()))
        .collect();
    assert_eq!(details[0], json!({"status":"in_progress"}));
    assert_eq!(
        details[2],
        json!({"exit_code":0,"status":"completed","output_tail":"half\nand half\n"})
    );
    assert_eq!(details[4], json!({"status":"declined"}));
}

#[test]
fn of_a_long_output_the_detail_keeps_the_tail() {
    let output = format!("{}end", "x\n".repeat(OUTPUT_TAIL_BYTES));
    let item = json!({"id":"item_1","type":"command_execution","command":"yes","aggregated_output":output,
                      "exit_code":0,"status":"completed"});
    let events = translate([STARTED, &item_line("completed", &item)]);
    let tail = actions(&events)[0].action.detail["output_tail"].as_str().unwrap();
    assert!(tail.len() <= OUTPUT_TAIL_BYTES && tail.ends_with("\nend"));
}

#[test]
fn a_credential_at_the_edge_of_what_is_shown_of_an_error_is_not_shown_in_part() {
    // Of an error the first 8 KiB are shown.
    let begin = " postgres://app:hunter";
    let error = format!("{}{begin}2@db/main", ".".repeat(OUTPUT_TAIL_BYTES - begin.len()));
    let item = json!({"id":"item_1","type":"mcp_tool_call","server":"lab","tool":"echo","status":"failed",
                      "error":{"message":error}});
    let events = translate([&item_line("completed", &item)]);
    let event = actions(&events)[0];
    let detail = &event.action.detail["error_message"];
    for shown in [detail.as_str().unwrap(), event.message.as_deref().unwrap()] {
        assert!(shown.starts_with('.') && shown.ends_with('…'), "{shown}");
        assert!(!shown.contains("hunter"), "{shown}");
    }
}

#[test]
fn a_patch_is_shown_by_its_paths() {
    let item = json!({"id":"item_0","type":"file_change","status":"completed","changes":[
        {"path":"/workspace/src/a.rs","kind":"update"},
        {"path":"/elsewhere/b.rs","kind":"add"},
        {"odd":true}]});
    let events = translate([&item_line("completed", &item)]);
    let event = actions(&events)[0];
    assert_eq!(outline(&events), [r#"file_change completed ok "src/a.rs, /elsewhere/b.rs""#]);
    assert_eq!(
        serde_json::Value::from(event.action.detail.clone()),
        json!({"changes":[{"path":"/workspace/src/a.rs","kind":"update"},{"path":"/elsewhere/b.rs","kind":"add"}],
               "status":"completed"})
    );
}

#[test]
fn a_patch_of_very_many_files_stays_within_bounds() {
    let changes: Vec<_> =
        (0..10_000).map(|n| json!({"path":format!("/workspace/{n:040}"),"kind":"add"})).collect();
    let item = json!({"id":"item_0","type":"file_change","status":"failed","changes":changes});
    let events = translate([&item_line("completed", &item)]);
    let event = actions(&events)[0];
    assert_eq!(event.ok, Some(false));
    assert!(event.action.title.len() <= OUTPUT_TAIL_BYTES + 32);
    let listed = event.action.detail["changes"].as_array().unwrap().len();
    assert_eq!(event.action.detail["changes_omitted"], 10_000 - listed);
    assert!(event.action.title.ends_with(&format!("and {} more", 10_000 - listed)));
}

#[test]
fn a_failed_tool_call_has_its_error() {
    let item = json!({"id":"item_0","type":"mcp_tool_call","server":"lab","tool":"echo","arguments":{"b":1,"a":[2]},
                      "result":null,"error":{"message":"no such tool"},"status":"failed"});
    let events = translate([&item_line("completed", &item)]);
    let event = actions(&events)[0];
    assert_eq!(outline(&events), [r#"tool completed failed "lab.echo""#]);
    assert_eq!(event.message.as_deref(), Some("no such tool"));
    assert_eq!(
        serde_json::Value::from(event.action.detail.clone()),
        json!({"server":"lab","tool":"echo","status":"failed","arguments":{"b":1,"a":[2]},"error_message":"no such tool"})
    );
}

#[test]
fn overlong_arguments_are_cut() {
    let long = "é".repeat(OUTPUT_TAIL_BYTES);
    let item = json!({"id":"item_0","type":"mcp_tool_call","server":"lab","tool":"echo",
                      "arguments":{"text":long},"error":{"message":long},"status":"failed"});
    let events = translate([&item_line("completed", &item)]);
    for key in ["arguments", "error_message"] {
        let text = actions(&events)[0].action.detail[key].as_str().unwrap();
        assert!(text.len() <= OUTPUT_TAIL_BYTES && text.ends_with('…'), "{key}");
    }
}

#[test]
fn work_for_another_agent_is_shown_by_tool_and_prompt() {
    let item = json!({"id":"item_0","type":"collab_tool_call","tool":"spawn_agent","sender_thread_id":"a",
        "receiver_thread_ids":["b"],"prompt":"look at the parser","agents_states":{"b":{"status":"running","message":null}},
        "status":"in_progress"});
    let mut done = item.clone();
    done["status"] = "completed".into();
    let wait = json!({"id":"item_1","type":"collab_tool_call","tool":"wait","prompt":null,"status":"failed"});
    let events = translate([
        &item_line("started", &item),
        &item_line("completed", &done),
        &item_line("completed", &wait),
    ]);
    assert_eq!(
        outline(&events),
        [
            r#"subagent started "spawn_agent: look at the parser""#,
            r#"subagent completed ok "spawn_agent: look at the parser""#,
            r#"subagent completed failed "wait""#,
        ]
    );
}

#[test]
fn of_the_two_ids_of_a_web_search_the_first_counts() {
    let started = r#"{"type":"item.started","item":{"id":"item_0","type":"web_search","id":"ws1","query":""}}"#;
    let done = r#"{"type":"item.completed","item":{"id":"item_0","type":"web_search","id":"ws1","query":"octopus","action":{"type":"search"}}}"#;
    let events = translate([started, done]);
    assert_eq!(
        outline(&events),
        [r#"web_search started "web search""#, r#"web_search completed ok "octopus""#]
    );
    assert!(actions(&events).iter().all(|event| event.action.id == "item_0"));
}

#[test]
fn a_todo_list_names_the_next_step() {
    let list = |first: bool, second: bool| {
        json!({"id":"item_0","type":"todo_list","items":[
            {"text":"one","completed":first},{"text":"two","completed":second}]})
    };
    let empty = json!({"id":"item_1","type":"todo_list","items":[]});
    let events = translate([
        &item_line("started", &list(false, false)),
        &item_line("updated", &list(true, false)),
        &item_line("completed", &list(true, true)),
        &item_line("completed", &empty),
    ]);
    assert_eq!(
        outline(&events),
        [
            r#"note started "todo 0/2: one""#,
            r#"note updated "todo 1/2: two""#,
            r#"note completed ok "todo 2/2: done""#,
            r#"note completed ok "todo""#,
        ]
    );
    assert_eq!(
        serde_json::Value::from(actions(&events)[1].action.detail.clone()),
        json!({"done":1,"total":2})
    );
}

#[test]
fn unknown_items_and_events_do_not_break_the_stream() {
    let events = translate([
        STARTED,
        TURN,
        r#"{"type":"item.completed","item":{"id":"item_0","type":"hologram","shape":[1,{"a":2}]}}"#,
        r#"{"type":"item.completed","item":{"id":"item_1"}}"#,
        r#"{"type":"thread.renamed","name":"x"}"#,
        r#"{"type":5}"#,
        "{}",
        "[]",
        "null",
        "17",
        "\"text\"",
        &message("Done.", None),
        DONE,
    ]);
    assert_eq!(
        outline(&events)[2..],
        [
            r#"note completed ok "hologram""#,
            r#"note completed ok "unknown item""#,
            r#"completed "Done.""#
        ]
    );
}

#[test]
fn fields_of_odd_types_lose_the_field_and_not_the_item() {
    let events = translate([
        r#"{"type":"item.completed","item":{"id":7,"type":"command_execution","command":["ls"],"exit_code":"0","status":3}}"#,
        r#"{"type":"item.completed","item":{"id":"a","type":"file_change","changes":"none","status":null}}"#,
        r#"{"type":"item.completed","item":{"id":"b","type":"mcp_tool_call","server":1,"tool":{},"result":[],"error":5}}"#,
        r#"{"type":"item.completed","item":{"id":"c","type":"todo_list","items":{"x":1}}}"#,
        r#"{"type":"item.completed","item":{"id":"d","type":"web_search","query":null}}"#,
        r#"{"type":"item.completed","item":{"id":"e","type":"error","message":false}}"#,
        r#"{"type":"item.completed","item":{"id":"f","type":["agent_message"],"text":"x"}}"#,
        r#"{"type":"item.completed","item":"odd"}"#,
        r#"{"type":"thread.started","thread_id":9}"#,
        r#"{"type":"error","message":9}"#,
        r#"{"type":"turn.failed","error":null}"#,
    ]);
    assert_eq!(
        outline(&events),
        [
            r#"command completed failed "command""#,
            r#"file_change completed failed "file change""#,
            r#"tool completed ok "tool""#,
            r#"note completed ok "todo""#,
            r#"web_search completed ok "web search""#,
            r#"warning completed failed "error""#,
            r#"note completed ok "unknown item""#,
            r#"warning completed failed "codex reported a failure without a message""#,
            "failed engine_failed",
        ]
    );
}

#[test]
fn only_what_is_not_json_is_not_json() {
    let mut translator = ExecTranslator::new("/", None);
    let mut events = Vec::new();
    for line in ["hello", "{", r#"{"type":"turn.started"} x"#, "{'a':1}", "\u{feff}{}"] {
        assert_eq!(translator.line(line.as_bytes(), &mut events), Err(NotJsonError), "{line}");
    }
    let deep = format!(r#"{{"type":"x","y":{}{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
    assert_eq!(translator.line(deep.as_bytes(), &mut events), Ok(()));
    assert!(events.is_empty());
}

#[test]
fn reasoning_without_text_is_no_event() {
    let item = json!({"id":"item_0","type":"reasoning","text":" "});
    assert!(translate([&item_line("completed", &item)]).is_empty());
}
