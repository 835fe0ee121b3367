//! The real codex with a scripted model: takopi beside codex itself.
//!
//! The two sides of a row alternate; figures are medians. Memory is the peak of the proportional set
//! size (PSS) of everything this process started, sampled while the row runs.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use futures::future::join_all;
use takopi_codex::Codex;
use takopi_codex::app_server::{CodexAppServer, PoolLimits};
use takopi_core::{EngineRunner, Host, ResumeToken, Runner};
use takopi_tests::home::TestHome;
use takopi_tests::model::{Answer, ModelServer, Script};
use takopi_tests::real;
use takopi_tests::real::raw::RawCodex;
use takopi_tests::runs::{finish, is_started, request, run, until};

const ROUNDS: usize = 7;
const MANY: usize = 50;

/// Prints the tables.
pub(crate) fn bench() -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let codex = real::codex()?;
        println!("codex {} with a scripted model", codex.version);
        turns(&codex).await?;
        many(&codex).await
    })
}

struct Place {
    _model: ModelServer,
    home: TestHome,
    host: Host,
}

fn place() -> anyhow::Result<Place> {
    let model = ModelServer::start();
    model.otherwise(Script::repeat(Answer::text("fine")));
    let home = TestHome::new(&model);
    let host = Host::builder().state_directory(home.state()).build()?;
    Ok(Place { _model: model, home, host })
}

fn app_server(codex: &real::Codex, host: &Host, warm: Duration) -> EngineRunner<CodexAppServer> {
    EngineRunner::new(CodexAppServer::new(Codex::new().binary(&codex.path)).keep_warm(warm))
        .on(host.clone())
}

/// One turn at a time: cold and warm, takopi beside codex.
async fn turns(codex: &real::Codex) -> anyhow::Result<()> {
    let Place { home, host, .. } = &place()?;
    let exec = Codex::new().binary(&codex.path).exec().on(host.clone());
    let cold = app_server(codex, host, Duration::ZERO);
    let warm = app_server(codex, host, Duration::from_mins(10));
    let exec_session = session(&exec, home).await?;
    let warm_session = session(&warm, home).await?;

    let mut rows: [(&str, Vec<Duration>); 6] = [
        ("codex exec", Vec::new()),
        ("takopi exec", Vec::new()),
        ("takopi app-server, cold", Vec::new()),
        ("codex exec resume", Vec::new()),
        ("takopi exec, resumed", Vec::new()),
        ("takopi app-server, warm", Vec::new()),
    ];
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        RawCodex::exec(codex, home, "hi").await.end().await;
        rows[0].1.push(begun.elapsed());
        rows[1].1.push(timed(&exec, home, None).await);
        rows[2].1.push(timed(&cold, home, None).await);
        let begun = Instant::now();
        RawCodex::resume(codex, home, &exec_session.value, "hi").await.end().await;
        rows[3].1.push(begun.elapsed());
        rows[4].1.push(timed(&exec, home, Some(&exec_session)).await);
        rows[5].1.push(timed(&warm, home, Some(&warm_session)).await);
    }
    println!("\none turn, prompt to end (medians of {ROUNDS} alternating rounds)");
    let base = [median(&mut rows[0].1), median(&mut rows[3].1)];
    for (index, (name, times)) in rows.iter_mut().enumerate() {
        let time = median(times);
        let ratio = base[index / 3].as_secs_f64() / time.as_secs_f64();
        println!("{name:<28} {:>8.0} ms {ratio:>6.2} times as fast", time.as_secs_f64() * 1e3);
    }
    handover(codex, home, &warm, &warm_session).await?;
    for runner in [&cold as &dyn Runner, &warm, &exec] {
        runner.shutdown().await;
    }
    Ok(())
}

/// A session that is warm here is asked for by another takopi, which has only the files in common.
async fn handover(
    codex: &real::Codex,
    home: &TestHome,
    here: &dyn Runner,
    session: &ResumeToken,
) -> anyhow::Result<()> {
    let elsewhere = Host::builder().state_directory(home.state()).build()?;
    let there = app_server(codex, &elsewhere, Duration::from_mins(10));
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let mut events = there.run(request(home, "hi").resume(session.clone()).build());
        let seen = until(&mut events, "Started", is_started).await;
        times.push(begun.elapsed());
        finish(events, seen).await.ok();
        timed(here, home, Some(session)).await;
    }
    there.shutdown().await;
    let (middle, longest) = (median(&mut times), times[times.len() - 1]);
    println!(
        "a session that is warm elsewhere is started here after {:.0} ms, at the longest {:.0} ms",
        middle.as_secs_f64() * 1e3,
        longest.as_secs_f64() * 1e3,
    );
    Ok(())
}

async fn session(runner: &dyn Runner, home: &TestHome) -> anyhow::Result<ResumeToken> {
    run(runner, request(home, "hi").build()).await.completed().resume.clone().context("no session")
}

async fn timed(runner: &dyn Runner, home: &TestHome, session: Option<&ResumeToken>) -> Duration {
    let begun = Instant::now();
    run(runner, request(home, "hi").resume(session.cloned()).build()).await.ok();
    begun.elapsed()
}

/// Many sessions at once: processes of their own beside shared ones.
async fn many(codex: &real::Codex) -> anyhow::Result<()> {
    println!("\n{MANY} new sessions at once");
    let Place { home, .. } = &place()?;
    let peak = Peak::start();
    let begun = Instant::now();
    let all: Vec<_> =
        (0..MANY).map(|_| async { RawCodex::exec(codex, home, "hi").await.end().await }).collect();
    let raw = join_all(all).await;
    let alone = (begun.elapsed(), peak.stop());
    let failed = raw.iter().filter(|run| run.code != Some(0)).count();

    let Place { home, host, .. } = &place()?;
    let exec = Codex::new().binary(&codex.path).exec().on(host.clone());
    let own = at_once(&exec, home).await;
    exec.shutdown().await;

    let mut shared = Vec::new();
    for (busy, processes) in [(12, 2), (12, 4), (16, 4), (25, 2)] {
        let Place { home, host, .. } = &place()?;
        let engine = CodexAppServer::new(Codex::new().binary(&codex.path))
            .keep_warm(Duration::from_mins(1))
            .shared(PoolLimits::new(busy, 200, processes));
        let runner = EngineRunner::new(engine).on(host.clone());
        shared.push((format!("takopi shared, {processes} × {busy}"), at_once(&runner, home).await));
        runner.shutdown().await;
    }
    println!("{:<28} {:>9} {:>10}", "", "time", "peak PSS");
    let row = |name: &str, (time, bytes): (Duration, u64)| {
        let faster = alone.0.as_secs_f64() / time.as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
        let smaller = alone.1 as f64 / bytes.max(1) as f64;
        let mib = bytes / (1 << 20);
        println!(
            "{name:<28} {:>7.2} s {mib:>6} MiB {faster:>6.1} times as fast, 1/{smaller:.1} of the memory",
            time.as_secs_f64()
        );
    };
    row(&format!("codex exec ({failed} failed)"), alone);
    row("takopi exec", own);
    for (name, figures) in shared {
        row(&name, figures);
    }
    Ok(())
}

async fn at_once(runner: &dyn Runner, home: &TestHome) -> (Duration, u64) {
    let peak = Peak::start();
    let begun = Instant::now();
    let runs = (0..MANY).map(|_| run(runner, request(home, "hi").build()));
    for seen in join_all(runs).await {
        seen.ok();
    }
    (begun.elapsed(), peak.stop())
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Samples the memory of everything this process started.
struct Peak {
    stop: Arc<AtomicBool>,
    highest: Arc<AtomicU64>,
    sampler: std::thread::JoinHandle<()>,
}

impl Peak {
    fn start() -> Self {
        let (stop, highest) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let sampler = std::thread::spawn({
            let (stop, highest) = (stop.clone(), highest.clone());
            move || {
                while !stop.load(Ordering::Relaxed) {
                    highest.fetch_max(descendants_pss(), Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        });
        Self { stop, highest, sampler }
    }

    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.sampler.join();
        self.highest.load(Ordering::Relaxed)
    }
}

fn descendants_pss() -> u64 {
    let own = std::process::id();
    let Ok(directory) = std::fs::read_dir("/proc") else { return 0 };
    let parents: Vec<(u32, u32)> = directory
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid: u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let parent = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()?;
            Some((pid, parent))
        })
        .collect();
    let mut family = HashSet::from([own]);
    loop {
        let before = family.len();
        family.extend(
            parents
                .iter()
                .filter(|(_, parent)| family.contains(parent))
                .map(|(pid, _)| *pid)
                .collect::<Vec<_>>(),
        );
        if family.len() == before {
            break;
        }
    }
    family.remove(&own);
    family.into_iter().map(pss).sum()
}

fn pss(pid: u32) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = rollup.lines().find(|line| line.starts_with("Pss:"));
    let kib: u64 =
        line.and_then(|line| line.split_ascii_whitespace().nth(1)?.parse().ok()).unwrap_or(0);
    kib * 1024
}
