//! Finds the processes that a test started, however far they have run from it, by reading `/proc`. Where there is none it
//! finds none.

use std::fmt;
use std::fs;
use std::path::Path;

/// A live process that belongs to a test's home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: i32,
    /// Its parent's id.
    pub ppid: i32,
    /// What it runs, as one line.
    pub command: String,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (child of {}): {}", self.pid, self.ppid, self.command)
    }
}

/// All processes but this one that have `marker` in their environment, or `dir` in their command line or as the start
/// of their working directory. A zombie has none of these and is not found.
pub(super) fn find(marker: &str, dir: &Path) -> Vec<Process> {
    // No panic: this also runs when a failing test is torn down.
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    pids.filter(|pid| *pid != own).filter_map(|pid| read(pid, marker, dir)).collect()
}

/// Reads one process; none if it is not one of ours, or ends while it is being read.
fn read(pid: i32, marker: &str, dir: &Path) -> Option<Process> {
    let proc = Path::new("/proc").join(pid.to_string());
    let environment = fs::read(proc.join("environ")).unwrap_or_default();
    let command = fs::read(proc.join("cmdline")).unwrap_or_default();
    let command = String::from_utf8_lossy(&command).replace('\0', " ");

    let marked = environment.split(|byte| *byte == 0).any(|variable| variable == marker.as_bytes());
    let named = command.contains(dir.to_str()?);
    let inside = fs::read_link(proc.join("cwd")).is_ok_and(|cwd| cwd.starts_with(dir));
    if !(marked || named || inside) {
        return None;
    }
    Some(Process { pid, ppid: parent(&proc)?, command: command.trim_end().to_owned() })
}

fn parent(proc: &Path) -> Option<i32> {
    let status = fs::read_to_string(proc.join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok()
}
