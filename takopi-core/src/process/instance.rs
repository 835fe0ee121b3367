//! The run record: what lets a later takopi find what a killed one left behind.
//!
//! Each takopi process that starts engines keeps one file, locked by the kernel for as long as it
//! lives, and appends a line before a process is started (`+7`) and when it is gone (`-7`). A
//! process and all that comes of it carry the [mark](super::mark) of `<instance>.<number>`. A record
//! whose lock is free belongs to a dead takopi; whatever carries the mark of one of its open numbers
//! is a stray.
//!
//! Processes that had ended are not touched: what their agents detached on purpose, stays.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::census;
use super::mark::Mark;
use super::sweep::{Step, Sweep, kill_marked};
use crate::redact::redact;
use crate::sys::{ByteRange, OfdFile};

const LOCK: ByteRange = ByteRange::byte(0);
/// A record of so many lines is replaced by one of what is open, so that it stays small over months.
const MANY_LINES: usize = 1024;

/// This process's record.
#[derive(Debug)]
pub(crate) struct Instance {
    id: String,
    directory: PathBuf,
    record: Mutex<Record>,
}

#[derive(Debug, Default)]
struct Record {
    /// There from the first process on, and again after it was removed.
    file: Option<OfdFile>,
    open: BTreeSet<u64>,
    lines: usize,
}

impl Instance {
    /// A record in `directory`, which is created when first needed. Without one (a directory that
    /// cannot be written) everything works but the clean-up after this very process was killed.
    pub(crate) fn new(directory: &Path) -> Self {
        Self {
            id: Uuid::new_v4().simple().to_string(),
            directory: directory.to_owned(),
            record: Mutex::default(),
        }
    }

    /// The marker of a process.
    pub(crate) fn marker(&self, process: u64) -> String {
        format!("{}.{process}", self.id)
    }

    pub(crate) fn opened(&self, process: u64) {
        let mut record = self.record();
        record.open.insert(process);
        if record.file.is_none() {
            record.file = create(&self.directory, &self.path())
                .map_err(|error| {
                    tracing::warn!(%error, path = %self.path().display(), "cannot keep a run record");
                })
                .ok();
            record.lines = 0;
        }
        record.append(&format!("+{process}\n"));
    }

    pub(crate) fn closed(&self, process: u64) {
        let mut record = self.record();
        record.open.remove(&process);
        record.append(&format!("-{process}\n"));
        if record.lines >= MANY_LINES.max(2 * record.open.len()) {
            record.begin_anew(&self.directory, &self.path());
        }
    }

    /// Kills everything that came of the processes that are open, without grace. Blocks for a moment.
    pub(crate) fn kill_now(&self) {
        let open: Vec<u64> = self.record().open.iter().copied().collect();
        for process in open {
            kill_marked(Mark::of_process(&self.marker(process)));
        }
    }

    /// Removes the record if nothing is left to be found.
    pub(crate) fn remove(&self) {
        let mut record = self.record();
        if record.open.is_empty()
            && let Some(_locked) = record.file.take()
        {
            let _ = std::fs::remove_file(self.path());
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.join(format!("{}.run", self.id))
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Record {
    fn append(&mut self, line: &str) {
        self.lines += 1;
        if let Some(file) = &self.file
            && let Err(error) = (&file.file).write_all(line.as_bytes())
        {
            tracing::debug!(%error, "cannot write the run record");
        }
    }

    /// Replaces the file by one of what is open. It is never empty meanwhile: this process may be killed at
    /// any moment, and what is open must be found then.
    fn begin_anew(&mut self, directory: &Path, path: &Path) {
        if self.file.is_none() {
            return;
        }
        // Whether or not it works out: the next attempt is as far away.
        self.lines = self.open.len();
        match replace(directory, path, &self.open) {
            Ok(file) => self.file = Some(file),
            Err(error) => tracing::debug!(%error, "cannot shorten the run record"),
        }
    }
}

/// Puts a record of the open numbers in the place of another.
fn replace(directory: &Path, path: &Path, open: &BTreeSet<u64>) -> io::Result<OfdFile> {
    // If this process is killed now it is found as a record whose numbers nothing carries.
    let beside = path.with_extension("new.run");
    let file = create(directory, &beside)?;
    let lines = open.iter().fold(String::new(), |mut lines, process| {
        let _ = writeln!(lines, "+{process}");
        lines
    });
    // An earlier attempt may have failed half-way.
    let written = file.file.set_len(0).and_then(|()| (&file.file).write_all(lines.as_bytes()));
    if let Err(error) = written.and_then(|()| std::fs::rename(&beside, path)) {
        let _ = std::fs::remove_file(&beside);
        return Err(error);
    }
    Ok(file)
}

fn create(directory: &Path, path: &Path) -> io::Result<OfdFile> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    loop {
        let file =
            OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        let file = OfdFile::new(file);
        // Another takopi that looks for dead ones may have been quicker and removed it as such.
        if file.try_lock(LOCK)? && file.is_at(path)? {
            return Ok(file);
        }
        std::thread::yield_now();
    }
}

/// A process that a takopi which is no more left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stray {
    /// Its pid.
    pub pid: i32,
    /// What it was started as, without credentials.
    pub command: String,
}

impl Stray {
    fn new(pid: i32) -> Self {
        Self { pid, command: redact(&census::command_line(pid)).into_owned() }
    }
}

/// The processes left behind by takopis that were killed, by the records in `state_directory`.
pub fn strays(state_directory: &Path) -> Vec<Stray> {
    let marks: Vec<Mark> =
        dead_records(state_directory).into_iter().flat_map(|(_, _, marks)| marks).collect();
    if marks.is_empty() {
        return Vec::new();
    }
    match census::bearers(&marks) {
        Ok(pids) => pids.into_iter().map(Stray::new).collect(),
        Err(error) => {
            tracing::warn!(%error, "cannot read the process table");
            Vec::new()
        }
    }
}

/// Ends the processes that killed takopi processes left behind and removes their records; returns the
/// ended processes.
///
/// Blocks for as long as the processes take to end, a few seconds at the most.
pub fn end_strays(state_directory: &Path) -> Vec<Stray> {
    let mut ended = Vec::new();
    for (path, _lock, marks) in dead_records(state_directory) {
        match end_bearers(&marks) {
            Ok(found) => {
                ended.extend(found);
                let _ = std::fs::remove_file(path);
            }
            // The record stays for the next attempt.
            Err(error) => tracing::warn!(%error, "cannot end what a killed takopi left behind"),
        }
    }
    ended
}

/// Ends every bearer of the marks, gently first.
fn end_bearers(marks: &[Mark]) -> io::Result<Vec<Stray>> {
    end_all(|| census::bearers(marks))
}

/// Ends whom the looks find, and returns them.
fn end_all(mut look: impl FnMut() -> io::Result<Vec<i32>>) -> io::Result<Vec<Stray>> {
    let begun = Instant::now();
    let mut sweep = Sweep::new(Duration::from_secs(1), Duration::from_secs(3));
    let mut found: Vec<Stray> = Vec::new();
    loop {
        let left = look()?;
        match sweep.step(begun.elapsed(), Some(left.len())) {
            Step::Done => return Ok(found),
            Step::GiveUp => return Err(io::ErrorKind::TimedOut.into()),
            Step::Look => {}
            Step::Send(signal) => {
                let known = |pid: &i32| found.iter().any(|stray| stray.pid == *pid);
                let new: Vec<i32> = left.iter().copied().filter(|pid| !known(pid)).collect();
                found.extend(new.into_iter().map(Stray::new));
                census::signal(&left, signal);
            }
        }
        std::thread::sleep(Duration::from_millis(30));
    }
}

/// Where the records are kept.
pub(crate) fn directory(state_directory: &Path) -> PathBuf {
    state_directory.join("runs")
}

/// The records of dead takopis: the file, the lock that keeps others off it, and the marks that
/// were open. Records without one are removed at once.
fn dead_records(state_directory: &Path) -> Vec<(PathBuf, OfdFile, Vec<Mark>)> {
    let Ok(files) = std::fs::read_dir(directory(state_directory)) else { return Vec::new() };
    files
        .filter_map(|file| {
            let path = file.ok()?.path();
            let id = path.file_name()?.to_str()?.strip_suffix(".run")?.to_owned();
            let file = File::options().read(true).write(true).open(&path).ok()?;
            let mut file = OfdFile::new(file);
            // A live takopi may have removed this file and begun another at the path.
            if !file.try_lock(LOCK).ok()? || !file.is_at(&path).ok()? {
                return None;
            }
            let mut record = String::new();
            file.file.read_to_string(&mut record).ok()?;
            let open = open_numbers(&record);
            if open.is_empty() {
                let _ = std::fs::remove_file(&path);
                return None;
            }
            let marks =
                open.iter().map(|number| Mark::of_process(&format!("{id}.{number}"))).collect();
            Some((path, file, marks))
        })
        .collect()
}

fn open_numbers(record: &str) -> BTreeSet<u64> {
    let mut open = BTreeSet::new();
    // Of a line that is cut off the number may be another.
    for line in record.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
        match (line.get(..1), line.get(1..).and_then(|number| number.parse().ok())) {
            (Some("+"), Some(number)) => {
                open.insert(number);
            }
            (Some("-"), Some(number)) => {
                open.remove(&number);
            }
            _ => {}
        }
    }
    open
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(state: &Path) -> usize {
        std::fs::read_dir(directory(state)).map_or(0, Iterator::count)
    }

    #[test]
    fn nobody_is_left_only_if_two_looks_in_a_row_find_nobody() {
        let mut stray = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = i32::try_from(stray.id()).unwrap();
        let mut looks = [vec![], vec![pid], vec![pid], vec![], vec![]].into_iter();
        let ended = end_all(|| Ok(looks.next().unwrap())).unwrap();
        assert_eq!(ended.iter().map(|stray| stray.pid).collect::<Vec<_>>(), [pid], "named once");
        assert!(looks.next().is_none());
        assert!(!stray.wait().unwrap().success(), "it was ended by a signal");
    }

    #[test]
    fn a_record_lists_the_processes_that_were_open() {
        assert_eq!(open_numbers("+1\n+2\n-1\n+3\n+"), BTreeSet::from([2, 3]));
    }

    #[test]
    fn the_record_of_a_live_process_is_left_alone() {
        let state = tempfile::tempdir().unwrap();
        let instance = Instance::new(&directory(state.path()));
        instance.opened(1);
        assert!(dead_records(state.path()).is_empty());
        instance.closed(1);
        instance.remove();
        assert_eq!(records(state.path()), 0);
    }

    #[test]
    fn a_record_is_removed_only_when_nothing_is_open_and_comes_back_when_needed() {
        let state = tempfile::tempdir().unwrap();
        let instance = Instance::new(&directory(state.path()));
        instance.opened(1);
        instance.remove();
        assert_eq!(records(state.path()), 1, "a process is open");
        instance.closed(1);
        instance.remove();
        instance.opened(2);
        assert_eq!(records(state.path()), 1);
        drop(instance);
        let dead = dead_records(state.path());
        assert_eq!(dead.len(), 1, "its taker is gone, and 2 was open");
        assert!(dead[0].2[0].variable.ends_with(".2"));
    }

    #[test]
    fn a_record_stays_small_over_months() {
        let state = tempfile::tempdir().unwrap();
        let instance = Instance::new(&directory(state.path()));
        instance.opened(0);
        for number in 1..20_000 {
            instance.opened(number);
            instance.closed(number);
        }
        instance.opened(20_000);
        let text = std::fs::read_to_string(instance.path()).unwrap();
        assert!(text.lines().count() <= MANY_LINES + 1);
        assert_eq!(open_numbers(&text), BTreeSet::from([0, 20_000]));
    }

    #[test]
    fn a_record_that_is_rewritten_lists_what_is_open_at_every_moment() {
        use std::os::unix::fs::MetadataExt as _;
        let state = tempfile::tempdir().unwrap();
        let instance = Instance::new(&directory(state.path()));
        instance.opened(1);
        instance.opened(2);
        let before = state.path().join("before");
        std::fs::hard_link(instance.path(), &before).unwrap();
        let begins = std::fs::read_to_string(&before).unwrap().len();
        let inode = |path: &Path| path.metadata().unwrap().ino();
        let rewritten = (10..10_000).find(|number| {
            instance.opened(*number);
            instance.closed(*number);
            inode(&instance.path()) != inode(&before)
        });
        assert!(rewritten.is_some(), "it is replaced, and not emptied");
        let text = std::fs::read_to_string(&before).unwrap();
        for end in begins..=text.len() {
            let open = open_numbers(&text[..end]);
            assert!(open.is_superset(&BTreeSet::from([1, 2])), "{}", &text[..end]);
        }
        let text = std::fs::read_to_string(instance.path()).unwrap();
        assert_eq!(open_numbers(&text), BTreeSet::from([1, 2]));
        assert!(dead_records(state.path()).is_empty(), "it is locked like the one before");
        assert_eq!(records(state.path()), 1);
    }

    #[test]
    fn what_is_left_of_a_rewrite_that_was_killed_is_removed() {
        let state = tempfile::tempdir().unwrap();
        let instance = Instance::new(&directory(state.path()));
        instance.opened(1);
        std::fs::write(instance.path().with_extension("new.run"), "+1\n").unwrap();
        assert_eq!(end_strays(state.path()), []);
        assert_eq!(records(state.path()), 1, "that of the live process");
    }

    /// A child that carries a mark. Its script has written to its output when this returns.
    #[cfg(target_os = "linux")]
    fn marked(mark: &Mark, script: &str) -> std::process::Child {
        let (name, value) = mark.variable.split_once('=').unwrap();
        let mut child = std::process::Command::new("sh")
            .args(["-c", script])
            .env(name, value)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        child
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_was_left_behind_is_ended_gently_first_and_then_for_certain() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("asked");
        let mark = Mark::of_variable("TAKOPI_STRAYS_TEST", "a");
        let polite = format!(
            "trap 'echo > {}; exit' TERM; echo; while :; do sleep 0.01; done",
            file.display()
        );
        let stubborn = "trap '' TERM; echo; while :; do sleep 0.01; done";
        // On a busy machine it may not get to its trap in time.
        for _ in 0..10 {
            let mut children = [polite.as_str(), stubborn].map(|script| marked(&mark, script));
            let ended = end_bearers(std::slice::from_ref(&mark)).unwrap();
            for child in &mut children {
                child.wait().unwrap();
                assert!(ended.iter().any(|stray| stray.pid == i32::try_from(child.id()).unwrap()));
            }
            if file.exists() {
                return;
            }
        }
        panic!("it was not asked to end");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_is_open_can_be_killed_at_once() {
        use std::os::unix::process::ExitStatusExt as _;
        let state = tempfile::tempdir().unwrap();
        let instance = Instance::new(&directory(state.path()));
        for process in [1, 2] {
            instance.opened(process);
        }
        instance.closed(1);
        let child = |process| {
            // Without an exec, during which its environment could not be read.
            let script = "trap '' TERM; echo; while :; do sleep 0.01; done";
            marked(&Mark::of_process(&instance.marker(process)), script)
        };
        let (mut closed, mut open) = (child(1), child(2));
        instance.kill_now();
        assert_eq!(open.wait().unwrap().signal(), Some(libc::SIGKILL));
        assert!(closed.try_wait().unwrap().is_none(), "it is none of the open ones");
        closed.kill().unwrap();
        closed.wait().unwrap();
    }
}
