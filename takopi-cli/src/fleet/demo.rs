//! `takopi fleet demo`: what a fleet does, on this machine alone.
//!
//! A private PostgreSQL, three workers with the demo engine as processes of their own, a batch over them. In the middle one worker
//! is killed, and nothing is lost. Nothing of it is left behind, however this process ends: the server and the workers notice.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Cursor;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use takopi_batch::{Batch, BatchEvent, Journal, Source};
use takopi_bridge::present::{Line, Style};
use takopi_core::Runner as _;
use takopi_core::demo::{DEMO, Demo};
use takopi_fleet::PgBoard;
use takopi_fleet::board::Board as _;
use takopi_fleet::board::pg::Overview;
use takopi_fleet::private::{PrivateServer, installed, is_there};
use takopi_fleet::submit::FleetEngine;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::command::DemoArgs;
use super::{VARIABLE, picture};
use crate::screen::Screen;
use crate::signals::{self, Received, Signal};
use crate::terminal::Terminal;
use crate::{exit, run};

const WORKERS: [&str; 3] = ["amber", "birch", "cedar"];
/// How many prompts a worker runs at once.
const SLOTS: &str = "2";
/// Short, so that a takeover does not take long to see.
const LEASE: &str = "3s";
/// How long a step of the agent takes.
const PACE: &str = "pace=60ms";
/// How many prompts a conversation has.
const TURNS: u32 = 3;
const START_LIMIT: Duration = Duration::from_mins(1);
const FRAME: Duration = Duration::from_millis(250);

pub(super) fn main(args: &DemoArgs, terminal: Terminal) -> anyhow::Result<u8> {
    if let Some(bin) = args.postgres.as_deref().filter(|bin| !is_there(bin)) {
        bail!("{} has no initdb and postgres", bin.display());
    }
    let bin = args.postgres.clone().or_else(installed).ok_or_else(|| {
        anyhow!("no PostgreSQL was found on the PATH or below /usr/lib/postgresql: install it, or name the directory of its programs with --postgres")
    })?;
    run::runtime()?.block_on(async {
        let stop = CancellationToken::new();
        let received = signals::watch(stop.clone())?;
        let mut tour = Tour::start(bin, terminal, stop).await?;
        let code = tour.run(args.prompts, &received).await;
        tour.end();
        code
    })
}

/// A worker of the demo, in a process of its own.
struct Member {
    name: &'static str,
    process: Child,
}

struct Tour {
    terminal: Terminal,
    stop: CancellationToken,
    server: PrivateServer,
    board: Arc<PgBoard>,
    workers: Vec<Member>,
    directory: Directory,
}

/// For the state of the workers. It is removed when this process is gone, however that ends, by a shell that waits for it.
struct Directory {
    path: PathBuf,
    guard: Child,
}

impl Directory {
    fn new() -> std::io::Result<Self> {
        let path = std::env::temp_dir().join(format!("takopi-fleet-{}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        // The workers exit at that moment too, and write nothing more after it.
        let script = "read -r _; sleep 1; rm -rf \"$1\"";
        let mut guard = Command::new("/bin/sh");
        guard.args(["-c", script, "sh"]).arg(&path).process_group(0).stdin(Stdio::piped());
        let guard = guard.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(Self { path, guard })
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

impl Tour {
    async fn start(
        bin: PathBuf,
        terminal: Terminal,
        stop: CancellationToken,
    ) -> anyhow::Result<Self> {
        heading(terminal, "A private PostgreSQL, and three workers with two slots each.");
        let server = tokio::task::spawn_blocking(move || PrivateServer::start(bin, &["fsync=off"]));
        let server = server.await?.context("the private PostgreSQL does not start")?;
        let url = server.url("takopi", "postgres").parse()?;
        PgBoard::init(&url).await?;
        let board = Arc::new(super::open(url).await?);
        let directory = Directory::new().context("no directory for the workers")?;
        let mut tour = Self { terminal, stop, server, board, workers: Vec::new(), directory };
        for name in WORKERS {
            let process = tour.worker(name)?;
            tour.workers.push(Member { name, process });
        }
        Ok(tour)
    }

    fn worker(&self, name: &str) -> anyhow::Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["worker", "--tied", "--engine", "demo", "--name", name, "--slots", SLOTS])
            .args(["--lease", LEASE, "--grace", "0", "-c", PACE])
            .env(VARIABLE, self.server.url("takopi", "postgres"))
            .env("TAKOPI_STATE_DIR", self.directory.path.join(name))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C is for the demo, which ends them.
            .process_group(0);
        command.spawn().context("cannot start a worker")
    }

    async fn run(&mut self, prompts: u32, received: &Received) -> anyhow::Result<u8> {
        let started = Instant::now();
        let mut now = self.board.overview().await?;
        while now.status.workers.iter().filter(|worker| worker.alive).count() < WORKERS.len() {
            if self.stop.is_cancelled() {
                return Ok(code(received));
            }
            if started.elapsed() > START_LIMIT {
                bail!("the workers do not start");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            now = self.board.overview().await?;
        }
        self.terminal.lines(&picture::lines(&now, "of the demo"));
        let sessions = prompts.div_ceil(TURNS);
        let text =
            format!("{prompts} prompts in {sessions} conversations, on whichever worker is free.");
        heading(self.terminal, &text);
        let Some(answers) = self.batch(prompts).await? else { return Ok(code(received)) };
        self.report(prompts, &answers).await
    }

    /// Runs the batch, and kills a worker in the middle; how often each prompt was answered, or `None` if it was stopped.
    async fn batch(&mut self, prompts: u32) -> anyhow::Result<Option<BTreeMap<String, u32>>> {
        let local = Demo::new().runner();
        let runner = FleetEngine::new(self.board.clone(), DEMO, local.resume_codec()).runner();
        let (events, mut happened) = mpsc::channel(64);
        let batch = Batch::new(Arc::new(runner)).jobs(prompts as usize);
        let batch = batch.grace(Duration::ZERO).stop(self.stop.clone());
        let source = Source::new(Cursor::new(input(prompts)));
        let running = tokio::spawn(batch.run(source, Journal::none(), events));
        let mut screen = Screen::new(self.terminal);
        let mut ticks = tokio::time::interval(FRAME);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut answers, mut killed) = (BTreeMap::new(), false);
        loop {
            tokio::select! {
                event = happened.recv() => match event {
                    Some(BatchEvent::Finished { result, .. }) if result.ok => {
                        *answers.entry(result.id).or_default() += 1;
                    }
                    Some(_) => {}
                    None => break,
                },
                _ = ticks.tick() => {
                    let Ok(now) = self.board.overview().await else { continue };
                    let mut permanent = Vec::new();
                    if !killed && answers.len() * 3 >= prompts as usize {
                        permanent.extend(self.kill_busiest(&now));
                        killed = !permanent.is_empty();
                    }
                    if self.terminal.draws {
                        let (columns, rows) = Terminal::size();
                        let block = picture::lines(&now, &format!("{} of {prompts} answered", answers.len()));
                        let block = block.into_iter().take(rows.saturating_sub(3));
                        screen.draw(&permanent, block.map(|line| line.cut(columns)).collect(), columns);
                    } else {
                        self.terminal.lines(&permanent);
                    }
                }
            }
        }
        screen.clear();
        running.await??;
        Ok((!self.stop.is_cancelled()).then_some(answers))
    }

    /// Kills the worker with the most runs in it, as a crash of its machine would.
    fn kill_busiest(&mut self, now: &Overview) -> Option<Line> {
        let busiest = now.status.workers.iter().filter(|worker| worker.alive && worker.held > 0);
        let busiest = busiest.max_by_key(|worker| worker.held)?;
        let member = self.workers.iter_mut().find(|member| member.name == busiest.machine)?;
        member.process.kill().ok()?;
        let text =
            format!("killed {} (SIGKILL) with {} prompts running in it", member.name, busiest.held);
        Some(Line::new().with(Style::Bad, "✗ ").with(Style::Strong, text))
    }

    async fn report(&self, prompts: u32, answers: &BTreeMap<String, u32>) -> anyhow::Result<u8> {
        let jobs = self.board.jobs(prompts).await?;
        let again = jobs.iter().filter(|job| job.attempts > 1).count();
        let all = answers.len() == prompts as usize && answers.values().all(|count| *count == 1);
        let done = jobs.iter().filter(|job| job.ok == Some(true)).count();
        let good = |text: String| {
            self.terminal.line(&Line::new().with(Style::Good, "✓ ").with(Style::Plain, text));
        };
        if !all || done != prompts as usize {
            bail!("{} of {prompts} prompts have an answer, {done} in the database", answers.len());
        }
        good(format!("{prompts} prompts, {prompts} answers, one each"));
        good(format!(
            "{again} that were running in the killed worker were run again by the others"
        ));
        heading(self.terminal, "With your own database, on as many machines as you like:");
        for line in [
            "takopi fleet init --fleet postgres://USER@HOST/DATABASE",
            "takopi worker --fleet postgres://USER@HOST/DATABASE     # on every machine",
            "takopi batch prompts.jsonl --fleet=postgres://USER@HOST/DATABASE",
            "takopi fleet status --fleet postgres://USER@HOST/DATABASE",
        ] {
            self.terminal.line(&Line::new().with(Style::Code, format!("  {line}")));
        }
        Ok(exit::OK)
    }

    /// Stops the workers; the server and the directory are gone when they are dropped.
    fn end(mut self) {
        for Member { process, .. } in &mut self.workers {
            // At the end of its input a worker of the demo exits.
            drop(process.stdin.take());
            let _ = process.wait();
        }
    }
}

fn code(received: &Received) -> u8 {
    received.borrow().unwrap_or(Signal::Interrupt).code()
}

/// The prompts, each conversation's one after the other.
fn input(prompts: u32) -> String {
    let sessions = prompts.div_ceil(TURNS);
    let mut lines = String::new();
    for n in 0..prompts {
        let _ = writeln!(
            lines,
            r#"{{"id":"p{n}","prompt":"prompt {n}","session":"s{}"}}"#,
            n % sessions
        );
    }
    lines
}

fn heading(terminal: Terminal, text: &str) {
    terminal.line(&Line::new());
    terminal.line(&Line::new().with(Style::Heading, text));
}
