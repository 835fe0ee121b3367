//! `takopi sessions`: the stored sessions of all engines on this machine.
//!
//! Each engine reads its own storage ([`SessionStore`]). The holder of a session is known from takopi's
//! locks.

mod search;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;
use takopi_bridge::present::terminal::{TAIL_LINES, answer, output_tail};
use takopi_bridge::present::{Line, Style, one_line, wrap};
use takopi_core::catalog::{
    EngineEntry, Role, SessionError, SessionStore, StoredSession, TranscriptEntry,
};
use takopi_core::locks::Holder;
use takopi_core::settings::directory_problem;
use takopi_core::{EngineId, Host, ResumeToken, Runner};

use crate::args::{SessionsArgs, SessionsCommand};
use crate::engines;
use crate::exit::{self, Usage};
use crate::hints;
use crate::terminal::{self, Terminal, harmless};
use search::{Found, LeftOut, Limits, Search};

/// The most characters of a first prompt that are listed.
const PROMPT_CHARS: usize = 200;
/// How long `--search` takes at most.
const SEARCH_TIME: Duration = Duration::from_secs(10);
/// The messages of a larger session are not searched, in bytes.
const LARGEST_FILE: u64 = 256 << 20;
/// The last lines of the output of a command that did not fail that are shown.
const SHORT_TAIL: usize = 2;

pub(crate) fn main(args: &SessionsArgs, terminal: Terminal) -> anyhow::Result<u8> {
    match &args.command {
        Some(SessionsCommand::Show { id, engine, steps, json }) => {
            let shown = |entry: &TranscriptEntry| *steps || is_message(entry);
            show(id, &Stores::of(engine.as_deref())?, shown, *json, terminal)
        }
        None => list(args, terminal),
    }
}

/// The stores of the engines that have one.
struct Stores(Vec<Box<dyn SessionStore>>);

impl Stores {
    /// The store of this engine, or of all.
    fn of(engine: Option<&str>) -> anyhow::Result<Self> {
        let Some(name) = engine else { return Self::open(engines::all()) };
        let entry = engines::find(name)?;
        let stores = Self::open([entry])?;
        if stores.0.is_empty() {
            return Err(Usage::new(unlisted(entry)).into());
        }
        Ok(stores)
    }

    fn open(engines: impl IntoIterator<Item = &'static dyn EngineEntry>) -> anyhow::Result<Self> {
        let stores: Result<Vec<_>, SessionError> =
            engines.into_iter().filter_map(|entry| entry.sessions().transpose()).collect();
        Ok(Self(stores?))
    }

    /// The sessions of all stores, most recently written first.
    fn list(&self, directory: Option<&Path>) -> impl Iterator<Item = StoredSession> {
        let mut lists: Vec<_> =
            self.0.iter().map(|store| store.list(directory).peekable()).collect();
        std::iter::from_fn(move || {
            let updated = lists.iter_mut().map(|list| list.peek().map(|session| session.updated));
            // An empty list counts as the oldest.
            let (newest, _) = updated.enumerate().max_by_key(|(_, updated)| *updated)?;
            lists[newest].next()
        })
    }

    /// The messages and steps of a session of the list; none if they cannot be read.
    fn transcript_of(&self, session: &StoredSession) -> Vec<TranscriptEntry> {
        let mut read = self.0.iter().filter_map(|store| store.transcript_of(session).ok());
        read.next().unwrap_or_default()
    }

    /// The store with the one session whose id begins with this prefix.
    fn find(&self, prefix: &str) -> Result<(&dyn SessionStore, StoredSession), SessionError> {
        let mut found = None;
        let mut missing = SessionError::NotFound(prefix.to_owned());
        for store in &self.0 {
            match (store.find(prefix), &found) {
                (Ok(session), None) => found = Some((&**store, session)),
                (Ok(_), Some(_)) => {
                    return Err(SessionError::Ambiguous { prefix: prefix.to_owned(), count: 2 });
                }
                (Err(SessionError::NotFound(_)), _) => {}
                (Err(error), _) => missing = error,
            }
        }
        found.ok_or(missing)
    }
}

/// The engine that lists the sessions of one that cannot.
fn lister(entry: &dyn EngineEntry) -> Option<&'static dyn EngineEntry> {
    let lister = engines::find(entry.store()?).ok()?;
    matches!(lister.sessions(), Ok(Some(_))).then_some(lister)
}

/// Why the sessions of an engine without a store that takopi reads are not listed, and what to do.
pub(crate) fn unlisted(entry: &dyn EngineEntry) -> String {
    let engine = entry.id();
    match (entry.store(), lister(entry)) {
        (None, _) => format!("{engine} stores no sessions"),
        (Some(_), Some(lister)) => {
            format!("the sessions of {engine} are those of {0}: use --engine {0}", lister.id())
        }
        (Some(_), None) => format!(
            "takopi cannot list the sessions of {engine}: find the id with the agent's own command and use --resume ID"
        ),
    }
}

/// The installed engines whose sessions no engine lists.
fn left_out() -> Vec<String> {
    let left_out = engines::all().filter(|entry| {
        entry.store().is_some() && lister(*entry).is_none() && entry.is_installed()
    });
    left_out.map(|entry| entry.id().to_string()).collect()
}

/// The one stored session whose id begins with this prefix, of this engine or of all.
pub(crate) fn unique(engine: Option<&str>, prefix: &str) -> Result<StoredSession, SessionError> {
    let missing = || SessionError::NotFound(prefix.to_owned());
    let stores = Stores::of(engine).map_err(|_| missing())?;
    stores.find(prefix).map(|(_, session)| session)
}

/// A session that can be opened in `takopi serve`.
#[derive(Debug, Serialize)]
pub(crate) struct Offered {
    id: String,
    engine: EngineId,
    /// Its resume line.
    resume: String,
    title: String,
    when: String,
    place: String,
    /// A part of the message that has what was searched for.
    said: Option<String>,
}

/// The sessions that a search found.
#[derive(Debug, Serialize)]
pub(crate) struct Offers {
    sessions: Vec<Offered>,
    /// Whether sessions were left out because the search took too long, or they are too large.
    left_out: bool,
}

/// The newest sessions of the engines that have a runner, of those that have these words: at most `count`, and
/// what is found within `limit`.
pub(crate) fn newest(
    runners: &[Arc<dyn Runner>],
    words: &str,
    count: usize,
    limit: Duration,
) -> anyhow::Result<Offers> {
    let search = Search::new(words);
    let runner = |engine: &EngineId| runners.iter().find(|runner| runner.engine() == *engine);
    let stores = Stores::open(engines::all().filter(|entry| runner(&entry.id()).is_some()))?;
    let mut offers = Offers { sessions: Vec::new(), left_out: false };
    let limits = Limits { time: limit, file: LARGEST_FILE };
    let read = |session: &StoredSession| stores.transcript_of(session);
    let mut hits = search.of(stores.list(None), read, Some(limits));
    for (session, found) in hits.by_ref() {
        let Some(runner) = runner(&session.token.engine) else { continue };
        offers.sessions.push(Offered {
            title: one_line(title(&session), 80),
            when: moment(session.updated),
            place: place(&session),
            resume: runner.format_resume(&session.token).trim_matches('`').to_owned(),
            said: match found {
                Found::Listed => None,
                Found::Said(part) => Some(part),
            },
            engine: session.token.engine,
            id: session.token.value,
        });
        if offers.sessions.len() == count {
            break;
        }
    }
    offers.left_out = hits.left_out != LeftOut::default();
    Ok(offers)
}

/// The messages and steps of a stored session.
pub(crate) fn transcript(session: &ResumeToken) -> anyhow::Result<Vec<TranscriptEntry>> {
    match engines::find(session.engine.as_str())?.sessions()? {
        Some(store) => Ok(store.transcript(session)?),
        None => Ok(Vec::new()),
    }
}

/// Whether it is a message, and not a command or a note.
fn is_message(entry: &TranscriptEntry) -> bool {
    matches!(entry.role, Role::User | Role::Agent)
}

/// The directory that a stored session began in.
pub(crate) fn directory(session: &ResumeToken) -> Option<PathBuf> {
    let store = engines::find(session.engine.as_str()).ok()?.sessions().ok()??;
    store.find(&session.value).ok()?.cwd
}

/// A session as `--json` prints it.
#[derive(Debug, Serialize)]
struct Listed<'a> {
    engine: &'a EngineId,
    id: &'a str,
    updated: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<&'a Path>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_prompt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<Holder>,
}

fn list(args: &SessionsArgs, terminal: Terminal) -> anyhow::Result<u8> {
    let directory = args.cd.as_deref();
    if let Some(problem) = directory.and_then(directory_problem) {
        return Err(Usage::new(problem).into());
    }
    let limit = if args.limit == 0 { usize::MAX } else { args.limit };
    let host = Host::global()?;
    let stores = Stores::of(args.engine.as_deref())?;
    let mut found = false;
    let search = Search::new(args.search.as_deref().unwrap_or_default());
    let limits = Limits { time: SEARCH_TIME, file: LARGEST_FILE };
    let limits = (args.limit > 0 && !search.is_empty()).then_some(limits);
    let read = |session: &StoredSession| stores.transcript_of(session);
    let mut hits = search.of(stores.list(directory), read, limits);
    for (session, _) in hits.by_ref().take(limit) {
        found = true;
        let holder = hints::holder(&host, &session.token);
        if args.json {
            terminal::print(&json_line(&Listed {
                engine: &session.token.engine,
                id: &session.token.value,
                updated: session.updated.to_string(),
                created: session.created.as_deref(),
                cwd: session.cwd.as_deref(),
                name: session.name.as_deref(),
                first_prompt: session
                    .first_prompt
                    .as_deref()
                    .map(|text| one_line(text, PROMPT_CHARS)),
                holder,
            })?)?;
        } else if terminal.shows_output {
            terminal.print_lines(&block(&session, holder.as_ref()))?;
        } else {
            terminal::print(row(&session, holder.as_ref()).as_bytes())?;
        }
    }
    for note in unsearched(hits.left_out) {
        terminal.note(&note);
    }
    if args.json {
        return Ok(exit::OK);
    }
    let left_out = if args.engine.is_none() { left_out() } else { Vec::new() };
    if !left_out.is_empty() {
        terminal.note(&format!("takopi cannot list the sessions of {}", left_out.join(", ")));
    }
    if !found {
        if let Some(search) = &args.search {
            terminal.note(&format!("no session has {search:?} in its messages, directory or id"));
            return Ok(exit::OK);
        }
        let places = stores.0.iter().map(|store| store.location().display().to_string());
        terminal.note(&format!("no sessions in {}", places.collect::<Vec<_>>().join(", ")));
    }
    Ok(exit::OK)
}

/// What a search did not look at, and what to do.
fn unsearched(left_out: LeftOut) -> impl Iterator<Item = String> {
    let LeftOut { older, large } = left_out;
    let plural = if large == 1 { "" } else { "s" };
    let size = LARGEST_FILE >> 20;
    let large = (large > 0).then(|| {
        format!(
            "the messages of {large} session{plural} are larger than {size} MiB and were not searched; -n 0 searches everything"
        )
    });
    let older = older.then(|| {
        let seconds = SEARCH_TIME.as_secs();
        format!(
            "older sessions were not searched: {seconds} s are over; -n 0 searches everything, --engine and --cd less"
        )
    });
    large.into_iter().chain(older)
}

/// How long ago something was, for people.
fn age(at: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second().saturating_sub(at.as_second()).max(0);
    let (count, unit) = match seconds {
        0..60 => return "just now".to_owned(),
        60..3600 => (seconds / 60, "minute"),
        3600..86_400 => (seconds / 3600, "hour"),
        86_400..2_592_000 => (seconds / 86_400, "day"),
        2_592_000..31_536_000 => (seconds / 2_592_000, "month"),
        _ => (seconds / 31_536_000, "year"),
    };
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{plural} ago")
}

/// A session on a terminal: two lines.
fn block(session: &StoredSession, holder: Option<&Holder>) -> Vec<Line> {
    let width = Terminal::output_width();
    let mut head = Line::new()
        .with(Style::Strong, &session.token.value)
        .with(
            Style::Dim,
            format!("  {}  {}  ", session.token.engine, age(session.updated, Timestamp::now())),
        )
        .with(Style::Plain, place(session));
    if let Some(holder) = holder {
        head = head.with(Style::Warn, format!("  {}", hints::held(holder)));
    }
    let title = one_line(title(session), width.saturating_sub(4));
    vec![head.cut(width), Line::new().with(Style::Plain, "    ").with(Style::Plain, title)]
}

/// A session in a pipe: fields separated by tabs.
fn row(session: &StoredSession, holder: Option<&Holder>) -> String {
    let fields = [
        session.token.value.clone(),
        session.token.engine.to_string(),
        moment(session.updated),
        one_line(&place(session), 500),
        one_line(title(session), PROMPT_CHARS),
        holder.map(hints::held).unwrap_or_default(),
    ];
    format!("{}\n", fields.join("\t").trim_end())
}

/// The name of a session, or its first prompt.
fn title(session: &StoredSession) -> &str {
    session.name.as_deref().or(session.first_prompt.as_deref()).unwrap_or("(no messages)")
}

/// The directory, with `~` for the home directory.
fn place(session: &StoredSession) -> String {
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

fn show(
    id: &str,
    stores: &Stores,
    shown: impl Fn(&TranscriptEntry) -> bool,
    json: bool,
    terminal: Terminal,
) -> anyhow::Result<u8> {
    let (store, session) = stores.find(id)?;
    for entry in store.transcript(&session.token)?.into_iter().filter(shown) {
        if json {
            terminal::print(&json_line(&entry)?)?;
        } else if terminal.formats() {
            terminal.print_lines(&formatted(&entry))?;
        } else {
            let text = plain(&entry);
            let text = if terminal.shows_output { harmless(&text) } else { text };
            terminal::print(text.as_bytes())?;
        }
    }
    Ok(exit::OK)
}

fn plain(entry: &TranscriptEntry) -> String {
    match entry.role {
        Role::Agent => format!("{}\n\n", entry.text.trim_end()),
        Role::User => {
            let quoted = entry.text.trim_end().lines().map(|line| format!("> {line}\n"));
            format!("{}\n", quoted.collect::<String>())
        }
        _ => {
            let output = output(entry, None).into_iter().map(|line| format!("{}\n", line.plain()));
            format!("{}\n{}\n", step(entry), output.collect::<String>())
        }
    }
}

fn formatted(entry: &TranscriptEntry) -> Vec<Line> {
    let width = Terminal::output_width();
    let mut lines = match entry.role {
        Role::Agent => answer(&entry.text, width),
        Role::User => {
            let lines = wrap(entry.text.trim_end(), width.saturating_sub(2));
            lines
                .into_iter()
                .map(|text| Line::new().with(Style::Good, "> ").with(Style::Strong, text))
                .collect()
        }
        _ => {
            let mut lines = vec![Line::new().with(Style::Dim, step(entry))];
            lines.extend(output(entry, Some(width)));
            lines
        }
    };
    lines.push(Line::new());
    lines
}

/// A command or a note in one line.
fn step(entry: &TranscriptEntry) -> String {
    let text = one_line(&entry.text, 500);
    match (entry.role, entry.exit_code) {
        (Role::Command, Some(code)) if code != 0 => format!("$ {text} (exit {code})"),
        (Role::Command, _) => format!("$ {text}"),
        _ => format!("({text})"),
    }
}

/// The end of a command's output: as much as `takopi run` shows if it failed, else less.
fn output(entry: &TranscriptEntry, width: Option<usize>) -> Vec<Line> {
    let failed = entry.exit_code.is_none_or(|code| code != 0);
    let most = if failed { TAIL_LINES } else { SHORT_TAIL };
    output_tail(entry.output_tail.as_deref().unwrap_or_default(), most, width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_in_its_largest_unit() {
        let now = Timestamp::from_second(1_000_000_000).unwrap();
        let age = |seconds: i64| age(Timestamp::from_second(1_000_000_000 - seconds).unwrap(), now);
        let ages = [-5, 59, 60, 7199, 7200, 86_400, 40 * 86_400, 800 * 86_400].map(age);
        assert_eq!(
            ages,
            [
                "just now",
                "just now",
                "1 minute ago",
                "1 hour ago",
                "2 hours ago",
                "1 day ago",
                "1 month ago",
                "2 years ago"
            ]
        );
    }
}
