//! Both transports give the same events for the same thing.

use std::path::{Path, PathBuf};

use serde_json::Value;
use takopi_core::TakopiEvent;
use takopi_core::model::{ActionEvent, Phase};
use takopi_core::paths::Directory;

use super::{Item, Read, Translation};
use crate::failure::Fault;

fn fixture(path: &str) -> String {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/codex-0.166.0");
    std::fs::read_to_string(fixtures.join(path)).unwrap()
}

/// Plays one transport's messages, distinguished by their names.
fn play(messages: impl Iterator<Item = Value>, kind: &str, inside: &str) -> Vec<TakopiEvent> {
    let workspace = PathBuf::from("/workspace");
    let mut translation = Translation::new("Codex", Directory::new([workspace.as_path()]));
    let mut events = Vec::new();
    for message in messages {
        let params = if inside.is_empty() { &message } else { &message[inside] };
        let phase = match message[kind].as_str().unwrap_or_default() {
            "item.started" | "item/started" => Phase::Started,
            "item.updated" => Phase::Updated,
            "item.completed" | "item/completed" => Phase::Completed,
            "turn.started" | "turn/started" => {
                translation.turn_started(&mut events);
                continue;
            }
            "error" => {
                let error = if params["error"].is_null() { params } else { &params["error"] };
                let text = error.to_string();
                let Read(fault) = serde_json::from_str::<Read<Fault<'_>>>(&text).unwrap();
                translation.stream_error(&fault.unwrap(), &mut events);
                continue;
            }
            _ => continue,
        };
        let text = params["item"].to_string();
        let Read(item) = serde_json::from_str::<Read<Item<'_>>>(&text).unwrap();
        translation.item(phase, item.unwrap(), &mut events);
    }
    translation.turn_completed(None, &mut events);
    events
}

fn over_exec(name: &str) -> Vec<TakopiEvent> {
    let text = fixture(&format!("exec/{name}.jsonl"));
    // A web search carries two ids; a `Value` would keep the second.
    let lines = text.lines().map(|line| line.replace(r#""id":"ws1","#, ""));
    play(lines.map(|line| serde_json::from_str(&line).unwrap()), "type", "")
}

fn over_app_server(name: &str) -> Vec<TakopiEvent> {
    let text = fixture(&format!("app-server/{name}.txt"));
    let lines = text.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("< ")?).ok());
    play(lines, "method", "params")
}

/// The actions that are over, without their ids, which each transport makes for itself.
fn over(events: Vec<TakopiEvent>) -> Vec<ActionEvent> {
    let actions = events.into_iter().filter_map(|event| match event {
        TakopiEvent::Action(mut event) if event.phase == Phase::Completed => {
            event.action.id.clear();
            Some(event)
        }
        _ => None,
    });
    actions.collect()
}

/// exec reports which files a patch changes, and not how.
fn without_diffs(mut event: ActionEvent) -> ActionEvent {
    let details = event.action.detail.iter_mut().filter(|(name, _)| *name == "changes");
    for change in details.filter_map(|(_, changes)| changes.as_array_mut()).flatten() {
        change.as_object_mut().unwrap().remove("diff");
    }
    event
}

#[test]
fn app_server_shows_what_a_patch_changes() {
    let events = over(over_app_server("patch"));
    assert_eq!(events[0].action.detail["changes"][0]["diff"], "+hello\n");
}

#[test]
fn the_same_thing_gives_the_same_events_on_both_transports() {
    for (exec, app_server) in [
        // The two streams of the command came in another order in app-server's own `shell`.
        ("shell", "approve_command"),
        ("patch", "patch"),
        ("mcp", "mcp"),
        ("web_search", "web_search"),
        ("drop_then_ok", "drop_then_ok"),
        ("failed", "failed"),
        ("http401", "http401"),
    ] {
        let events = over(over_exec(exec));
        assert!(!events.is_empty(), "{exec} shows nothing");
        let other: Vec<_> =
            over(over_app_server(app_server)).into_iter().map(without_diffs).collect();
        assert_eq!(events, other, "{exec}");
    }
}

#[test]
fn app_server_also_tells_commentary_from_the_answer() {
    let events = over_app_server("phases");
    let Some(TakopiEvent::Completed(completed)) = events.last() else { panic!("{events:?}") };
    assert_eq!(completed.answer, "Final answer");
    let notes = over(events);
    assert_eq!(notes.len(), 1);
    assert_eq!((notes[0].action.title.as_str(), notes[0].ok), ("Commentary", Some(true)));
}

/// Shows one item of app-server.
fn shown(item: &str) -> Option<ActionEvent> {
    let mut translation = Translation::new("Codex", Directory::default());
    let mut events = Vec::new();
    let Read(item) = serde_json::from_str::<Read<Item<'_>>>(item).unwrap();
    translation.item(Phase::Completed, item.unwrap(), &mut events);
    over(events).pop()
}

#[test]
fn items_that_only_app_server_has_are_shown_too() {
    for (item, kind, title, ok) in [
        (
            r#"{"type":"dynamicToolCall","id":"1","tool":"weather","namespace":null,"arguments":{},"status":"completed"}"#,
            "tool",
            "weather",
            true,
        ),
        (
            r#"{"type":"collabAgentToolCall","id":"1","tool":"spawnAgent","prompt":"look","status":"failed","receiverThreadIds":[]}"#,
            "subagent",
            "spawn_agent: look",
            false,
        ),
        (
            r#"{"type":"subAgentActivity","id":"1","kind":"started","agentPath":"/main/explorer","agentThreadId":"t"}"#,
            "subagent",
            "started: /main/explorer",
            true,
        ),
        (
            r#"{"type":"reasoning","id":"1","summary":["one","two"],"content":[]}"#,
            "note",
            "one\ntwo",
            true,
        ),
        (r#"{"type":"plan","id":"1","text":"first this"}"#, "note", "first this", true),
        (r#"{"type":"contextCompaction","id":"1"}"#, "note", "contextCompaction", true),
    ] {
        let event = shown(item).unwrap();
        assert_eq!(
            (event.action.kind.as_str(), event.action.title.as_str(), event.ok),
            (kind, title, Some(ok)),
        );
    }
    let echo = r#"{"type":"userMessage","id":"1","content":[{"type":"text","text":"hi"}]}"#;
    let silent = r#"{"type":"reasoning","id":"1","summary":[],"content":[]}"#;
    assert!(shown(echo).is_none() && shown(silent).is_none());
}
