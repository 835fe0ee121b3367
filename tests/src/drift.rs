//! Drift of the schema: recorded lines, mutated by a seed, through a translator that gives all events of a run.
//!
//! For each mutation: exactly one end, which is last; at most one start, of the session that was asked for; what was opened
//! is closed. A line that neither ends the run nor has to do with its answer changes neither, whatever becomes of it; nor does a
//! change of any line that a tolerant reader must not notice.
//!
//! - `TAKOPI_DRIFT_MUTATIONS`: how many (10,000);
//! - `TAKOPI_DRIFT_SEED`: the first seed. A failure prints the seed that shows it again.

use std::collections::HashMap;
use std::ops::Range;

use takopi_core::{Completed, Phase, Reason, TakopiEvent};

use crate::dice::Dice;
use crate::mutate::{self, Drift};
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

/// Whether a recorded line is of one of these types.
pub fn has_type(line: &str, types: &[&str]) -> bool {
    let Ok(line) = serde_json::from_str::<serde_json::Value>(line) else { return false };
    types.iter().any(|it| line["type"] == *it)
}

/// What the lines of an engine are for.
#[derive(Clone, Copy, Debug)]
pub struct Roles {
    /// Whether a run may have no end of its own without this line.
    pub ends: fn(&str) -> bool,
    /// Whether it may change how a run ends, or its answer; those that end it can anyway.
    pub decides: fn(&str) -> bool,
}

impl Roles {
    /// Compares the end of a mutated run with that of the run alone.
    fn check(
        self,
        before: &[String],
        drift: &Drift,
        alone: &Completed,
        end: &Completed,
    ) -> Result<(), String> {
        let decides = |line: &str| (self.ends)(line) || (self.decides)(line);
        let of = |end: &Completed| (end.ok, end.answer.clone(), end.reason.clone());
        if drift.keeps(before, decides) && of(end) != of(alone) {
            return Err(format!("it ends with {end:?} instead of {alone:?}"));
        }
        let is_cut_off = |end: &Completed| end.reason == Some(Reason::ProcessDied);
        if drift.keeps(before, self.ends) && is_cut_off(end) && !is_cut_off(alone) {
            return Err("the line that ends the run was there, and did not".to_owned());
        }
        Ok(())
    }
}

/// Mutates a line of a recording for every seed, and checks what the translator makes of it, in pieces or not.
pub fn every_mutation(
    module: &str,
    seeds: Range<u64>,
    recorded: &[Recording],
    roles: Roles,
    translate: impl Fn(&[Vec<u8>], bool) -> Vec<TakopiEvent>,
) {
    let whole =
        |it: &Recording| it.lines.iter().map(|line| line.clone().into_bytes()).collect::<Vec<_>>();
    let ends = recorded.iter().map(|it| end(&translate(&whole(it), false)).cloned());
    let ends: Vec<Completed> = ends.map(|end| end.expect("an end")).collect();
    for seed in seeds {
        let mut dice = Dice::new(seed);
        let at = dice.index(recorded.len());
        let Recording { name, lines: before } = &recorded[at];
        let drift = mutate::lines(&mut dice, before);
        let events = translate(&drift.lines, dice.chance(50));
        let mutated = Mutated { module, seed, recording: name, lines: drift.lines.clone() };
        mutated.check(&events);
        let fault = end(&events).map(|end| roles.check(before, &drift, &ends[at], end));
        if let Some(Err(fault)) = fault {
            panic!("{fault}: {}", mutated.replay(&events));
        }
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
