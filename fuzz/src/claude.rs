//! Claude Code's translator: any lines whatsoever.

use std::collections::HashMap;

use takopi_core::{Phase, TakopiEvent};

use crate::codex::{check, is_end};

/// Lines of Claude Code, and the end of its process: exactly one end, every action closed, and the same
/// answer whether or not it is emitted in pieces.
pub(crate) fn translator(input: &[u8]) {
    let translate =
        |deltas| takopi_claude::translate_lines(input.split(|byte| *byte == b'\n'), deltas);
    let events = translate(false);
    let streamed = translate(true);
    for events in [&events, &streamed] {
        check(events);
        assert!(events.last().is_some_and(is_end), "no end: {events:#?}");
        check_phases(events);
    }
    assert_eq!(translate(false), events, "the same lines gave other events");
    assert_eq!(events.last(), streamed.last(), "pieces change the end");
}

/// An action is started before it is updated, and nothing follows its end but a retry of its own.
fn check_phases(events: &[TakopiEvent]) {
    let mut phases: HashMap<(&str, &str), Phase> = HashMap::new();
    for event in events {
        let TakopiEvent::Action(event) = event else { continue };
        let (id, kind) = (event.action.id.as_str(), event.action.kind.as_str());
        if matches!(kind, "turn" | "telemetry") || id == "claude.retry" {
            continue;
        }
        let before = phases.insert((id, kind), event.phase);
        let is_fine = match before {
            None => event.phase != Phase::Updated,
            // A message can be streamed twice by a process that repeats itself.
            Some(Phase::Completed) => kind == "answer" && event.phase == Phase::Started,
            Some(_) => event.phase != Phase::Started,
        };
        assert!(is_fine, "{before:?}, then {event:#?}");
    }
    let open = phases.iter().find(|(_, phase)| **phase != Phase::Completed);
    assert!(open.is_none(), "never closed: {open:?} of {events:#?}");
}
