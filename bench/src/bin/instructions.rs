//! Counts the instructions that framing and translation take, and compares them with those stored.
//!
//! A count under valgrind does not depend on what else the machine does, so a slow-down shows where a
//! clock would not show. It does depend on the compiler and on the C library: counts of others are
//! shown and not compared. `.ci/run` runs this; `--accept` stores what was counted.
#![allow(clippy::print_stdout, reason = "a program that prints a table")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use serde::Deserialize;
use takopi_bench::{recording, work};

const LINES: usize = 10_000;
/// What a count may differ by.
const MARGIN_PERCENT: f64 = 3.0;
const KINDS: [&str; 3] = ["framing", "exec", "app-server"];
const ACCEPT: &str = "cargo run --profile counted -p takopi-bench --no-default-features \
                      --bin instructions -- --accept";

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => check(),
        ["--accept"] => accept(),
        ["work", kind, recording] => {
            std::hint::black_box(do_work(kind, &std::fs::read(recording)?)?);
            Ok(())
        }
        _ => bail!("usage: instructions [--accept]"),
    }
}

/// What the counts depend on besides the code.
#[derive(Deserialize)]
struct Stored {
    rustc: String,
    libc: String,
    counts: BTreeMap<String, u64>,
}

fn check() -> anyhow::Result<()> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("SKIPPED instruction counts: valgrind is not installed");
        return Ok(());
    }
    let file = stored_path();
    let text = std::fs::read_to_string(&file)
        .with_context(|| format!("cannot read {}; `{ACCEPT}` writes it", file.display()))?;
    let stored: Stored =
        toml::from_str(&text).with_context(|| format!("cannot read {}", file.display()))?;
    let (rustc, libc) = (rustc()?, libc()?);
    let same = stored.rustc == rustc && stored.libc == libc;
    println!("instructions for {LINES} lines, without those of an empty run");
    let mut worse = Vec::new();
    for (kind, count) in count_all()? {
        let known = stored.counts.get(kind).copied().unwrap_or(0);
        #[expect(clippy::cast_precision_loss, reason = "percents for people")]
        let change = (count as f64 / known.max(1) as f64 - 1.0) * 100.0;
        println!("{kind:<12} {count:>14}   stored {known:>14}   {change:>+7.2} %");
        if change.abs() > MARGIN_PERCENT {
            worse.push(format!("{kind} ({change:+.2} %)"));
        }
    }
    if !same {
        println!(
            "SKIPPED the comparison: the figures were stored with {} and {}, these were counted with \
             {rustc} and {libc}. To compare again: `{ACCEPT}` on the commit before the change, then \
             this on the change.",
            stored.rustc, stored.libc
        );
        return Ok(());
    }
    if !worse.is_empty() {
        bail!(
            "more than {MARGIN_PERCENT} % away from {}: {}. If that is meant, store the new figures \
             with `{ACCEPT}` and give the reason in the commit; a gain is stored too, so that it cannot be lost \
             unseen.",
            file.display(),
            worse.join(", ")
        );
    }
    Ok(())
}

fn accept() -> anyhow::Result<()> {
    let mut text = String::from(
        "# Written by `instructions --accept`; see docs/performance.md. Counts for 10,000 lines.\n",
    );
    writeln!(text, "rustc = \"{}\"\nlibc = \"{}\"\n\n[counts]", rustc()?, libc()?)?;
    for (kind, count) in count_all()? {
        writeln!(text, "{kind} = {count}")?;
        println!("{kind:<12} {count:>14}");
    }
    std::fs::write(stored_path(), text).context("cannot store the figures")
}

fn stored_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.toml")
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

fn rustc() -> anyhow::Result<String> {
    first_line(Command::new("rustc").arg("--version"))
}

fn libc() -> anyhow::Result<String> {
    first_line(Command::new("getconf").arg("GNU_LIBC_VERSION"))
}

fn first_line(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned())
}
