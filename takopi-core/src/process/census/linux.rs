//! The process table of Linux, from `/proc`.

use std::time::Duration;
use std::{fs, io};

use nix::time::{ClockId, clock_gettime};
use nix::unistd::{SysconfVar, sysconf};

use super::{Entry, Mark};

/// Every process that can be seen.
pub(super) fn processes() -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for name in fs::read_dir("/proc")? {
        if let Some(pid) = name?.file_name().to_str().and_then(|name| name.parse().ok())
            && let Some(stat) = read(pid, "stat")?
        {
            entries.extend(entry(pid, &String::from_utf8_lossy(&stat)));
        }
    }
    Ok(entries)
}

pub(super) fn has_live_member(group: i32) -> io::Result<bool> {
    Ok(processes()?.iter().any(|entry| entry.group == group && !entry.dead))
}

/// The present, in the unit of process start times.
pub(super) fn ticks_since_boot() -> u64 {
    let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten();
    let ticks = ticks.and_then(|ticks| u64::try_from(ticks).ok()).unwrap_or(100);
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from);
    now.as_secs() * ticks + u64::from(now.subsec_nanos()) * ticks / 1_000_000_000
}

fn entry(pid: i32, stat: &str) -> Option<Entry> {
    // The name stands in parentheses and may contain anything, parentheses and blanks included.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    Some(Entry {
        pid,
        dead: matches!(*fields.first()?, "Z" | "X" | "x"),
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
    })
}

/// Whether the process carries one of these marks.
pub(super) fn carries(pid: i32, marks: &[Mark]) -> io::Result<bool> {
    // The limit first: it costs one system call, and it is there at any moment.
    if let Some(number) = realtime_limit(pid)
        && marks.iter().any(|mark| mark.number == Some(number))
    {
        return Ok(true);
    }
    let environment = read(pid, "environ")?.unwrap_or_default();
    // What ends the last entry begins no other.
    let mut entries = environment.split(|byte| *byte == 0).filter(|entry| !entry.is_empty());
    Ok(entries.any(|entry| marks.iter().any(|mark| mark.variable.as_bytes() == entry)))
}

/// The soft limit on realtime CPU time; `None` for a process that is gone or of another user.
fn realtime_limit(pid: i32) -> Option<u64> {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: without a new limit the call only fills in the old one.
    let result =
        unsafe { libc::prlimit64(pid, libc::RLIMIT_RTTIME, std::ptr::null(), &raw mut limit) };
    (result == 0).then_some(limit.rlim_cur)
}

pub(super) fn command_line(pid: i32) -> String {
    let bytes = read(pid, "cmdline").ok().flatten().unwrap_or_default();
    let words: Vec<_> = bytes
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(String::from_utf8_lossy)
        .collect();
    words.join(" ")
}

/// A file of a process; nothing for one that is gone or of another user.
fn read(pid: i32, name: &str) -> io::Result<Option<Vec<u8>>> {
    match fs::read(format!("/proc/{pid}/{name}")) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH | libc::EACCES | libc::EPERM) => Ok(None),
            _ => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_present_is_in_ticks_of_a_fraction_of_a_second() {
        let hertz = u128::try_from(sysconf(SysconfVar::CLK_TCK).unwrap().unwrap()).unwrap();
        let ticks = || {
            let now = Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME).unwrap());
            u64::try_from(now.as_nanos() * hertz / 1_000_000_000).unwrap()
        };
        // In the second half of a second, where the fraction counts.
        while ticks() * 2 / u64::try_from(hertz).unwrap() % 2 == 0 {
            std::thread::yield_now();
        }
        let before = ticks();
        let now = ticks_since_boot();
        assert!((before..=ticks()).contains(&now), "{before} {now}");
    }
}
