//! What the tests of the exec transport share.
#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use std::path::{Path, PathBuf};

use takopi_codex::exec::ExecTranslator;
use takopi_core::jsonl::Translator;
use takopi_core::{ActionEvent, Completed, Phase, ResumeToken, TakopiEvent};

pub(crate) const SESSION: &str = "01a1e21b-26e5-7eb0-9d27-459e98f10b74";
pub(crate) const STARTED: &str =
    r#"{"type":"thread.started","thread_id":"01a1e21b-26e5-7eb0-9d27-459e98f10b74"}"#;
pub(crate) const TURN: &str = r#"{"type":"turn.started"}"#;
pub(crate) const DONE: &str = r#"{"type":"turn.completed","usage":{"input_tokens":11,"cached_input_tokens":3,"output_tokens":7,"reasoning_output_tokens":2}}"#;

/// The directory the recordings were made in.
pub(crate) const WORKSPACE: &str = "/workspace";

pub(crate) fn session() -> ResumeToken {
    ResumeToken::new("codex", SESSION)
}

/// An agent's message.
pub(crate) fn message(text: &str, phase: Option<&str>) -> String {
    let mut item = serde_json::json!({ "id": "item_0", "type": "agent_message", "text": text });
    if let Some(phase) = phase {
        item["phase"] = phase.into();
    }
    item_line("completed", &item)
}

pub(crate) fn item_line(phase: &str, item: &serde_json::Value) -> String {
    serde_json::json!({ "type": format!("item.{phase}"), "item": item }).to_string()
}

/// Trouble with the stream.
pub(crate) fn error(message: &str) -> String {
    serde_json::json!({ "type": "error", "message": message }).to_string()
}

/// The events of a new session that prints these lines.
pub(crate) fn translate<S: AsRef<[u8]>>(lines: impl IntoIterator<Item = S>) -> Vec<TakopiEvent> {
    translate_with(ExecTranslator::new(WORKSPACE, None), lines)
}

pub(crate) fn translate_with<S: AsRef<[u8]>>(
    mut translator: ExecTranslator,
    lines: impl IntoIterator<Item = S>,
) -> Vec<TakopiEvent> {
    let mut events = Vec::new();
    for line in lines {
        let line = line.as_ref();
        translator
            .line(line, &mut events)
            .unwrap_or_else(|_| panic!("not JSON: {}", String::from_utf8_lossy(line)));
    }
    events
}

pub(crate) fn actions(events: &[TakopiEvent]) -> Vec<&ActionEvent> {
    events
        .iter()
        .filter_map(|event| match event {
            TakopiEvent::Action(action) => Some(action),
            _ => None,
        })
        .collect()
}

/// The last event, which must be the end.
pub(crate) fn completed(events: &[TakopiEvent]) -> &Completed {
    match events.last() {
        Some(TakopiEvent::Completed(completed)) => completed,
        other => panic!("the run does not end with Completed but with {other:?}"),
    }
}

/// Each event in short: `started`, `note completed ok "title"`, `completed`.
pub(crate) fn outline(events: &[TakopiEvent]) -> Vec<String> {
    events
        .iter()
        .map(|event| match event {
            TakopiEvent::Started(_) => "started".to_owned(),
            TakopiEvent::Action(event) => {
                let phase = match event.phase {
                    Phase::Started => "started",
                    Phase::Updated => "updated",
                    Phase::Completed => "completed",
                };
                let ok = match event.ok {
                    Some(true) => " ok",
                    Some(false) => " failed",
                    None => "",
                };
                format!("{} {phase}{ok} {:?}", event.action.kind, event.action.title)
            }
            TakopiEvent::Completed(completed) => match &completed.reason {
                None => format!("completed {:?}", completed.answer),
                Some(reason) => format!("failed {reason}"),
            },
            other => format!("{other:?}"),
        })
        .collect()
}

/// Every recording of exec: the release, the name, the file.
pub(crate) fn recordings() -> Vec<(String, String, PathBuf)> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
    let mut recordings = Vec::new();
    for release in std::fs::read_dir(&fixtures).expect("there are fixtures") {
        let release = release.unwrap().path();
        let Ok(files) = std::fs::read_dir(release.join("exec")) else { continue };
        for file in files {
            let file = file.unwrap().path();
            let name = |path: &Path| path.file_stem().unwrap().to_string_lossy().into_owned();
            let of = release.file_name().unwrap().to_string_lossy().into_owned();
            recordings.push((of, name(&file), file));
        }
    }
    recordings.sort();
    assert!(recordings.len() >= 40, "only {} recordings", recordings.len());
    recordings
}
