//! The translators of Claude Code, pi and agents that speak ACP: any lines whatsoever.

use std::collections::HashMap;
use std::path::Path;
use std::sync::LazyLock;

use takopi_acp::Agent;
use takopi_core::{Phase, TakopiEvent};

use crate::codex::{check, is_end};
use crate::number;

/// Lines of Claude Code.
pub(crate) fn claude(input: &[u8]) {
    translator(|deltas| takopi_claude::translate_lines(lines(input), deltas));
}

/// Lines of pi.
pub(crate) fn pi(input: &[u8]) {
    let directory = Path::new("/home/ada/project");
    translator(|deltas| takopi_pi::translate_lines(lines(input), "session", directory, deltas));
}

/// A number that chooses an agent, and lines of that agent.
pub(crate) fn acp(input: &[u8]) {
    static AGENTS: LazyLock<Vec<Agent>> =
        LazyLock::new(|| Agent::presets().filter_map(Agent::preset).collect());
    let (agent, input) = number(input);
    let agent = &AGENTS[agent % AGENTS.len()];
    translator(|deltas| takopi_acp::translate_lines(agent, lines(input), deltas));
}

fn lines(input: &[u8]) -> impl Iterator<Item = &[u8]> {
    input.split(|byte| *byte == b'\n')
}

/// The lines of a run, and the end of its process: exactly one end, every action closed, and the same end whether or not the
/// answer is emitted in pieces.
fn translator(translate: impl Fn(bool) -> Vec<TakopiEvent>) {
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
        let is_retry = matches!(id.rsplit('.').next(), Some("retry" | "reconnect"));
        if is_retry || matches!(kind, "turn" | "telemetry") {
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
