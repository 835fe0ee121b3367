//! When a run is over, and with what.

use super::replay::{self, MESSAGE, SESSION, end, run, runs, translated};
use super::*;

fn line(json: &str) -> String {
    json.replace("$SESSION", SESSION).replace("$MESSAGE", MESSAGE)
}

fn translated_lines(lines: &[String]) -> (Vec<TakopiEvent>, bool) {
    translated(&lines.iter().map(String::as_str).collect::<Vec<_>>())
}

fn init() -> String {
    line(r#"{"type":"system","subtype":"init","session_id":"$SESSION"}"#)
}

fn text(message: &str, text: &str) -> String {
    format!(
        r#"{{"type":"assistant","message":{{"id":"{message}","content":[{{"type":"text","text":"{text}"}}]}},"parent_tool_use_id":null}}"#
    )
}

fn state(state: &str) -> String {
    format!(r#"{{"type":"system","subtype":"session_state_changed","state":"{state}"}}"#)
}

fn lifecycle(state: &str) -> String {
    let line = line(r#"{"type":"command_lifecycle","command_uuid":"$MESSAGE","state":"$STATE"}"#);
    line.replace("$STATE", state)
}

fn result(more: &str) -> String {
    line(&format!(r#"{{"subtype":"success","is_error":false,"result":"r",{more}"type":"result"}}"#))
}

#[test]
fn a_sub_agent_in_the_background_whose_end_wakes_the_model_gives_the_last_answer() {
    for name in ["2.1.210/duplex/agent_bg", "2.1.325/duplex/agent_bg"] {
        let events = run(name);
        assert_eq!(end(&events).answer, "noticed that it ended", "{name}");
        assert!(end(&events).ok);
        let notes = replay::actions(&events, "note");
        assert_eq!(notes.last().unwrap().action.title, "started the sub-agent");
    }
    assert_eq!(end(&run("2.1.325/duplex/named_agent_bg")).answer, "noticed the end");
}

#[test]
fn a_command_in_the_background_does_not_hold_up_the_end() {
    for name in ["2.1.210/duplex/bash_bg", "2.1.325/duplex/bash_bg"] {
        let events = run(name);
        assert_eq!(end(&events).answer, "started it", "{name}");
        let commands = replay::actions(&events, "command");
        let last = commands.last().unwrap();
        assert_eq!(last.action.detail["status"], "background");
        assert_eq!((last.ok, last.phase), (None, Phase::Completed));
    }
}

#[test]
fn a_command_that_reached_its_timeout_goes_on_in_the_background() {
    let events = run("2.1.325/duplex/bash_timeout");
    assert_eq!(end(&events).answer, "after the timeout");
    let last = replay::actions(&events, "command").pop().unwrap();
    assert_eq!(last.action.detail["output_tail"], "begun");
    assert_eq!(last.action.detail["status"], "background");
}

#[test]
fn the_result_of_a_turn_that_nobody_asked_for_does_not_end_the_run() {
    let unasked = result(r#""origin":{"kind":"task-notification"},"#);
    let lines = [
        state("running"),
        init(),
        text("m1", "unasked"),
        lifecycle("queued"),
        unasked,
        state("idle"),
        state("running"),
        lifecycle("started"),
        init(),
        text("m2", "asked"),
        result(r#""user_message_uuids":["$MESSAGE"],"#),
        state("idle"),
    ];
    let (events, is_over) = translated_lines(&lines);
    assert!(is_over);
    assert_eq!(end(&events).answer, "asked");
    for until in 1..lines.len() {
        assert!(!translated_lines(&lines[..until]).1, "over behind {}", lines[until - 1]);
    }
}

#[test]
fn a_result_that_names_another_message_is_not_ours() {
    let lines = [
        state("running"),
        init(),
        result(r#""user_message_uuids":["00000000-0000-4000-8000-0000000000bb"],"#),
        state("idle"),
    ];
    assert!(!translated_lines(&lines).1);
}

#[test]
fn a_message_that_is_folded_into_the_turn_or_gets_a_turn_of_its_own_is_answered() {
    for (name, answer) in [
        ("2.1.210/duplex/steer", "slept three"),
        ("2.1.325/duplex/steer", "slept three"),
        ("2.1.325/duplex/named_late", "Hello."),
        ("2.1.325/duplex/named_two", "Hello."),
        ("2.1.325/duplex/named_interrupt_queued", "Hello."),
    ] {
        let events = run(name);
        assert!(end(&events).ok, "{name}");
        assert_eq!(end(&events).answer, answer, "{name}");
    }
}

#[test]
fn an_interrupt_with_only_a_sub_agent_in_the_background_ends_at_the_idle_state() {
    let events = run("2.1.325/duplex/named_agent_interrupt");
    assert!(end(&events).ok, "the only result was the first");
    assert_eq!(end(&events).answer, "started");
    let agent = replay::actions(&events, "subagent").pop().unwrap();
    assert_eq!(agent.action.detail["status"], "interrupted");
}

#[test]
fn an_interrupted_turn_has_the_answer_so_far() {
    for name in ["2.1.325/duplex/interrupt_stream", "2.1.325/print/sigint_stream"] {
        let events = run(name);
        assert_eq!(end(&events).reason, Some(Reason::Interrupted), "{name}");
        assert_eq!(end(&events).answer, "stalls in ", "{name}");
        assert_eq!(end(&events).error.as_deref(), Some("interrupted"));
    }
    for version in replay::VERSIONS {
        let events = &runs(&format!("{version}/duplex/interrupt_tool"))[0];
        assert_eq!(end(events).reason, Some(Reason::Interrupted), "{version}");
    }
    assert_eq!(runs("2.1.325/duplex/interrupt_tool").len(), 2, "the session goes on");
}

#[test]
fn idle_after_our_turn_had_begun_ends_a_run_without_a_result() {
    let lines = [state("running"), lifecycle("started"), init(), text("m", "so far")];
    let (events, is_over) = translated_lines(&lines);
    assert!(!is_over);
    assert_eq!(end(&events).reason, Some(Reason::ProcessDied));
    assert_eq!(end(&events).answer, "so far");
    let lines: Vec<String> = lines.into_iter().chain([state("idle")]).collect();
    assert!(translated_lines(&lines).1);
}

#[test]
fn lines_of_a_sub_agent_never_touch_the_answer_or_the_end() {
    let nested = |json: &str| json.replace(":null", r#":"toolu_1""#);
    let lines = [
        init(),
        text("m1", "mine"),
        nested(&text("m2", "not mine")),
        nested(
            r#"{"type":"assistant","message":{"id":"m2","content":[{"type":"tool_use","id":"t2","name":"Bash","input":{"command":"ls"}}]},"parent_tool_use_id":null,"task_description":"look around"}"#,
        ),
        r#"{"type":"user","message":{"content":[{"type":"text","text":"[Request interrupted by user]"}]},"parent_tool_use_id":"toolu_1"}"#.to_owned(),
        result(""),
    ];
    let (events, is_over) = translated_lines(&lines);
    assert!(is_over);
    assert_eq!(end(&events).answer, "mine");
    assert!(replay::actions(&events, "note").is_empty());
    assert_eq!(replay::actions(&events, "command")[0].action.detail["subagent"], "look around");
    for version in replay::VERSIONS {
        let events = run(&format!("{version}/print/agent_fg"));
        assert_eq!(end(&events).answer, "the sub-agent is done", "{version}");
    }
    assert_eq!(end(&run("2.1.325/print/agent_fg_text")).answer, "the sub-agent is done");
}

#[test]
fn nothing_is_emitted_behind_the_end_and_it_comes_once() {
    let mut translator = replay::translator(SESSION, MESSAGE);
    let mut events = Vec::new();
    for line in [init(), text("m", "answer"), result("")] {
        translator.message(&Message::parse(&line).unwrap(), &mut events);
    }
    assert!(translator.is_over());
    let completed = translator.finish(replay::died(), &mut events);
    assert!(completed.ok && completed.answer == "answer");
    let before = events.len();
    for line in [init(), text("m2", "late"), result("")] {
        translator.message(&Message::parse(&line).unwrap(), &mut events);
    }
    assert_eq!(translator.finish(replay::died(), &mut events).reason, Some(Reason::ProcessDied));
    assert_eq!(events.len(), before);
}

#[test]
fn a_failed_resume_has_no_start_and_says_that_there_is_no_session() {
    for version in ["2.1.210", "2.1.325"] {
        let events = run(&format!("{version}/print/resume_unknown"));
        assert_eq!(events.len(), 1, "{version}");
        assert_eq!(end(&events).reason, Some(Reason::SessionNotFound), "{version}");
        assert_eq!(end(&events).resume, None);
    }
}

#[test]
fn empty_answers_are_answers_but_on_versions_that_call_it_an_error() {
    assert!(end(&run("2.1.325/print/empty")).ok);
    assert_eq!(end(&run("2.1.325/print/empty")).answer, "");
    assert_eq!(end(&run("2.0.45/print/empty")).reason, Some(Reason::EngineFailed));
}
