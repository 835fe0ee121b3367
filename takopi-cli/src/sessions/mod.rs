//! `takopi sessions`: the conversations on this machine.
//!
//! Codex keeps each session in a file; takopi reads those and changes nothing. Who holds a session
//! is told by takopi's own locks.

mod store;
mod talk;

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;
use takopi_bridge::present::terminal::answer;
use takopi_bridge::present::{Line, Style, one_line};
use takopi_core::locks::Holder;
use takopi_core::{Host, ResumeToken};

use crate::args::{SessionsArgs, SessionsCommand};
use crate::exit::{self, Usage};
use crate::hints;
use crate::terminal::{self, Terminal, harmless};
use store::{Session, Store};
use talk::{Entry, Speaker};

pub(crate) use store::codex_home;

pub(crate) fn main(args: &SessionsArgs, terminal: Terminal) -> anyhow::Result<u8> {
    let store = Store::open()?;
    match &args.command {
        Some(SessionsCommand::Show { id, json }) => show(&store, id, *json, terminal),
        None => list(&store, args, terminal),
    }
}

/// The id of the newest session of a directory.
pub(crate) fn newest_of(directory: &Path) -> anyhow::Result<Option<String>> {
    let store = Store::open()?;
    let newest = store.sessions(Some(directory)).next();
    Ok(newest.map(|session| session.id))
}

/// A session to choose from.
#[derive(Debug, Serialize)]
pub(crate) struct Offered {
    id: String,
    words: String,
    when: String,
    place: String,
}

/// The newest sessions.
pub(crate) fn newest(count: usize) -> anyhow::Result<Vec<Offered>> {
    let offer = |session: Session| Offered {
        words: one_line(words(&session), 80),
        when: moment(session.updated),
        place: place(&session),
        id: session.id,
    };
    Ok(Store::open()?.sessions(None).take(count).map(offer).collect())
}

/// What was said in a session, and whether by the user.
pub(crate) fn conversation(id: &str) -> anyhow::Result<Vec<(bool, String)>> {
    let entries = talk::read(&Store::open()?.find(id)?.path)?.into_iter();
    Ok(entries
        .filter(|entry| matches!(entry.speaker, Speaker::User | Speaker::Agent))
        .map(|entry| (entry.speaker == Speaker::User, entry.text))
        .collect())
}

/// A session as `--json` prints it.
#[derive(Debug, Serialize)]
struct Listed<'a> {
    id: &'a str,
    updated: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<&'a Path>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_words: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<Holder>,
}

fn list(store: &Store, args: &SessionsArgs, terminal: Terminal) -> anyhow::Result<u8> {
    let directory = match &args.cd {
        Some(directory) if !directory.is_dir() => {
            let what = format!("the directory {} does not exist", directory.display());
            return Err(Usage::new(what).into());
        }
        directory => directory.as_deref(),
    };
    let limit = if args.limit == 0 { usize::MAX } else { args.limit };
    let host = Host::global()?;
    let mut found = false;
    for session in store.sessions(directory).take(limit) {
        found = true;
        let token = ResumeToken::new(takopi_codex::CODEX, session.id.as_str());
        let holder = hints::holder(&host, &token);
        if args.json {
            terminal::print(&json_line(&Listed {
                id: &session.id,
                updated: session.updated.to_string(),
                created: session.created.as_deref(),
                cwd: session.cwd.as_deref(),
                name: session.name.as_deref(),
                first_words: session.first_words.as_deref(),
                holder,
            })?)?;
        } else if terminal.shows_output {
            terminal.print_lines(&block(&session, holder.as_ref()))?;
        } else {
            terminal::print(row(&session, holder.as_ref()).as_bytes())?;
        }
    }
    if !found && !args.json {
        terminal.note(&format!("no sessions in {}", store.directory().display()));
    }
    Ok(exit::OK)
}

/// A session for people: two lines.
fn block(session: &Session, holder: Option<&Holder>) -> Vec<Line> {
    let width = Terminal::output_width();
    let mut head = Line::new()
        .with(Style::Strong, &session.id)
        .with(Style::Dim, format!("  {}  ", moment(session.updated)))
        .with(Style::Plain, place(session));
    if let Some(holder) = holder {
        head = head.with(Style::Warn, format!("  {}", hints::held(holder)));
    }
    let words = one_line(words(session), width.saturating_sub(4));
    vec![head.cut(width), Line::new().with(Style::Plain, "    ").with(Style::Plain, words)]
}

/// A session for programs that cut lines at tabs.
fn row(session: &Session, holder: Option<&Holder>) -> String {
    let fields = [
        session.id.clone(),
        moment(session.updated),
        one_line(&place(session), 500),
        one_line(words(session), 200),
        holder.map(hints::held).unwrap_or_default(),
    ];
    format!("{}\n", fields.join("\t").trim_end())
}

fn words(session: &Session) -> &str {
    session.name.as_deref().or(session.first_words.as_deref()).unwrap_or("(nothing was said)")
}

/// The directory, as people write it.
fn place(session: &Session) -> String {
    let Some(directory) = &session.cwd else { return "?".to_owned() };
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    match home.and_then(|home| directory.strip_prefix(home).ok().map(Path::to_owned)) {
        Some(rest) if rest.as_os_str().is_empty() => "~".to_owned(),
        Some(rest) => format!("~/{}", rest.display()),
        None => directory.display().to_string(),
    }
}

fn moment(at: Timestamp) -> String {
    at.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M").to_string()
}

fn json_line(value: &impl Serialize) -> anyhow::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
}

fn show(store: &Store, id: &str, json: bool, terminal: Terminal) -> anyhow::Result<u8> {
    let session = store.find(id)?;
    for entry in talk::read(&session.path)? {
        if json {
            terminal::print(&json_line(&entry)?)?;
        } else if terminal.lays_out() {
            terminal.print_lines(&laid_out(&entry))?;
        } else {
            let text = plain(&entry);
            let text = if terminal.shows_output { harmless(&text) } else { text };
            terminal::print(text.as_bytes())?;
        }
    }
    Ok(exit::OK)
}

fn plain(entry: &Entry) -> String {
    match entry.speaker {
        Speaker::Agent => format!("{}\n\n", entry.text.trim_end()),
        Speaker::User => {
            let quoted = entry.text.trim_end().lines().map(|line| format!("> {line}\n"));
            format!("{}\n", quoted.collect::<String>())
        }
        Speaker::Command | Speaker::Note => format!("{}\n\n", said(entry)),
    }
}

fn laid_out(entry: &Entry) -> Vec<Line> {
    let width = Terminal::output_width();
    let mut lines = match entry.speaker {
        Speaker::Agent => answer(&entry.text, width),
        Speaker::User => {
            let lines =
                takopi_bridge::present::wrap(entry.text.trim_end(), width.saturating_sub(2));
            lines
                .into_iter()
                .map(|text| Line::new().with(Style::Good, "> ").with(Style::Strong, text))
                .collect()
        }
        Speaker::Command | Speaker::Note => vec![Line::new().with(Style::Dim, said(entry))],
    };
    lines.push(Line::new());
    lines
}

/// A deed in one line.
fn said(entry: &Entry) -> String {
    let text = one_line(&entry.text, 500);
    match (entry.speaker, entry.exit_code) {
        (Speaker::Command, Some(code)) if code != 0 => format!("$ {text} (exit {code})"),
        (Speaker::Command, _) => format!("$ {text}"),
        _ => format!("({text})"),
    }
}
