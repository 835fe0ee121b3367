//! What holds for any output whatsoever.
use std::sync::LazyLock;

use crate::support::{DONE, STARTED, TURN, recordings};
use proptest::prelude::*;
use takopi_codex::exec::ExecTranslator;
use takopi_core::TakopiEvent;
use takopi_core::jsonl::Translator;

/// Translates lines, whatever they are, and checks what every run must hold.
fn check(lines: &[Vec<u8>]) -> Result<(), TestCaseError> {
    hold(|| {
        let mut translator = ExecTranslator::new("/workspace", None);
        let mut events = Vec::new();
        for line in lines {
            let _ = translator.line(line, &mut events);
        }
        events
    })
}

/// Checks what every run must hold, however its lines came.
fn hold(run: impl Fn() -> Vec<TakopiEvent>) -> Result<(), TestCaseError> {
    let events = run();
    let end = events.iter().position(|event| matches!(event, TakopiEvent::Completed(_)));
    if let Some(end) = end {
        prop_assert_eq!(end, events.len() - 1, "something comes behind Completed");
    }
    let mut started = events.iter().filter_map(|event| match event {
        TakopiEvent::Started(started) => Some(&started.resume.value),
        _ => None,
    });
    let first = started.next();
    // Another session is passed on, for the runner to refuse; the same is not.
    prop_assert!(started.all(|other| Some(other) != first), "started {:?} twice", first);
    for event in &events {
        if let TakopiEvent::Action(event) = event {
            prop_assert!(!event.action.id.trim().is_empty(), "an action without an id");
            let bytes = serde_json::to_string(&event.action.detail).unwrap().len();
            prop_assert!(bytes < 128 * 1024, "a detail of {} bytes", bytes);
        }
    }
    prop_assert_eq!(run(), events, "the same lines gave other events");
    Ok(())
}

/// Lines of all recordings.
static RECORDED: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let texts = recordings().into_iter().map(|(_, _, file)| std::fs::read_to_string(file).unwrap());
    texts
        .flat_map(|text| text.lines().map(|line| line.as_bytes().to_vec()).collect::<Vec<_>>())
        .collect()
});

fn json() -> impl Strategy<Value = serde_json::Value> {
    let word = prop_oneof![
        Just("agent_message"),
        Just("command_execution"),
        Just("file_change"),
        Just("mcp_tool_call"),
        Just("collab_tool_call"),
        Just("web_search"),
        Just("todo_list"),
        Just("reasoning"),
        Just("error"),
        Just("item_0"),
        Just("commentary"),
        Just("in_progress"),
        Just("completed"),
        Just("/bin/bash -lc 'ls /workspace/a'"),
        Just("Reconnecting... 1/5 (x)"),
    ]
    .prop_map(serde_json::Value::from);
    let leaf = prop_oneof![
        word,
        any::<bool>().prop_map(serde_json::Value::from),
        any::<i64>().prop_map(serde_json::Value::from),
        any::<f64>().prop_map(serde_json::Value::from),
        any::<String>().prop_map(serde_json::Value::from),
        Just(serde_json::Value::Null),
    ];
    let key = prop_oneof![
        Just("id"),
        Just("type"),
        Just("text"),
        Just("phase"),
        Just("command"),
        Just("status"),
        Just("exit_code"),
        Just("aggregated_output"),
        Just("changes"),
        Just("path"),
        Just("kind"),
        Just("server"),
        Just("tool"),
        Just("arguments"),
        Just("result"),
        Just("content"),
        Just("error"),
        Just("message"),
        Just("query"),
        Just("items"),
        Just("completed"),
        Just("prompt"),
        Just("odd"),
    ]
    .prop_map(str::to_owned);
    leaf.prop_recursive(4, 64, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
            prop::collection::hash_map(key.clone(), inner, 0..8)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![
        Just("thread.started"),
        Just("turn.started"),
        Just("turn.completed"),
        Just("turn.failed"),
        Just("item.started"),
        Just("item.updated"),
        Just("item.completed"),
        Just("error"),
        Just("odd"),
    ];
    (kind, json(), json()).prop_map(|(kind, item, other)| {
        serde_json::json!({
            "type": kind, "item": item, "error": other, "message": other, "usage": other, "thread_id": other,
        })
        .to_string()
        .into_bytes()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn arbitrary_bytes_never_break_a_run(lines in prop::collection::vec(any::<Vec<u8>>(), 0..20)) {
        check(&lines)?;
    }

    #[test]
    fn arbitrary_json_never_breaks_a_run(values in prop::collection::vec(json(), 0..20)) {
        let lines: Vec<_> = values.iter().map(|value| value.to_string().into_bytes()).collect();
        check(&lines)?;
    }

    #[test]
    fn lines_of_the_right_shape_with_anything_in_them_are_all_json(lines in prop::collection::vec(line(), 0..30)) {
        let mut translator = ExecTranslator::new("/workspace", None);
        for line in &lines {
            prop_assert!(translator.line(line, &mut Vec::new()).is_ok(), "{}", String::from_utf8_lossy(line));
        }
        check(&lines)?;
    }

    #[test]
    fn recordings_that_were_shuffled_cut_and_spoilt_never_break_a_run(
        picks in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 1..40),
    ) {
        let lines: Vec<_> = picks
            .iter()
            .map(|(line, place, byte, how)| {
                let mut line = line.get(&RECORDED).clone();
                let place = place.index(line.len());
                match how {
                    0 => line[place] = *byte,
                    1 => line.truncate(place),
                    2 => line.insert(place, *byte),
                    _ => {}
                }
                line
            })
            .collect();
        check(&lines)?;
    }

    #[test]
    fn every_item_that_was_opened_is_closed_once_the_turn_is_over(
        news in prop::collection::vec((0..5_u8, 0..3_u8), 0..40),
    ) {
        let mut lines = vec![STARTED.as_bytes().to_vec(), TURN.as_bytes().to_vec()];
        for (id, phase) in news {
            let phase = ["started", "updated", "completed"][usize::from(phase)];
            let item = serde_json::json!({"id":format!("item_{id}"),"type":"command_execution","command":"ls"});
            lines.push(crate::support::item_line(phase, &item).into_bytes());
        }
        lines.push(DONE.as_bytes().to_vec());
        let mut translator = ExecTranslator::new("/workspace", None);
        let mut events = Vec::new();
        for line in &lines {
            translator.line(line, &mut events).unwrap();
        }
        let mut open = std::collections::HashSet::new();
        for event in crate::support::actions(&events).into_iter().filter(|event| event.action.kind.is_tool()) {
            if event.phase == takopi_core::Phase::Completed {
                open.remove(&event.action.id);
            } else {
                open.insert(&event.action.id);
            }
        }
        prop_assert!(open.is_empty(), "left open: {:?}", open);
        check(&lines)?;
    }
}

/// The lines of app-servers in all recordings.
static TOLD: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let fixtures = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
    let versions = std::fs::read_dir(fixtures).unwrap().map(|entry| entry.unwrap().path());
    // Other agents have recordings of other kinds beside them.
    let recorded =
        versions.filter_map(|version| std::fs::read_dir(version.join("app-server")).ok());
    let files = recorded.flatten();
    let texts = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    let lines = texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
    let lines: Vec<_> =
        lines.filter_map(|line| Some(line.strip_prefix("< ")?.as_bytes().to_vec())).collect();
    assert!(lines.len() > 1000, "only {} lines", lines.len());
    lines
});

fn hold_over_app_server(lines: &[Vec<u8>]) -> Result<(), TestCaseError> {
    for deltas in [false, true] {
        hold(|| {
            takopi_codex::app_server::translate_lines(lines.iter().map(Vec::as_slice), deltas)
        })?;
    }
    Ok(())
}

proptest! {
    /// In any order, with any bytes changed.
    #[test]
    fn the_contract_holds_for_any_output_of_an_app_server(
        picks in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>(), 0..4u8), 0..40),
    ) {
        let lines: Vec<Vec<u8>> = picks
            .into_iter()
            .map(|(line, place, byte, change)| {
                let mut line = line.get(&TOLD).clone();
                if change == 0 && !line.is_empty() {
                    let place = place.index(line.len());
                    line[place] = byte;
                }
                line
            })
            .collect();
        hold_over_app_server(&lines)?;
    }

    #[test]
    fn any_bytes_from_an_app_server_are_survived(
        lines in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 0..10),
    ) {
        hold_over_app_server(&lines)?;
    }
}
