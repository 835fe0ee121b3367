//! The exec pipeline: a process prints a recording, and takopi makes events of it, beside three floors.
//!
//! Each measurement is a process of its own, so that its peak memory is its own; the sides alternate.

use std::borrow::Cow;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, bail};
use futures::StreamExt;
use serde::Deserialize;
use serde_json::value::RawValue;
use takopi_bench::recording;
use takopi_codex::Codex;
use takopi_core::{Host, RunRequest, Runner, TakopiEvent};

use crate::measure::{self, Figures};
use crate::table::{Table, goal, mib, ratio};

const ROUNDS: usize = 9;
const SIDES: [&str; 4] = ["newlines", "values", "structs", "takopi"];

/// The table.
pub(crate) fn bench() -> anyhow::Result<String> {
    let directory = tempfile::tempdir()?;
    let heading = format!("exec pipeline (medians of {ROUNDS} alternating rounds)");
    let columns = ["lines", "side", "lines per second", "of structs", "peak RSS"];
    let mut table = Table::new(heading, &columns);
    let mut verdict = String::new();
    for lines in [1_000, 10_000, 100_000] {
        let recording = directory.path().join(format!("{lines}.jsonl"));
        std::fs::write(&recording, recording::exec_after_start(lines - 1))?;
        let sides =
            SIDES.map(|side| vec!["pipeline".as_ref(), side.as_ref(), recording.as_os_str()]);
        let figures = measure::alternate(ROUNDS, &sides)?;
        for (side, Figures { time, peak_kib }) in SIDES.iter().zip(&figures) {
            #[expect(clippy::cast_precision_loss, reason = "figures for people")]
            let rate = lines as f64 / time.as_secs_f64();
            let cells = [lines.to_string(), (*side).into(), format!("{rate:.0}")];
            table.row(cells.into_iter().chain([ratio(figures[2].time, *time), mib(*peak_kib)]));
        }
        let (structs, takopi) = (&figures[2], &figures[3]);
        let met = structs.time >= takopi.time.mul_f64(0.70) && takopi.peak_kib < 10 * 1024;
        let measured = format!("{}, {}", ratio(structs.time, takopi.time), mib(takopi.peak_kib));
        verdict = goal("100,000 lines at 0.70 of *structs*, under 10 MiB", &measured, met);
    }
    Ok(format!("{table}\n{verdict}"))
}

/// One side, from the start of the printer to the last of its lines.
pub(crate) fn side(side: &str, recording: &Path) -> anyhow::Result<()> {
    let begun = Instant::now();
    match side {
        "newlines" => count_newlines(recording)?,
        "values" => each_line(recording, |line| {
            serde_json::from_slice::<serde_json::Value>(line).map(drop)
        })?,
        "structs" => {
            each_line(recording, |line| serde_json::from_slice::<Line<'_>>(line).map(drop))?;
        }
        "takopi" => takopi(recording)?,
        other => bail!("no side {other}"),
    }
    measure::done(begun)
}

/// Floor (a): count newlines.
pub(crate) fn count_newlines(recording: &Path) -> anyhow::Result<()> {
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
        run(&runner, recording).await
    })
}

/// Runs the printer as codex, to its last event.
pub(crate) async fn run(runner: &dyn Runner, recording: &Path) -> anyhow::Result<()> {
    let request = RunRequest::new("go").env("PRINTER_FILE", recording);
    let mut events = runner.run(request);
    let mut last = None;
    while let Some(event) = events.next().await {
        last = Some(event);
    }
    match last {
        Some(TakopiEvent::Completed(completed)) if completed.answer == recording::ANSWER => Ok(()),
        other => bail!("not the end: {other:?}"),
    }
}

pub(crate) fn printer_path() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    Ok(own.with_file_name("printer"))
}

fn printer(recording: &Path) -> anyhow::Result<std::process::Child> {
    let mut command = Command::new(printer_path()?);
    command.env("PRINTER_FILE", recording).stdin(Stdio::null()).stdout(Stdio::piped());
    command.spawn().context("cannot start the printer")
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
