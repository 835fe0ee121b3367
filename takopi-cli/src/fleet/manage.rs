//! The subcommands of `takopi fleet` that look at a fleet and change it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{anyhow, bail};
use serde_json::json;
use takopi_bridge::present::{Line, Style, elapsed, one_line};
use takopi_core::catalog::EngineSetup;
use takopi_fleet::PgBoard;
use takopi_fleet::board::pg::{AdminJob, Url};
use takopi_fleet::board::{
    Bell, Board as _, ControlKind, ControlRequest, ControlState, Import, Retention,
};
use takopi_fleet::files::{number_of, pack};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::command::FleetCommand;
use super::picture;
use super::work::hostname;
use crate::config::FleetTable;
use crate::screen::Screen;
use crate::terminal::{self, Terminal};
use crate::{engines, exit, sessions, signals};

/// How many jobs a beginning of an id is looked for in.
const RECENT: u32 = 1000;
/// The width of a job's key in a list.
const KEY: usize = 44;

/// Runs a subcommand.
pub(super) async fn run(
    command: FleetCommand,
    url: Url,
    table: &FleetTable,
    terminal: Terminal,
) -> anyhow::Result<u8> {
    if let FleetCommand::Init = command {
        return init(&url, terminal).await;
    }
    let title = url.to_string();
    let board = super::open(url).await?;
    match command {
        FleetCommand::Init | FleetCommand::Demo(_) => {}
        FleetCommand::Status { json: true, .. } => {
            print_json(&board.overview().await?)?;
        }
        FleetCommand::Status { once, .. } if once || !terminal.draws || !terminal.shows_output => {
            terminal.print_lines(&picture::lines(&board.overview().await?, &title))?;
        }
        FleetCommand::Status { .. } => watch(&board, &title, terminal).await?,
        FleetCommand::Jobs { all, open, limit, json } => {
            let mut jobs =
                if all { board.jobs_of_all(limit).await? } else { own(&board, limit).await? };
            jobs.retain(|job| !open || job.line.state != "done");
            if json {
                for job in &jobs {
                    terminal::print(format!("{}\n", serde_json::to_string(job)?).as_bytes())?;
                }
            } else {
                terminal.print_lines(&jobs.iter().map(row).collect::<Vec<_>>())?;
            }
        }
        FleetCommand::Cancel { id } => cancel(&board, &id, terminal).await?,
        FleetCommand::Import { id, engine } => {
            import(&board, &id, engine.as_deref(), table, terminal).await?;
        }
        FleetCommand::Release { id, engine } => release(&board, &id, engine, terminal).await?,
        FleetCommand::Gc { dry_run } => gc(&board, dry_run, terminal).await?,
    }
    Ok(exit::OK)
}

fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    terminal::print(&text)
}

async fn init(url: &Url, terminal: Terminal) -> anyhow::Result<u8> {
    let applied = PgBoard::init(url).await?;
    if applied.is_empty() {
        terminal.note(&format!("the queue in {url} is up to date"));
    } else {
        let from = if applied.first() == Some(&1) { "created" } else { "brought to this version" };
        terminal.note(&format!("the queue in {url} was {from}"));
        terminal.hint("users of the database take part after `grant takopi_submit to USER` or `grant takopi_work to USER`");
    }
    Ok(exit::OK)
}

/// Shows the fleet again every second, until a signal.
async fn watch(board: &PgBoard, title: &str, terminal: Terminal) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let _received = signals::watch(stop.clone())?;
    let mut screen = Screen::new(terminal);
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut seen = Vec::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => {
                // What was seen last stays.
                screen.draw(&seen, Vec::new(), Terminal::size().0);
                return Ok(());
            }
            _ = ticks.tick() => {}
        }
        let (columns, rows) = Terminal::size();
        match board.overview().await {
            Ok(now) => seen = picture::lines(&now, title),
            Err(error) => {
                seen.truncate(seen.len().min(rows.saturating_sub(2)));
                let text = Line::new().with(Style::Bad, error.to_string());
                seen.retain(|line| *line != text);
                seen.push(text);
            }
        }
        // A block that is higher than the screen cannot be redrawn.
        let block = seen.iter().take(rows.saturating_sub(1)).map(|line| line.clone().cut(columns));
        screen.draw(&[], block.collect(), columns);
    }
}

async fn own(board: &PgBoard, max: u32) -> anyhow::Result<Vec<AdminJob>> {
    Ok(board.jobs(max).await?.into_iter().map(AdminJob::from).collect())
}

fn row(job: &AdminJob) -> Line {
    let line = &job.line;
    let (mark, style) = match (line.state.as_str(), line.ok) {
        ("queued", _) => ("·", Style::Dim),
        ("running", _) => ("▸", Style::Busy),
        (_, Some(true)) => ("✓", Style::Good),
        _ => ("✗", Style::Bad),
    };
    let state = line.reason.as_deref().unwrap_or(&line.state);
    let age = elapsed(Duration::from_secs(line.age_seconds));
    let mut shown = Line::new().with(style, mark);
    shown.push(Style::Strong, &format!(" {:<KEY$} ", one_line(&line.id, KEY)));
    shown.push(Style::Plain, &format!("{:<8} {state:<10} {age:>8}", line.engine));
    if line.attempts > 1 {
        shown.push(Style::Warn, &format!("  attempt {}", line.attempts));
    }
    for (name, value) in [("on", &line.worker), ("of", &job.owner), ("session", &line.session)] {
        if let Some(value) = value {
            shown.push(Style::Dim, &format!("  {name} {value}"));
        }
    }
    shown
}

async fn cancel(board: &PgBoard, id: &str, terminal: Terminal) -> anyhow::Result<()> {
    let mut job = id.to_owned();
    let mut state = ask_to_cancel(board, &job).await?;
    if state == ControlState::Unknown {
        // Perhaps it is the beginning of an id.
        let recent = own(board, RECENT).await?.into_iter().map(|job| job.line.id);
        let mut alike = recent.filter(|known| known.starts_with(id));
        match (alike.next(), alike.next()) {
            (Some(one), None) => job = one,
            (Some(_), Some(_)) => {
                bail!("{id} is the beginning of several jobs; see `takopi fleet jobs`")
            }
            _ => bail!("there is no job {id} of yours; see `takopi fleet jobs`"),
        }
        state = ask_to_cancel(board, &job).await?;
    }
    match state {
        ControlState::Taken => terminal.note(&format!("{job} was cancelled")),
        ControlState::Waiting => {
            terminal.note(&format!("{job} runs; its worker was told to cancel it"));
        }
        ControlState::Refused => bail!("{job} is over"),
        ControlState::Unknown => bail!("there is no job {job} of yours"),
    }
    Ok(())
}

async fn ask_to_cancel(board: &PgBoard, job: &str) -> anyhow::Result<ControlState> {
    let (id, job) = (format!("cancel:{job}"), job.to_owned());
    let request = ControlRequest { id, job, kind: ControlKind::Cancel, body: json!({}) };
    Ok(board.control(request).await?)
}

/// Brings a session of this machine into the fleet. It works where its directory is, if that is a place.
async fn import(
    board: &PgBoard,
    id: &str,
    engine: Option<&str>,
    table: &FleetTable,
    terminal: Terminal,
) -> anyhow::Result<()> {
    let session = sessions::unique(engine, id)?;
    let (engine, value) = (session.token.engine.to_string(), session.token.value);
    let portable = engines::find(&engine)?.portable(&EngineSetup::new());
    let portable = portable
        .ok_or_else(|| anyhow!("sessions of {engine} cannot be copied to other machines"))?;
    let cwd = session.cwd.unwrap_or_else(|| PathBuf::from("/"));
    let files = portable.files(&value, &cwd)?;
    let place = super::places(table).find(|(_, path)| *path == cwd).map(|(name, _)| name);
    let import = Import {
        sid: Uuid::new_v4(),
        engine: engine.clone(),
        value: value.clone(),
        place,
        machine: table.name.clone().map_or_else(hostname, Ok)?,
        version: portable.version().await.map_or(0, number_of),
        stays: None,
        files: pack(&files)?,
    };
    if !board.import(import).await? {
        bail!("the fleet has the {engine} session {value} already");
    }
    let count = files.len();
    terminal.note(&format!("{engine} session {value} is in the fleet, with {count} files"));
    Ok(())
}

async fn release(
    board: &PgBoard,
    id: &str,
    engine: Option<String>,
    terminal: Terminal,
) -> anyhow::Result<()> {
    let engines = match engine {
        Some(engine) => vec![engine],
        None => engines::all().map(|entry| entry.id().to_string()).collect(),
    };
    for engine in engines {
        if board.release(&engine, id).await? {
            board.ring(Bell::Work);
            terminal.note(&format!(
                "{engine} session {id} may be continued by any worker, from what is stored of it"
            ));
            return Ok(());
        }
    }
    Err(anyhow!("the fleet has no session {id} of yours"))
}

async fn gc(board: &PgBoard, dry: bool, terminal: Terminal) -> anyhow::Result<()> {
    let mut all = board.gc(Retention::default(), dry).await?;
    // Each call removes a bounded number of rows.
    let mut last = all;
    while last.more {
        last = board.gc(Retention::default(), false).await?;
        all.events += last.events;
        all.results += last.results;
        all.sessions += last.sessions;
    }
    let what = if dry { "would be removed" } else { "were removed" };
    let text = format!("{} events, {} results, {} sessions", all.events, all.results, all.sessions);
    terminal.note(&format!("{text} {what}"));
    Ok(())
}
