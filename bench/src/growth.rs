//! How takopi's own cost grows with the number of sessions: a table, and a plot of it.
//!
//! *demo* has all its sessions at once, and starts no program. *exec* runs a small program in place of codex, eight
//! at a time. Few sessions are run again and again, so that every row is of many.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::StreamExt as _;
use futures::stream::{self, TryStreamExt as _};
use takopi_bench::recording;
use takopi_codex::Codex;
use takopi_core::demo::{Demo, Step};
use takopi_core::process::raise_descriptor_limit;
use takopi_core::{EngineRunner, Host, RunRequest, Runner};

use crate::many::action;
use crate::measure::side_command;
use crate::pipeline::{printer_path, run};
use crate::plot::{Panel, Plot};
use crate::table::{Table, goal};

const SIZES: [usize; 5] = [1, 10, 100, 1_000, 10_000];
/// So many sessions are run for a row at least.
const AT_LEAST: usize = 1_000;
/// Programs at a time.
const AT_ONCE: usize = 8;
const ACTIONS: usize = 10;
const ENGINES: [&str; 2] = ["demo", "exec"];

/// What a session costs, and what the process has.
struct Figures {
    time: f64,
    processor: f64,
    memory: Option<f64>,
    descriptors: f64,
    threads: f64,
}

/// The table; the plot goes to `docs/growth.svg` if the figures are written.
pub(crate) fn bench(write: bool) -> anyhow::Result<String> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("exec.jsonl");
    std::fs::write(&file, recording::exec_after_start(9))?;
    let columns = [
        "engine",
        "sessions",
        "time a session",
        "processor time",
        "memory, idle",
        "descriptors",
        "threads",
    ];
    let mut table = Table::new("takopi's own cost of a session", &columns);
    let mut plot = Plot::new(
        "takopi's own cost by the number of sessions",
        &ENGINES,
        [
            Panel::new("time a session, µs"),
            Panel::new("processor time a session, µs"),
            Panel::new("memory of an idle session, KiB"),
            Panel::new("descriptors of the process"),
            Panel::new("threads of the process"),
        ],
    );
    let mut verdicts = String::new();
    for (line, engine) in ENGINES.into_iter().enumerate() {
        let mut ten = None;
        for size in SIZES {
            eprintln!("  … growth, {engine}, {size}");
            let figures = measure(engine, size, &file)?;
            let Figures { time, processor, memory, descriptors, threads } = figures;
            table.row([
                engine.to_owned(),
                size.to_string(),
                format!("{time:.1} µs"),
                format!("{processor:.1} µs"),
                memory.map_or_else(|| "—".to_owned(), |memory| format!("{memory:.1} KiB")),
                descriptors.to_string(),
                threads.to_string(),
            ]);
            let points = [Some(time), Some(processor), memory, Some(descriptors), Some(threads)];
            for (panel, point) in plot.panels.iter_mut().zip(points) {
                panel.add(line, size, point);
            }
            let of_ten = processor
                / *(if size == 10 { ten.insert(processor) } else { ten.get_or_insert(f64::NAN) });
            if size == SIZES[SIZES.len() - 1] {
                let idle = memory
                    .map_or_else(String::new, |memory| format!(", {memory:.1} KiB when idle"));
                let met = of_ten <= 1.3 && memory.is_none_or(|memory| memory <= 16.0);
                let what = format!(
                    "{engine}: the processor time of a session within 1.3 from 10 to {size}, 16 KiB when idle"
                );
                verdicts += &goal(&what, &format!("{of_ten:.2}{idle}"), met);
                verdicts.push('\n');
            }
        }
    }
    if write {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/growth.svg");
        std::fs::write(path, plot.to_string())?;
    }
    Ok(format!("{table}\n{}", verdicts.trim_end()))
}

fn measure(engine: &str, size: usize, recording: &Path) -> anyhow::Result<Figures> {
    let size = size.to_string();
    let mut command = side_command(&["growth", engine, &size])?;
    let output = command.arg(recording).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let figures: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let &[time, processor, memory, descriptors, threads] = figures.as_slice() else {
        bail!("{engine} {size}: {}, {text:?}", output.status);
    };
    let memory = (engine == "demo").then_some(memory);
    Ok(Figures { time, processor, memory, descriptors, threads })
}

/// One row, in a process of its own. Prints its figures.
pub(crate) fn side(engine: &str, size: &str, recording: &Path) -> anyhow::Result<()> {
    raise_descriptor_limit()?;
    let size: usize = size.parse()?;
    let rounds = AT_LEAST.div_ceil(size);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let state = tempfile::tempdir()?;
    let host = Host::builder().state_directory(state.path()).build()?;
    runtime.block_on(async {
        let (begun, used) = (Instant::now(), processor_time()?);
        for _ in 0..rounds {
            match engine {
                "demo" => at_once(&scripted(&host, &[]), size).await?,
                "exec" => eight_at_a_time(&host, size, recording).await?,
                other => bail!("no engine {other}"),
            }
        }
        let (time, used) = (begun.elapsed(), processor_time()?.saturating_sub(used));
        let memory = if engine == "demo" { idle_memory(&host, size).await? } else { 0.0 };
        let each = |time: Duration| time.as_secs_f64() * 1e6 / exact(rounds * size);
        let (descriptors, threads) = (count("/proc/self/fd")?, count("/proc/self/task")?);
        println!("{} {} {memory} {descriptors} {threads}", each(time), each(used));
        Ok(())
    })
}

/// A demo of ten actions, and what comes behind them.
fn scripted(host: &Host, behind: &[Step]) -> EngineRunner<Demo> {
    let steps = (0..ACTIONS).map(|number| Step::Act(action(number)));
    EngineRunner::new(Demo::scripted(steps.chain(behind.iter().cloned()))).on(host.clone())
}

async fn at_once(runner: &dyn Runner, size: usize) -> anyhow::Result<()> {
    let streams: Vec<_> = (0..size).map(|_| runner.run(RunRequest::new("go"))).collect();
    for mut events in streams {
        let mut seen = 0;
        while events.next().await.is_some() {
            seen += 1;
        }
        anyhow::ensure!(seen == ACTIONS + 2, "{seen} events");
    }
    Ok(())
}

async fn eight_at_a_time(host: &Host, size: usize, recording: &Path) -> anyhow::Result<()> {
    let codex = Codex::new().binary(printer_path()?).exec().on(host.clone());
    let runs = stream::iter((0..size).map(|_| Ok(run(&codex, recording))));
    runs.try_buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    codex.shutdown().await;
    Ok(())
}

/// What sessions take, in KiB each, once all of them have acted and wait.
async fn idle_memory(host: &Host, size: usize) -> anyhow::Result<f64> {
    let runner = scripted(host, &[Step::Pause(Duration::from_hours(1))]);
    let before = resident_kib()?;
    let mut streams = Vec::with_capacity(size);
    for _ in 0..size {
        streams.push(runner.run(RunRequest::new("go")));
    }
    for events in &mut streams {
        for _ in 0..=ACTIONS {
            events.next().await.context("an event")?;
        }
    }
    let grown = resident_kib()?.saturating_sub(before);
    drop(streams);
    runner.shutdown().await;
    Ok(exact(grown) / exact(size))
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn exact(number: usize) -> f64 {
    number as f64
}

fn resident_kib() -> anyhow::Result<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    line.split_whitespace().next().context("no figure")?.parse().context("not a figure")
}

/// What the threads of this process have used, to the nanosecond.
fn processor_time() -> anyhow::Result<Duration> {
    let mut nanos = 0;
    for thread in std::fs::read_dir("/proc/self/task")? {
        // One that ended meanwhile is not counted.
        let text = std::fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
        nanos += text.split(' ').next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(nanos))
}

fn count(directory: &str) -> anyhow::Result<usize> {
    Ok(std::fs::read_dir(directory)?.count())
}
