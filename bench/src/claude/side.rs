//! The other end of a [`Contestant`](crate::contest::Contestant) that is this program.
//!
//! Each sends "hi" in the current directory, with the environment as it is, and stops the clock at the
//! end of the turn, but for claude itself to its exit, which is what a script waits for. The end of a
//! process that is not kept is waited for behind that, so that it does not slow down whoever is next.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::StreamExt;
use futures::future::try_join_all;
use takopi_claude::Claude;
use takopi_core::process::raise_descriptor_limit;
use takopi_core::{Host, ResumeToken, RunRequest, Runner, TakopiEvent};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use super::bare::Session;

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
        side.stop().await
    })
}

/// The ways to run a turn.
enum Way {
    /// `claude -p`, to its result or to its exit.
    Print { claude: String, to_exit: bool },
    /// A bare client.
    Bare { claude: String },
    /// takopi, with processes that are kept warm for this long. There is a runner for what goes on, and
    /// another for what is new: it is shut down each time.
    Takopi { claude: String, lasting: Box<dyn Runner>, keep_warm: Duration },
}

/// What is left of a session between two turns.
#[derive(Default)]
enum Open {
    #[default]
    Nothing,
    Id(String),
    Token(ResumeToken),
    Process(Box<Session>),
}

struct Side {
    way: Way,
    /// The session of `again`.
    session: Open,
    /// The sessions of `crowd`.
    crowd: Vec<Open>,
}

impl Side {
    fn new(args: &[&str]) -> anyhow::Result<Self> {
        let takopi = |claude: &str, keep_warm| {
            let lasting = Box::new(runner(claude, keep_warm)?);
            anyhow::Ok(Way::Takopi { claude: claude.to_owned(), lasting, keep_warm })
        };
        let way = match args {
            ["print", claude] => Way::Print { claude: (*claude).to_owned(), to_exit: false },
            ["print-to-exit", claude] => Way::Print { claude: (*claude).to_owned(), to_exit: true },
            ["bare", claude] => Way::Bare { claude: (*claude).to_owned() },
            ["takopi-cold", claude] => takopi(claude, Duration::ZERO)?,
            ["takopi-warm", claude] => takopi(claude, LONG)?,
            other => bail!("no side {other:?}"),
        };
        Ok(Self { way, session: Open::Nothing, crowd: Vec::new() })
    }

    async fn perform(&mut self, command: &str) -> anyhow::Result<Duration> {
        let (command, count) = command.split_once(' ').unwrap_or((command, "1"));
        let count: usize = count.parse()?;
        match command {
            "again" => {
                let (time, session) = self.way.turn(std::mem::take(&mut self.session)).await?;
                self.session = session;
                Ok(time)
            }
            "crowd" => {
                self.crowd.resize_with(count, Open::default);
                let (time, crowd) = self.way.turns(std::mem::take(&mut self.crowd)).await?;
                self.crowd = crowd;
                Ok(time)
            }
            "new" | "many" => {
                let passing = self.way.passing()?;
                let (time, sessions) =
                    passing.turns((0..count).map(|_| Open::Nothing).collect()).await?;
                passing.end(sessions).await?;
                Ok(time)
            }
            other => bail!("no command {other}"),
        }
    }

    async fn stop(self) -> anyhow::Result<()> {
        self.way.end(self.crowd.into_iter().chain([self.session]).collect()).await
    }
}

impl Way {
    /// The same for sessions that nobody goes on with.
    fn passing(&self) -> anyhow::Result<Self> {
        Ok(match self {
            Self::Print { claude, to_exit } => {
                Self::Print { claude: claude.clone(), to_exit: *to_exit }
            }
            Self::Bare { claude } => Self::Bare { claude: claude.clone() },
            Self::Takopi { claude, keep_warm, .. } => {
                let lasting = Box::new(runner(claude, *keep_warm)?);
                Self::Takopi { claude: claude.clone(), lasting, keep_warm: *keep_warm }
            }
        })
    }

    /// A turn on each session, at once; how long it took until all had ended.
    async fn turns(&self, sessions: Vec<Open>) -> anyhow::Result<(Duration, Vec<Open>)> {
        let turns = try_join_all(sessions.into_iter().map(|session| self.turn(session))).await?;
        let longest = turns.iter().map(|(time, _)| *time).max().unwrap_or_default();
        Ok((longest, turns.into_iter().map(|(_, session)| session).collect()))
    }

    async fn turn(&self, session: Open) -> anyhow::Result<(Duration, Open)> {
        let begun = Instant::now();
        match (self, session) {
            (Self::Print { claude, to_exit }, session) => {
                let session = if let Open::Id(id) = session { Some(id) } else { None };
                let (to_result, id) = print(claude, session.as_deref()).await?;
                Ok((if *to_exit { begun.elapsed() } else { to_result }, Open::Id(id)))
            }
            (Self::Bare { claude }, session) => {
                let mut process = match session {
                    Open::Process(process) => process,
                    _ => Box::new(Session::start(claude)?),
                };
                process.turn().await?;
                Ok((begun.elapsed(), Open::Process(process)))
            }
            (Self::Takopi { lasting, .. }, session) => {
                let session = if let Open::Token(token) = session { Some(token) } else { None };
                let token = run(&**lasting, session).await?;
                Ok((begun.elapsed(), Open::Token(token)))
            }
        }
    }

    async fn end(self, sessions: Vec<Open>) -> anyhow::Result<()> {
        for session in sessions {
            if let Open::Process(process) = session {
                process.end().await?;
            }
        }
        if let Self::Takopi { lasting, .. } = self {
            lasting.shutdown().await;
        }
        Ok(())
    }
}

fn runner(claude: &str, keep_warm: Duration) -> anyhow::Result<impl Runner + use<>> {
    let claude = Claude::new().binary(claude).keep_warm(keep_warm);
    Ok(claude.runner().on(Host::builder().build()?))
}

/// A run to its end; its session.
async fn run(runner: &dyn Runner, session: Option<ResumeToken>) -> anyhow::Result<ResumeToken> {
    let mut events = runner.run(RunRequest::new("hi").resume(session));
    let mut last = None;
    while let Some(event) = events.next().await {
        last = Some(event);
    }
    match last {
        Some(TakopiEvent::Completed(end)) if end.ok && end.answer == "fine" => {
            end.resume.context("no session")
        }
        other => bail!("not the end: {other:?}"),
    }
}

/// `claude -p` to its exit; how long it took to its result, and its session.
async fn print(claude: &str, session: Option<&str>) -> anyhow::Result<(Duration, String)> {
    let begun = Instant::now();
    let mut child = Command::new(claude)
        .args(["-p", "--output-format=stream-json", "--verbose"])
        .args(session.map(|session| format!("--resume={session}")))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start claude")?;
    let mut stdin = child.stdin.take().context("no input")?;
    stdin.write_all(b"hi").await?;
    drop(stdin);
    let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
    let mut result = None;
    while let Some(line) = lines.next_line().await? {
        if line.contains(r#""type":"result""#) {
            result = Some((begun.elapsed(), line));
        }
    }
    if !child.wait().await?.success() {
        bail!("claude failed: {result:?}");
    }
    let (time, line) = result.context("no result")?;
    let (_, session) = line.split_once(r#""session_id":""#).context("no session")?;
    Ok((time, session.split('"').next().unwrap_or_default().to_owned()))
}
