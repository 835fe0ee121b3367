//! Benchmarks of takopi: each figure as a ratio to a floor measured in the same run.
//!
//! `cargo run --release -p takopi-bench` prints the tables.
#![allow(clippy::print_stdout, reason = "a program that prints tables")]

mod locks;

fn main() -> anyhow::Result<()> {
    locks::run()
}
