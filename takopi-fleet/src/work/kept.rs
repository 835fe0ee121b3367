//! What sessions leave on this machine, and its end.
//!
//! The fleet forgets a session that was not used for a month. What a worker has of it is then of no use: the directory of a session
//! without a place, the worktree of a git place, the records of both. They are removed when the session was not used *here* for longer
//! than that; if it lives on elsewhere, it is placed anew when it comes back. What was pushed to a repository stays there, and files
//! of engines are theirs.
//!
//! A file for each session says by its time when the session was last used here. What a running turn uses is never removed.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::time::sleep;
use uuid::Uuid;

use super::git::remove;

/// How often it is looked for what can be removed.
const LOOK: Duration = Duration::from_hours(1);

/// The files of sessions in the state directory of a worker.
pub(super) struct Kept {
    state: PathBuf,
    /// How many turns use a session.
    used: Mutex<HashMap<Uuid, u32>>,
}

/// Keeps what a session has here, as long as it lives.
pub(super) struct InUse {
    kept: Arc<Kept>,
    sid: Uuid,
}

impl Kept {
    pub(super) fn new(state: PathBuf) -> Arc<Self> {
        Arc::new(Self { state, used: Mutex::default() })
    }

    /// The directory of a session without a place.
    pub(super) fn scratch(&self, sid: Uuid) -> PathBuf {
        self.state.join("scratch").join(sid.to_string())
    }

    /// A turn of this session begins.
    pub(super) fn enter(self: &Arc<Self>, sid: Uuid) -> InUse {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner).entry(sid).or_default() += 1;
        self.mark(sid);
        InUse { kept: self.clone(), sid }
    }

    fn mark(&self, sid: Uuid) {
        let marks = self.state.join("used");
        let marked = std::fs::create_dir_all(&marks)
            .and_then(|()| std::fs::File::create(marks.join(sid.to_string())))
            .and_then(|mark| mark.set_modified(SystemTime::now()));
        if let Err(error) = marked {
            // What has no mark is never removed.
            tracing::debug!("cannot note that a session was used: {error}");
        }
    }

    /// Removes, now and then, what was not used for so long.
    pub(super) async fn tidy(self: Arc<Self>, unused: Duration) -> Infallible {
        loop {
            let kept = self.clone();
            let removed = tokio::task::spawn_blocking(move || kept.remove_unused(unused)).await;
            match removed.unwrap_or_else(|error| Err(io::Error::other(error))) {
                Ok(0) => {}
                Ok(count) => tracing::info!("removed what {count} unused sessions had here"),
                Err(error) => {
                    tracing::warn!("cannot remove what unused sessions have here: {error}");
                }
            }
            sleep(LOOK).await;
        }
    }

    fn remove_unused(&self, unused: Duration) -> io::Result<usize> {
        // What an earlier worker did not finish.
        remove(&self.state.join("removed"))?;
        let mut count = 0;
        for (name, mark) in entries(&self.state.join("used"))? {
            let age = SystemTime::now().duration_since(mark.metadata()?.modified()?);
            if let (Ok(sid), true) = (name.parse(), age.is_ok_and(|age| age > unused))
                && self.remove(sid)?
            {
                count += 1;
            }
        }
        remove(&self.state.join("removed"))?;
        Ok(count)
    }

    /// Removes what a session has here, unless a turn uses it.
    fn remove(&self, sid: Uuid) -> io::Result<bool> {
        let removed = self.state.join("removed");
        std::fs::create_dir_all(&removed)?;
        // Held while the files go out of the way, which takes no time; a turn that begins now finds nothing.
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.contains_key(&sid) {
            return Ok(false);
        }
        let trees = self.state.join("git/trees");
        for (name, directory) in [
            ("tree", trees.join(sid.to_string())),
            ("git", trees.join(format!("{sid}.git"))),
            ("work", self.scratch(sid)),
        ] {
            if directory.is_dir() {
                std::fs::rename(directory, removed.join(format!("{sid}-{name}")))?;
            }
        }
        for (_, mirror) in entries(&self.state.join("git/mirrors"))? {
            remove(&mirror.join("worktrees").join(sid.to_string()))?;
        }
        for records in [trees, self.state.join("sessions")] {
            remove(&records.join(format!("{sid}.json")))?;
        }
        // Last: what could not be removed is tried again.
        remove(&self.state.join("used").join(sid.to_string()))?;
        Ok(true)
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.kept.mark(self.sid);
        let mut used = self.kept.used.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = used.get_mut(&self.sid) {
            *count -= 1;
            if *count == 0 {
                used.remove(&self.sid);
            }
        }
    }
}

/// What is in a directory, by name; nothing if it is not there.
fn entries(directory: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let found = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        found => found?,
    };
    let named = |entry: io::Result<std::fs::DirEntry>| {
        entry.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
    };
    found.map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MONTH: Duration = Duration::from_hours(31 * 24);

    /// A session that was last used so long ago, with everything it can have.
    fn session(kept: &Arc<Kept>, age: Duration) -> (Uuid, Vec<PathBuf>) {
        let sid = Uuid::new_v4();
        drop(kept.enter(sid));
        let state = &kept.state;
        let files = [
            state.join(format!("scratch/{sid}/work/a")),
            state.join(format!("git/trees/{sid}/a")),
            state.join(format!("git/trees/{sid}.git/config")),
            state.join(format!("git/trees/{sid}.json")),
            state.join(format!("git/mirrors/m/worktrees/{sid}/HEAD")),
            state.join(format!("sessions/{sid}.json")),
            state.join(format!("used/{sid}")),
        ];
        for file in &files {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            let file = std::fs::File::create(file).unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
        }
        (sid, files.into())
    }

    fn there(files: &[PathBuf]) -> usize {
        files.iter().filter(|file| file.exists()).count()
    }

    #[test]
    fn what_a_session_had_here_is_removed_when_it_was_not_used_for_long() {
        let directory = tempfile::tempdir().unwrap();
        let kept = Kept::new(directory.path().to_owned());
        let (_, old) = session(&kept, 2 * MONTH);
        let (_, new) = session(&kept, MONTH / 2);
        let (used, in_use) = session(&kept, 2 * MONTH);
        let using = kept.enter(used);
        std::fs::File::open(directory.path().join(format!("used/{used}")))
            .and_then(|mark| mark.set_modified(SystemTime::now() - 2 * MONTH))
            .unwrap();
        assert_eq!(kept.remove_unused(MONTH).unwrap(), 1);
        assert_eq!((there(&old), there(&new), there(&in_use)), (0, 7, 7));
        assert!(!directory.path().join("removed").exists());
        // Its end counts as a use.
        drop(using);
        assert_eq!(kept.remove_unused(MONTH).unwrap(), 0);
        assert_eq!(there(&in_use), 7);
    }

    #[test]
    fn a_worker_without_sessions_has_nothing_to_remove() {
        let directory = tempfile::tempdir().unwrap();
        let kept = Kept::new(directory.path().join("state"));
        assert_eq!(kept.remove_unused(MONTH).unwrap(), 0);
    }
}
