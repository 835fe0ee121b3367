//! A process and everything that descends from it: memory and processor time.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Looking takes the memory maps' locks of those looked at, so timed rounds are not looked at.
const INTERVAL: Duration = Duration::from_millis(50);

/// The most that a tree was seen to have.
#[derive(Clone, Copy, Default)]
pub(crate) struct Memory {
    /// Proportional set sizes: what is shared counts once.
    pub(crate) pss_kib: u64,
    /// Resident set sizes: what is shared counts for each.
    pub(crate) rss_kib: u64,
}

/// Watches the memory of a tree until it is stopped.
pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    watcher: std::thread::JoinHandle<Memory>,
}

impl Watch {
    pub(crate) fn start(root: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let watcher = std::thread::spawn(move || {
            let mut highest = Memory::default();
            while !stopped.load(Ordering::Relaxed) {
                let family = family(root).into_iter().map(memory);
                let (pss, rss) = family.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
                highest.pss_kib = highest.pss_kib.max(pss);
                highest.rss_kib = highest.rss_kib.max(rss);
                std::thread::sleep(INTERVAL);
            }
            highest
        });
        Self { stop, watcher }
    }

    pub(crate) fn stop(self) -> Memory {
        self.stop.store(true, Ordering::Relaxed);
        self.watcher.join().unwrap_or_default()
    }
}

/// What a tree has used of the processors, with those of its processes that are gone.
pub(crate) fn processor_time(root: u32) -> Duration {
    let ticks: u64 = family(root).into_iter().filter_map(stat).map(|stat| stat.1).sum();
    // The kernel reports hundredths of a second to every process.
    Duration::from_millis(ticks * 10)
}

fn family(root: u32) -> HashSet<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let parents: Vec<(u32, u32)> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid: u32| Some((pid, stat(pid)?.0)))
        .collect();
    let mut family = HashSet::from([root]);
    loop {
        let before = family.len();
        let children = parents.iter().filter(|(_, parent)| family.contains(parent));
        let children: Vec<u32> = children.map(|(pid, _)| *pid).collect();
        family.extend(children);
        if family.len() == before {
            return family;
        }
    }
}

/// The parent of a process, and its ticks with those of the children it has waited for.
fn stat(pid: u32) -> Option<(u32, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may contain anything: state, parent, …, and as 12th to 15th the times.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let ticks = fields.get(11..15)?.iter().filter_map(|field| field.parse::<u64>().ok()).sum();
    Some((fields.get(1)?.parse().ok()?, ticks))
}

/// The proportional and the resident set size of a process.
fn memory(pid: u32) -> (u64, u64) {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let kib = |field: &str| {
        let line = rollup.lines().find(|line| line.starts_with(field));
        line.and_then(|line| line.split_ascii_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
    };
    (kib("Pss:"), kib("Rss:"))
}
