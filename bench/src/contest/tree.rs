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

/// What a tree has used of the processors.
#[derive(Clone, Copy, Default)]
pub(crate) struct ProcessorTime {
    /// All of it, with those of its processes that are gone.
    pub(crate) tree: Duration,
    /// Its root alone.
    pub(crate) root: Duration,
}

impl ProcessorTime {
    pub(crate) fn since(self, before: Self) -> Self {
        let tree = self.tree.saturating_sub(before.tree);
        Self { tree, root: self.root.saturating_sub(before.root) }
    }
}

/// What a tree has used of the processors so far.
pub(crate) fn processor_time(root: u32) -> ProcessorTime {
    // The kernel reports hundredths of a second to every process.
    let time = |ticks: u64| Duration::from_millis(ticks * 10);
    let ticks = family(root).into_iter().filter_map(stat).map(|stat| stat.own + stat.gone).sum();
    ProcessorTime {
        tree: time(ticks),
        root: stat(root).map(|stat| time(stat.own)).unwrap_or_default(),
    }
}

fn family(root: u32) -> HashSet<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let parents: Vec<(u32, u32)> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid: u32| Some((pid, stat(pid)?.parent)))
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

/// What the kernel reports of a process.
struct Stat {
    parent: u32,
    /// Ticks of its own.
    own: u64,
    /// Ticks of the children it has waited for.
    gone: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may contain anything: state, parent, …, and as 12th to 15th the times.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        own: ticks(11)? + ticks(12)?,
        gone: ticks(13)? + ticks(14)?,
    })
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
