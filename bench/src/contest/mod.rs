//! Contests: a real agent with a scripted model, run by takopi, by itself, by a bare client and by SDKs.
//!
//! Everybody is a [`Contestant`](contestant::Contestant): a process of its own that takes turns with the
//! others. Rounds that are timed are not watched, since reading its memory slows a process down; memory is
//! that of further rounds.

mod contestant;
mod place;
pub(crate) mod sdk;
mod tree;

use std::time::{Duration, Instant};

pub(crate) use self::contestant::Entrant;
pub(crate) use self::place::Place;
use crate::measure::{median, quantile};
use crate::table::{Table, mib, millis, ratio};

/// How often everything is done. Odd, so that there is one in the middle.
#[derive(Clone, Copy)]
pub(crate) struct Rounds {
    /// A turn of everybody.
    pub(crate) turns: usize,
    /// Those of two alone, whose difference is small.
    pub(crate) pair: usize,
    /// Many sessions at once.
    pub(crate) many: usize,
    /// From the start of the host process on.
    pub(crate) start: usize,
}

impl Rounds {
    pub(crate) const ALL: Self = Self { turns: 15, pair: 101, many: 3, start: 3 };
    /// For an agent that takes long to start.
    pub(crate) const SOME: Self = Self { turns: 9, pair: 15, many: 1, start: 1 };
    /// To see that it works; the figures mean little.
    pub(crate) const FEW: Self = Self { turns: 3, pair: 3, many: 1, start: 1 };
}

/// Where contestants meet, and how often.
pub(crate) struct Contest {
    pub(crate) place: fn() -> Place,
    pub(crate) rounds: Rounds,
}

/// The figures of a section so far. Each part is shown at once: a contestant that fails later takes nothing away.
#[derive(Default)]
pub(crate) struct Report(Vec<String>);

impl Report {
    pub(crate) fn add(&mut self, part: &impl ToString) {
        let part = part.to_string();
        eprintln!("\n{part}");
        self.0.push(part);
    }

    pub(crate) fn finish(self) -> String {
        self.0.join("\n")
    }
}

/// What a contestant's turns came to.
pub(crate) struct Turns {
    pub(crate) name: String,
    pub(crate) times: Vec<Duration>,
    memory: tree::Memory,
}

impl Turns {
    pub(crate) fn median(&self) -> Duration {
        median(self.times.iter().copied())
    }
}

/// What takopi adds to the raw protocol: the table, and the median and p90 in microseconds.
pub(crate) struct Added {
    pub(crate) table: Table,
    pub(crate) new: [i64; 2],
    pub(crate) warm: [i64; 2],
}

/// Many sessions at once.
pub(crate) struct Crowd<'a> {
    pub(crate) heading: &'a str,
    /// What a contestant is asked.
    pub(crate) command: &'a str,
    /// It is asked once before the clock is started, so that the sessions are there.
    pub(crate) prepared: bool,
}

impl Contest {
    /// Round by round, each contestant's turn. Each round begins with another one, so that no one always
    /// follows the same predecessor, which may still be busy with its end.
    pub(crate) fn turns(
        &self,
        entrants: &[Entrant],
        command: &str,
        rounds: usize,
    ) -> anyhow::Result<Vec<Turns>> {
        let place = (self.place)();
        let mut contestants = Vec::new();
        for entrant in entrants {
            let mut contestant = entrant.start(&place)?;
            // What is done only once, such as opening the session that goes on, is not in the figures.
            contestant.ask(command)?;
            contestants.push(contestant);
        }
        let mut times = vec![Vec::new(); contestants.len()];
        for round in 1..=rounds {
            eprintln!("  … one turn, {command}, round {round} of {rounds}");
            for number in 0..contestants.len() {
                let number = (number + round) % contestants.len();
                times[number].push(contestants[number].ask(command)?);
            }
        }
        drop(contestants);
        // Alone: what another one's agent shares would count for less.
        let memory = entrants.iter().map(|entrant| {
            let mut contestant = entrant.start(&place)?;
            contestant.ask(command)?;
            contestant.watched(command)
        });
        let memory = memory.collect::<anyhow::Result<Vec<_>>>()?;
        let turns = entrants.iter().zip(times).zip(memory);
        Ok(turns
            .map(|((entrant, times), memory)| Turns { name: entrant.name.clone(), times, memory })
            .collect())
    }

    /// The medians, as ratios to the first of them. `with_start` are measured again from the start of the
    /// host process on.
    pub(crate) fn turn_table(
        &self,
        heading: &str,
        turns: &[Turns],
        with_start: &[Entrant],
    ) -> anyhow::Result<Table> {
        let mut columns = vec!["", "median", "p90", "times as fast", "peak PSS", "peak RSS"];
        let mut starts = vec![Vec::new(); with_start.len()];
        if !with_start.is_empty() {
            columns.push("with the host's start");
            let place = (self.place)();
            for _ in 0..self.rounds.start {
                for (entrant, starts) in with_start.iter().zip(&mut starts) {
                    let begun = Instant::now();
                    entrant.start(&place)?.ask("new")?;
                    starts.push(begun.elapsed());
                }
            }
        }
        let rounds = self.rounds.turns;
        let heading = format!("{heading}, prompt to end ({rounds} alternating rounds)");
        let mut table = Table::new(heading, &columns);
        let first = turns.first().map(Turns::median).unwrap_or_default();
        for (number, turns) in turns.iter().enumerate() {
            let middle = turns.median();
            let mut cells = vec![turns.name.clone(), millis(middle)];
            cells.extend([millis(quantile(turns.times.iter().copied(), 90)), ratio(first, middle)]);
            cells.extend([mib(turns.memory.pss_kib), mib(turns.memory.rss_kib)]);
            cells.extend(starts.get(number).map(|starts| millis(median(starts.iter().copied()))));
            table.row(cells);
        }
        Ok(table)
    }

    /// What takopi adds to the raw protocol: differences within a round. The raw protocol takes part twice: by how much
    /// it differs from itself is what the agent and the machine add.
    pub(crate) fn latency_table(&self, [bare, takopi]: [&Entrant; 2]) -> anyhow::Result<Added> {
        let rounds = self.rounds.pair;
        let heading = format!("added by takopi to the raw protocol ({rounds} alternating rounds)");
        let columns = [
            "turn",
            "bare, median",
            "takopi, median",
            "added, median",
            "added, p90",
            "bare to itself, median",
            "bare to itself, p90",
        ];
        let mut table = Table::new(heading, &columns);
        let mut micros_at = Vec::new();
        for (what, command) in [("of a new session", "new"), ("of a warm session", "again")] {
            let entrants = [bare, takopi, bare].map(Clone::clone);
            let turns = self.turns(&entrants, command, rounds)?;
            let micros = |time: &Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
            let added = |other: &Turns| {
                let pairs = turns[0].times.iter().zip(&other.times);
                let added = pairs.map(|(bare, other)| micros(other) - micros(bare));
                let added: Vec<_> = added.collect();
                [50, 90].map(|percent| quantile(added.iter().copied(), percent))
            };
            let (by_takopi, by_itself) = (added(&turns[1]), added(&turns[2]));
            #[expect(clippy::cast_precision_loss, reason = "figures for people")]
            let shown = |micros: i64| format!("{:.2} ms", micros as f64 / 1e3);
            let middles = turns[..2].iter().map(|turns| millis(turns.median()));
            let differences = by_takopi.into_iter().chain(by_itself).map(shown);
            table.row([what.to_owned()].into_iter().chain(middles).chain(differences));
            micros_at.push(by_takopi);
        }
        Ok(Added { table, new: micros_at[0], warm: micros_at[1] })
    }

    /// Many sessions at once. Everybody starts afresh each time: what is kept warm would help.
    pub(crate) fn at_once(&self, entrants: &[Entrant], crowd: &Crowd) -> anyhow::Result<Table> {
        let Crowd { heading, command, prepared } = *crowd;
        let rounds = self.rounds.many;
        let columns = [
            "",
            "median",
            "times as fast",
            "processor time",
            "of it the client's",
            "peak PSS",
            "peak RSS",
            "of the RSS",
        ];
        let mut table = Table::new(format!("{heading} ({rounds} alternating rounds)"), &columns);
        let start = |entrant: &Entrant, place: &Place| {
            let mut contestant = entrant.start(place)?;
            if prepared {
                contestant.ask(command)?;
            }
            anyhow::Ok(contestant)
        };
        let mut times = vec![Vec::new(); entrants.len()];
        let mut processor = vec![Vec::new(); entrants.len()];
        for round in 1..=rounds {
            for (number, entrant) in entrants.iter().enumerate() {
                eprintln!("  … {heading}, {}, round {round} of {rounds}", entrant.name);
                let place = (self.place)();
                let mut contestant = start(entrant, &place)?;
                let before = contestant.processor_time();
                times[number].push(contestant.ask(command)?);
                processor[number].push(contestant.processor_time().since(before));
            }
        }
        let mut first = None;
        for (number, entrant) in entrants.iter().enumerate() {
            eprintln!("  … {heading}, {}, memory", entrant.name);
            let place = (self.place)();
            let memory = start(entrant, &place)?.watched(command)?;
            let time = median(times[number].iter().copied());
            let (first_time, first_memory) = *first.get_or_insert((time, memory));
            #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
            let of_first = memory.rss_kib as f64 / first_memory.rss_kib.max(1) as f64;
            let used = median(processor[number].iter().map(|used| used.tree));
            let own = median(processor[number].iter().map(|used| used.root));
            let share = 100.0 * own.as_secs_f64() / used.as_secs_f64().max(f64::MIN_POSITIVE);
            table.row([
                entrant.name.clone(),
                millis(time),
                ratio(first_time, time),
                millis(used),
                format!("{share:.1} %"),
                mib(memory.pss_kib),
                mib(memory.rss_kib),
                format!("{of_first:.2}"),
            ]);
        }
        Ok(table)
    }
}
