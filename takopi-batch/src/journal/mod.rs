//! The files of a batch: results, and beside them what a crash must not lose.
//!
//! - Results (`OUT`) are appended, one line each, and a result is told to anybody only when it is
//!   synced. Results that end together share one sync.
//! - The state (`OUT.state`) is appended too: what was sent, and which conversation it opened. It is
//!   written before the prompt goes out, and synced before the result that follows from it, so no
//!   result is on disk without its conversation. On opening it is made short again.
//! - A kernel lock on `OUT` keeps a second batch out, and goes with the process, however that ends.
//! - A line that was cut short by a crash is taken off when the file is opened; one that lacks only its
//!   end is kept. A file that is not what it should be is refused, and never written to.

mod disk;
mod open;
mod state;
mod writer;

#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

pub(crate) use state::{Line, StateFile};
use writer::Files;
pub(crate) use writer::{Closing, Writer};

use crate::ledger::Ledger;

/// The files of a batch cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JournalError {
    /// Another batch writes to them.
    #[error("{0} is in use by another batch")]
    Busy(PathBuf),
    /// It is no file that results can be appended to.
    #[error("{0} is not an ordinary file; without --out results go to standard output")]
    NoFile(PathBuf),
    /// It has something else in it.
    #[error("{0}:{1} is no result of a batch")]
    NoResult(PathBuf, u64),
    /// The state has something else in it.
    #[error("{0}:{1} is no state of a batch; move it away to begin anew")]
    NoState(PathBuf, u64),
    /// It was deleted while the batch ran.
    #[error("{path} was deleted while the batch ran; the results so far are in {rescued}")]
    Deleted {
        /// Where the results were.
        path: PathBuf,
        /// Where they are now.
        rescued: PathBuf,
    },
    /// It cannot be read or written.
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// Where results go. See the [module](self).
///
/// ```
/// use takopi_batch::Journal;
///
/// let directory = tempfile::tempdir()?;
/// let out = directory.path().join("results.jsonl");
/// let journal = Journal::open(&out)?;
/// assert!(Journal::open(&out).is_err(), "one batch at a time");
/// drop(journal);
/// assert!(Journal::open(&out).is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Journal {
    files: Option<(Files, StateFile)>,
    pub(crate) ledger: Ledger,
}

impl Journal {
    /// No files: results are told, not kept, and nothing can be gone on with.
    pub fn none() -> Self {
        Self { files: None, ledger: Ledger::default() }
    }

    /// Opens the results, or creates them, and locks them for as long as the journal lives.
    pub fn open(out: impl AsRef<Path>) -> Result<Self, JournalError> {
        open::open(out.as_ref())
    }

    /// How many jobs have a result, and how many of these failed.
    pub fn results(&self) -> (u64, u64) {
        let outcomes = self.ledger.jobs.values().filter_map(|known| known.outcome);
        outcomes.fold((0, 0), |(all, failed), ok| (all + 1, failed + u64::from(!ok)))
    }

    /// Splits into what is known, where the state is written, and where results are.
    pub(crate) fn split(self) -> (Ledger, Arc<StateFile>, Option<Writer>) {
        let Some((files, state)) = self.files else {
            return (self.ledger, Arc::new(StateFile::none()), None);
        };
        let state = Arc::new(state);
        (self.ledger, state.clone(), Some(Writer::new(files, state)))
    }
}

/// The state beside the results.
fn state_path(out: &Path) -> PathBuf {
    let mut name = out.as_os_str().to_owned();
    name.push(".state");
    PathBuf::from(name)
}
