//! Where there is no process table to read: the group is all that can be ended.

use std::io;

use super::{Entry, Mark};

#[expect(clippy::unnecessary_wraps, reason = "the twin can fail")]
pub(super) fn processes() -> io::Result<Vec<Entry>> {
    Ok(Vec::new())
}

/// It is not known which members have exited.
#[expect(clippy::unnecessary_wraps, reason = "the twin can fail")]
pub(super) fn has_live_member(_group: i32) -> io::Result<bool> {
    Ok(true)
}

/// No process is found, so none needs to be spared.
pub(super) fn ticks_since_boot() -> u64 {
    0
}

#[expect(clippy::unnecessary_wraps, reason = "the twin can fail")]
pub(super) fn carries(_pid: i32, _marks: &[Mark]) -> io::Result<bool> {
    Ok(false)
}

pub(super) fn command_line(_pid: i32) -> String {
    String::new()
}
