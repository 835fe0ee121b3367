//! Many runs: short ones in a row, new sessions at once, and the demo engine's sessions at once.
//!
//! The floor starts the same programs with nothing but tokio and counts newlines; where there is no
//! program it passes as many events through a channel a session. Memory is that of the reading
//! process alone.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::StreamExt;
use futures::future::{join_all, try_join_all};
use takopi_bench::recording;
use takopi_codex::Codex;
use takopi_core::demo::{DEMO, Demo, Step};
use takopi_core::process::raise_descriptor_limit;
use takopi_core::{
    Action, ActionEvent, ActionKind, Completed, EngineRunner, Host, Phase, RunRequest, Runner,
    TakopiEvent,
};
use tokio::io::AsyncReadExt as _;

use crate::measure;
use crate::pipeline::{count_newlines, printer_path, run};
use crate::table::{Table, goal, mib, millis, ratio};

const ROUNDS: usize = 15;
const SIDES: [&str; 2] = ["floor", "takopi"];
const IN_A_ROW: u32 = 200;
const AT_ONCE: u32 = 500;
const DEMO_SESSIONS: u32 = 10_000;
const DEMO_STEPS: usize = 10;
/// Of a session that runs while others start: more than it ever has time for.
const TICKS: usize = 100_000;

/// The table.
pub(crate) fn bench() -> anyhow::Result<String> {
    let directory = tempfile::tempdir()?;
    let heading = format!("many runs (medians of {ROUNDS} alternating rounds)");
    let columns = ["what", "side", "time", "a run", "of the floor", "peak RSS"];
    let mut table = Table::new(heading, &columns);
    let mut verdicts = String::new();
    for (what, runs, lines, label, most) in [
        ("row", IN_A_ROW, 10, "200 runs of 10 lines in a row", 1.25),
        ("crowd", AT_ONCE, 100, "500 new sessions of 100 lines at once", 1.30),
        ("demo", DEMO_SESSIONS, 10, "10,000 sessions of the demo engine at once", 1.0),
    ] {
        eprintln!("  … {label}");
        let file = directory.path().join(format!("{what}.jsonl"));
        std::fs::write(&file, recording::exec_after_start(lines - 1))?;
        let sides =
            SIDES.map(|side| vec!["many".as_ref(), what.as_ref(), side.as_ref(), file.as_os_str()]);
        let figures = measure::alternate(ROUNDS, &sides)?;
        for (side, figure) in SIDES.iter().zip(&figures) {
            let each = format!("{:.3} ms", (figure.time / runs).as_secs_f64() * 1e3);
            let cells = [label.to_owned(), (*side).into(), millis(figure.time), each];
            let of_floor = ratio(figure.time, figures[0].time);
            table.row(cells.into_iter().chain([of_floor, mib(figure.peak_kib)]));
        }
        let [floor, takopi] = [&figures[0], &figures[1]];
        let met = takopi.time <= floor.time.mul_f64(most);
        let what = format!("{label} within {most:.2} of the floor");
        verdicts += &goal(&what, &ratio(takopi.time, floor.time), met);
        verdicts.push('\n');
    }
    let file = directory.path().join("crowd.jsonl");
    let side = vec!["many".as_ref(), "delay".as_ref(), "takopi".as_ref(), file.as_os_str()];
    let delay = measure::alternate(ROUNDS, &[side])?[0].time;
    verdicts += &goal(
        "the events of a running session are delayed by less than 5 ms at p99 while 500 sessions start",
        &millis(delay),
        delay < Duration::from_millis(5),
    );
    Ok(format!("{table}\n{verdicts}"))
}

/// One side, until nothing of it runs any more.
pub(crate) fn side(what: &str, side: &str, recording: &Path) -> anyhow::Result<()> {
    raise_descriptor_limit()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let state = tempfile::tempdir()?;
    let host = Host::builder().state_directory(state.path()).build()?;
    let codex = Codex::new().binary(printer_path()?).exec().on(host.clone());
    let begun = Instant::now();
    match (what, side) {
        ("row", "floor") => (0..IN_A_ROW).try_for_each(|_| count_newlines(recording))?,
        ("row", "takopi") => runtime.block_on(async {
            for _ in 0..IN_A_ROW {
                run(&codex, recording).await?;
            }
            codex.shutdown().await;
            anyhow::Ok(())
        })?,
        ("crowd", "floor") => {
            let all = (0..AT_ONCE).map(|_| count_newlines_async(recording));
            runtime.block_on(try_join_all(all))?;
        }
        ("crowd", "takopi") => runtime.block_on(async {
            try_join_all((0..AT_ONCE).map(|_| run(&codex, recording))).await?;
            codex.shutdown().await;
            anyhow::Ok(())
        })?,
        ("delay", "takopi") => {
            let delay = runtime.block_on(delay(&host, &codex, recording))?;
            return measure::print(delay);
        }
        ("demo", "floor") => runtime.block_on(channels())?,
        ("demo", "takopi") => runtime.block_on(demo(&host))?,
        other => bail!("no side {other:?}"),
    }
    measure::done(begun)
}

async fn count_newlines_async(recording: &Path) -> anyhow::Result<usize> {
    let mut child = tokio::process::Command::new(printer_path()?)
        .env("PRINTER_FILE", recording)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the printer")?;
    let mut stdout = child.stdout.take().context("no output")?;
    let mut buffer = vec![0; 8 * 1024];
    let mut lines = 0;
    loop {
        let count = stdout.read(&mut buffer).await?;
        if count == 0 {
            break;
        }
        lines += memchr::memchr_iter(b'\n', &buffer[..count]).count();
    }
    child.wait().await?;
    Ok(lines)
}

/// An action of the demo engine.
pub(crate) fn action(number: usize) -> ActionEvent {
    let action = Action::new(format!("item_{number}"), ActionKind::Command, "ls src");
    ActionEvent::new(DEMO, action, Phase::Completed).ok(true)
}

/// By how much the events of a session come late at p99, while many others are started.
async fn delay(host: &Host, codex: &dyn Runner, recording: &Path) -> anyhow::Result<Duration> {
    let tick = [Step::Pause(Duration::from_millis(1)), Step::Act(action(0))];
    let ticks = std::iter::repeat_n(tick, TICKS).flatten();
    let mut running =
        EngineRunner::new(Demo::scripted(ticks)).on(host.clone()).run(RunRequest::new("go"));
    let mut gaps = Vec::new();
    let mut last = None;
    let crowd = async {
        // What a tick takes when nothing else happens.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let begun = Instant::now();
        try_join_all((0..AT_ONCE).map(|_| run(codex, recording))).await?;
        anyhow::Ok((begun, Instant::now()))
    };
    tokio::pin!(crowd);
    let (begun, ended) = loop {
        tokio::select! {
            period = &mut crowd => break period?,
            Some(_) = running.next() => {
                let now = Instant::now();
                gaps.extend(last.replace(now).map(|last| (now, now - last)));
            }
        }
    };
    drop(running);
    codex.shutdown().await;
    let quiet = gaps.iter().filter(|(at, _)| *at < begun).map(|(_, gap)| *gap);
    let busy = gaps.iter().filter(|(at, _)| (begun..=ended).contains(at)).map(|(_, gap)| *gap);
    Ok(measure::quantile(busy, 99).saturating_sub(measure::median(quiet)))
}

async fn demo(host: &Host) -> anyhow::Result<()> {
    let steps = (0..DEMO_STEPS).map(|number| Step::Act(action(number)));
    let runner = EngineRunner::new(Demo::scripted(steps)).on(host.clone());
    let runs: Vec<_> = (0..DEMO_SESSIONS).map(|_| runner.run(RunRequest::new("go"))).collect();
    let counts = join_all(runs.into_iter().map(StreamExt::count)).await;
    runner.shutdown().await;
    // Started and Completed come on top.
    all_have(&counts, DEMO_STEPS + 2)
}

/// A task and a channel a session.
async fn channels() -> anyhow::Result<()> {
    let streams: Vec<_> = (0..DEMO_SESSIONS)
        .map(|_| {
            let (send, mut receive) = tokio::sync::mpsc::channel::<TakopiEvent>(DEMO_STEPS);
            tokio::spawn(async move {
                for number in 0..=DEMO_STEPS {
                    let _ = send.send(action(number).into()).await;
                }
                let _ = send.send(Completed::success(DEMO, "done").into()).await;
            });
            async move {
                let mut count = 0;
                while receive.recv().await.is_some() {
                    count += 1;
                }
                count
            }
        })
        .collect();
    all_have(&join_all(streams).await, DEMO_STEPS + 2)
}

fn all_have(counts: &[usize], expected: usize) -> anyhow::Result<()> {
    match counts.iter().find(|count| **count != expected) {
        Some(count) => bail!("{count} events where there should be {expected}"),
        None => Ok(()),
    }
}
