//! Which processes descend from an engine, and which carry its mark.
//!
//! Codex starts its commands in sessions of their own, so a signal to the group does not reach them,
//! and a child whose parent died is no longer in the tree. Hence snapshots of the tree before each
//! signal, and the [mark](super::mark) for what left the tree earlier.
//!
//! Processes are identified by pid and start time, so a reused pid is never mistaken. A
//! process table that could not be read (this process may be out of descriptors) is an error, never
//! an empty one.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod other;

use std::collections::{HashMap, HashSet};
use std::io;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use super::mark::Mark;
#[cfg(target_os = "linux")]
use linux as platform;
#[cfg(not(target_os = "linux"))]
use other as platform;

/// A process at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) pid: i32,
    pub(super) parent: i32,
    pub(super) group: i32,
    /// When it started, in ticks since boot.
    pub(super) started: u64,
    pub(super) dead: bool,
}

/// What is known of the processes that came of an engine.
#[derive(Debug, Clone)]
pub(super) struct Census {
    /// The engine's pid, which is also its group.
    root: i32,
    /// What the engine and all that came of it carry.
    mark: Mark,
    known: HashMap<i32, u64>,
    /// Those that are none of the run's business were started before it.
    spared: StartCutoff,
}

/// A moment on the clock of process start times: processes that started before it can be spared. The
/// default spares none.
///
/// The clock has ticks of a hundredth of a second: what starts in the same tick counts as later.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StartCutoff {
    ticks: u64,
}

impl StartCutoff {
    /// Spares what started before now.
    pub fn now() -> Self {
        Self { ticks: platform::ticks_since_boot() }
    }

    fn covers(self, started: u64) -> bool {
        started < self.ticks
    }
}

impl Census {
    pub(super) fn new(root: i32, mark: Mark) -> Self {
        Self { root, mark, known: HashMap::new(), spared: StartCutoff::default() }
    }

    /// The processes that carry a mark, whichever engine they came of.
    pub(super) fn of_mark(mark: Mark) -> Self {
        // No process has this pid or group.
        Self::new(-1, mark)
    }

    /// Spares what was started before.
    pub(super) fn spare(&mut self, spared: StartCutoff) {
        self.known.retain(|_, started| !spared.covers(*started));
        self.spared = spared;
    }

    /// Whether it may be ended: alive, not this very process, and not spared.
    fn may_end(&self, entry: &Entry) -> bool {
        may_be_ended(entry) && !self.spared.covers(entry.started)
    }

    /// Remembers the engine's descendants. Only while the engine is not reaped: afterwards its pid
    /// may belong to another process.
    pub(super) fn observe(&mut self) -> io::Result<()> {
        self.remember_descendants(&platform::processes()?, HashSet::from([self.root]));
        Ok(())
    }

    /// Remembers the engine's group. Only when the engine was reaped this moment and its group was
    /// seen to live on: its number is free for others as soon as the group is empty.
    pub(super) fn observe_group(&mut self) -> io::Result<()> {
        let members = platform::processes()?.into_iter();
        let members: Vec<_> =
            members.filter(|entry| entry.group == self.root && self.may_end(entry)).collect();
        self.known.extend(members.into_iter().map(|entry| (entry.pid, entry.started)));
        Ok(())
    }

    /// The processes that are known.
    pub(super) fn pids(&self) -> Vec<i32> {
        self.known.keys().copied().collect()
    }

    /// Knows everything that came of the engine and is still alive, and nothing else, now that the
    /// engine is gone.
    pub(super) fn keep_survivors(&mut self) -> io::Result<()> {
        let table = platform::processes()?;
        self.known.retain(|pid, started| {
            table.iter().any(|entry| entry.pid == *pid && entry.started == *started && !entry.dead)
        });
        for entry in &table {
            if !self.known.contains_key(&entry.pid)
                && self.may_end(entry)
                && platform::carries(entry.pid, std::slice::from_ref(&self.mark))?
            {
                self.known.insert(entry.pid, entry.started);
            }
        }
        self.remember_descendants(&table, self.known.keys().copied().collect());
        Ok(())
    }

    fn remember_descendants(&mut self, table: &[Entry], mut family: HashSet<i32>) {
        loop {
            let before = family.len();
            for entry in table {
                let new = family.contains(&entry.parent) && !family.contains(&entry.pid);
                if new && self.may_end(entry) {
                    family.insert(entry.pid);
                    self.known.insert(entry.pid, entry.started);
                }
            }
            if family.len() == before {
                return;
            }
        }
    }
}

/// Alive, and not this very process.
fn may_be_ended(entry: &Entry) -> bool {
    !entry.dead && i32::try_from(std::process::id()) != Ok(entry.pid)
}

/// The live processes that carry one of these marks, but for those in which this very process lives:
/// a terminal that an agent opened and a person took over.
pub(super) fn bearers(marks: &[Mark]) -> io::Result<Vec<i32>> {
    let table = platform::processes()?;
    let parents: HashMap<i32, i32> = table.iter().map(|entry| (entry.pid, entry.parent)).collect();
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    let ancestors: HashSet<i32> =
        std::iter::successors(Some(own), |pid| parents.get(pid).copied()).take(1000).collect();
    let mut bearers = Vec::new();
    for entry in table {
        if may_be_ended(&entry)
            && !ancestors.contains(&entry.pid)
            && platform::carries(entry.pid, marks)?
        {
            bearers.push(entry.pid);
        }
    }
    Ok(bearers)
}

/// Whether a process group has a member that lives. One that exited and is not reaped takes signals like one
/// that lives, and stays for ever where nothing reaps orphans, as in a container without an init.
pub(crate) fn group_lives(group: Pid) -> io::Result<bool> {
    // The table is only read while there is any member.
    Ok(killpg(group, None).is_ok() && platform::has_live_member(group.as_raw())?)
}

/// What a process was started as, for people.
pub(super) fn command_line(pid: i32) -> String {
    platform::command_line(pid)
}

/// Sends a signal; a process that is gone already is no fault.
pub(super) fn signal(pids: &[i32], signal: Signal) {
    for pid in pids {
        let _ = kill(Pid::from_raw(*pid), signal);
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    #[test]
    fn descendants_and_bearers_of_the_marker_are_found() {
        let mut child = Command::new("sh")
            .args(["-c", "sleep 60 & wait"])
            .env("TAKOPI_CENSUS_TEST", "a b")
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let root = i32::try_from(child.id()).unwrap();
        let mut census = Census::new(root, Mark::of_variable("TAKOPI_CENSUS_TEST", "a b"));
        while census.known.is_empty() {
            census.observe().unwrap();
            std::thread::yield_now();
        }
        let sleep = census.pids();
        // While the kernel executes a new program, its environment cannot be read.
        while command_line(sleep[0]) != "sleep 60" {
            std::thread::yield_now();
        }
        let carries = |variable: &str| {
            let mark = Mark { variable: variable.to_owned(), number: None };
            platform::carries(sleep[0], &[mark]).unwrap()
        };
        assert!(carries("TAKOPI_CENSUS_TEST=a b"));
        assert!(!carries("TAKOPI_CENSUS_TEST=a"));
        assert!(!carries(""), "nothing is no marker");
        child.kill().unwrap();
        child.wait().unwrap();
        census.keep_survivors().unwrap();
        assert_eq!(census.pids(), sleep, "the orphan is remembered");
        signal(&sleep, Signal::SIGKILL);
        while !census.pids().is_empty() {
            census.keep_survivors().unwrap();
        }
    }

    /// A census whose mark nothing carries, so that only what it observes is found.
    fn unmarked(root: i32) -> Census {
        Census::new(root, Mark::of_variable("TAKOPI_CENSUS_TEST", "carried by nothing"))
    }

    /// A child of this process, and its entry in the process table.
    fn sleeper() -> (std::process::Child, Entry) {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let entry = platform::processes().unwrap().into_iter().find(|entry| entry.pid == pid);
        (child, entry.unwrap())
    }

    #[test]
    fn the_group_of_an_engine_is_remembered_and_no_other_process() {
        let engine = Command::new("sh")
            .args(["-c", "sleep 1000 > /dev/null 2>&1 & echo $!"])
            .process_group(0)
            .output()
            .unwrap();
        let orphan: i32 = String::from_utf8(engine.stdout).unwrap().trim().parse().unwrap();
        let table = platform::processes().unwrap();
        let root = table.iter().find(|entry| entry.pid == orphan).unwrap().group;
        let (mut other, _) = sleeper();
        let mut census = unmarked(root);
        census.observe_group().unwrap();
        assert_eq!(census.pids(), [orphan]);
        signal(&[orphan], Signal::SIGKILL);
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn a_known_process_is_kept_while_it_lives_and_is_the_same() {
        let (mut child, Entry { pid, started, .. }) = sleeper();
        let survivors = |started| {
            let mut census = unmarked(-1);
            census.known.insert(pid, started);
            census.keep_survivors().unwrap();
            census.pids()
        };
        assert_eq!(survivors(started), [pid]);
        assert!(
            survivors(started + 1).is_empty(),
            "another process with the pid of one that ended"
        );
        child.kill().unwrap();
        let is_dead = |entry: Entry| entry.pid == pid && entry.dead;
        while !platform::processes().unwrap().into_iter().any(is_dead) {
            std::thread::yield_now();
        }
        assert!(survivors(started).is_empty(), "it is dead, though it was not waited for");
        child.wait().unwrap();
    }

    #[test]
    fn what_was_started_before_is_spared() {
        let mut census = unmarked(-1);
        census.known = HashMap::from([(1, 19), (2, 20), (3, 21)]);
        census.spare(StartCutoff { ticks: 20 });
        assert_eq!(
            HashSet::from_iter(census.pids()),
            HashSet::from([2, 3]),
            "the same tick is later"
        );
        let entry = |started| Entry { pid: -1, parent: 0, group: 0, started, dead: false };
        assert!(!census.may_end(&entry(19)) && census.may_end(&entry(20)));
    }

    #[test]
    fn neither_the_dead_nor_this_very_process_may_be_ended() {
        let entry = Entry { pid: -1, parent: 0, group: 0, started: 0, dead: false };
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(may_be_ended(&entry));
        assert!(!may_be_ended(&Entry { dead: true, ..entry }));
        assert!(!may_be_ended(&Entry { pid: own, ..entry }));
    }
}
