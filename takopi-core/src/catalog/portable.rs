//! Sessions that can be copied to another machine.

use std::io;
use std::path::{Path, PathBuf};

use futures::future::BoxFuture;

use crate::version::Version;

/// An engine's sessions, as sets of files that another machine can resume.
///
/// A file has a name that is the same on every machine and a path that need not be: an engine may keep its sessions in a folder
/// for each working directory. Files only grow, or are replaced.
pub trait PortableSessions: Send + Sync {
    /// All files that are needed to resume a session which was run in `cwd`; empty if none is stored. Blocks.
    fn files(&self, session: &str, cwd: &Path) -> io::Result<Vec<PortableFile>>;

    /// Where the file of this name belongs, for a run in `cwd`. `None` if no session has a file of that name: names come from
    /// other machines, and must not lead outside the engine's store.
    fn path(&self, name: &str, cwd: &Path) -> Option<PathBuf>;

    /// The version of the engine that would run now. A session must not be opened by an older one than has written it. `None` if
    /// it cannot be found out.
    fn version(&self) -> BoxFuture<'_, Option<Version>>;
}

/// A file of a session.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortableFile {
    /// Its name on every machine: relative, with `/`.
    pub name: String,
    /// Its path on this one.
    pub path: PathBuf,
}
