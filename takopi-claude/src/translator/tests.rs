//! Recordings of three versions, and one test for each thing that a naive engine gets wrong.

mod ends;
mod failures;
mod replay;
mod tools;

use std::fmt::Write as _;

use super::*;
use replay::{Recording, recordings, run, runs};

/// Every event of every recording of a version.
fn all(version: &str) -> String {
    let mut text = String::new();
    for recording in recordings(version) {
        let _ = writeln!(text, "== {}", recording.name);
        for events in recording.replayed() {
            let _ = writeln!(text, "run");
            for event in events {
                let _ = writeln!(text, "{}", serde_json::to_string(&event).unwrap());
            }
        }
    }
    text
}

#[test]
fn recordings_of_2_0_45_are_translated_as_they_were() {
    insta::assert_snapshot!("2.0.45", all("2.0.45"));
}

#[test]
fn recordings_of_2_1_210_are_translated_as_they_were() {
    insta::assert_snapshot!("2.1.210", all("2.1.210"));
}

#[test]
fn recordings_of_2_1_325_are_translated_as_they_were() {
    insta::assert_snapshot!("2.1.325", all("2.1.325"));
}

#[test]
fn in_every_recording_a_run_starts_once_ends_once_and_closes_what_it_opened() {
    for version in replay::VERSIONS {
        for recording in recordings(version) {
            for events in recording.replayed() {
                replay::check(&recording.name, &events);
            }
        }
    }
}

#[test]
fn every_line_of_every_recording_is_known() {
    let ignored = [
        "system/hook_started",
        "system/hook_response",
        "system/thinking_tokens",
        "system/model_refusal_no_fallback",
    ];
    for version in replay::VERSIONS {
        for Recording { name, lines } in recordings(version) {
            for line in lines.iter().filter(|line| !line.starts_with("> ")) {
                let line = line.strip_prefix("< ").unwrap_or(line);
                if let Message::Other { kind } = Message::parse(line).unwrap() {
                    assert!(ignored.contains(&kind.as_str()), "{name}: {kind}");
                }
            }
        }
    }
}

#[test]
fn the_first_init_is_the_start_and_a_later_one_a_turn() {
    let events = run("2.1.325/duplex/agent_bg");
    let starts: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            TakopiEvent::Started(started) => Some(started),
            _ => None,
        })
        .collect();
    assert_eq!(starts.len(), 1);
    assert_eq!(starts[0].title.as_deref(), Some("Claude Code"));
    assert_eq!(starts[0].meta["model"], "claude-opus-5-5");
    assert_eq!(starts[0].meta["version"], "2.1.325");
    assert_eq!(starts[0].meta["cwd"], "/home/ada/project");
    assert_eq!(starts[0].meta["permission_mode"], "bypassPermissions");
    assert_eq!(replay::actions(&events, "turn").len(), 2);
}

#[test]
fn another_session_than_the_one_asked_for_is_no_token() {
    let init =
        r#"{"type":"system","subtype":"init","session_id":"00000000-0000-4000-8000-00000000000f"}"#;
    let reset = r#"{"type":"conversation_reset","new_conversation_id":"00000000-0000-4000-8000-00000000000f"}"#;
    for line in [init, reset] {
        let mut translator = replay::translator(replay::SESSION, replay::MESSAGE);
        let mut events = Vec::new();
        translator.message(&Message::parse(line).unwrap(), &mut events);
        assert_eq!(translator.session_mismatch(), Some("00000000-0000-4000-8000-00000000000f"));
        assert!(events.is_empty(), "{events:?}");
        let completed = translator.finish(replay::died(), &mut events);
        assert_eq!(completed.resume, None);
    }
    let upper = init.replace("00000000f", "00000000F");
    let session = "00000000-0000-4000-8000-00000000000f";
    let mut translator = replay::translator(session, replay::MESSAGE);
    translator.message(&Message::parse(&upper).unwrap(), &mut Vec::new());
    assert_eq!(translator.session_mismatch(), None);
}

#[test]
fn without_an_init_the_result_confirms_the_session_or_the_run_fails() {
    let result = |session: &str| {
        format!(
            r#"{{"type":"result","subtype":"success","result":"Hi.","session_id":"{session}"}}"#
        )
    };
    let (events, _) = replay::translated(&[&result(replay::SESSION)]);
    assert!(matches!(&events[0], TakopiEvent::Started(it) if it.resume.value == replay::SESSION));
    assert_eq!(replay::end(&events).answer, "Hi.");
    assert!(replay::end(&events).ok);
    for other in ["00000000-0000-4000-8000-00000000000f", "no session"] {
        let (events, _) = replay::translated(&[&result(other)]);
        assert_eq!(replay::end(&events).reason, Some(Reason::Protocol));
        assert_eq!(replay::end(&events).resume, None);
    }
    let (events, _) = replay::translated(&[r#"{"type":"result","subtype":"success"}"#]);
    assert_eq!(replay::end(&events).reason, Some(Reason::Protocol));
}

#[test]
fn the_answer_is_all_text_of_the_last_message_and_not_the_result_alone() {
    for version in replay::VERSIONS {
        let events = run(&format!("{version}/print/two_blocks"));
        assert_eq!(replay::end(&events).answer, "First part.\n\nSecond part.");
    }
}

#[test]
fn text_before_a_tool_call_is_a_note_and_not_part_of_the_answer() {
    let events = run("2.1.325/print/bash_ok");
    let notes = replay::actions(&events, "note");
    assert_eq!(notes.len(), 1);
    assert_eq!(notes[0].action.title, "I will run it.");
    assert_eq!(notes[0].action.detail["phase"], "commentary");
    assert_eq!(replay::end(&events).answer, "ran it");
    let at = |kind: &str| {
        let is = |event: &TakopiEvent| matches!(event, TakopiEvent::Action(event) if event.action.kind.as_str() == kind);
        events.iter().position(is)
    };
    assert!(at("note") < at("command"));
}

#[test]
fn without_a_message_the_answer_is_the_result() {
    let events = run("2.1.325/print/slash_cost");
    assert!(replay::end(&events).answer.starts_with("Total cost:"));
}

#[test]
fn thinking_and_compacting_are_notes() {
    let thinking = run("2.1.325/print/thinking");
    assert_eq!(replay::actions(&thinking, "note")[0].action.title, "Let me think about it.");
    let compact = run("2.1.325/print/compact");
    let notes = replay::actions(&compact, "note");
    let phases: Vec<Phase> = notes.iter().map(|note| note.phase).collect();
    assert_eq!(phases, [Phase::Started, Phase::Completed]);
    assert_eq!(notes[1].action.title, "compacting the conversation");
}

#[test]
fn pieces_of_the_answer_are_emitted_only_if_asked_for_and_are_the_text() {
    let recording = Recording::named("2.1.325/print/partial_tool");
    let events = recording.replayed().remove(0);
    assert!(replay::actions(&events, "answer").is_empty());

    let streamed = recording.replayed_with(true).remove(0);
    let pieces = replay::actions(&streamed, "answer");
    let mut texts: Vec<(String, String)> = Vec::new();
    for piece in &pieces {
        let id = &piece.action.id;
        match piece.phase {
            Phase::Started => texts.push((id.clone(), String::new())),
            Phase::Updated => {
                let (open, text) = texts.last_mut().unwrap();
                assert_eq!(open, id);
                text.push_str(piece.message.as_deref().unwrap());
            }
            Phase::Completed => assert_eq!(&texts.last().unwrap().0, id),
        }
    }
    let texts: Vec<&str> = texts.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts, ["I will run it.", "ran it"]);
    assert!(replay::actions(&streamed, "note").is_empty(), "no text is emitted twice");
    assert_eq!(replay::end(&streamed).answer, "ran it");
}

#[test]
fn usage_and_cost_are_of_the_run_and_not_of_the_session() {
    let events = runs("2.1.325/duplex/two_turns");
    assert_eq!(events.len(), 2);
    for events in &events {
        let end = replay::end(events);
        let usage = end.usage.as_ref().unwrap();
        assert_eq!((usage.input_tokens, usage.cached_input_tokens), (19, 3));
        assert_eq!(usage.output_tokens, 7);
        assert!((end.cost_usd.unwrap() - 0.000_209_6).abs() < 1e-9);
    }
    // Sub-agents count: the sum of both results.
    let agent = run("2.1.325/duplex/agent_bg");
    assert_eq!(replay::end(&agent).usage.as_ref().unwrap().output_tokens, 35);
    // What a process has cost before is not known here: no figure is better than a wrong one.
    let before = runs("2.1.210/duplex/two_turns");
    assert!(replay::end(&before[0]).cost_usd.is_some());
    assert_eq!(replay::end(&before[1]).cost_usd, None);
}
