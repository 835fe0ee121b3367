//! Writing results so that they stay.
//!
//! One commit at a time, on tokio's blocking pool: the state is synced, then all results that wait are
//! written in one piece and synced, and only then are they given back. What comes meanwhile waits for
//! the next commit and shares its sync.

use std::fs::Metadata;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::disk::{self, DiskFile};
use super::{JournalError, StateFile};
use crate::digest::Digest;
use crate::job::JobResult;

/// A job that is over, with a result to be written.
#[derive(Debug)]
pub(crate) struct Closing {
    pub(crate) result: JobResult,
    /// The lane that waits for it.
    pub(crate) lane: Option<Digest>,
    /// It was sent in this run of the batch.
    pub(crate) sent: bool,
}

/// What is committed together.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) results: Vec<Closing>,
    /// Notified when the state is synced.
    pub(super) waiting: Vec<oneshot::Sender<()>>,
}

/// The files, which are in one place at a time: here, or where they are written to.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) path: PathBuf,
    pub(super) results: DiskFile,
    pub(super) state_path: PathBuf,
    /// The state once more, to sync it.
    pub(super) state: DiskFile,
}

/// Writes results.
#[derive(Debug)]
pub(crate) struct Writer {
    state: Arc<StateFile>,
    idle: Option<Files>,
    busy: Option<JoinHandle<(Files, Result<Group, JournalError>)>>,
    /// For the next commit.
    group: Group,
    /// How many results the commit that runs has.
    writing: usize,
}

impl Writer {
    pub(super) fn new(files: Files, state: Arc<StateFile>) -> Self {
        Self { state, idle: Some(files), busy: None, group: Group::default(), writing: 0 }
    }

    /// Takes a result; it comes out of [`Self::committed`].
    pub(crate) fn write(&mut self, closing: Closing) {
        self.group.results.push(closing);
    }

    /// Notified when everything appended to the state before is synced; dropped if that fails.
    pub(crate) fn barrier(&mut self) -> oneshot::Receiver<()> {
        let (done, synced) = oneshot::channel();
        self.group.waiting.push(done);
        synced
    }

    /// How many results are not on disk yet.
    pub(crate) fn unsettled(&self) -> usize {
        self.writing + self.group.results.len()
    }

    /// Commits what waits, and returns the results that are on disk. Without anything to do it waits for
    /// a line of the state. Dropping the future loses nothing.
    pub(crate) async fn committed(&mut self) -> Result<Vec<Closing>, JournalError> {
        loop {
            if let Some(busy) = &mut self.busy {
                let ended = busy.await;
                self.busy = None;
                self.writing = 0;
                let (files, written) = ended.map_err(|error| JournalError::Io {
                    doing: "write",
                    path: PathBuf::from("the results"),
                    error: io::Error::other(error),
                })?;
                self.idle = Some(files);
                return written.map(|group| group.results);
            }
            if self.group.results.is_empty() && self.group.waiting.is_empty() {
                self.state.appended().await;
            }
            let Some(mut files) = self.idle.take() else { continue };
            let mut group = std::mem::take(&mut self.group);
            self.writing = group.results.len();
            self.busy = Some(tokio::task::spawn_blocking(move || {
                let written = files.commit(&mut group);
                (files, written.map(|()| group))
            }));
        }
    }

    /// Lets a commit that runs come to its end, so that the files are free, and closes them: what was stopped
    /// cleanly must not be taken for a crash after a loss of power.
    pub(crate) async fn close(mut self) -> Result<(), JournalError> {
        if let Some(busy) = self.busy.take()
            && let Ok((files, _)) = busy.await
        {
            self.idle = Some(files);
        }
        let Some(files) = self.idle else { return Ok(()) };
        let path = files.path.clone();
        let closed = tokio::task::spawn_blocking(move || files.close()).await;
        closed.map_err(|error| fault(&path, "close", io::Error::other(error)))?
    }
}

impl Files {
    /// Syncs the state, whatever was appended last. Fails if the files are not where they should be.
    pub(super) fn close(self) -> Result<(), JournalError> {
        let synced = self.state.sync_data();
        synced.map_err(|error| fault(&self.state_path, "sync", error))?;
        self.are_there()
    }

    /// Writes the results of the group so that they stay.
    pub(super) fn commit(&mut self, group: &mut Group) -> Result<(), JournalError> {
        self.write(group).map_err(|error| self.fault("write", error))?;
        // Not before there is something to save: what waits for the next commit would be lost.
        if group.results.is_empty() { Ok(()) } else { self.are_there() }
    }

    /// What is in a file without a name would be gone when it is closed, and what is in a file with another
    /// name would not be found by the next run: it is saved beside the path.
    fn are_there(&self) -> Result<(), JournalError> {
        if let Some(rescued) = saved_elsewhere(&self.results, &self.path)? {
            return Err(JournalError::Deleted { path: self.path.clone(), rescued });
        }
        if let Some(rescued) = saved_elsewhere(&self.state, &self.state_path)? {
            return Err(JournalError::StateDeleted { path: self.state_path.clone(), rescued });
        }
        Ok(())
    }

    fn fault(&self, doing: &'static str, error: io::Error) -> JournalError {
        fault(&self.path, doing, error)
    }

    fn write(&mut self, group: &mut Group) -> io::Result<()> {
        self.state.sync_data()?;
        for waiting in group.waiting.drain(..) {
            let _ = waiting.send(());
        }
        if group.results.is_empty() {
            return Ok(());
        }
        let mut text = Vec::new();
        for closing in &group.results {
            serde_json::to_writer(&mut text, &closing.result)?;
            text.push(b'\n');
        }
        self.results.write_all(&text)?;
        self.results.sync_data()
    }
}

/// `None` if the file is still at its path; else it is copied to another, which is returned.
fn saved_elsewhere(file: &DiskFile, path: &Path) -> Result<Option<PathBuf>, JournalError> {
    let look = |error| fault(path, "look at", error);
    let written = file.0.metadata().map_err(look)?;
    let is_written =
        |found: &Metadata| (found.dev(), found.ino()) == (written.dev(), written.ino());
    match std::fs::metadata(path) {
        Ok(found) if is_written(&found) => return Ok(None),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(look(error)),
        _ => {}
    }
    let rescued = disk::rescue(&file.0, path);
    rescued
        .map(Some)
        .map_err(|error| fault(path, "save what was in the deleted or moved file", error))
}

fn fault(path: &Path, doing: &'static str, error: io::Error) -> JournalError {
    JournalError::Io { doing, path: path.to_owned(), error }
}
