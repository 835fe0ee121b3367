//! The other end of a [`Contestant`](super::contestant::Contestant) that is this program.
//!
//! Each sends "hi" in the current directory, with the environment as it is, and stops the clock at
//! the end of the turn, but for codex itself: a run of `codex exec` by hand lasts until its exit.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::StreamExt;
use futures::future::try_join_all;
use takopi_codex::Codex;
use takopi_codex::app_server::{CodexAppServer, PoolLimits};
use takopi_core::process::raise_descriptor_limit;
use takopi_core::{EngineRunner, Host, ResumeToken, RunRequest, Runner, TakopiEvent};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use super::bare::Server;

const LONG: Duration = Duration::from_mins(10);

/// Carries out the commands on standard input.
pub(crate) fn serve(args: &[&str]) -> anyhow::Result<()> {
    raise_descriptor_limit()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let mut side = Side::new(args)?;
        for line in std::io::stdin().lines() {
            match side.perform(&line?).await {
                Ok(time) => println!("{}", time.as_micros()),
                Err(error) => println!("error: {error:#}"),
            }
        }
        side.stop().await;
        Ok(())
    })
}

enum Side {
    /// `codex exec` itself; the session of `again`.
    Exec { codex: String, session: Option<String> },
    /// A bare client; the server and the thread of `again`.
    Bare { codex: String, warm: Option<Box<(Server, String)>> },
    /// A bare client that spreads new threads over so many servers.
    BareShared { codex: String, servers: usize },
    /// A runner for new sessions, one for a session that goes on, and that session.
    Takopi { fresh: Box<dyn Runner>, lasting: Box<dyn Runner>, session: Option<ResumeToken> },
    /// Two takopis, with only the files in common, that ask each other for a session.
    Handover { here: Box<dyn Runner>, there: Box<dyn Runner>, session: Option<ResumeToken> },
}

impl Side {
    fn new(args: &[&str]) -> anyhow::Result<Self> {
        let host = || Host::builder().build();
        let app_server = |codex: &str| CodexAppServer::new(Codex::new().binary(codex));
        Ok(match args {
            ["codex-exec", codex] => Self::Exec { codex: (*codex).to_owned(), session: None },
            ["bare", codex] => Self::Bare { codex: (*codex).to_owned(), warm: None },
            ["bare-shared", servers, codex] => {
                Self::BareShared { codex: (*codex).to_owned(), servers: servers.parse()? }
            }
            ["takopi-exec", codex] => {
                let runner = || anyhow::Ok(Codex::new().binary(codex).exec().on(host()?));
                Self::takopi(runner()?, runner()?)
            }
            ["takopi-server", codex] => {
                let fresh = app_server(codex).keep_warm(Duration::ZERO);
                let lasting = EngineRunner::new(app_server(codex).keep_warm(LONG)).on(host()?);
                Self::takopi(EngineRunner::new(fresh).on(host()?), lasting)
            }
            ["takopi-shared", processes, busy, codex] => {
                let limits = PoolLimits::new(busy.parse()?, 200, processes.parse()?);
                let engine = app_server(codex).keep_warm(LONG).shared(limits);
                let lasting = EngineRunner::new(app_server(codex).keep_warm(LONG)).on(host()?);
                Self::takopi(EngineRunner::new(engine).on(host()?), lasting)
            }
            ["handover", codex] => {
                let runner = || -> anyhow::Result<Box<dyn Runner>> {
                    Ok(Box::new(EngineRunner::new(app_server(codex).keep_warm(LONG)).on(host()?)))
                };
                Self::Handover { here: runner()?, there: runner()?, session: None }
            }
            other => bail!("no side {other:?}"),
        })
    }

    fn takopi(fresh: impl Runner + 'static, lasting: impl Runner + 'static) -> Self {
        Self::Takopi { fresh: Box::new(fresh), lasting: Box::new(lasting), session: None }
    }

    async fn perform(&mut self, command: &str) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        match (self, command.split_once(' ').unwrap_or((command, ""))) {
            (Self::Exec { codex, .. }, ("new", _)) => drop(exec(codex, None).await?),
            (Self::Exec { codex, session }, ("again", _)) => {
                let thread = exec(codex, session.as_deref()).await?;
                session.get_or_insert(thread);
            }
            (Self::Exec { codex, .. }, ("many", count)) => {
                try_join_all((0..count.parse()?).map(|_: u32| exec(codex, None))).await?;
            }
            (Self::Bare { codex, .. }, ("new", _)) => {
                let mut server = Server::start(codex).await?;
                let thread = server.thread().await?;
                server.turn(&thread).await?;
                return Ok(begun.elapsed());
            }
            (Self::Bare { codex, warm }, ("again", _)) => {
                if warm.is_none() {
                    let mut server = Server::start(codex).await?;
                    let thread = server.thread().await?;
                    *warm = Some(Box::new((server, thread)));
                }
                let (server, thread) = &mut **warm.as_mut().context("it was started")?;
                server.turn(thread).await?;
            }
            (Self::BareShared { codex, servers }, ("many", count)) => {
                let count: usize = count.parse()?;
                let (codex, servers) = (&*codex, *servers);
                // One after the other: of two that start at once in a new home one may exit.
                let mut started = Vec::new();
                for _ in 0..servers {
                    started.push(Server::start(codex).await?);
                }
                let all = started.into_iter().enumerate().map(|(number, mut server)| async move {
                    // What does not divide evenly goes to the first ones.
                    let share = count / servers + usize::from(number < count % servers);
                    server.many(share).await
                });
                try_join_all(all).await?;
            }
            (Self::Takopi { fresh, .. }, ("new", _)) => drop(run(&**fresh, None).await?),
            (Self::Takopi { lasting, session, .. }, ("again", _)) => {
                *session = Some(run(&**lasting, session.clone()).await?);
            }
            (Self::Takopi { fresh, .. }, ("many", count)) => {
                try_join_all((0..count.parse()?).map(|_: u32| run(&**fresh, None))).await?;
            }
            (Self::Handover { here, there, session }, ("again", _)) => {
                let held = run(&**here, session.clone()).await?;
                let asked = Instant::now();
                let mut events = there.run(RunRequest::new("hi").resume(held.clone()));
                let mut started = None;
                while let Some(event) = events.next().await {
                    if matches!(event, TakopiEvent::Started(_)) {
                        started = Some(asked.elapsed());
                    }
                }
                *session = Some(held);
                return started.context("it was never started");
            }
            (_, (command, _)) => bail!("no command {command}"),
        }
        Ok(begun.elapsed())
    }

    async fn stop(self) {
        match self {
            Self::Takopi { fresh: one, lasting: other, .. }
            | Self::Handover { here: one, there: other, .. } => {
                one.shutdown().await;
                other.shutdown().await;
            }
            Self::Exec { .. } | Self::Bare { .. } | Self::BareShared { .. } => {}
        }
    }
}

/// A run to its end; its session.
async fn run(runner: &dyn Runner, session: Option<ResumeToken>) -> anyhow::Result<ResumeToken> {
    let mut events = runner.run(RunRequest::new("hi").resume(session));
    let mut last = None;
    while let Some(event) = events.next().await {
        last = Some(event);
    }
    match last {
        Some(TakopiEvent::Completed(end)) if end.ok => end.resume.context("no session"),
        other => bail!("not the end: {other:?}"),
    }
}

/// `codex exec` to its exit; its thread.
async fn exec(codex: &str, session: Option<&str>) -> anyhow::Result<String> {
    let mut child = Command::new(codex)
        .args(["exec", "--json"])
        .args(session.into_iter().flat_map(|session| ["resume", session]))
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start codex")?;
    let mut stdin = child.stdin.take().context("no input")?;
    stdin.write_all(b"hi").await?;
    drop(stdin);
    let mut output = String::new();
    child.stdout.take().context("no output")?.read_to_string(&mut output).await?;
    if !child.wait().await?.success() {
        bail!("codex failed: {output}");
    }
    let (_, thread) = output.split_once(r#""thread_id":""#).context("no thread")?;
    Ok(thread.split('"').next().unwrap_or_default().to_owned())
}
