//! The limit on open descriptors: raised for hundreds of runs, and put back for the engines.

use std::io;
use std::sync::OnceLock;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The soft limit as it was before it was raised; engines get it back.
static ORIGINAL: OnceLock<(u64, u64)> = OnceLock::new();

/// Raises this process's soft limit on open descriptors to the hard one.
///
/// Engines are started with the limit as it was: programs that use `select` break above 1,024, and
/// programs that close every descriptor up to the limit take long. For programs that own their
/// process, such as a command line; a library must not change it behind its host's back.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
        let _ = ORIGINAL.set((soft, hard));
    }
    Ok(hard)
}

/// The soft limit on open descriptors, if it can be read.
pub fn descriptor_limit() -> Option<u64> {
    getrlimit(Resource::RLIMIT_NOFILE).ok().map(|(soft, _)| soft)
}

/// What a child's limit must be set to, if this process raised its own.
pub(crate) fn original_limit() -> Option<(u64, u64)> {
    ORIGINAL.get().copied()
}
