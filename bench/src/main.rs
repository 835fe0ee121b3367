//! Benchmarks of takopi: each figure as a ratio to a floor measured in the same run.
//!
//! `cargo run --release -p takopi-bench` prints all tables; with names (`locks`, `pipeline`, `codex`)
//! only those.
#![allow(clippy::print_stdout, reason = "a program that prints tables")]

mod codex;
mod locks;
mod pipeline;
mod recording;

fn main() -> anyhow::Result<()> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    if let [word, side, recording] = wanted.as_slice()
        && word == "side"
    {
        return pipeline::side(side, recording.as_ref());
    }
    let tables: [(&str, fn() -> anyhow::Result<()>); 3] =
        [("locks", locks::bench), ("pipeline", pipeline::bench), ("codex", codex::bench)];
    for (name, bench) in tables {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            bench()?;
        }
    }
    Ok(())
}
