//! Benchmarks of takopi: each figure as a ratio to a floor measured in the same run.
//!
//! `cargo run --release -p takopi-bench` builds what it needs and prints all tables; with names (`locks`,
//! `pipeline`, `many`, `growth`, `batch`, `codex`, `claude`, `terminal`, `fleet`) only those. `--write` puts them into `docs/performance.md` too;
//! `--quick` does only a few rounds with the real agents, to see that it works. What is measured, and why
//! so, is on that page.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that prints tables")]

mod batch;
mod claude;
mod codex;
mod contest;
mod fleet;
mod growth;
mod locks;
mod machine;
mod many;
mod measure;
mod pipeline;
mod plot;
mod table;
mod terminal;

use std::path::Path;

use anyhow::bail;

use self::contest::Rounds;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What is measured, by its name: how often, and whether the figures are for the page.
type Section = (&'static str, fn(Rounds, bool) -> anyhow::Result<String>);

const SECTIONS: [Section; 10] = [
    ("machine", |_, _| machine::describe()),
    ("locks", |_, _| locks::bench()),
    ("pipeline", |_, _| pipeline::bench()),
    ("many", |_, _| many::bench()),
    ("growth", |_, write| growth::bench(write)),
    ("batch", |_, _| batch::bench()),
    ("codex", |rounds, _| codex::bench(rounds)),
    ("claude", |rounds, _| {
        claude::bench(if rounds.turns == Rounds::ALL.turns { Rounds::SOME } else { rounds })
    }),
    ("terminal", |rounds, _| terminal::bench(rounds)),
    ("fleet", |rounds, _| fleet::bench(rounds)),
];

const USAGE: &str = "usage: takopi-bench [machine] [locks] [pipeline] [many] [growth] [batch] [codex] [claude] [terminal] [fleet] [--write | --quick]";

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("side", rest)) = args.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return side(&rest.iter().map(String::as_str).collect::<Vec<_>>());
    }
    let (flags, names): (Vec<&str>, Vec<&str>) =
        args.iter().map(String::as_str).partition(|word| word.starts_with('-'));
    let known = |name: &&str| SECTIONS.iter().any(|(section, _)| section == name);
    let (write, rounds) = match flags.as_slice() {
        [] => (false, Rounds::ALL),
        ["--write"] => (true, Rounds::ALL),
        // Few rounds are not for the page.
        ["--quick"] => (false, Rounds::FEW),
        _ => bail!("{USAGE}"),
    };
    if !names.iter().all(known) {
        bail!("{USAGE}");
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/performance.md");
    let mut missing = Vec::new();
    for (name, bench) in SECTIONS {
        if names.is_empty() || names.contains(&name) {
            eprintln!("… {name}");
            match bench(rounds, write) {
                Ok(figures) => {
                    println!("{figures}");
                    if write {
                        table::put(&page, name, &figures)?;
                    }
                }
                // The others can be measured; what the page had of this one stays.
                Err(error) => {
                    eprintln!("{name}: {error:#}");
                    missing.push(name);
                }
            }
        }
    }
    if !missing.is_empty() {
        bail!("not measured: {}", missing.join(", "));
    }
    Ok(())
}

/// One side of a measurement, in a process of its own.
fn side(args: &[&str]) -> anyhow::Result<()> {
    match args {
        ["pipeline", side, recording] => pipeline::side(side, recording.as_ref()),
        ["many", what, side, recording] => many::side(what, side, recording.as_ref()),
        ["growth", engine, size, recording] => growth::side(engine, size, recording.as_ref()),
        ["locks", side, directory, key] => locks::side(side, directory.as_ref(), key),
        ["claude", side @ ..] => claude::side(side),
        ["codex", side @ ..] => codex::side(side),
        other => bail!("no such side: {other:?}"),
    }
}
