//! Sessions that an engine stores as files below one directory, a file each.
//!
//! Files are read lazily, most recently written first. A file that cannot be read, or that is not the
//! engine's, is left out of lists.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jiff::Timestamp;

use super::{SessionError, SessionStore, StoredSession, TranscriptEntry};
use crate::model::{EngineId, ResumeToken};

/// How an engine names and writes the files of its sessions.
pub trait SessionFormat: Send + Sync {
    /// The engine.
    fn engine(&self) -> EngineId;

    /// How many folders there are between the directory and a file.
    fn depth(&self) -> usize;

    /// The session that a file is of, by its name; `None` for other files.
    fn id_of<'a>(&self, path: &'a Path) -> Option<&'a str>;

    /// What a list shows of a session; `None` if the file is not a session, or its directory is not
    /// wanted. Reads as little as it can.
    fn summary(
        &self,
        path: &Path,
        updated: Timestamp,
        wanted: &dyn Fn(Option<&Path>) -> bool,
    ) -> Option<StoredSession>;

    /// The messages and commands of a session, in order.
    fn transcript(&self, path: &Path) -> io::Result<Vec<TranscriptEntry>>;
}

/// The session files of an engine.
#[derive(Debug)]
pub struct SessionFiles<F> {
    directory: PathBuf,
    format: F,
}

impl<F: SessionFormat> SessionFiles<F> {
    /// The files below a directory, which need not exist.
    pub fn new(directory: impl Into<PathBuf>, format: F) -> Self {
        Self { directory: directory.into(), format }
    }

    /// The file of the session with exactly this id.
    pub fn path_of(&self, id: &str) -> Result<PathBuf, SessionError> {
        let (_, path) = self.file(id)?;
        match self.format.id_of(&path) {
            Some(found) if found == id => Ok(path),
            _ => Err(SessionError::NotFound(id.to_owned())),
        }
    }

    /// The file of the one session whose id begins with this prefix. Of two files of one session, which
    /// a moved directory can leave, the newer one counts.
    fn file(&self, prefix: &str) -> Result<(Timestamp, PathBuf), SessionError> {
        let prefix = prefix.trim().to_ascii_lowercase();
        let id_of = |path: &Path| self.format.id_of(path).map(str::to_owned);
        let matches = |path: &Path| id_of(path).is_some_and(|id| id.starts_with(&prefix));
        let mut found = self.files();
        found.retain(|(_, path)| !prefix.is_empty() && matches(path));
        let mut ids: Vec<String> = found.iter().filter_map(|(_, path)| id_of(path)).collect();
        ids.sort_unstable();
        ids.dedup();
        match ids.len() {
            0 => Err(SessionError::NotFound(prefix)),
            1 => Ok(found.swap_remove(0)),
            count => Err(SessionError::Ambiguous { prefix, count }),
        }
    }

    fn stored(
        &self,
        path: PathBuf,
        updated: Timestamp,
        wanted: &dyn Fn(Option<&Path>) -> bool,
    ) -> Option<StoredSession> {
        let session = self.format.summary(&path, updated, wanted)?;
        Some(StoredSession { file: Some(path), ..session })
    }

    fn read(&self, path: PathBuf) -> Result<Vec<TranscriptEntry>, SessionError> {
        let transcript = self.format.transcript(&path);
        transcript.map_err(|source| SessionError::Unreadable { path, source })
    }

    /// The files, most recently written first.
    fn files(&self) -> Vec<(Timestamp, PathBuf)> {
        let mut level = vec![self.directory.clone()];
        for _ in 0..=self.format.depth() {
            level = level.iter().flat_map(|directory| entries(directory)).collect();
        }
        let mut files = Vec::new();
        for path in level {
            if self.format.id_of(&path).is_some()
                && let Ok(metadata) = path.metadata()
                && metadata.is_file()
            {
                let updated = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                let updated = Timestamp::try_from(updated).unwrap_or(Timestamp::UNIX_EPOCH);
                files.push((updated, path));
            }
        }
        files.sort_by(|one, other| other.cmp(one));
        files
    }
}

impl<F: SessionFormat> SessionStore for SessionFiles<F> {
    fn location(&self) -> &Path {
        &self.directory
    }

    fn list<'a>(
        &'a self,
        directory: Option<&Path>,
    ) -> Box<dyn Iterator<Item = StoredSession> + 'a> {
        let directory = directory.map(real);
        Box::new(self.files().into_iter().filter_map(move |(updated, path)| {
            let wanted = |cwd: Option<&Path>| match &directory {
                Some(directory) => cwd.is_some_and(|cwd| real(cwd) == *directory),
                None => true,
            };
            self.stored(path, updated, &wanted)
        }))
    }

    fn find(&self, prefix: &str) -> Result<StoredSession, SessionError> {
        let (updated, path) = self.file(prefix)?;
        self.stored(path.clone(), updated, &|_| true).ok_or_else(|| {
            let error = format!("it is not a session file of {}", self.format.engine());
            SessionError::Unreadable { path, source: io::Error::other(error) }
        })
    }

    fn transcript(&self, session: &ResumeToken) -> Result<Vec<TranscriptEntry>, SessionError> {
        if session.engine != self.format.engine() {
            return Err(SessionError::NotFound(session.value.clone()));
        }
        let (_, path) = self.file(&session.value)?;
        self.read(path)
    }

    fn transcript_of(&self, session: &StoredSession) -> Result<Vec<TranscriptEntry>, SessionError> {
        match &session.file {
            Some(path) if session.token.engine == self.format.engine() => self.read(path.clone()),
            _ => self.transcript(&session.token),
        }
    }
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

/// The path without symbolic links, as far as it exists.
fn real(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.canonicalize().unwrap_or(path)
}
