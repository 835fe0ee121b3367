//! What a test knows of its fakes, and the threads that learn it from them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::report::{Mode, NOTED, Report};

/// How long a test waits for a fake, in real time.
const PATIENCE: Duration = Duration::from_mins(5);

/// A process as it was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// What it was started as.
    pub mode: Mode,
    /// Its process id.
    pub pid: u32,
    /// Its arguments, without the program.
    pub args: Vec<String>,
    /// Its environment.
    pub env: BTreeMap<String, String>,
    /// Its directory.
    pub cwd: PathBuf,
}

/// A point that was reached, or a grandchild that is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Name of the point or the grandchild.
    pub name: String,
    /// The process that reached it; of a grandchild its own.
    pub pid: u32,
    /// Number of the start.
    pub start: usize,
}

/// A message of the client.
#[derive(Clone, Debug, PartialEq)]
pub struct Sent {
    /// Number of the start that received it.
    pub start: usize,
    /// The message; a string if the line was not JSON.
    pub message: Value,
}

impl Sent {
    /// What the message calls: the method, the subtype of a control request, or else its type.
    pub fn name(&self) -> &str {
        let Self { message, .. } = self;
        let names = [&message["method"], &message["request"]["subtype"], &message["type"]];
        names.into_iter().find_map(Value::as_str).unwrap_or_default()
    }
}

/// The board, and a bell that rings when it has changed.
#[derive(Debug, Default)]
pub(super) struct Shared {
    board: Mutex<Board>,
    changed: Condvar,
}

/// Everything that was reported.
#[derive(Debug, Default)]
pub(super) struct Board {
    /// Processes of sessions.
    pub(super) starts: Vec<Started>,
    /// Other processes: `--version`, `login`.
    pub(super) asides: Vec<Started>,
    /// Points reached and grandchildren that are ready.
    pub(super) marks: Vec<Mark>,
    /// Messages of clients.
    pub(super) sent: Vec<Sent>,
    /// Answers of clients to asks, by name.
    pub(super) answers: Vec<(String, Value)>,
    /// Every process that was ever seen.
    pub(super) pids: Vec<u32>,
    /// The connections of processes that live.
    pub(super) links: HashMap<usize, Link>,
    /// The processes that had a session open, by session.
    holders: HashMap<String, Vec<u32>>,
    /// Sessions that two living processes had open at once.
    pub(super) overlaps: Vec<String>,
    next_link: usize,
    open_gates: HashSet<String>,
    closed: bool,
}

/// One connection of a fake.
#[derive(Debug)]
pub(super) struct Link {
    /// The process behind it.
    pub(super) pid: u32,
    stream: Arc<UnixStream>,
    start: usize,
    waits_for: Option<String>,
}

impl Shared {
    /// Wakes everything that waits for a change.
    pub(super) fn ring(&self) {
        self.changed.notify_all();
    }

    /// The board as it is now.
    pub(super) fn lock(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `look` finds something; at the deadline it panics with what it saw instead.
    pub(super) fn block_until<T>(
        &self,
        what: &str,
        abandoned: &AtomicBool,
        mut look: impl FnMut(&Board) -> Option<T>,
    ) -> Result<T, String> {
        let deadline = Instant::now() + PATIENCE;
        let mut board = self.lock();
        loop {
            if let Some(seen) = look(&board) {
                return Ok(seen);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || board.closed || abandoned.load(Ordering::Relaxed) {
                return Err(format!("waited in vain for {what}; {}", board.summary()));
            }
            let woken = self.changed.wait_timeout(board, left);
            (board, _) = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Serves the connections of fakes until the control is closed.
    pub(super) fn accept(self: Arc<Self>, listener: &UnixListener) {
        for stream in listener.incoming() {
            if self.lock().closed {
                return;
            }
            let Ok(stream) = stream else {
                // Out of descriptors: the fake waits in line until some are free.
                std::thread::sleep(Duration::from_millis(10));
                continue;
            };
            let shared = Arc::clone(&self);
            std::thread::spawn(move || shared.serve(stream));
        }
    }

    /// Serves one connection until its process closes it, which at the latest is its death.
    fn serve(&self, stream: UnixStream) {
        let stream = Arc::new(stream);
        let mut lines = BufReader::new(&*stream).lines();
        let mut next = || serde_json::from_str(&lines.next()?.ok()?).ok();
        let Some(id) = next().and_then(|first| self.lock().greet(first, &stream)) else {
            return;
        };
        self.changed.notify_all();
        while let Some(report) = next() {
            self.lock().note(id, report);
            self.changed.notify_all();
        }
        drop(lines);
        drop(stream);
        self.lock().links.remove(&id);
        self.changed.notify_all();
    }
}

impl Board {
    /// Ends all waiting: fakes that wait exit.
    pub(super) fn close(&mut self) {
        self.closed = true;
        for link in self.links.values() {
            let _ = link.stream.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Opens a gate, for fakes that wait there and for those that come later.
    pub(super) fn open(&mut self, gate: &str) {
        self.open_gates.insert(gate.to_owned());
        for link in self.links.values_mut() {
            if link.waits_for.take_if(|waits_for| waits_for == gate).is_some() {
                link.reply(NOTED);
            }
        }
    }

    /// Takes up a connection by its first report.
    fn greet(&mut self, report: Report, stream: &Arc<UnixStream>) -> Option<usize> {
        if self.closed {
            return None;
        }
        let mut reply = NOTED.to_owned();
        let (pid, start) = match report {
            Report::Start { mode, pid, args, env, cwd } => {
                let session = matches!(mode, Mode::Exec | Mode::AppServer | Mode::Duplex);
                let list = if session { &mut self.starts } else { &mut self.asides };
                reply = list.len().to_string();
                list.push(Started { mode, pid, args, env, cwd });
                (pid, list.len() - 1)
            }
            Report::Join { start, pid } => (pid, start),
            Report::Grandchild { name, start, pid } => {
                self.marks.push(Mark { name, pid, start });
                (pid, start)
            }
            _ => return None,
        };
        if !self.pids.contains(&pid) {
            self.pids.push(pid);
        }
        let link = Link { stream: Arc::clone(stream), pid, start, waits_for: None };
        link.reply(&reply);
        self.next_link += 1;
        self.links.insert(self.next_link, link);
        Some(self.next_link)
    }

    /// Notes a later report of a connection.
    fn note(&mut self, id: usize, report: Report) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let (pid, start) = (link.pid, link.start);
        if !matches!(report, Report::Wait(_)) {
            link.reply(NOTED);
        }
        match report {
            Report::Holds(session) => self.hold(&session, pid),
            Report::Reached(name) => self.marks.push(Mark { name, pid, start }),
            Report::Wait(gate) if self.open_gates.contains(&gate) => link.reply(NOTED),
            Report::Wait(gate) => link.waits_for = Some(gate),
            Report::Client(line) => {
                let message = serde_json::from_str(&line).unwrap_or(Value::String(line));
                self.sent.push(Sent { start, message });
            }
            Report::Answered { name, message } => self.answers.push((name, message)),
            Report::Start { .. } | Report::Join { .. } | Report::Grandchild { .. } => {}
        }
    }

    /// Records which process has a session open. The process of the run before must be gone by then.
    fn hold(&mut self, session: &str, pid: u32) {
        let holders = self.holders.entry(session.to_owned()).or_default();
        for other in holders.iter().filter(|other| **other != pid && lives(**other)) {
            self.overlaps.push(format!("{session} by {other} and {pid}"));
        }
        holders.retain(|other| lives(*other));
        holders.push(pid);
    }

    /// The times a point was reached.
    pub(super) fn marked(&self, name: &str) -> impl Iterator<Item = &Mark> {
        self.marks.iter().filter(move |mark| mark.name == name)
    }

    /// The calls of this name.
    pub(super) fn called(&self, name: &str) -> impl Iterator<Item = &Sent> {
        self.sent.iter().filter(move |sent| sent.name() == name)
    }

    fn summary(&self) -> String {
        let modes: Vec<_> = self.starts.iter().map(|start| (start.pid, start.mode)).collect();
        let marks: Vec<_> = self.marks.iter().map(|mark| &mark.name).collect();
        let calls: Vec<_> = self.sent.iter().map(Sent::name).collect();
        let waits: Vec<_> = self.links.values().map(|link| (link.pid, &link.waits_for)).collect();
        format!(
            "starts: {modes:?}; reached: {marks:?}; calls: {calls:?}; alive and waiting for: {waits:?}"
        )
    }
}

/// Whether the process runs: one that is dead and not reaped yet does not.
fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

impl Link {
    /// A fake that is gone hears nothing, which is no error.
    fn reply(&self, line: &str) {
        let _ = (&*self.stream).write_all(format!("{line}\n").as_bytes());
    }
}
