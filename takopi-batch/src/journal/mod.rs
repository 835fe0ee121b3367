//! The files of a batch: the results, and beside them the state that a crash must not lose.
//!
//! - Results (`OUT`) are appended, one line each, and a result is reported only when it is
//!   synced. Results that end together share one sync.
//! - The state (`OUT.state`) is appended too: what was sent, and which conversation it opened. It is
//!   written before the prompt goes out, and synced before the result that follows from it, so no
//!   result is on disk without its conversation. On opening it is compacted.
//! - A kernel lock on `OUT` excludes a second batch, and is released when the process ends, however that is.
//! - A batch whose state is missing learns the named conversations from the results, and goes on with them. What
//!   was in flight is not known then, and [`OnCrash::Fail`](crate::OnCrash::Fail) refuses prompts without a result.
//! - A line that was cut short by a crash is removed when the file is opened; one that lacks only its
//!   newline is kept. A file with other content is refused, and never written to.

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
use uuid::Uuid;

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
    NotAFile(PathBuf),
    /// It has something else in it.
    #[error("{0}:{1} is not a result of a batch")]
    NotAResult(PathBuf, u64),
    /// The state has something else in it.
    #[error("{0}:{1} is not the state of a batch; move the file away to start over")]
    NotAState(PathBuf, u64),
    /// It was deleted, moved or replaced while the batch ran.
    #[error("{path} was deleted or moved while the batch ran; the results so far are in {rescued}")]
    Deleted {
        /// Where the results were.
        path: PathBuf,
        /// Where they are now.
        rescued: PathBuf,
    },
    /// The state was deleted, moved or replaced while the batch ran.
    #[error(
        "{path} was deleted or moved while the batch ran; what was in it is in {rescued}: move that back \
         before you run the batch again"
    )]
    StateDeleted {
        /// Where the state was.
        path: PathBuf,
        /// Where it is now.
        rescued: PathBuf,
    },
    /// It cannot be read or written.
    #[error("cannot {doing} {path}: {error}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
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
    /// No files: results are reported, not kept, and the batch cannot be resumed.
    pub fn none() -> Self {
        let ledger = Ledger { batch: Some(Uuid::new_v4()), ..Ledger::default() };
        Self { files: None, ledger }
    }

    /// Opens the results, or creates them, and locks them for as long as the journal lives.
    pub fn open(out: impl AsRef<Path>) -> Result<Self, JournalError> {
        open::open(out.as_ref())
    }

    /// Counts the results that are in the file.
    pub fn results(&self) -> ResultCounts {
        let mut counts = ResultCounts::default();
        for ok in self.ledger.jobs.values().filter_map(|known| known.outcome) {
            counts.total += 1;
            counts.failed += u64::from(!ok);
        }
        counts
    }

    pub(crate) fn split(self) -> JournalParts {
        let ledger = self.ledger;
        let Some((files, state)) = self.files else {
            return JournalParts { ledger, state: Arc::new(StateFile::none()), writer: None };
        };
        let state = Arc::new(state);
        let writer = Some(Writer::new(files, state.clone()));
        JournalParts { ledger, state, writer }
    }
}

/// How many results a journal has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ResultCounts {
    /// Jobs with a result.
    pub total: u64,
    /// Jobs whose result is a failure.
    pub failed: u64,
}

/// An open journal, taken apart for the task that runs the batch.
pub(crate) struct JournalParts {
    /// What earlier runs of the batch recorded.
    pub(crate) ledger: Ledger,
    pub(crate) state: Arc<StateFile>,
    /// `None` without files.
    pub(crate) writer: Option<Writer>,
}

/// The state beside the results.
fn state_path(out: &Path) -> PathBuf {
    let mut name = out.as_os_str().to_owned();
    name.push(".state");
    PathBuf::from(name)
}
