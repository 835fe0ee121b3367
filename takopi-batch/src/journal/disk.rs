//! Writes, syncs and renames of the files of a batch.
//!
//! The promises of the journal rest on their order. All of them go through here, so that tests can
//! check it.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file whose operations tests can check.
#[derive(Debug)]
pub(super) struct DiskFile(pub(super) File);

impl DiskFile {
    pub(super) fn sync_data(&self) -> io::Result<()> {
        log::done(|| log::Done::Sync(log::inode(&self.0)));
        self.0.sync_data()
    }

    pub(super) fn set_len(&self, length: u64) -> io::Result<()> {
        log::done(|| log::Done::Cut(log::inode(&self.0)));
        self.0.set_len(length)
    }
}

impl Write for DiskFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        log::done(|| log::Done::Write(log::inode(&self.0)));
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Puts a file in the place of another in one step.
pub(super) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    log::done(|| log::Done::Rename(to.to_owned()));
    std::fs::rename(from, to)
}

/// A new file is only there after a loss of power when its directory was synced too.
pub(super) fn sync_directory_of(file: &Path) -> io::Result<()> {
    log::done(|| log::Done::SyncDirectory);
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// Copies a file that was deleted or moved to a new one beside its old path; returns the new path.
pub(super) fn rescue(mut file: &File, out: &Path) -> io::Result<PathBuf> {
    use std::io::Seek as _;
    for number in 1.. {
        let mut name = out.as_os_str().to_owned();
        name.push(format!(".rescued-{number}"));
        let place = PathBuf::from(name);
        match File::create_new(&place) {
            Ok(created) => {
                let mut rescued = DiskFile(created);
                file.seek(io::SeekFrom::Start(0))?;
                io::copy(&mut file, &mut rescued)?;
                rescued.sync_data()?;
                sync_directory_of(&place)?;
                return Ok(place);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

#[cfg(not(test))]
mod log {
    use std::path::PathBuf;

    /// Nothing is built of it outside tests.
    #[expect(dead_code, reason = "for tests")]
    pub(super) enum Done {
        Write(u64),
        Cut(u64),
        Sync(u64),
        Rename(PathBuf),
        SyncDirectory,
    }

    pub(super) fn done(_done: impl FnOnce() -> Done) {}

    pub(super) fn inode(_file: &std::fs::File) -> u64 {
        0
    }
}

#[cfg(test)]
pub(super) mod log {
    use std::cell::RefCell;
    use std::os::unix::fs::MetadataExt as _;
    use std::path::PathBuf;

    /// What was done, with the inode of the file.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(in super::super) enum Done {
        Write(u64),
        Cut(u64),
        Sync(u64),
        Rename(PathBuf),
        SyncDirectory,
    }

    thread_local! {
        static LOG: RefCell<Vec<Done>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn done(done: impl FnOnce() -> Done) {
        LOG.with_borrow_mut(|log| log.push(done()));
    }

    pub(super) fn inode(file: &std::fs::File) -> u64 {
        file.metadata().unwrap().ino()
    }

    /// What was done on this thread since this was last asked.
    pub(in super::super) fn take() -> Vec<Done> {
        LOG.take()
    }
}
