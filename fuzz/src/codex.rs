//! Both translators and the event model: any lines whatsoever.

use takopi_codex::exec::ExecTranslator;
use takopi_core::TakopiEvent;
use takopi_core::jsonl::{Ending, Translator};
use takopi_core::process::Exit;

/// What no detail of an action is longer than.
const LONGEST_DETAIL: usize = 128 * 1024;

pub(crate) fn is_end(event: &TakopiEvent) -> bool {
    matches!(event, TakopiEvent::Completed(_))
}

/// How often this session is started, up to the start of another.
fn starts_of(events: &[TakopiEvent], session: &str) -> usize {
    let sessions = events.iter().filter_map(|event| match event {
        TakopiEvent::Started(started) => Some(started.resume.value.as_str()),
        _ => None,
    });
    sessions.take_while(|started| *started == session).count()
}

/// At most one start of a session; at most one end, last; ids never empty; details bounded.
pub(crate) fn check(events: &[TakopiEvent]) {
    let ends = events.iter().filter(|event| is_end(event)).count();
    assert!(ends <= 1, "{ends} ends: {events:#?}");
    assert!(
        ends == 0 || events.last().is_some_and(is_end),
        "something behind the end: {events:#?}"
    );
    let mut first = None;
    for event in events {
        if let TakopiEvent::Started(started) = event {
            let session = &started.resume.value;
            if *first.get_or_insert(session) != session {
                // The runner ends the run here.
                break;
            }
            assert_eq!(starts_of(events, session), 1, "started twice: {events:#?}");
        }
    }
    for event in events {
        if let TakopiEvent::Action(event) = event {
            assert!(!event.action.id.trim().is_empty(), "an action without an id");
            let detail = serde_json::to_string(&event.action.detail).expect("it is JSON");
            assert!(detail.len() < LONGEST_DETAIL, "a detail of {} bytes", detail.len());
        }
    }
}

/// Lines of `codex exec --json`, and the end of its process: exactly one end.
pub(crate) fn exec(input: &[u8]) {
    let translate = || {
        let mut translator = ExecTranslator::new("/workspace", None);
        let mut events = Vec::new();
        for line in input.split(|byte| *byte == b'\n') {
            let _ = translator.line(line, &mut events);
        }
        if !events.iter().any(is_end) {
            let over = translator.end(&Exit::with_code(0, ""), &mut events);
            assert_eq!(over, Ending::Over);
            assert!(events.last().is_some_and(is_end), "no end: {events:#?}");
        }
        events
    };
    let events = translate();
    check(&events);
    assert_eq!(translate(), events, "the same lines gave other events");
}

/// Lines of `codex app-server`.
pub(crate) fn app_server(input: &[u8]) {
    let translate =
        || takopi_codex::app_server::translate_lines(input.split(|byte| *byte == b'\n'), true);
    let events = translate();
    check(&events);
    assert_eq!(translate(), events, "the same lines gave other events");
}

/// An event that can be read is written so that it reads the same.
pub(crate) fn event(input: &[u8]) {
    for line in input.split(|byte| *byte == b'\n') {
        if let Ok(event) = serde_json::from_slice::<TakopiEvent>(line) {
            let written = serde_json::to_string(&event).expect("it is JSON");
            let again: TakopiEvent = serde_json::from_str(&written).expect("it reads again");
            let twice = serde_json::to_string(&again).expect("it is JSON");
            assert_eq!(twice, written);
        }
    }
}
