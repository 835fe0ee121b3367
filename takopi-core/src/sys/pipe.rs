//! How much a pipe can hold.

use std::os::fd::AsFd;

/// The most that an ordinary user can make a pipe hold, on any system.
const MOST: usize = 1024 * 1024;

/// How many bytes a pipe can hold now, or more.
#[cfg(target_os = "linux")]
pub(crate) fn pipe_capacity(pipe: impl AsFd) -> usize {
    let capacity = nix::fcntl::fcntl(pipe, nix::fcntl::FcntlArg::F_GETPIPE_SZ);
    capacity.ok().and_then(|capacity| usize::try_from(capacity).ok()).unwrap_or(MOST)
}

/// How many bytes a pipe can hold now, or more.
#[cfg(not(target_os = "linux"))]
pub(crate) fn pipe_capacity(_pipe: impl AsFd) -> usize {
    MOST
}
