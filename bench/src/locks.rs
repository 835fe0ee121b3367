//! Session locks beside a bare `tokio::sync::Mutex`, and beside a bare `flock` across processes.
//!
//! The two sides alternate, so that a machine that slows down slows both; the table shows medians.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::FutureExt as _;
use takopi_core::ResumeToken;
use takopi_core::locks::{FileLocks, Holder, LocalLocks, NoLeases, SessionKey, SessionLocks};
use tokio::sync::Mutex;

use crate::measure;
use crate::table::{Table, ratio};

const ROUNDS: usize = 15;
const ACQUISITIONS: u32 = 100_000;
const TASKS: usize = 10_000;
const KEYS: usize = 100;
const PROCESSES: u32 = 8;
const TURNS: u32 = 100;
const CROWDS: usize = 5;

/// The tables.
pub(crate) fn bench() -> anyhow::Result<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let threads =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let directory = tempfile::tempdir()?;
    let files = FileLocks::new(LocalLocks::new(), directory.path());

    let heading = format!("locks in one process (medians of {ROUNDS} alternating rounds)");
    let mut table = Table::new(heading, &["acquire and release", "bare mutex", "takopi", "ratio"]);
    let mut row = |what: &str, (bare, ours): (Duration, Duration), count: u32| {
        let cells = [format!("{:.1?}", bare / count), format!("{:.1?}", ours / count)];
        table.row([what.to_owned()].into_iter().chain(cells).chain([ratio(ours, bare)]));
    };
    let figures = alternate(
        || runtime.block_on(bare_uncontended()),
        || runtime.block_on(local_uncontended()),
    );
    row("uncontended, in process", figures, ACQUISITIONS);
    let figures = alternate(|| runtime.block_on(bare_uncontended()), trait_uncontended);
    row("the same through the trait", figures, ACQUISITIONS);
    let figures =
        alternate(|| threads.block_on(bare_contended()), || threads.block_on(local_contended()));
    row("10,000 tasks over 100 keys", figures, u32::try_from(TASKS)?);
    let figures =
        alternate(|| runtime.block_on(bare_uncontended()) / 100, || file_uncontended(&files));
    row("with the file lock", figures, ACQUISITIONS / 100);
    Ok(format!("{table}\n{}", across_processes()?))
}

/// Processes that lock the same session, or one of their own each, beside the kernel's bare lock.
fn across_processes() -> anyhow::Result<Table> {
    let heading = format!(
        "file locks across {PROCESSES} processes, {TURNS} turns each (medians of {CROWDS} alternating rounds)"
    );
    let columns = ["session", "bare flock", "takopi", "ratio", "slowest process to fastest"];
    let mut table = Table::new(heading, &columns);
    for (what, shared) in [("one for all", true), ("one each", false)] {
        let mut times = [Vec::new(), Vec::new()];
        let mut spread = Vec::new();
        for _ in 0..CROWDS {
            for (side, times) in ["flock", "takopi"].iter().zip(&mut times) {
                let (all, fastest, slowest) = crowd(side, shared)?;
                times.push(all / (PROCESSES * TURNS));
                if *side == "takopi" {
                    spread.push((slowest.as_secs_f64() / fastest.as_secs_f64() * 100.0).round());
                }
            }
        }
        let [bare, ours] = times.map(measure::median);
        spread.sort_by(f64::total_cmp);
        let spread = format!("{:.2}", spread[spread.len() / 2] / 100.0);
        let cells = [format!("{bare:.1?}"), format!("{ours:.1?}"), ratio(ours, bare), spread];
        table.row([what.to_owned()].into_iter().chain(cells));
    }
    Ok(table)
}

/// All processes at once: how long until all were done, and the fastest and the slowest by its own
/// clock.
fn crowd(side: &str, shared: bool) -> anyhow::Result<(Duration, Duration, Duration)> {
    let directory = tempfile::tempdir()?;
    let mut started = Vec::new();
    for number in 0..PROCESSES {
        let key = if shared { 0 } else { number }.to_string();
        let mut command = measure::side_command(&[
            "locks".as_ref(),
            side.as_ref(),
            directory.path().as_os_str(),
            key.as_ref(),
        ])?;
        started.push(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
    }
    for child in &mut started {
        // Each reports that it is ready, and waits for the others.
        child.stdout.as_mut().context("no output")?.read_exact(&mut [0])?;
    }
    let begun = Instant::now();
    for child in &mut started {
        drop(child.stdin.take());
    }
    let mut times = Vec::new();
    for child in started {
        times.push(measure::finished(&child.wait_with_output()?)?.time);
    }
    let (fastest, slowest) = (times.iter().min(), times.iter().max());
    Ok((begun.elapsed(), *fastest.context("nothing ran")?, *slowest.context("nothing ran")?))
}

/// One of the processes: locks and releases as often as it is its turn.
pub(crate) fn side(side: &str, directory: &Path, name: &str) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let key = SessionKey::new(&ResumeToken::new("bench", name));
    let locks = FileLocks::new(LocalLocks::new(), directory);
    let file = File::create(directory.join(name))?;
    println!();
    std::io::stdin().read_to_end(&mut Vec::new())?;
    let begun = Instant::now();
    for _ in 0..TURNS {
        match side {
            "flock" => {
                file.lock()?;
                file.unlock()?;
            }
            "takopi" => {
                let lock = locks.lock(key.clone(), holder(), Arc::new(NoLeases));
                drop(runtime.block_on(lock)?);
            }
            other => bail!("no side {other}"),
        }
    }
    measure::done(begun)
}

/// Medians of both sides, measured in turn.
fn alternate(
    mut one: impl FnMut() -> Duration,
    mut other: impl FnMut() -> Duration,
) -> (Duration, Duration) {
    let mut ones = Vec::new();
    let mut others = Vec::new();
    for _ in 0..ROUNDS {
        ones.push(one());
        others.push(other());
    }
    (measure::median(ones), measure::median(others))
}

fn key(number: usize) -> SessionKey {
    SessionKey::new(&ResumeToken::new("bench", format!("session-{number}")))
}

fn holder() -> Holder {
    Holder::here("bench".into())
}

async fn bare_uncontended() -> Duration {
    let mutex = Mutex::new(());
    let begun = Instant::now();
    for _ in 0..ACQUISITIONS {
        drop(std::hint::black_box(&mutex).lock().await);
    }
    begun.elapsed()
}

async fn local_uncontended() -> Duration {
    let (locks, key, holder) = (LocalLocks::new(), key(0), holder());
    let begun = Instant::now();
    for _ in 0..ACQUISITIONS {
        drop(std::hint::black_box(&locks).acquire(key.clone(), holder.clone()).await);
    }
    begun.elapsed()
}

fn trait_uncontended() -> Duration {
    let (locks, key, holder) = (LocalLocks::new(), key(0), holder());
    let locks: &dyn SessionLocks = &locks;
    let begun = Instant::now();
    for _ in 0..ACQUISITIONS {
        drop(std::hint::black_box(locks).try_lock(&key, &holder, &NoLeases).now_or_never());
    }
    begun.elapsed()
}

fn file_uncontended(locks: &FileLocks) -> Duration {
    let (key, holder) = (key(0), holder());
    let begun = Instant::now();
    for _ in 0..ACQUISITIONS / 100 {
        drop(locks.try_lock(&key, &holder, &NoLeases).now_or_never());
    }
    begun.elapsed()
}

async fn bare_contended() -> Duration {
    let mutexes: Arc<Vec<Mutex<()>>> = Arc::new((0..KEYS).map(|_| Mutex::new(())).collect());
    contend(move |task| {
        let mutexes = mutexes.clone();
        async move {
            let guard = mutexes[task % KEYS].lock().await;
            tokio::task::yield_now().await;
            drop(guard);
        }
    })
    .await
}

async fn local_contended() -> Duration {
    let locks = LocalLocks::new();
    let keys: Arc<Vec<SessionKey>> = Arc::new((0..KEYS).map(key).collect());
    let holder = holder();
    contend(move |task| {
        let (locks, key, holder) = (locks.clone(), keys[task % KEYS].clone(), holder.clone());
        async move {
            let guard = locks.acquire(key, holder).await;
            tokio::task::yield_now().await;
            drop(guard);
        }
    })
    .await
}

async fn contend<F: Future<Output = ()> + Send + 'static>(task: impl Fn(usize) -> F) -> Duration {
    let begun = Instant::now();
    let tasks: Vec<_> = (0..TASKS).map(|number| tokio::spawn(task(number))).collect();
    for task in tasks {
        let _ = task.await;
    }
    begun.elapsed()
}
