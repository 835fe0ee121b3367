//! Counts the instructions that framing and translation take, and compares them with those stored.
//!
//! A count under valgrind does not depend on what else the machine does, so a slow-down shows where a
//! clock would not show. `.ci/run` runs this; `--accept` stores what was counted.
#![allow(clippy::print_stdout, reason = "a program that prints a table")]

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use takopi_bench::counts::{Counts, LINES};
use takopi_bench::{recording, work};

const COUNTS: Counts = Counts {
    table: "instructions",
    what: "instructions for 10,000 lines, without those of an empty run",
    margin_percent: 3.0,
};
const KINDS: [&str; 3] = ["framing", "exec", "app-server"];

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let ["work", kind, recording] =
        args.iter().map(String::as_str).collect::<Vec<_>>().as_slice()
    {
        std::hint::black_box(do_work(kind, &std::fs::read(recording)?)?);
        return Ok(());
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("SKIPPED instruction counts: valgrind is not installed");
        return Ok(());
    }
    COUNTS.check_or_accept(&args, &count_all()?)
}

/// The counts of all kinds, each less that of a process which only reads the recording.
fn count_all() -> anyhow::Result<Vec<(&'static str, u64)>> {
    let directory = tempfile::tempdir()?;
    let write = |name: &str, text: String| -> anyhow::Result<PathBuf> {
        let path = directory.path().join(name);
        std::fs::write(&path, text)?;
        Ok(path)
    };
    let exec = write("exec.jsonl", recording::exec(LINES))?;
    let app_server = write("app-server.jsonl", recording::app_server(LINES))?;
    let nothing = count("nothing", &exec)?;
    KINDS
        .into_iter()
        .map(|kind| {
            let recording = if kind == "app-server" { &app_server } else { &exec };
            Ok((kind, count(kind, recording)?.saturating_sub(nothing)))
        })
        .collect()
}

/// Runs one kind of work under valgrind.
fn count(kind: &str, recording: &Path) -> anyhow::Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args(["work", kind])
        .arg(recording)
        .output()
        .context("cannot start valgrind")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let counted = errors
        .lines()
        .find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok())
        .filter(|_| output.status.success());
    counted.with_context(|| format!("valgrind counted nothing ({}): {errors}", output.status))
}

fn do_work(kind: &str, recording: &[u8]) -> anyhow::Result<usize> {
    Ok(match kind {
        "nothing" => recording.len(),
        "framing" => work::framing(recording),
        "exec" => work::exec(recording),
        "app-server" => work::app_server(recording),
        other => bail!("no work {other}"),
    })
}
