//! Reads the process table.

use std::fs;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::eventually;

/// Whether the process lives; a zombie does not.
pub fn is_alive(pid: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    !matches!(state, Some('Z' | 'X') | None)
}

/// The members of a process group that have exited and are not reaped.
pub fn zombies_in_group(group: i32) -> Vec<i32> {
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let pid: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<_> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        (fields[0] == "Z" && fields[2] == group.to_string()).then_some(pid)
    });
    pids.collect()
}

pub async fn until_gone(pid: i32) {
    eventually(&format!("process {pid} is gone"), || !is_alive(pid)).await;
}

/// Sends a signal; a process that is gone already is no fault.
pub fn signal(pid: i32, signal: Signal) {
    let _ = kill(Pid::from_raw(pid), signal);
}

/// The number a process wrote to a file, once it stands there with its newline.
pub async fn number_in(path: &Path) -> i32 {
    let mut number = None;
    eventually(&format!("a number in {}", path.display()), || {
        let text = fs::read_to_string(path).unwrap_or_default();
        number = text.ends_with('\n').then(|| text.trim().parse().unwrap());
        number.is_some()
    })
    .await;
    number.unwrap()
}

/// Waits until a process runs this program with these arguments: the one that started it writes its id before it does.
pub async fn until_runs(pid: i32, command: &[&str]) {
    let line = command.join("\0") + "\0";
    let file = format!("/proc/{pid}/cmdline");
    let runs = || fs::read_to_string(&file).is_ok_and(|read| read == line);
    eventually(&format!("{pid} runs {command:?}"), runs).await;
}

/// The live processes that bear `NAME=value` in their environment.
pub fn bearers(variable: &str) -> Vec<i32> {
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environ.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes())
        })
        .filter(|pid| is_alive(*pid))
        .collect()
}

/// The files a process has open.
pub fn open_files(pid: i32) -> Vec<String> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    entries
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .map(|target| target.to_string_lossy().into_owned())
        .collect()
}

/// How many descriptors this process has open.
pub fn descriptors() -> usize {
    // One of them is the listing itself.
    fs::read_dir("/proc/self/fd").unwrap().count() - 1
}
