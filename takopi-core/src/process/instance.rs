//! The run record: what lets a later takopi find what a killed one left behind.
//!
//! Each takopi process that starts engines keeps one file, locked by the kernel for as long as it
//! lives, and appends a line when a run's engine is started (`+7`) and when it is gone (`-7`). Every
//! process of a run carries [`MARKER`]`=<instance>.<run>`. A record whose lock is free belongs to a
//! dead takopi; whatever bears the marker of one of its open runs is a stray.
//!
//! Runs that had ended are not touched: what their agents detached on purpose, stays.

use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use uuid::Uuid;

use super::census;
use crate::locks::{ByteRange, OfdFile};

/// The variable that marks every process of a run.
pub(crate) const MARKER: &str = "TAKOPI_RUN";
const LOCK: ByteRange = ByteRange::byte(0);

/// This process's record.
#[derive(Debug)]
pub(crate) struct Instance {
    id: String,
    record: Mutex<Record>,
    path: PathBuf,
}

#[derive(Debug)]
struct Record {
    file: Option<OfdFile>,
    open_runs: usize,
}

impl Instance {
    /// Opens a record in `directory`. Without one (a directory that cannot be written) everything
    /// works but the clean-up after this very process was killed.
    pub(crate) fn open(directory: &Path) -> Self {
        let id = Uuid::new_v4().simple().to_string();
        let path = directory.join(format!("{id}.run"));
        let record = create(directory, &path)
            .map_err(
                |error| tracing::warn!(%error, path = %path.display(), "cannot keep a run record"),
            )
            .ok();
        Self { id, record: Mutex::new(Record { file: record, open_runs: 0 }), path }
    }

    /// The marker of a run.
    pub(crate) fn marker(&self, run: u64) -> String {
        format!("{}.{run}", self.id)
    }

    pub(crate) fn opened(&self, run: u64) {
        let Ok(mut record) = self.record.lock() else { return };
        record.open_runs += 1;
        record.write(|mut file| file.write_all(format!("+{run}\n").as_bytes()));
    }

    pub(crate) fn closed(&self, run: u64) {
        let Ok(mut record) = self.record.lock() else { return };
        record.open_runs = record.open_runs.saturating_sub(1);
        if record.open_runs == 0 {
            // Begun anew whenever nothing runs, so that it stays small over months.
            record.write(|file| file.set_len(0));
        } else {
            record.write(|mut file| file.write_all(format!("-{run}\n").as_bytes()));
        }
    }

    /// Removes the record: nothing is left to be found.
    pub(crate) fn remove(&self) {
        let taken = self.record.lock().ok().and_then(|mut record| record.file.take());
        if taken.is_some() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Record {
    fn write(&self, change: impl FnOnce(&File) -> io::Result<()>) {
        if let Some(file) = &self.file
            && let Err(error) = change(&file.0)
        {
            tracing::debug!(%error, "cannot write the run record");
        }
    }
}

fn create(directory: &Path, path: &Path) -> io::Result<OfdFile> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let file = OfdFile(
        OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(path)?,
    );
    file.try_lock(LOCK)?;
    Ok(file)
}

/// A process that a takopi which is no more left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stray {
    /// Its pid.
    pub pid: i32,
    /// What it was started as.
    pub command: String,
}

/// The processes left behind by takopis that were killed, by the records in `state_directory`.
pub fn strays(state_directory: &Path) -> Vec<Stray> {
    let markers: Vec<String> =
        dead_records(state_directory).into_iter().flat_map(|(_, _, markers)| markers).collect();
    if markers.is_empty() {
        return Vec::new();
    }
    census::bearers(&markers)
        .into_iter()
        .map(|pid| Stray { pid, command: census::command_line(pid) })
        .collect()
}

/// Ends what killed takopis left behind and removes their records; returns what was ended.
///
/// Blocks for as long as the processes take to end, a few seconds at the most.
pub fn end_strays(state_directory: &Path) -> Vec<Stray> {
    let mut ended = Vec::new();
    for (path, _lock, markers) in dead_records(state_directory) {
        let found = census::bearers(&markers);
        ended.extend(found.iter().map(|&pid| Stray { pid, command: census::command_line(pid) }));
        census::signal(&found, Signal::SIGTERM);
        let patience = Instant::now() + Duration::from_secs(1);
        let mut left = found;
        for _ in 0..100 {
            left = if left.is_empty() { left } else { census::bearers(&markers) };
            if left.is_empty() {
                break;
            }
            if Instant::now() > patience {
                census::signal(&left, Signal::SIGKILL);
            }
            std::thread::sleep(Duration::from_millis(30));
        }
        if left.is_empty() {
            let _ = std::fs::remove_file(path);
        }
    }
    ended
}

/// Where the records are kept.
pub(crate) fn directory(state_directory: &Path) -> PathBuf {
    state_directory.join("runs")
}

/// The records of dead takopis: the file, the lock that keeps others off it, and the markers of the
/// runs that were open. Records without an open run are removed at once.
fn dead_records(state_directory: &Path) -> Vec<(PathBuf, OfdFile, Vec<String>)> {
    let Ok(files) = std::fs::read_dir(directory(state_directory)) else { return Vec::new() };
    files
        .filter_map(|file| {
            let path = file.ok()?.path();
            let id = path.file_name()?.to_str()?.strip_suffix(".run")?.to_owned();
            let file = OfdFile(File::options().read(true).write(true).open(&path).ok()?);
            if !file.try_lock(LOCK).ok()? {
                return None;
            }
            let runs = open_runs(&std::fs::read_to_string(&path).ok()?);
            if runs.is_empty() {
                let _ = std::fs::remove_file(&path);
                return None;
            }
            let markers = runs.iter().map(|run| format!("{MARKER}={id}.{run}")).collect();
            Some((path, file, markers))
        })
        .collect()
}

fn open_runs(record: &str) -> BTreeSet<u64> {
    let mut open = BTreeSet::new();
    for line in record.lines() {
        match (line.get(..1), line.get(1..).and_then(|run| run.parse().ok())) {
            (Some("+"), Some(run)) => {
                open.insert(run);
            }
            (Some("-"), Some(run)) => {
                open.remove(&run);
            }
            _ => {}
        }
    }
    open
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_tells_which_runs_were_open() {
        assert_eq!(open_runs("+1\n+2\n-1\n+3\n+"), BTreeSet::from([2, 3]));
    }

    #[test]
    fn the_record_of_a_live_process_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let instance = Instance::open(&super::directory(directory.path()));
        instance.opened(1);
        assert!(dead_records(directory.path()).is_empty());
        instance.remove();
        assert_eq!(std::fs::read_dir(super::directory(directory.path())).unwrap().count(), 0);
    }
}
