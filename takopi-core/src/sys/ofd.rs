//! Open-file-description locks on byte ranges: kernel locks that belong to one opened file.
//!
//! They conflict between two opens of a file even inside one process, vanish when the last
//! descriptor is closed (a crash included), and a file can carry many of them, which is what lets
//! one file hold both the lock and the queue of its waiters.
//!
//! A process that is forked has the same open file: its locks are the parent's, and what it drops frees none.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

// The C types of these constants differ between platforms.
#[allow(clippy::cast_possible_truncation, clippy::unnecessary_cast, reason = "they are 0, 1 or 2")]
mod kind {
    pub(super) const WRITE: libc::c_short = libc::F_WRLCK as libc::c_short;
    pub(super) const NONE: libc::c_short = libc::F_UNLCK as libc::c_short;
    pub(super) const FROM_START: libc::c_short = libc::SEEK_SET as libc::c_short;
}

/// A half-open range of byte offsets, which need not exist in the file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ByteRange {
    start: i64,
    /// Length; 0 means to the end of all offsets.
    len: i64,
}

impl ByteRange {
    pub(crate) const fn byte(start: i64) -> Self {
        Self { start, len: 1 }
    }

    pub(crate) const fn from(start: i64) -> Self {
        Self { start, len: 0 }
    }

    /// Everything from `start` up to, but without, `end`; `None` if that is nothing.
    pub(crate) fn between(start: i64, end: i64) -> Option<Self> {
        (end > start).then_some(Self { start, len: end - start })
    }

    fn request(self, kind: libc::c_short) -> libc::flock {
        // SAFETY: `flock` is plain data for which all zeroes is a valid value.
        let mut flock: libc::flock = unsafe { std::mem::zeroed() };
        flock.l_type = kind;
        flock.l_whence = kind::FROM_START;
        flock.l_start = self.start;
        flock.l_len = self.len;
        flock
    }
}

/// A file whose byte ranges are locked through this very descriptor.
#[derive(Debug)]
pub(crate) struct OfdFile {
    pub(crate) file: File,
    process: u32,
}

impl OfdFile {
    pub(crate) fn new(file: File) -> Self {
        Self { file, process: std::process::id() }
    }

    /// Whether this process was forked from the one that opened the file, and has the locks.
    pub(crate) fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    /// Takes an exclusive lock on the range; `false` if another holder has a part of it.
    pub(crate) fn try_lock(&self, range: ByteRange) -> io::Result<bool> {
        match self.fcntl(libc::F_OFD_SETLK, &mut range.request(kind::WRITE)) {
            Ok(()) => Ok(true),
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EACCES) => Ok(false),
                _ => Err(error),
            },
        }
    }

    /// Gives up the range.
    pub(crate) fn unlock(&self, range: ByteRange) -> io::Result<()> {
        self.fcntl(libc::F_OFD_SETLK, &mut range.request(kind::NONE))
    }

    /// Whether another holder has a lock in the range.
    pub(crate) fn is_locked_by_other(&self, range: ByteRange) -> io::Result<bool> {
        let mut flock = range.request(kind::WRITE);
        self.fcntl(libc::F_OFD_GETLK, &mut flock)?;
        Ok(flock.l_type != kind::NONE)
    }

    /// Whether the path still names this very file.
    pub(crate) fn is_at(&self, path: &Path) -> io::Result<bool> {
        let held = self.file.metadata()?;
        match std::fs::metadata(path) {
            Ok(named) => Ok(named.ino() == held.ino() && named.dev() == held.dev()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn fcntl(&self, command: i32, flock: &mut libc::flock) -> io::Result<()> {
        loop {
            // SAFETY: the descriptor is open for as long as `self` lives, and the kernel reads and
            // writes only the `flock` that the pointer names.
            let result =
                unsafe { libc::fcntl(self.file.as_raw_fd(), command, std::ptr::from_mut(flock)) };
            if result != -1 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

impl Drop for OfdFile {
    fn drop(&mut self) {
        // Not left to the close: a process that was forked a moment ago may hold a copy of the descriptor
        // until it executes its program.
        if !self.is_forked() {
            let _ = self.unlock(ByteRange::from(0));
        }
    }
}
