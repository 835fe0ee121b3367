//! The exec pipeline: a process prints a recording, and takopi makes events of it, beside three floors.
//!
//! Each measurement is a process of its own, so that its peak memory is its own; the sides alternate.

use std::borrow::Cow;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::StreamExt;
use serde::Deserialize;
use serde_json::value::RawValue;
use takopi_codex::Codex;
use takopi_core::{Host, RunRequest, Runner, TakopiEvent};

use takopi_bench::recording;

const ROUNDS: usize = 9;
const SIDES: [&str; 4] = ["newlines", "values", "structs", "takopi"];

/// Prints the table.
pub(crate) fn bench() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    println!("\nexec pipeline (medians of {ROUNDS} alternating rounds)");
    println!(
        "{:<10}{:>12}{:>14}{:>14}{:>12}",
        "lines", "side", "lines/s", "of structs", "peak RSS"
    );
    for lines in [1_000, 10_000, 100_000] {
        let recording = directory.path().join(format!("{lines}.jsonl"));
        std::fs::write(&recording, recording::exec_after_start(lines - 1))?;
        let mut figures = vec![Vec::new(); SIDES.len()];
        for _ in 0..ROUNDS {
            for (side, figures) in SIDES.iter().zip(&mut figures) {
                figures.push(apart(side, &recording)?);
            }
        }
        let medians: Vec<(Duration, u64)> = figures.into_iter().map(median).collect();
        for (side, (time, peak)) in SIDES.iter().zip(&medians) {
            #[expect(clippy::cast_precision_loss, reason = "figures for people")]
            let rate = lines as f64 / time.as_secs_f64();
            let ratio = medians[2].0.as_secs_f64() / time.as_secs_f64();
            println!("{lines:<10}{side:>12}{rate:>14.0}{ratio:>14.2}{peak:>8} KiB");
        }
    }
    Ok(())
}

fn median(mut figures: Vec<(Duration, u64)>) -> (Duration, u64) {
    figures.sort_unstable();
    figures[figures.len() / 2]
}

/// Runs one side in a process of its own; its time and its peak memory in KiB.
fn apart(side: &str, recording: &Path) -> anyhow::Result<(Duration, u64)> {
    let output = Command::new(std::env::current_exe()?)
        .args(["side", side])
        .arg(recording)
        .stderr(Stdio::inherit())
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    let mut words = text.split_whitespace().map(str::parse::<u64>);
    match (words.next(), words.next()) {
        (Some(Ok(micros)), Some(Ok(peak))) => Ok((Duration::from_micros(micros), peak)),
        _ => bail!("{side} failed: {text}"),
    }
}

/// The other end of [`apart`].
pub(crate) fn side(side: &str, recording: &Path) -> anyhow::Result<()> {
    let begun = Instant::now();
    match side {
        "newlines" => newlines(recording)?,
        "values" => each_line(recording, |line| {
            serde_json::from_slice::<serde_json::Value>(line).map(drop)
        })?,
        "structs" => {
            each_line(recording, |line| serde_json::from_slice::<Line<'_>>(line).map(drop))?;
        }
        "takopi" => takopi(recording)?,
        other => bail!("no side {other}"),
    }
    let micros = begun.elapsed().as_micros();
    println!("{micros} {}", peak_kib()?);
    Ok(())
}

/// Floor (a): count newlines.
fn newlines(recording: &Path) -> anyhow::Result<()> {
    let mut child = printer(recording)?;
    let mut stdout = child.stdout.take().context("no output")?;
    let mut buffer = vec![0; 64 * 1024];
    let mut lines = 0;
    loop {
        let count = stdout.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        lines += memchr::memchr_iter(b'\n', &buffer[..count]).count();
    }
    std::hint::black_box(lines);
    child.wait()?;
    Ok(())
}

/// Floors (b) and (c): parse every line and build nothing.
fn each_line(
    recording: &Path,
    parse: impl Fn(&[u8]) -> serde_json::Result<()>,
) -> anyhow::Result<()> {
    let mut child = printer(recording)?;
    let stdout = child.stdout.take().context("no output")?;
    let mut reader = BufReader::with_capacity(64 * 1024, stdout);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        parse(&line)?;
        line.clear();
    }
    child.wait()?;
    Ok(())
}

/// takopi's exec runner, to its last event.
fn takopi(recording: &Path) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let state = tempfile::tempdir()?;
        let host = Host::builder().state_directory(state.path()).build()?;
        let runner = Codex::new().binary(printer_path()?).exec().on(host);
        let request = RunRequest::new("go").env("PRINTER_FILE", recording).build();
        let mut events = runner.run(request);
        let mut last = None;
        while let Some(event) = events.next().await {
            last = Some(event);
        }
        match last {
            Some(TakopiEvent::Completed(completed)) if completed.answer == "All done." => Ok(()),
            other => bail!("not the end: {other:?}"),
        }
    })
}

fn printer_path() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    Ok(own.with_file_name("printer"))
}

fn printer(recording: &Path) -> anyhow::Result<std::process::Child> {
    let mut command = Command::new(printer_path()?);
    command.env("PRINTER_FILE", recording).stdin(Stdio::null()).stdout(Stdio::piped());
    command.spawn().context("cannot start the printer")
}

fn peak_kib() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    line.split_whitespace().next().context("no figure")?.parse().context("not a figure")
}

/// Floor (c): the fields of the lines, borrowed, all kinds in one.
#[derive(Deserialize)]
#[expect(dead_code, reason = "parsed and not looked at: that is the floor")]
struct Line<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    thread_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    item: Option<Item<'a>>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "parsed and not looked at: that is the floor")]
struct Item<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    command: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    aggregated_output: Option<Cow<'a, str>>,
    #[serde(default)]
    exit_code: Option<i64>,
    #[serde(borrow, default)]
    status: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    changes: Option<Vec<Change<'a>>>,
    #[serde(borrow, default)]
    server: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    tool: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    items: Option<Vec<Step<'a>>>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "parsed and not looked at: that is the floor")]
struct Change<'a> {
    #[serde(borrow)]
    path: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "parsed and not looked at: that is the floor")]
struct Step<'a> {
    #[serde(borrow)]
    text: Cow<'a, str>,
    completed: bool,
}
