//! Drift of the schema: recorded lines, mutated by a seed, through a translator that gives all events of a run.
//!
//! For each mutation: exactly one end, which is last; at most one start, of the session that was asked for; what was opened
//! is closed.
//!
//! - `TAKOPI_DRIFT_MUTATIONS`: how many (10,000);
//! - `TAKOPI_DRIFT_SEED`: the first seed. A failure prints the seed that shows it again.

use std::collections::HashMap;
use std::ops::Range;

use takopi_core::{Completed, Phase, TakopiEvent};

use crate::dice::Dice;
use crate::mutate;
use crate::recorded::Recording;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

/// The seeds of a test that is to make this share of all mutations.
pub fn seeds(percent: u64) -> Range<u64> {
    let first = setting("TAKOPI_DRIFT_SEED", 1);
    first..first + (setting("TAKOPI_DRIFT_MUTATIONS", 10_000) * percent).div_ceil(100)
}

/// A mutation of a recording that was translated, for the report of a failure.
#[derive(Debug)]
pub struct Mutated<'a> {
    /// The module of the test.
    pub module: &'a str,
    /// The seed of the mutation.
    pub seed: u64,
    /// The recording.
    pub recording: &'a str,
    /// What came of its lines.
    pub lines: Vec<Vec<u8>>,
}

impl Mutated<'_> {
    /// Fails with how to see it again, unless the events are those of one run.
    pub fn check(&self, events: &[TakopiEvent]) {
        if let Err(fault) = check(events) {
            panic!("{fault}: {}", self.replay(events));
        }
    }

    /// How to reproduce a failure, and what it is about.
    pub fn replay(&self, events: &[TakopiEvent]) -> String {
        let Self { module, seed, recording, lines } = self;
        let shown =
            |line: &Vec<u8>| String::from_utf8_lossy(&line[..line.len().min(2000)]).into_owned();
        let lines: Vec<String> = lines.iter().map(shown).collect();
        let module = module.split_once("::").map_or(*module, |(_, path)| path);
        format!(
            "{recording}\nreplay: TAKOPI_DRIFT_SEED={seed} TAKOPI_DRIFT_MUTATIONS=1 cargo test -p takopi-tests \
             --test it {module}\n{}\n{events:#?}",
            lines.join("\n")
        )
    }
}

/// Mutates a line of a recording for every seed, and checks what the translator makes of it, in pieces or not.
pub fn every_mutation(
    module: &str,
    seeds: Range<u64>,
    recorded: &[Recording],
    translate: impl Fn(&[Vec<u8>], bool) -> Vec<TakopiEvent>,
) {
    for seed in seeds {
        let mut dice = Dice::new(seed);
        let Recording { name, lines } = &recorded[dice.index(recorded.len())];
        let lines = mutate::lines(&mut dice, lines);
        let mutated = Mutated { module, seed, recording: name, lines };
        mutated.check(&translate(&mutated.lines, dice.chance(50)));
    }
}

/// The end of a run, if it is last.
pub fn end(events: &[TakopiEvent]) -> Option<&Completed> {
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
