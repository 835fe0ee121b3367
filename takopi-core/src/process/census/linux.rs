//! The process table of Linux, from `/proc`.

use std::fs;

use super::Entry;

/// Every process that can be seen.
pub(super) fn processes() -> Vec<Entry> {
    let Ok(directory) = fs::read_dir("/proc") else { return Vec::new() };
    directory
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(entry)
        .collect()
}

fn entry(pid: i32) -> Option<Entry> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
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

/// Whether the process was started with this very `NAME=value`.
pub(super) fn has_variable(pid: i32, variable: &str) -> bool {
    environment(pid).split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes())
}

/// The environment, or nothing for a process of another user.
fn environment(pid: i32) -> Vec<u8> {
    fs::read(format!("/proc/{pid}/environ")).unwrap_or_default()
}

pub(super) fn command_line(pid: i32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = bytes
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(String::from_utf8_lossy)
        .collect();
    words.join(" ")
}
