//! What spans the items of a turn, on scripted lines: sessions, answers, connections, ends.

use crate::support::{
    DONE, STARTED, TURN, actions, completed, error, item_line, message, outline, session,
    translate, translate_with,
};
use serde_json::json;
use takopi_codex::exec::ExecTranslator;
use takopi_core::{Level, Phase, Reason, UsageScope};

#[test]
fn a_warning_before_the_session_stays_before_started() {
    let warning =
        item_line("completed", &json!({"id":"item_0","type":"error","message":"old config"}));
    let events = translate([warning.as_str(), STARTED, DONE]);
    assert_eq!(
        outline(&events),
        [r#"warning completed failed "old config""#, "started", r#"completed """#]
    );
}

#[test]
fn reconnecting_before_the_session_is_a_note_before_started() {
    let hello = message("Hello.", None);
    let events = translate([&error("Reconnecting... 1/5"), STARTED, &hello, DONE]);
    assert_eq!(
        outline(&events),
        [r#"note started "Reconnecting... 1/5""#, "started", r#"completed "Hello.""#]
    );
}

#[test]
fn reconnect_notices_are_one_action() {
    let events = translate([
        &error("Reconnecting... 1/5"),
        &error("Reconnecting... 2/5 (stream disconnected before completion: boom)"),
        STARTED,
        DONE,
    ]);
    let notices = actions(&events);
    assert!(notices.iter().all(|notice| notice.action.id == "codex.reconnect"));
    assert!(notices.iter().all(|notice| notice.level == Some(Level::Info)));
    assert_eq!(
        notices.iter().map(|notice| notice.phase).collect::<Vec<_>>(),
        [Phase::Started, Phase::Updated]
    );
    assert_eq!(
        serde_json::Value::from(notices[0].action.detail.clone()),
        json!({"attempt":1,"max":5})
    );
    assert_eq!(notices[1].action.title, "Reconnecting... 2/5");
    assert_eq!(
        serde_json::Value::from(notices[1].action.detail.clone()),
        json!({"attempt":2,"max":5,"reason":"stream disconnected before completion: boom"})
    );
}

#[test]
fn inside_a_turn_the_next_item_completes_the_reconnect_and_a_later_episode_reopens_it() {
    let events = translate([
        STARTED,
        TURN,
        &error("Reconnecting... 1/5"),
        &error("Reconnecting... 2/5"),
        &message("One.", None),
        &error("Reconnecting... 1/5"),
        &message("Two.", None),
        DONE,
    ]);
    assert_eq!(
        outline(&events),
        [
            "started",
            r#"turn started "turn started""#,
            r#"note started "Reconnecting... 1/5""#,
            r#"note updated "Reconnecting... 2/5""#,
            r#"note completed ok "Reconnecting... 2/5""#,
            r#"note started "Reconnecting... 1/5""#,
            r#"note completed ok "Reconnecting... 1/5""#,
            r#"completed "Two.""#,
        ]
    );
}

#[test]
fn a_connection_that_does_not_come_back_is_closed_with_its_turn() {
    let failed = json!({"type":"turn.failed","error":{"message":"boom"}}).to_string();
    let waiting = error("Reconnecting... waiting for network (Connection failed)");
    let events = translate([STARTED, TURN, &waiting, &waiting, &failed]);
    assert_eq!(
        outline(&events)[2..],
        [
            r#"note started "Reconnecting... waiting for network""#,
            r#"note updated "Reconnecting... waiting for network""#,
            r#"note completed failed "Reconnecting... waiting for network""#,
            "failed engine_failed",
        ]
    );
}

#[test]
fn any_other_stream_error_is_a_warning_with_an_id_of_its_own() {
    let events = translate([STARTED, TURN, &error("odd"), &error("odder"), DONE]);
    let warnings = &actions(&events)[1..];
    assert_eq!(
        outline(&events)[2..4],
        [r#"warning completed failed "odd""#, r#"warning completed failed "odder""#]
    );
    assert_ne!(warnings[0].action.id, warnings[1].action.id);
}

#[test]
fn commentary_is_a_note_and_the_final_answer_the_answer() {
    let events = translate([
        STARTED,
        TURN,
        &message("Looking.", Some("commentary")),
        &message("Done.", Some("final_answer")),
        DONE,
    ]);
    assert_eq!(
        outline(&events),
        [
            "started",
            r#"turn started "turn started""#,
            r#"note completed ok "Looking.""#,
            r#"completed "Done.""#,
        ]
    );
    assert_eq!(actions(&events)[1].action.detail["phase"], "commentary");
}

#[test]
fn of_two_messages_without_phase_the_second_is_the_answer() {
    let events = translate([STARTED, TURN, &message("One.", None), &message("Two.", None), DONE]);
    assert_eq!(outline(&events)[2..], [r#"completed "Two.""#]);
}

#[test]
fn commentary_alone_is_no_answer() {
    let events = translate([STARTED, TURN, &message("Looking.", Some("commentary")), DONE]);
    assert_eq!(completed(&events).answer, "");
    assert!(completed(&events).ok);
}

#[test]
fn what_is_open_at_the_end_of_a_turn_is_closed_before_completed_and_the_late_is_ignored() {
    let command = |id: &str| json!({"id":id,"type":"command_execution","command":"sleep 9","status":"in_progress"});
    let reasoning = json!({"id":"item_2","type":"reasoning","text":"hm"});
    let done = json!({"id":"item_0","type":"command_execution","command":"sleep 9","exit_code":0,"status":"completed"});
    let events = translate([
        STARTED,
        TURN,
        &item_line("started", &command("item_0")),
        &item_line("started", &command("item_1")),
        &item_line("completed", &reasoning),
        &message("Left it running.", None),
        DONE,
        &item_line("completed", &done),
        STARTED,
        TURN,
        &error("late"),
        DONE,
    ]);
    assert_eq!(
        outline(&events)[4..],
        [
            r#"note completed ok "hm""#,
            r#"command completed "sleep 9""#,
            r#"command completed "sleep 9""#,
            r#"completed "Left it running.""#,
        ]
    );
    let closed = &actions(&events)[4..];
    assert_eq!(
        closed.iter().map(|event| event.action.id.as_str()).collect::<Vec<_>>(),
        ["item_0", "item_1"]
    );
    assert!(closed.iter().all(|event| event.ok.is_none()
        && event.message.as_deref() == Some("unfinished")
        && event.action.detail["status"] == "unfinished"));
}

#[test]
fn turns_are_counted() {
    let events = translate([STARTED, TURN, TURN]);
    assert_eq!(
        actions(&events).iter().map(|event| event.action.id.as_str()).collect::<Vec<_>>(),
        ["turn_0", "turn_1"]
    );
}

#[test]
fn a_failed_turn_keeps_the_answer_so_far_and_its_error() {
    let limit = "You’ve hit your usage limit. Try again at 3:04 PM.";
    let failed = json!({"type":"turn.failed","error":{"message":limit}}).to_string();
    let events = translate([STARTED, TURN, &message("So far.", None), &failed]);
    let end = completed(&events);
    assert_eq!((end.ok, end.answer.as_str()), (false, "So far."));
    assert_eq!(end.error.as_deref(), Some(limit));
    assert_eq!(end.reason, Some(Reason::UsageLimit));
    assert_eq!(end.resume, Some(session()));
}

#[test]
fn a_refused_login_comes_with_advice() {
    let text =
        "unexpected status 401 Unauthorized: token expired, url: http://127.0.0.1/v1/responses";
    let failed = json!({"type":"turn.failed","error":{"message":text}}).to_string();
    let events = translate([STARTED, TURN, &failed]);
    assert_eq!(completed(&events).reason, Some(Reason::Auth));
    assert!(completed(&events).error.as_deref().unwrap().contains("run `codex login`"));
}

#[test]
fn usage_of_a_resumed_session_covers_the_thread() {
    let fresh = translate([STARTED, TURN, DONE]);
    assert_eq!(completed(&fresh).usage.as_ref().unwrap().scope, UsageScope::Turn);
    let resumed = translate_with(ExecTranslator::new("/", Some(session())), [STARTED, TURN, DONE]);
    let usage = completed(&resumed).usage.as_ref().unwrap();
    assert_eq!((usage.scope, usage.input_tokens, usage.output_tokens), (UsageScope::Thread, 11, 7));
}

#[test]
fn a_session_is_named_in_lower_case() {
    let line = r#"{"type":"thread.started","thread_id":"01A1E21B-26E5-7EB0-9D27-459E98F10B74"}"#;
    let events = translate([line, DONE]);
    assert_eq!(completed(&events).resume, Some(session()));
}
