//! The translator of app-server: any lines whatsoever.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takopi_core::TakopiEvent;

fn translate(input: &[u8]) -> Vec<TakopiEvent> {
    takopi_codex::app_server::translate_lines(input.split(|byte| *byte == b'\n'))
}

fuzz_target!(|input: &[u8]| {
    let events = translate(input);
    let ends = events.iter().filter(|event| matches!(event, TakopiEvent::Completed(_))).count();
    assert!(ends <= 1, "{ends} ends");
    if ends == 1 {
        assert!(matches!(events.last(), Some(TakopiEvent::Completed(_))), "something behind the end");
    }
    let starts = events.iter().filter(|event| matches!(event, TakopiEvent::Started(_))).count();
    assert!(starts <= 1, "{starts} starts");
    for event in &events {
        if let TakopiEvent::Action(event) = event {
            assert!(!event.action.id.trim().is_empty(), "an action without an id");
            let detail = serde_json::to_string(&event.action.detail).expect("it is JSON");
            assert!(detail.len() < 128 * 1024, "a detail of {} bytes", detail.len());
        }
    }
    assert_eq!(translate(input), events, "the same lines gave other events");
});
