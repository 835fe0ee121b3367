//! Recordings of the real agents, as the driver would feed them, and what they do not show.

use std::path::{Path, PathBuf};

use serde_json::Value;
use serde_json::value::RawValue;
use takopi_core::rpc::ErrorBody;

use super::*;
use crate::wire::{Permission, SessionUpdate};

const AGENTS: [(&str, &str); 5] = [
    ("opencode", "opencode-1.18.33"),
    ("codex-acp", "codex-acp-2.6.0"),
    ("qwen", "qwen-0.24.4"),
    ("gemini", "gemini-0.61.0"),
    ("claude-acp", "claude-agent-acp-0.99.1"),
];

fn translator(agent: &str) -> Translator {
    let agent = Agent::preset(agent).unwrap();
    let uses_ids = agent.quirks.message_ids;
    let directory = PathBuf::from("/home/ada/project");
    Translator::new(TurnSetup { agent, directory, uses_ids, deltas: false })
}

fn raw(value: &Value) -> Box<RawValue> {
    RawValue::from_string(value.to_string()).unwrap()
}

fn interrupted() -> Completed {
    Completed::failure("lab", Reason::Interrupted, "interrupted")
}

/// A turn of a recording: the prompt, the events, and the end; none if it has no end there.
struct Turn {
    prompt: String,
    events: Vec<TakopiEvent>,
    end: Option<Completed>,
    is_repeating: bool,
}

fn recordings(directory: &str) -> Vec<(String, Vec<Value>)> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
    let mut all = Vec::new();
    for file in std::fs::read_dir(place.join(format!("acp-{directory}"))).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "jsonl") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        all.push((path.file_stem().unwrap().to_str().unwrap().to_owned(), lines));
    }
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    all
}

fn turns(agent: &str, lines: &[Value]) -> Vec<Turn> {
    let mut turns: Vec<Turn> = Vec::new();
    let mut current: Option<(Translator, Value)> = None;
    for line in lines {
        let message = &line["msg"];
        let is_ours = line["dir"] == ">";
        if is_ours && message["method"] == "session/prompt" {
            // Of two prompts at once the first is followed.
            if current.is_none() {
                let prompt = message["params"]["prompt"][0]["text"].as_str().unwrap_or_default();
                let (prompt, events) = (prompt.to_owned(), Vec::new());
                turns.push(Turn { prompt, events, end: None, is_repeating: false });
                current = Some((translator(agent), message["id"].clone()));
            }
            continue;
        }
        let Some((translator, id)) = &mut current else { continue };
        let turn = turns.last_mut().unwrap();
        if is_ours {
            continue;
        }
        match message["method"].as_str() {
            Some("session/update") => {
                let update = SessionUpdate::read(&raw(&message["params"])).unwrap().update;
                translator.update(&update, &mut turn.events);
            }
            Some("session/request_permission") => {
                let permission = Permission::read(&raw(&message["params"])).unwrap();
                translator.asked(&permission.call, false, &mut turn.events);
            }
            None if message["id"] == *id => {
                let reply = match message.get("error") {
                    Some(error) => Err(ResponseError::Refused(ErrorBody::read(&raw(error)))),
                    None => Ok(PromptReply::read(&raw(&message["result"]))),
                };
                translator.ended(reply);
                turn.end = Some(translator.finish(interrupted(), &mut turn.events));
                current = None;
            }
            _ => {}
        }
        if let Some((translator, _)) = &current {
            turn.is_repeating |= translator.is_repeating();
        }
    }
    turns
}

/// One line an event, for snapshots.
fn outline(turn: &Turn) -> Vec<String> {
    let mut lines = vec![format!("> {}", turn.prompt.chars().take(60).collect::<String>())];
    for event in &turn.events {
        let TakopiEvent::Action(event) = event else { continue };
        let (action, phase) = (&event.action, format!("{:?}", event.phase).to_lowercase());
        let title: String = action.title.replace('\n', "⏎").chars().take(80).collect();
        let ok = event.ok.map_or(String::new(), |ok| format!(" ok={ok}"));
        let detail = |name: &str| {
            let value = action.detail.get(name)?.to_string();
            Some(format!(" {name}={}", value.chars().take(120).collect::<String>()))
        };
        let details: String = ["status", "exit_code", "output_tail", "changes"]
            .into_iter()
            .filter_map(detail)
            .collect();
        lines.push(format!("  {} {phase}{ok} {title:?}{details}", action.kind.as_str()));
    }
    lines.push(match &turn.end {
        None => "  (no end)".to_owned(),
        Some(end) if end.ok => format!("  ok {:?}", end.answer),
        Some(end) => format!(
            "  {} {:?} {:?}",
            end.reason.as_ref().unwrap().as_str(),
            end.error.as_deref().unwrap_or_default().chars().take(160).collect::<String>(),
            end.answer
        ),
    });
    lines
}

#[test]
fn recordings_become_these_events() {
    for (agent, directory) in AGENTS {
        let mut text = Vec::new();
        for (name, lines) in recordings(directory) {
            // The outcome depends on how often it was tried, or is too long to be read.
            if name.ends_with("_drop") || name == "big_output" || name.starts_with("cancel") {
                continue;
            }
            text.push(format!("== {name}"));
            text.extend(turns(agent, &lines).iter().flat_map(outline));
        }
        insta::assert_snapshot!(agent, text.join("\n"));
    }
}

#[test]
fn a_failure_of_the_model_is_never_ok() {
    let mut failures = 0;
    for (agent, directory) in AGENTS {
        for (name, lines) in recordings(directory) {
            let Some(kind) = name.strip_prefix("error_") else { continue };
            // An answer that was cut off looks like any other on some, and one that did not fit is compacted by some.
            if ["length", "toolong", "drop"].contains(&kind) {
                continue;
            }
            let turns = turns(agent, &lines);
            let end = turns[0].end.as_ref();
            assert!(end.is_none_or(|end| !end.ok), "{agent} {name}: {end:?}");
            failures += usize::from(end.is_some());
            // What comes behind it went well.
            for turn in &turns[1..] {
                assert!(
                    turn.end.as_ref().is_none_or(|end| end.ok),
                    "{agent} {name}: {:?}",
                    turn.end
                );
            }
        }
    }
    assert!(failures > 20, "{failures}");
}

#[test]
fn blank_lines_ahead_of_a_message_are_no_part_of_it() {
    let (mut translator, mut events) = (translator("gemini"), Vec::new());
    for text in ["\n", "one\n", "\ntwo"] {
        let update = Update::Message { id: None, text: text.to_owned(), tokens: None };
        translator.update(&update, &mut events);
    }
    translator.ended(Ok(PromptReply { stop_reason: "end_turn".to_owned(), tokens: None }));
    assert_eq!(translator.finish(interrupted(), &mut events).answer, "one\n\ntwo");
}

/// No agent does so today. Consumers would wait for the end of what they saw begin.
#[test]
fn a_call_stays_the_kind_of_action_that_it_was_shown_as() {
    let update = |update: Value| {
        SessionUpdate::read(&raw(&serde_json::json!({ "sessionId": "s", "update": update })))
            .unwrap()
            .update
    };
    let call = |kind: &str, status: &str| {
        update(serde_json::json!({
            "sessionUpdate": "tool_call_update", "toolCallId": "c", "kind": kind, "status": status,
            "title": "ls",
        }))
    };
    let (mut translator, mut events) = (translator("opencode"), Vec::new());
    translator.update(&call("other", "in_progress"), &mut events);
    translator.update(&call("execute", "completed"), &mut events);
    let kinds = events.iter().filter_map(|event| match event {
        TakopiEvent::Action(event) => Some((event.phase, event.action.kind.clone())),
        _ => None,
    });
    let tool = |phase| (phase, ActionKind::Tool);
    assert_eq!(kinds.collect::<Vec<_>>(), [Phase::Started, Phase::Completed].map(tool));
}

#[test]
fn every_call_is_shown_begun_and_ended_once() {
    for (agent, directory) in AGENTS {
        for (name, lines) in recordings(directory) {
            for turn in turns(agent, &lines).iter().filter(|turn| turn.end.is_some()) {
                let mut open = std::collections::HashMap::new();
                for event in &turn.events {
                    let TakopiEvent::Action(event) = event else { continue };
                    if !event.action.kind.is_tool() {
                        continue;
                    }
                    let phases: &mut Vec<Phase> = open.entry(&event.action.id).or_default();
                    phases.push(event.phase);
                }
                for (id, phases) in open {
                    let first_and_last = (phases.first(), phases.last());
                    let whole = (Some(&Phase::Started), Some(&Phase::Completed));
                    assert_eq!(first_and_last, whole, "{agent} {name} {id}");
                    let inner = &phases[1..phases.len() - 1];
                    assert!(inner.iter().all(|phase| *phase == Phase::Updated), "{agent} {name}");
                }
            }
        }
    }
}

#[test]
fn an_agent_whose_stream_breaks_off_again_and_again_is_found_out() {
    let (_, lines) =
        recordings("opencode-1.18.33").into_iter().find(|(name, _)| name == "error_drop").unwrap();
    assert!(turns("opencode", &lines)[0].is_repeating);
    for (agent, directory) in AGENTS {
        for (name, lines) in recordings(directory) {
            if name != "error_drop" {
                let found = turns(agent, &lines).iter().any(|turn| turn.is_repeating);
                assert!(!found, "{agent} {name}");
            }
        }
    }
}

fn message(id: Option<&str>, text: &str) -> Update {
    Update::Message { id: id.map(str::to_owned), text: text.to_owned(), tokens: None }
}

fn reply(stop_reason: &str) -> PromptReply {
    PromptReply { stop_reason: stop_reason.to_owned(), tokens: None }
}

fn run(agent: &str, updates: &[Update], stop_reason: &str) -> (Vec<TakopiEvent>, Completed) {
    let mut translator = translator(agent);
    let mut events = Vec::new();
    for update in updates {
        translator.update(update, &mut events);
    }
    translator.ended(Ok(reply(stop_reason)));
    let completed = translator.finish(interrupted(), &mut events);
    (events, completed)
}

#[test]
fn an_ordinary_end_without_text_or_call_is_a_failure() {
    let (_, end) = run("gemini", &[], "end_turn");
    assert!(!end.ok && end.error.unwrap().contains("without an answer"));
    for stop_reason in ["cancelled", "refusal", "max_tokens", "max_turn_requests", "new", ""] {
        let (_, end) = run("gemini", &[message(None, "half")], stop_reason);
        assert!(!end.ok, "{stop_reason}");
        assert_eq!(end.answer, "half", "{stop_reason}");
    }
}

#[test]
fn text_of_the_agent_itself_is_a_warning_or_at_the_end_an_error() {
    let updates = [message(None, "Config warning: x"), message(Some("m1"), "Hello")];
    let (events, end) = run("codex-acp", &updates, "end_turn");
    assert!(end.ok);
    assert_eq!(end.answer, "Hello");
    assert!(
        matches!(&events[..], [TakopiEvent::Action(event)] if event.action.kind == ActionKind::Warning)
    );
    let updates = [message(Some("m1"), "half"), message(None, "stream disconnected")];
    let (_, end) = run("codex-acp", &updates, "end_turn");
    assert_eq!((end.ok, end.error.as_deref()), (false, Some("stream disconnected")));
}

#[test]
fn pieces_joined_are_the_answer_and_no_note_repeats_them() {
    let agent = Agent::preset("claude-acp").unwrap();
    let directory = PathBuf::from("/srv");
    let setup = TurnSetup { agent, directory, uses_ids: true, deltas: true };
    let mut translator = Translator::new(setup);
    let mut events = Vec::new();
    let call = CallUpdate {
        id: "c".to_owned(),
        status: Some("completed".to_owned()),
        ..CallUpdate::default()
    };
    for update in [
        message(Some("m1"), "Let me "),
        message(Some("m1"), "look."),
        Update::Call(Box::new(call)),
        // The same message goes on.
        message(Some("m1"), "Three "),
        message(Some("m1"), "files."),
    ] {
        translator.update(&update, &mut events);
    }
    translator.ended(Ok(reply("end_turn")));
    let end = translator.finish(interrupted(), &mut events);
    let mut texts = std::collections::BTreeMap::<String, String>::new();
    for event in &events {
        let TakopiEvent::Action(event) = event else { continue };
        assert_ne!(event.action.kind, ActionKind::Note, "{event:?}");
        if let Some(piece) = event.answer_piece() {
            texts.entry(event.action.id.clone()).or_default().push_str(piece);
        }
    }
    let texts: Vec<String> = texts.into_values().collect();
    assert_eq!(texts, ["Three files.", "Let me look."]);
    assert_eq!(end.answer, "Three files.");
}

/// Not every agent marks messages with ids: there reasoning ends a message.
#[test]
fn a_message_that_only_reasoning_came_behind_is_the_answer() {
    let thought = || Update::Thought { id: None, text: "Was that right?".to_owned() };
    let call = || {
        let status = Some("completed".to_owned());
        Update::Call(Box::new(CallUpdate { id: "c".to_owned(), status, ..CallUpdate::default() }))
    };
    let text = |text| message(None, text);
    for (updates, answer, notes) in [
        (vec![text("4"), text("2."), thought()], "42.", vec!["Was that right?"]),
        (
            vec![text("42."), thought(), text("\n"), thought()],
            "42.",
            vec!["Was that right?Was that right?"],
        ),
        (vec![text("A"), thought(), text("B")], "B", vec!["A", "Was that right?"]),
        (vec![text("A"), thought(), call()], "", vec!["A", "Was that right?"]),
    ] {
        for deltas in [false, true] {
            let agent = Agent::preset("gemini").unwrap();
            let directory = PathBuf::from("/srv");
            let setup = TurnSetup { agent, directory, uses_ids: false, deltas };
            let (mut translator, mut events) = (Translator::new(setup), Vec::new());
            for update in &updates {
                translator.update(update, &mut events);
            }
            translator.ended(Ok(reply("end_turn")));
            let end = translator.finish(interrupted(), &mut events);
            assert_eq!((end.ok, end.answer.as_str()), (true, answer), "{updates:?}");
            // Its pieces are over before the reasoning behind it is told.
            let last = events.iter().rfind(|event| matches!(event, TakopiEvent::Action(_)));
            let Some(TakopiEvent::Action(last)) = last else { panic!("{events:?}") };
            assert!(answer != "42." || last.action.kind == ActionKind::Note, "{last:?}");
            let said = events.iter().filter_map(|event| match event {
                TakopiEvent::Action(event) if event.action.kind == ActionKind::Note => {
                    Some(event.action.title.as_str())
                }
                _ => None,
            });
            // Streamed text is in no note.
            let notes = notes.iter().copied().filter(|note| !deltas || note.len() > 1);
            assert_eq!(said.collect::<Vec<_>>(), notes.collect::<Vec<_>>(), "{updates:?}");
        }
    }
}

#[test]
fn different_texts_without_end_are_stopped_too() {
    let mut translator = translator("opencode");
    let mut events = Vec::new();
    for n in 0..100 {
        if translator.is_repeating() {
            assert!(n > 20);
            return;
        }
        translator.update(&message(Some(&format!("m{n}")), &format!("try {n}")), &mut events);
    }
    panic!("it went on");
}

#[test]
fn a_text_that_is_too_long_to_be_kept_is_marked() {
    let (limit, piece) = (4 * 1024 * 1024, "é".repeat(1024 * 1024));
    for (before, pieces) in [("", 2), ("", 3), ("a", 2), ("a", 4)] {
        let pieces = (0..pieces).map(|_| message(Some("m"), &piece));
        let updates: Vec<Update> = [message(Some("m"), before)].into_iter().chain(pieces).collect();
        let (_, end) = run("codex-acp", &updates, "end_turn");
        let is_whole = before.is_empty() && updates.len() == 3;
        assert_eq!(end.answer.matches('…').count(), usize::from(!is_whole));
        assert_eq!(end.answer.ends_with('…'), !is_whole);
        assert!(end.answer.len() <= limit + '…'.len_utf8(), "{}", end.answer.len());
    }
}

/// Cut first, it would no longer look like one.
#[test]
fn the_error_of_a_tool_has_no_part_of_a_credential() {
    let update = |fields: Value| {
        let mut update = serde_json::json!({
            "sessionUpdate": "tool_call_update", "toolCallId": "c", "kind": "other", "title": "t",
        });
        for (name, value) in fields.as_object().unwrap() {
            update[name] = value.clone();
        }
        let params = serde_json::json!({ "sessionId": "s", "update": update });
        SessionUpdate::read(&raw(&params)).unwrap().update
    };
    let url = "postgres://app:hunter2@db/main";
    for (before, behind) in [(1001, 0), (1002, 9000), (9000, 9000), (0, 8176), (0, 16368)] {
        let text = format!("{} {url} {}", "x".repeat(before), "y".repeat(behind));
        let content = serde_json::json!([
            { "type": "content", "content": { "type": "text", "text": text } },
        ]);
        let in_pieces = text.as_bytes().chunks(1000).map(|piece| {
            let piece = std::str::from_utf8(piece).unwrap();
            update(serde_json::json!({ "_meta": { "terminal_output_delta": { "data": piece } } }))
        });
        let in_pieces: Vec<Update> = in_pieces.collect();
        for updates in [
            vec![update(serde_json::json!({ "content": content }))],
            vec![update(serde_json::json!({ "rawOutput": { "output": text } }))],
            in_pieces,
        ] {
            let failed = update(serde_json::json!({ "status": "failed" }));
            let updates: Vec<Update> = updates.into_iter().chain([failed]).collect();
            let (events, _) = run("codex-acp", &updates, "end_turn");
            let events = serde_json::to_string(&events).unwrap();
            assert!(events.contains("error_message"), "{events}");
            assert!(!events.contains("hunter"), "{before} {behind}: {events}");
        }
    }
}
