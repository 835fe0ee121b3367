//! Benchmarks of takopi: each figure as a ratio to a floor measured in the same run.
//!
//! `cargo run --release -p takopi-bench` prints all tables; with a name (`locks`, `codex`) only that
//! one.
#![allow(clippy::print_stdout, reason = "a program that prints tables")]

mod codex;
mod locks;

fn main() -> anyhow::Result<()> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let all = wanted.is_empty();
    if all || wanted.iter().any(|name| name == "locks") {
        locks::bench()?;
    }
    if all || wanted.iter().any(|name| name == "codex") {
        codex::bench()?;
    }
    Ok(())
}
