//! The fleet on a real PostgreSQL of its own, which syncs to the disk: how late things are, and how many jobs a second there can be.
//!
//! Submitters and workers are in this process, each with connections of its own. The engine does nothing, so what is measured is the
//! queue. The last table has the real codex.

mod batch;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use serde_json::json;
use takopi_core::external::CancellationToken;
use takopi_core::model::{Action, ActionEvent, ActionKind, Completed, EngineId, Phase, Started};
use takopi_core::runner::{Engine, EngineRun, ResumeCodec, SessionScope};
use takopi_core::{EngineRunner, Host, ResumeToken, RunRequest, Runner, TakopiEvent};
use takopi_fleet::board::pg::Url;
use takopi_fleet::board::{Completion, NewJob, OnGone, OnLoss, SessionRef, WorkerInfo};
use takopi_fleet::submit::FleetEngine;
use takopi_fleet::work::{Served, Travels, Worker, WorkerOptions};
use takopi_fleet::{Board, PgBoard};
use takopi_tests::postgres::Postgres;

use crate::contest::Rounds;
use crate::measure::quantile;
use crate::table::{Table, millis, ratio};

const NAME: &str = "noop";
const LEASE: Duration = Duration::from_secs(5);

/// The table.
pub(crate) fn bench(rounds: Rounds) -> anyhow::Result<String> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(tables(rounds.turns * 10))
}

async fn tables(count: usize) -> anyhow::Result<String> {
    let mut table = Table::new(
        "a fleet on one PostgreSQL, with an engine that does nothing",
        &["what", "p50", "p99"],
    );
    let mut times = |what: &str, times: &[Duration]| {
        let figure = |percent| millis(quantile(times.iter().copied(), percent));
        table.row([what.to_owned(), figure(50), figure(99)]);
    };
    let lab = Lab::new().await?;
    let workers = lab.workers(1).await?;
    let (starts, events) = lab.runs(count).await?;
    times("from the request to `Started`", &starts);
    times("from an event to the submitter (gathered for 50 ms)", &events);
    workers.stop().await?;
    let takeovers = lab.takeovers(count.div_ceil(40)).await?;
    times("from the end of a lost worker's lease to `Started` elsewhere", &takeovers);

    let lab = Lab::new().await?;
    let few = lab.claims(100, count).await?;
    times("a claim, 100 jobs queued", &few);
    let many = lab.claims(50_000, count).await?;
    times("a claim, 50,000 jobs queued", &many);
    let p99 = |times: &[Duration]| quantile(times.iter().copied(), 99);
    let growth = ratio(p99(&many), p99(&few));

    let lab = Lab::new().await?;
    let (jobs, sessions) = (count * 50, 1000.min(count * 10));
    let rate = lab.rate(jobs, sessions).await?;
    let batch = batch::table().await?;
    Ok(format!(
        "{table}\nA claim with 50,000 jobs queued takes {growth} × as long at p99 as with 100. {jobs} jobs over {sessions} sessions on 4 workers: {rate:.0} jobs a second.\n\n{batch}"
    ))
}

/// A database, and what uses it.
struct Lab {
    server: Postgres,
    host: Host,
    dir: tempfile::TempDir,
}

/// Workers that serve.
struct Workers {
    stop: CancellationToken,
    serving: Vec<tokio::task::JoinHandle<Result<(), takopi_fleet::board::BoardError>>>,
}

impl Workers {
    async fn stop(self) -> anyhow::Result<()> {
        self.stop.cancel();
        for serving in self.serving {
            serving.await??;
        }
        Ok(())
    }
}

impl Lab {
    async fn new() -> anyhow::Result<Self> {
        let server = tokio::task::spawn_blocking(|| Postgres::start(&[])).await??;
        let dir = tempfile::tempdir()?;
        let host = Host::builder().state_directory(dir.path()).build()?;
        let lab = Self { server, host, dir };
        PgBoard::init(&lab.url()?).await?;
        Ok(lab)
    }

    fn url(&self) -> anyhow::Result<Url> {
        Ok(self.server.url("takopi", "postgres").parse()?)
    }

    async fn board(&self) -> anyhow::Result<Arc<PgBoard>> {
        Ok(Arc::new(PgBoard::connect(self.url()?).await?))
    }

    async fn workers(&self, count: usize) -> anyhow::Result<Workers> {
        let stop = CancellationToken::new();
        let mut serving = Vec::new();
        for n in 0..count {
            let mut options =
                WorkerOptions::new(format!("m{n}"), self.dir.path().join(format!("m{n}")));
            (options.slots, options.lease) = (16, LEASE);
            let runner = Arc::new(EngineRunner::new(Noop).on(self.host.clone()));
            let served = Served { runner, version: 0, travels: Travels::Freely };
            let worker = Worker::new(self.board().await?, options).engine(served);
            serving.push(tokio::spawn(worker.serve(stop.clone())));
        }
        Ok(Workers { stop, serving })
    }

    async fn runner(&self) -> anyhow::Result<impl Runner> {
        let codec = Noop.resume_codec();
        let engine = FleetEngine::new(self.board().await?, EngineId::from(NAME), codec);
        Ok(engine.runner().on(self.host.clone()))
    }

    /// Runs one after the other: how long each took to start, and how late its events were.
    async fn runs(&self, count: usize) -> anyhow::Result<(Vec<Duration>, Vec<Duration>)> {
        let runner = self.runner().await?;
        let (mut starts, mut events) = (Vec::new(), Vec::new());
        for n in 0..count + 5 {
            let begun = Instant::now();
            let mut stream = runner.run(RunRequest::new("events"));
            while let Some(event) = stream.next().await {
                match event {
                    // The first ones make the connections.
                    TakopiEvent::Started(_) if n >= 5 => starts.push(begun.elapsed()),
                    TakopiEvent::Action(action) if n >= 5 => {
                        let sent: Option<u64> = action.action.title.parse().ok();
                        events.extend(
                            sent.map(|sent| now().saturating_sub(Duration::from_micros(sent))),
                        );
                    }
                    _ => {}
                }
            }
        }
        Ok((starts, events))
    }

    /// A worker that takes a job and is never heard of again, beside one that lives.
    async fn takeovers(&self, count: usize) -> anyhow::Result<Vec<Duration>> {
        let board = self.board().await?;
        let runner = self.runner().await?;
        let lease = Duration::from_secs(1);
        let mut times = Vec::new();
        for n in 0..count.max(3) {
            board.register(info(&format!("dead{n}/1")), lease).await?;
            let registered = Instant::now();
            let mut stream = runner.run(RunRequest::new("taken over"));
            while board.claim(&format!("dead{n}/1"), "c", 1).await?.is_empty() {
                anyhow::ensure!(registered.elapsed() < lease, "the machine is too slow for this");
            }
            let workers = self.workers(1).await?;
            while let Some(event) = stream.next().await {
                if matches!(event, TakopiEvent::Started(_)) {
                    times.push(registered.elapsed().saturating_sub(lease));
                }
            }
            workers.stop().await?;
        }
        Ok(times)
    }

    /// How long claims take while so many jobs wait.
    async fn claims(&self, queued: usize, count: usize) -> anyhow::Result<Vec<Duration>> {
        let board = self.board().await?;
        board.register(info("m/1"), Duration::from_mins(10)).await?;
        enqueue(&board, queued, queued.div_ceil(10), &format!("claims-{queued}")).await?;
        let mut times = Vec::new();
        for n in 0..count.min(queued) {
            let begun = Instant::now();
            let claimed = board.claim("m/1", &format!("{queued}-{n}"), 1).await?;
            times.push(begun.elapsed());
            let held = claimed.into_iter().next().context("nothing was claimed")?.held;
            let result = json!({ "type": "completed", "engine": NAME, "ok": true, "answer": "" });
            let home = Some("m".to_owned());
            let completion =
                Completion { held, result, home, version: 0, stays: None, files: Vec::new() };
            board.complete("m/1", completion).await?;
        }
        Ok(times)
    }

    /// Jobs a second.
    async fn rate(&self, jobs: usize, sessions: usize) -> anyhow::Result<f64> {
        let board = self.board().await?;
        enqueue(&board, jobs, sessions, "rate").await?;
        let begun = Instant::now();
        let workers = self.workers(4).await?;
        loop {
            let status = board.status().await?;
            if status.queued + status.running == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        #[expect(clippy::cast_precision_loss, reason = "figures for people")]
        let rate = jobs as f64 / begun.elapsed().as_secs_f64();
        workers.stop().await?;
        Ok(rate)
    }
}

fn info(id: &str) -> WorkerInfo {
    let machine = id.split('/').next().unwrap_or(id).to_owned();
    let (offers, versions) = (vec![format!("engine:{NAME}")], std::collections::BTreeMap::new());
    let instance = uuid::Uuid::nil();
    WorkerInfo { id: id.to_owned(), machine, instance, offers, versions, slots: 1 }
}

async fn enqueue(board: &PgBoard, jobs: usize, sessions: usize, key: &str) -> anyhow::Result<()> {
    let sids: Vec<_> = (0..sessions).map(|_| uuid::Uuid::new_v4()).collect();
    let job = |n: usize| NewJob {
        id: format!("{key}/{n}"),
        submitter: "bench".to_owned(),
        engine: NAME.to_owned(),
        session: SessionRef::New(sids[n % sessions]),
        needs: vec![format!("engine:{NAME}")],
        place: None,
        spec: json!({ "prompt": "" }),
        blobs: Vec::new(),
        on_loss: OnLoss::Retry,
        on_gone: OnGone::Continue,
    };
    let all: Vec<NewJob> = (0..jobs).map(job).collect();
    for some in all.chunks(500) {
        board.enqueue(some.to_vec()).await?;
    }
    Ok(())
}

/// The time since the first call; both sides of a measurement are in this process.
fn now() -> Duration {
    static BEGUN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    BEGUN.get_or_init(Instant::now).elapsed()
}

/// Starts, and if it is asked to, writes down what time it is.
struct Noop;

impl Engine for Noop {
    fn id(&self) -> EngineId {
        EngineId::from(NAME)
    }

    fn resume_codec(&self) -> ResumeCodec {
        ResumeCodec::new(self.id(), "noop resume", |id| Some(id.to_owned()))
    }

    fn session_scope(&self) -> SessionScope {
        SessionScope::Process
    }

    fn run(self: Arc<Self>, run: EngineRun) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let token = run.resume.clone();
            let token = token.unwrap_or_else(|| {
                ResumeToken::new(NAME, uuid::Uuid::new_v4().simple().to_string())
            });
            let _ = run.emit(Started::new(token)).await;
            if run.request.prompt == "events" {
                for n in 0..5 {
                    tokio::time::sleep(Duration::from_millis(7)).await;
                    let time = now().as_micros().to_string();
                    let action = Action::new(format!("a{n}"), ActionKind::Note, time);
                    let _ = run.emit(ActionEvent::new(NAME, action, Phase::Completed)).await;
                }
            }
            let _ = run.emit(Completed::success(NAME, "")).await;
        })
    }
}
