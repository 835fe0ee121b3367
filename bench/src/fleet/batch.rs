//! A batch of the real codex over a fleet, as it is shipped: `takopi worker` with a home of its own each, as machines have, and
//! `takopi batch --fleet`.
//!
//! All of them share this machine's processors: what is seen is what the queue costs, not what a second machine would bring.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::ensure;
use takopi_fleet::Board as _;
use takopi_tests::codex::home::TestHome;
use takopi_tests::codex::real;
use takopi_tests::model::{Answer, ModelServer, Script};

use super::Lab;
use crate::batch::{PROMPTS, prompts, takopi};
use crate::table::{Table, millis, ratio};

/// How many jobs a worker runs at once.
const SLOTS: usize = 8;

/// A batch without a fleet, and over one and two workers.
pub(super) async fn table() -> anyhow::Result<String> {
    let (takopi, codex) = (takopi()?, real::codex()?);
    let columns = ["", "time", "times as fast"];
    let mut table = Table::new(format!("{PROMPTS} prompts to the real codex"), &columns);
    let mut first = None;
    for workers in [0, 1, 2] {
        eprintln!("  … {workers} workers");
        let time = run(&takopi, &codex.path, workers).await?;
        let first = *first.get_or_insert(time);
        let name = match workers {
            0 => format!("no fleet, {SLOTS} at a time"),
            1 => format!("one worker with {SLOTS} slots"),
            many => format!("{many} workers with {SLOTS} slots each"),
        };
        table.row([name, millis(time), ratio(first, time)]);
    }
    Ok(table.to_string())
}

async fn run(takopi: &Path, codex: &Path, workers: usize) -> anyhow::Result<Duration> {
    let model = ModelServer::start();
    model.otherwise(Script::repeat(Answer::text("fine")));
    let lab = Lab::new().await?;
    let url = lab.server.url("takopi", "postgres");
    let board = lab.board().await?;
    let mut serving = Vec::new();
    for n in 0..workers {
        let home = TestHome::new(&model);
        let mut worker = home.command(takopi);
        worker.args(["worker", "--fleet", &url, "--engine", "codex", "--tied"]);
        worker.args(["--name", &format!("m{n}"), "--slots", &SLOTS.to_string()]);
        worker.env("TAKOPI_CODEX_BIN", codex).stdin(Stdio::piped());
        let worker = worker.stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        serving.push((worker.spawn()?, home));
    }
    while board.status().await?.workers.len() < workers {
        for (worker, _) in &mut serving {
            ensure!(worker.try_wait()?.is_none(), "a worker ended; is takopi built with `fleet`?");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let home = TestHome::new(&model);
    let jobs = home.root().join("jobs.jsonl");
    std::fs::write(&jobs, prompts(None))?;
    let mut batch = home.command(takopi);
    let at_once = SLOTS * workers.max(1);
    batch.arg("batch").arg(jobs).args(["--jobs", &at_once.to_string(), "--quiet", "--out"]);
    batch.arg(home.root().join("out.jsonl")).env("TAKOPI_CODEX_BIN", codex);
    if workers > 0 {
        batch.arg(format!("--fleet={url}"));
    }
    let begun = Instant::now();
    let status = batch.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let status = status.await?;
    let time = begun.elapsed();
    let asked = model.requests().len();
    ensure!(status.success() && asked == PROMPTS, "{workers} workers: {status}, {asked} requests");
    for (mut worker, home) in serving {
        drop(worker.stdin.take());
        worker.wait().await?;
        home.assert_no_processes().await;
    }
    Ok(time)
}
