//! Benchmarks of takopi: each figure as a ratio to a floor measured in the same run.
//!
//! `cargo run --release -p takopi-bench` builds what it needs and prints all tables; with names (`locks`,
//! `pipeline`, `many`, `codex`, `claude`, `terminal`) only those. `--write` puts them into `docs/performance.md` too;
//! `--quick` does only a few rounds with the real agents, to see that it works. What is measured, and why
//! so, is on that page.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that prints tables")]

mod claude;
mod codex;
mod contest;
mod locks;
mod machine;
mod many;
mod measure;
mod pipeline;
mod table;
mod terminal;

use std::path::Path;

use anyhow::bail;

use self::contest::Rounds;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Section = (&'static str, fn(Rounds) -> anyhow::Result<String>);

const SECTIONS: [Section; 7] = [
    ("machine", |_| machine::describe()),
    ("locks", |_| locks::bench()),
    ("pipeline", |_| pipeline::bench()),
    ("many", |_| many::bench()),
    ("codex", codex::bench),
    ("claude", claude::bench),
    ("terminal", terminal::bench),
];

const USAGE: &str = "usage: takopi-bench [machine] [locks] [pipeline] [many] [codex] [claude] [terminal] [--write | --quick]";

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
    for (name, bench) in SECTIONS {
        if names.is_empty() || names.contains(&name) {
            eprintln!("… {name}");
            let figures = bench(rounds)?;
            println!("{figures}");
            if write {
                let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/performance.md");
                table::put(&page, name, &figures)?;
            }
        }
    }
    Ok(())
}

/// One side of a measurement, in a process of its own.
fn side(args: &[&str]) -> anyhow::Result<()> {
    match args {
        ["pipeline", side, recording] => pipeline::side(side, recording.as_ref()),
        ["many", what, side, recording] => many::side(what, side, recording.as_ref()),
        ["locks", side, directory, key] => locks::side(side, directory.as_ref(), key),
        ["claude", side @ ..] => claude::side(side),
        ["codex", side @ ..] => codex::side(side),
        other => bail!("no such side: {other:?}"),
    }
}
