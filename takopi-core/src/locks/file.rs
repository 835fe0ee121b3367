//! Kernel file locks: one run on a session among the processes of a user.
//!
//! One small file a held session, named by a hash of its key. Byte 0 is the lock. A process that waits
//! locks a byte of its own far behind it, at the offset of the nanosecond it arrived: its ticket. A
//! ticket may claim byte 0 when no earlier ticket is alive, so the order is that of arrival, and the
//! kernel drops the tickets and locks of a process that dies. The file is removed with the last release;
//! a claim counts only if the path still leads to the file that was locked.
//!
//! Waiters watch the file: whoever releases a lock or gives up a ticket touches it, and the kernel closes
//! the files of a process that dies. They also look by themselves, in case nothing is noticed.
//!
//! The file's text names the holder; it is believed only while byte 0 is locked.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use futures::future::BoxFuture;
use uuid::Uuid;

use super::{HeldLock, Holder, LockBackend, LockError, SessionKey};
use crate::sys::{ByteRange, FileWatch, OfdFile};

const LOCK: ByteRange = ByteRange::byte(0);
/// Tickets start here, clear of the lock and of the text.
const TICKETS: i64 = 1 << 20;
/// A waiting process looks again this long after the file was changed: the kernel reports that a process
/// closed it a moment before it drops its locks …
const FIRST_LOOK: Duration = Duration::from_millis(2);
/// … and after this long when nothing happens.
const LATER_LOOK: Duration = Duration::from_millis(50);
/// The holder of a lease checks this often for waiters.
const WANTED_LOOK: Duration = Duration::from_millis(200);

/// Lock files in a directory: the back end for the processes of one user on a machine.
#[derive(Debug, Clone)]
pub struct LockFiles {
    directory: PathBuf,
}

impl LockFiles {
    /// Files in `directory`, which is created when first needed.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    /// The lock file of a key.
    pub fn path(&self, key: &SessionKey) -> PathBuf {
        let name = Uuid::new_v5(&Uuid::NAMESPACE_URL, key.as_str().as_bytes());
        self.directory.join(format!("{}.lock", name.simple()))
    }

    fn prepare(&self) -> Result<(), LockError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.directory)
            .map_err(|error| LockError::file(&self.directory, &error))
    }

    fn try_file(&self, key: &SessionKey, holder: &Holder) -> Result<Option<FileGuard>, LockError> {
        self.prepare()?;
        let path = self.path(key);
        try_claim_at_once(&path, holder).map_err(|error| LockError::file(&path, &error))
    }

    async fn wait_for_file(
        &self,
        key: &SessionKey,
        holder: &Holder,
    ) -> Result<FileGuard, LockError> {
        self.prepare()?;
        let path = self.path(key);
        let fault = |error: io::Error| LockError::file(&path, &error);
        if let Some(guard) = try_claim_at_once(&path, holder).map_err(fault)? {
            return Ok(guard);
        }
        let mut ticket = Ticket::take(&path, arrival()).map_err(fault)?;
        let mut pause = FIRST_LOOK;
        loop {
            match ticket.claim(holder).map_err(fault)? {
                Ok(guard) => return Ok(guard),
                Err(still_waiting) => ticket = still_waiting,
            }
            pause = tokio::select! {
                () = ticket.changes.changed() => FIRST_LOOK,
                () = tokio::time::sleep(pause) => (pause * 2).min(LATER_LOOK),
            };
        }
    }
}

impl LockBackend for LockFiles {
    fn try_lock<'a>(
        &'a self,
        key: &'a SessionKey,
        holder: &'a Holder,
    ) -> BoxFuture<'a, Result<Option<Box<dyn HeldLock>>, LockError>> {
        Box::pin(std::future::ready(
            self.try_file(key, holder).map(|guard| guard.map(FileGuard::boxed)),
        ))
    }

    fn lock<'a>(
        &'a self,
        key: &'a SessionKey,
        holder: &'a Holder,
    ) -> BoxFuture<'a, Result<Box<dyn HeldLock>, LockError>> {
        Box::pin(async move { Ok(self.wait_for_file(key, holder).await?.boxed()) })
    }

    fn holder<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, Option<Holder>> {
        Box::pin(std::future::ready(read_holder(&self.path(key))))
    }
}

/// A lock file, opened. Dropping it gives up what it has locked, and removes the file if no other process
/// holds the session or waits for it.
struct Opened {
    file: OfdFile,
    path: PathBuf,
}

impl Opened {
    fn new(path: &Path) -> io::Result<Self> {
        Ok(Self { file: OfdFile::new(open(path)?), path: path.to_owned() })
    }

    /// Whether others wait.
    fn is_wanted(&self) -> io::Result<bool> {
        self.file.is_locked_by_other(ByteRange::from(TICKETS))
    }

    /// Looks who else uses the file. Takes byte 0 for that if it can: processes that come now wait.
    fn look(&self) -> io::Result<Others> {
        if !self.file.try_lock(LOCK)? {
            return Ok(Others::Responsible);
        }
        if self.is_wanted()? {
            return Ok(Others::Wait);
        }
        Ok(if self.file.is_at(&self.path)? { Others::None } else { Others::Responsible })
    }

    /// Removes the file if no others use it, and gives up all locks.
    ///
    /// No file is left: of those that use it, the last one to give up a lock looks once more behind that.
    fn settle(&self, mut others: Others) {
        loop {
            // Only the holder of byte 0 of the file at the path may remove it.
            if others == Others::None {
                let _ = std::fs::remove_file(&self.path);
            }
            let _ = self.file.unlock(ByteRange::from(0));
            match others {
                Others::None => return,
                Others::Responsible => break,
                Others::Wait if self.is_wanted().unwrap_or(true) => break,
                // It gave up during this look, and found byte 0 taken.
                Others::Wait => others = self.look().unwrap_or(Others::Responsible),
            }
        }
        // For those who wait: it is behind the release, unlike the close of the file.
        let _ = self.file.file.set_modified(SystemTime::now());
    }

    /// Byte 0 is locked and counts: records the holder of the session.
    fn into_guard(self, holder: &Holder) -> FileGuard {
        write_holder(&self.file.file, holder);
        FileGuard { opened: self }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.file.is_forked() {
            return;
        }
        // One's own ticket first: a process that gives up at the same moment must not count it as a waiter.
        let _ = self.file.unlock(ByteRange::from(TICKETS));
        // A waiter that gives up looks too: it may be the last that knows of the file.
        self.settle(self.look().unwrap_or(Others::Responsible));
    }
}

/// Who else uses a lock file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Others {
    /// Nobody.
    None,
    /// Others wait. Each of them looks when it gives up.
    Wait,
    /// Another has byte 0, and looks when it has released it; or the path leads to another file.
    Responsible,
}

/// Byte 0, held.
struct FileGuard {
    opened: Opened,
}

impl FileGuard {
    fn boxed(self) -> Box<dyn HeldLock> {
        Box::new(self)
    }
}

impl HeldLock for FileGuard {
    fn wanted(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            // An error counts as a waiter: a lease given up for nothing costs a start, no more.
            while !self.opened.is_wanted().unwrap_or(true) {
                tokio::time::sleep(WANTED_LOOK).await;
            }
        })
    }
}

/// A place in the queue of a file.
struct Ticket {
    opened: Opened,
    number: i64,
    /// Watched since before the first claim.
    changes: FileWatch,
}

impl Ticket {
    fn take(path: &Path, mut number: i64) -> io::Result<Self> {
        let opened = Opened::new(path)?;
        while !opened.file.try_lock(ByteRange::byte(number))? {
            number += 1;
        }
        let changes = FileWatch::new(path);
        Ok(Self { opened, number, changes })
    }

    /// Turns the ticket into the lock if it is its turn; otherwise gives the ticket back.
    fn claim(self, holder: &Holder) -> io::Result<Result<FileGuard, Self>> {
        let file = &self.opened.file;
        if let Some(earlier) = ByteRange::between(TICKETS, self.number)
            && file.is_locked_by_other(earlier)?
        {
            return Ok(Err(self));
        }
        if !file.try_lock(LOCK)? {
            return Ok(Err(self));
        }
        if !file.is_at(&self.opened.path)? {
            // The last holder removed this file. The arrival stays the same on the new one.
            return Self::take(&self.opened.path, self.number).map(Err);
        }
        file.unlock(ByteRange::byte(self.number))?;
        Ok(Ok(self.opened.into_guard(holder)))
    }
}

/// The lock without a place in the queue: only if it is free and has no waiters.
fn try_claim_at_once(path: &Path, holder: &Holder) -> io::Result<Option<FileGuard>> {
    loop {
        let file = OfdFile::new(open(path)?);
        if file.is_locked_by_other(ByteRange::from(TICKETS))? || !file.try_lock(LOCK)? {
            return Ok(None);
        }
        if file.is_at(path)? {
            return Ok(Some(Opened { file, path: path.to_owned() }.into_guard(holder)));
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// The moment of arrival as an offset behind [`TICKETS`], on a clock all processes share.
fn arrival() -> i64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)
        .map_or(Duration::ZERO, Duration::from);
    TICKETS.saturating_add(i64::try_from(now.as_nanos()).unwrap_or(i64::MAX / 2))
}

/// Records the holder of the lock. An error here costs only the name.
fn write_holder(file: &File, holder: &Holder) {
    let written = serde_json::to_vec(holder).map_err(io::Error::from).and_then(|text| {
        // A new file is empty. Changing its length would be one more change for the file system to record.
        if file.metadata()?.len() > 0 {
            file.set_len(0)?;
        }
        file.write_all_at(&text, 0)
    });
    if let Err(error) = written {
        tracing::debug!(%error, "cannot write the holder of a session lock");
    }
}

fn read_holder(path: &Path) -> Option<Holder> {
    let mut file = OpenOptions::new().read(true).write(true).open(path).ok().map(OfdFile::new)?;
    if !file.is_locked_by_other(LOCK).ok()? {
        return None;
    }
    let mut text = String::new();
    file.file.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_that_arrive_in_the_same_moment_the_second_is_behind_the_first() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.lock");
        let moment = TICKETS + 5;
        let tickets = [(); 3].map(|()| Ticket::take(&path, moment).unwrap());
        assert_eq!(tickets.each_ref().map(|ticket| ticket.number - moment), [0, 1, 2]);
        let [_first, second, _third] = tickets;
        let holder = Holder::here(crate::model::EngineId::from_static("lab"));
        assert!(second.claim(&holder).unwrap().is_err(), "the first is before it");
    }

    #[test]
    fn of_a_longer_holder_before_nothing_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.lock");
        let file = open(&path).unwrap();
        let [longer, shorter] = ["a-longer-name", "lab"].map(|name| {
            let holder = Holder::here(crate::model::EngineId::from_static(name));
            write_holder(&file, &holder);
            (holder, std::fs::read_to_string(&path).unwrap().len())
        });
        assert!(longer.1 > shorter.1);
        assert_eq!(
            serde_json::from_str::<Holder>(&std::fs::read_to_string(&path).unwrap()).unwrap(),
            shorter.0
        );
    }

    #[test]
    fn a_file_is_removed_though_the_last_waiter_gives_up_during_the_last_look() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.lock");
        let waiter = Ticket::take(&path, TICKETS + 5).unwrap();
        // It is not dropped, which would look again.
        let last = std::mem::ManuallyDrop::new(Opened::new(&path).unwrap());
        let others = last.look().unwrap();
        assert_eq!(others, Others::Wait);
        drop(waiter);
        assert!(path.exists(), "byte 0 was taken");
        last.settle(others);
        assert!(!path.exists());
    }
}
