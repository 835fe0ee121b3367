//! The real codex with a scripted model: takopi beside codex itself, a bare client and OpenAI's SDKs.
//!
//! Everybody is a [`Contestant`](contestant::Contestant): a process of its own that takes turns with the others. Rounds that are
//! timed are not watched, since reading its memory slows a process down; memory is that of
//! further rounds.

mod bare;
mod contestant;
mod sdk;
mod side;
mod tree;

use std::time::Duration;

use takopi_tests::codex::home::TestHome;
use takopi_tests::codex::real;
use takopi_tests::model::{Answer, ModelServer, Script};

use self::contestant::Entrant;
pub(crate) use self::side::serve as side;
use crate::measure::{median, quantile};
use crate::table::{Table, mib, millis, ratio};

/// Odd, so that there is one in the middle.
const ROUNDS: usize = 21;
/// Those of two alone, whose difference is small.
const PAIR_ROUNDS: usize = 41;
const MANY_ROUNDS: usize = 3;
const START_ROUNDS: usize = 5;
const MANY: usize = 50;

/// The tables.
pub(crate) fn bench() -> anyhow::Result<String> {
    let codex = real::codex()?;
    let mut entrants = vec![
        Entrant::own("codex exec", &["codex-exec"], &codex)?,
        Entrant::own("takopi exec", &["takopi-exec"], &codex)?,
        Entrant::own("bare JSON-RPC", &["bare"], &codex)?,
        Entrant::own("takopi app-server", &["takopi-server"], &codex)?,
    ];
    let mut parts = vec![format!("codex {} with a scripted model.\n", codex.version)];
    for (sdk, entrant) in
        [("TypeScript", Entrant::typescript(&codex)), ("Python", Entrant::python(&codex))]
    {
        match entrant {
            Ok(entrant) => entrants.push(entrant),
            Err(error) => parts.push(format!("The {sdk} SDK is missing: {error:#}.\n")),
        }
    }
    let cold = turns(&entrants, "new", ROUNDS)?;
    parts.push(turn_table("one turn of a new session", &cold, &entrants)?.to_string());
    let warm = turns(&entrants, "again", ROUNDS)?;
    parts.push(turn_table("one more turn of a session", &warm, &[])?.to_string());
    parts.push(latency_table(&entrants[2..4])?.to_string());
    parts.push(handover(&codex)?);
    entrants.retain(|entrant| {
        !entrant.name.ends_with("JSON-RPC") && !entrant.name.ends_with("app-server")
    });
    for (processes, busy) in [("1", "50"), ("2", "25"), ("4", "12")] {
        let name = format!("takopi app-server, shared {processes} × {busy}");
        entrants.push(Entrant::own(&name, &["takopi-shared", processes, busy], &codex)?);
    }
    parts.push(at_once(&entrants)?.to_string());
    Ok(parts.join("\n"))
}

/// A model that always answers the same, and a home whose codex asks it. The model is dropped last.
fn place() -> (TestHome, ModelServer) {
    let model = ModelServer::start();
    model.otherwise(Script::repeat(Answer::text("fine")));
    (TestHome::new(&model), model)
}

/// What a contestant's turns came to.
struct Turns {
    name: String,
    times: Vec<Duration>,
    memory: tree::Memory,
}

/// Round by round, each contestant's turn. Each round begins with another one, so that no one always
/// follows the same predecessor, which may still be busy with its end.
fn turns(entrants: &[Entrant], command: &str, rounds: usize) -> anyhow::Result<Vec<Turns>> {
    let (home, _model) = place();
    let mut contestants = Vec::new();
    for entrant in entrants {
        let mut contestant = entrant.start(&home)?;
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
    // Alone: what another one's codex shares would count for less.
    let memory = entrants.iter().map(|entrant| {
        let mut contestant = entrant.start(&home)?;
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
fn turn_table(heading: &str, turns: &[Turns], with_start: &[Entrant]) -> anyhow::Result<Table> {
    let mut columns = vec!["", "median", "p90", "times as fast", "peak PSS", "peak RSS"];
    let mut starts = vec![Vec::new(); with_start.len()];
    if !with_start.is_empty() {
        columns.push("with the host's start");
        let (home, _model) = place();
        for _ in 0..START_ROUNDS {
            for (entrant, starts) in with_start.iter().zip(&mut starts) {
                let begun = std::time::Instant::now();
                entrant.start(&home)?.ask("new")?;
                starts.push(begun.elapsed());
            }
        }
    }
    let heading = format!("{heading}, prompt to end ({ROUNDS} alternating rounds)");
    let mut table = Table::new(heading, &columns);
    let first = turns.first().map(|turns| median(turns.times.iter().copied())).unwrap_or_default();
    for (number, Turns { name, times, memory }) in turns.iter().enumerate() {
        let middle = median(times.iter().copied());
        let mut cells = vec![name.clone(), millis(middle)];
        cells.extend([millis(quantile(times.iter().copied(), 90)), ratio(first, middle)]);
        cells.extend([mib(memory.pss_kib), mib(memory.rss_kib)]);
        cells.extend(starts.get(number).map(|starts| millis(median(starts.iter().copied()))));
        table.row(cells);
    }
    Ok(table)
}

/// What takopi adds to the raw protocol: differences within a round.
fn latency_table(bare_and_takopi: &[Entrant]) -> anyhow::Result<Table> {
    let heading = format!("added by takopi to the raw protocol ({PAIR_ROUNDS} alternating rounds)");
    let columns = ["turn", "bare, median", "takopi, median", "added, median", "added, p90"];
    let mut table = Table::new(heading, &columns);
    for (what, command) in [("of a new session", "new"), ("of a warm session", "again")] {
        let turns = turns(bare_and_takopi, command, PAIR_ROUNDS)?;
        let micros = |time: &Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        let pairs = turns[0].times.iter().zip(&turns[1].times);
        let added: Vec<i64> = pairs.map(|(bare, takopi)| micros(takopi) - micros(bare)).collect();
        #[expect(clippy::cast_precision_loss, reason = "figures for people")]
        let at =
            |percent| format!("{:.2} ms", quantile(added.iter().copied(), percent) as f64 / 1e3);
        let middle = |turns: &Turns| millis(median(turns.times.iter().copied()));
        table.row([what.to_owned(), middle(&turns[0]), middle(&turns[1]), at(50), at(90)]);
    }
    Ok(table)
}

/// How soon a session that is warm in one takopi is started in another.
fn handover(codex: &real::Codex) -> anyhow::Result<String> {
    let (home, _model) = place();
    let mut contestant = Entrant::own("handover", &["handover"], codex)?.start(&home)?;
    let times: Vec<Duration> =
        (0..START_ROUNDS).map(|_| contestant.ask("again")).collect::<Result<_, _>>()?;
    Ok(format!(
        "A session that is warm in one takopi is started in another after {}, at the longest after {}.\n",
        millis(median(times.iter().copied())),
        millis(quantile(times.iter().copied(), 100)),
    ))
}

/// Many new sessions at once. Everybody starts afresh each time: what is kept warm would help.
fn at_once(entrants: &[Entrant]) -> anyhow::Result<Table> {
    let heading = format!("{MANY} new sessions at once ({MANY_ROUNDS} alternating rounds)");
    let columns =
        ["", "median", "times as fast", "processor time", "peak PSS", "peak RSS", "of the RSS"];
    let mut table = Table::new(heading, &columns);
    let mut times = vec![Vec::new(); entrants.len()];
    let mut processor = vec![Vec::new(); entrants.len()];
    let command = format!("many {MANY}");
    for round in 1..=MANY_ROUNDS {
        for (number, entrant) in entrants.iter().enumerate() {
            eprintln!("  … {MANY} at once, {}, round {round} of {MANY_ROUNDS}", entrant.name);
            let (home, _model) = place();
            let mut contestant = entrant.start(&home)?;
            times[number].push(contestant.ask(&command)?);
            processor[number].push(contestant.processor_time());
        }
    }
    let mut first = None;
    for (number, entrant) in entrants.iter().enumerate() {
        eprintln!("  … {MANY} at once, {}, memory", entrant.name);
        let (home, _model) = place();
        let memory = entrant.start(&home)?.watched(&command)?;
        let time = median(times[number].iter().copied());
        let (first_time, first_memory) = *first.get_or_insert((time, memory));
        #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
        let of_first = memory.rss_kib as f64 / first_memory.rss_kib.max(1) as f64;
        table.row([
            entrant.name.clone(),
            millis(time),
            ratio(first_time, time),
            millis(median(processor[number].iter().copied())),
            mib(memory.pss_kib),
            mib(memory.rss_kib),
            format!("{of_first:.2}"),
        ]);
    }
    Ok(table)
}
