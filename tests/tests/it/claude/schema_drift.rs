//! Drift of the schema: every recorded line of Claude Code, mutated by a seed, through the translator.
//!
//! For each mutation: exactly one end, which is last; at most one start, of the session that was asked
//! for; what was opened is closed. Lines of sub-agents never change the end of a run, whatever they say.
//!
//! - `TAKOPI_DRIFT_MUTATIONS`: how many (10,000);
//! - `TAKOPI_DRIFT_SEED`: the first seed. A failure prints the seed that shows it again.

use std::collections::HashMap;

use takopi_claude::translate_lines;
use takopi_core::{Completed, Phase, TakopiEvent};
use takopi_tests::claude::recorded::{self, Recording};
use takopi_tests::dice::Dice;
use takopi_tests::mutate;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

/// The seeds of a test that is to make this share of all mutations.
fn seeds(percent: u64) -> std::ops::Range<u64> {
    let first = setting("TAKOPI_DRIFT_SEED", 1);
    first..first + (setting("TAKOPI_DRIFT_MUTATIONS", 10_000) * percent).div_ceil(100)
}

/// How to reproduce a failure, and what it is about.
fn replay(seed: u64, name: &str, lines: &[Vec<u8>], events: &[TakopiEvent]) -> String {
    let cut = |line: &Vec<u8>| String::from_utf8_lossy(&line[..line.len().min(2000)]).into_owned();
    let lines: Vec<String> = lines.iter().map(cut).collect();
    format!(
        "{name}\nreplay: TAKOPI_DRIFT_SEED={seed} TAKOPI_DRIFT_MUTATIONS=1 cargo test -p takopi-tests \
         --test it claude::schema_drift\n{}\n{events:#?}",
        lines.join("\n")
    )
}

fn translated(lines: &[Vec<u8>], deltas: bool) -> Vec<TakopiEvent> {
    translate_lines(lines.iter().map(Vec::as_slice), deltas)
}

fn end(events: &[TakopiEvent]) -> Option<&Completed> {
    match events.last() {
        Some(TakopiEvent::Completed(completed)) => Some(completed),
        _ => None,
    }
}

/// What holds for the events of any lines.
fn check(events: &[TakopiEvent]) -> Result<(), String> {
    let Some(completed) = end(events) else { return Err("the end is not last".to_owned()) };
    let ends = events.iter().filter(|event| matches!(event, TakopiEvent::Completed(_))).count();
    let mut starts = events.iter().filter_map(|event| match event {
        TakopiEvent::Started(started) => Some(&started.resume),
        _ => None,
    });
    let start = starts.next();
    if ends != 1 || starts.next().is_some() {
        return Err(format!("{ends} ends, or a second start"));
    }
    if completed.resume.as_ref() != start {
        return Err("the session at the end is not that of the start".to_owned());
    }
    if completed.ok && start.is_none() {
        return Err("it went well without a start".to_owned());
    }
    let mut phases: HashMap<(&str, &str), Phase> = HashMap::new();
    for event in events {
        if let TakopiEvent::Action(event) = event {
            let kind = event.action.kind.as_str();
            if kind != "turn" {
                phases.insert((kind, &event.action.id), event.phase);
            }
        }
    }
    match phases.iter().find(|(_, phase)| **phase != Phase::Completed) {
        Some(open) => Err(format!("{open:?} is open")),
        None => Ok(()),
    }
}

#[test]
fn a_mutated_line_never_gives_two_ends_or_none_and_leaves_nothing_open() {
    let recorded = recorded::all();
    for seed in seeds(70) {
        let mut dice = Dice::new(seed);
        let Recording { name, lines } = &recorded[dice.index(recorded.len())];
        let lines = mutate::lines(&mut dice, lines);
        let events = translated(&lines, dice.chance(50));
        if let Err(fault) = check(&events) {
            panic!("{fault}: {}", replay(seed, name, &lines, &events));
        }
    }
}

/// Whether the mutation left alone what says that the line is of a sub-agent.
fn is_still_nested(line: &[u8]) -> bool {
    let Ok(line) = std::str::from_utf8(line) else { return false };
    let once = |key: &str| line.matches(key).count() == 1;
    once("\"parent_tool_use_id\"") && recorded::is_nested(line)
}

#[test]
fn a_mutated_line_of_a_sub_agent_never_changes_how_a_run_ends() {
    let recorded = recorded::all();
    let lines = recorded.iter().flat_map(|recording| &recording.lines);
    let nested: Vec<&String> = lines.filter(|line| recorded::is_nested(line)).collect();
    assert!(nested.len() > 30, "only {} lines of sub-agents", nested.len());
    let mut tried = 0;
    for seed in seeds(30) {
        let mut dice = Dice::new(seed);
        let Recording { name, lines } = &recorded[dice.index(recorded.len())];
        let line = nested[dice.index(nested.len())];
        let line = mutate::json(&mut dice, line);
        if !is_still_nested(&line) {
            continue;
        }
        tried += 1;
        let mut lines: Vec<Vec<u8>> = lines.iter().map(|line| line.clone().into_bytes()).collect();
        let alone = translated(&lines, false);
        lines.insert(dice.index(lines.len() + 1), line);
        let events = translated(&lines, false);
        let how = || replay(seed, name, &lines, &events);
        if let Err(fault) = check(&events) {
            panic!("{fault}: {}", how());
        }
        assert_eq!(end(&events), end(&alone), "{}", how());
    }
    assert!(tried > 0 || seeds(30).end - seeds(30).start < 100, "no line was of a sub-agent");
}
