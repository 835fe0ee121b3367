//! Benchmarks of takopi: each figure as a ratio to a floor measured in the same run.
//!
//! `cargo run --release -p takopi-bench` prints all tables; with names (`locks`, `pipeline`, `codex`)
//! only those.
#![allow(clippy::print_stdout, reason = "a program that prints tables")]

mod codex;
mod locks;
mod pipeline;

fn main() -> anyhow::Result<()> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    if let [word, side, recording] = wanted.as_slice()
        && word == "side"
    {
        return pipeline::side(side, recording.as_ref());
    }
    let wants = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
    if wants("locks") {
        locks::bench()?;
    }
    if wants("pipeline") {
        pipeline::bench()?;
    }
    if wants("codex") {
        codex::bench()?;
    }
    Ok(())
}
