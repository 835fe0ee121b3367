use std::fmt::Write as _;
use std::path::Path;

use takopi_core::model::{ActionKind, Phase, TakopiEvent};

use super::*;

const SESSION: &str = "01a1e443-1aa9-70f6-9a71-8421d061dced";

/// The lines that pi printed in a recording, run by run.
fn runs(path: &Path) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut runs = vec![Vec::new()];
    // Not `str::lines`: a raw U+2028 is no end of a line.
    for line in text.split('\n').filter_map(|line| line.strip_prefix("< ")) {
        runs.last_mut().unwrap().push(line.to_owned());
        if line.contains(r#""type":"agent_settled""#) {
            runs.push(Vec::new());
        }
    }
    runs.retain(|run| run.iter().any(|line| line.contains(r#""type":"agent_start""#)));
    runs
}

fn recordings() -> Vec<(String, Vec<Vec<String>>)> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/pi-1.5.0");
    let mut all = Vec::new();
    for kind in ["json", "rpc"] {
        for file in std::fs::read_dir(fixtures.join(kind)).unwrap() {
            let path = file.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap();
            all.push((format!("{kind}/{name}"), runs(&path)));
        }
    }
    all.sort();
    assert!(all.len() > 40, "only {} recordings", all.len());
    all
}

fn translated(lines: &[String], deltas: bool) -> Vec<TakopiEvent> {
    let lines = lines.iter().map(String::as_bytes);
    translate_lines(lines, SESSION, Path::new("/home/ada/project"), deltas)
}

fn of(lines: &[&str]) -> Vec<TakopiEvent> {
    translated(&lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>(), false)
}

fn outline(event: &TakopiEvent) -> String {
    match event {
        TakopiEvent::Started(_) => "started".to_owned(),
        TakopiEvent::Action(event) => {
            let ok = event.ok.map(|ok| format!(" ok={ok}")).unwrap_or_default();
            let title: String = event.action.title.chars().take(60).collect();
            let code = event.action.detail.get("exit_code");
            let code = code.map(|code| format!(" exit {code}")).unwrap_or_default();
            format!("{} {:?}{ok}{code}: {title}", event.action.kind, event.phase)
        }
        TakopiEvent::Completed(completed) => {
            let reason = completed.reason.as_ref().map(|reason| format!(" {reason:?}"));
            let usage = completed.usage.as_ref().map_or(0, |usage| usage.output_tokens);
            format!(
                "completed ok={}{} out={usage}: {} {}",
                completed.ok,
                reason.unwrap_or_default(),
                completed.answer,
                completed.error.as_deref().unwrap_or_default()
            )
        }
        other => format!("{other:?}"),
    }
}

fn completed(events: &[TakopiEvent]) -> &Completed {
    match events.last() {
        Some(TakopiEvent::Completed(completed)) => completed,
        other => panic!("{other:?}"),
    }
}

#[test]
fn recordings_are_translated_as_ever() {
    let mut text = String::new();
    for (name, runs) in recordings() {
        writeln!(text, "== {name}").unwrap();
        for run in runs {
            for event in translated(&run, false) {
                writeln!(text, "{}", outline(&event)).unwrap();
            }
        }
    }
    insta::assert_snapshot!("1.5.0", text);
}

#[test]
fn every_recorded_run_ends_once_and_closes_what_it_opened() {
    for (name, runs) in recordings() {
        for run in runs {
            // Also one that is cut off after any line.
            for end in [run.len(), run.len() * 2 / 3, run.len() / 3] {
                let events = translated(&run[..end], true);
                let ends = events.iter().filter(|it| matches!(it, TakopiEvent::Completed(_)));
                assert_eq!(ends.count(), 1, "{name}");
                assert!(matches!(events.last(), Some(TakopiEvent::Completed(_))), "{name}");
                let mut open: Vec<&str> = Vec::new();
                for event in &events {
                    let TakopiEvent::Action(event) = event else { continue };
                    let id = event.action.id.as_str();
                    match event.phase {
                        Phase::Started => {
                            assert!(!open.contains(&id), "{name}: {id} is opened twice");
                            open.push(id);
                        }
                        Phase::Completed => open.retain(|it| *it != id),
                        Phase::Updated => {}
                    }
                }
                assert!(open.is_empty(), "{name}: {open:?}");
            }
        }
    }
}

#[test]
fn streamed_text_is_that_of_the_answer_and_no_text_comes_twice() {
    for (name, runs) in recordings() {
        for run in runs.iter().filter(|run| run.iter().any(|it| it.contains("text_delta"))) {
            let events = translated(run, true);
            let answer = &completed(&events).answer;
            let mut last = (String::new(), String::new());
            for event in &events {
                let TakopiEvent::Action(event) = event else { continue };
                let is_remark = event.action.detail.contains_key("phase");
                assert!(!(event.action.kind == ActionKind::Note && is_remark), "{name}");
                if let Some(piece) = event.answer_piece() {
                    if last.0 != event.action.id {
                        last = (event.action.id.clone(), String::new());
                    }
                    last.1.push_str(piece);
                }
            }
            if !answer.is_empty() {
                assert_eq!(&last.1, answer, "{name}");
            }
        }
    }
}

#[test]
fn the_end_is_settled_and_not_the_end_of_an_attempt() {
    let failed = r#"{"type":"message_end","message":{"role":"assistant","stopReason":"error","errorMessage":"500: x"}}"#;
    let good = r#"{"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":"fine"}],"stopReason":"stop"}}"#;
    let (end, settled) = (r#"{"type":"agent_end"}"#, r#"{"type":"agent_settled","aborted":false}"#);
    assert!(completed(&of(&[failed, end, good, end, settled])).ok);
    assert!(!completed(&of(&[good, end, failed, end, settled])).ok);
    let cut_off = of(&[good, end]);
    assert_eq!(completed(&cut_off).reason, Some(Reason::ProcessDied));
    let aborted = of(&[good, r#"{"type":"agent_settled","aborted":true}"#]);
    assert_eq!(completed(&aborted).reason, Some(Reason::Interrupted));
    assert_eq!(completed(&of(&[settled])).reason, Some(Reason::EngineFailed));
}

#[test]
fn calls_with_one_id_are_actions_of_their_own() {
    let start = r#"{"type":"tool_execution_start","toolCallId":"c","toolName":"bash","args":{"command":"ls"}}"#;
    let end = r#"{"type":"tool_execution_end","toolCallId":"c","toolName":"bash","result":{},"isError":false}"#;
    let events = of(&[start, end, start, end]);
    let ids: Vec<&str> = events
        .iter()
        .filter_map(|event| match event {
            TakopiEvent::Action(event) => Some(event.action.id.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(ids, ["c", "c", "c#2", "c#2"]);
}

#[test]
fn images_that_pi_leaves_out_are_a_warning() {
    let warnings = |images: usize, blocks: &str| {
        let directory = PathBuf::from("/srv");
        let setup = TurnSetup { session: SESSION.to_owned(), directory, deltas: false, images };
        let (mut translator, mut events) = (Translator::new(setup), Vec::new());
        let line =
            format!(r#"{{"type":"message_end","message":{{"role":"user","content":[{blocks}]}}}}"#);
        let Ok(crate::wire::Line::Event(event)) = crate::wire::Line::parse(line.as_bytes()) else {
            panic!("{line}")
        };
        translator.event(&event, &mut events);
        translator.event(&event, &mut events);
        events.len()
    };
    let image = r#"{"type":"image"}"#;
    assert_eq!((warnings(1, image), warnings(1, ""), warnings(0, "")), (0, 1, 0));
}

#[test]
fn usage_and_cost_are_summed_over_the_calls_of_the_model() {
    let message = r#"{"type":"message_end","message":{"role":"assistant","stopReason":"stop","usage":{"input":8,"output":7,"cacheRead":3,"cacheWrite":2,"reasoning":1,"cost":{"total":0.5}}}}"#;
    let events = of(&[message, message, r#"{"type":"agent_settled","aborted":false}"#]);
    let completed = completed(&events);
    let usage = completed.usage.as_ref().unwrap();
    assert_eq!((usage.input_tokens, usage.cached_input_tokens), (26, 6));
    assert_eq!((usage.output_tokens, usage.reasoning_output_tokens), (14, 2));
    assert_eq!(completed.cost_usd, Some(1.0));
}
