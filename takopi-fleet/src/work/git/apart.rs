//! Keeps what agents configure apart from the worker's own calls of git, which run with its credentials and in no sandbox.
//!
//! - The worktree of a session belongs to the mirror, but its *common directory* is one of the session's own: objects and refs are
//!   links into the mirror, configuration and hooks are not. `git config` in a worktree is for that session alone, and stays as long
//!   as the worktree does.
//! - The worker's calls name the mirror as the common directory. An agent that looks for it can still write there, so its
//!   configuration is restored before each of them.

use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use uuid::Uuid;

use super::remove;

/// What a session shares with the mirror. Not all of it is there from the beginning.
const SHARED: [&str; 6] = ["info", "objects", "packed-refs", "refs", "shallow", "worktrees"];
/// The mirror's configuration, as git made it for this machine.
const TEMPLATE: &str = "takopi.config";
/// The same for a mirror of which that was not kept.
const PLAIN: &[u8] = b"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n";

/// Keeps the configuration of a mirror that was just made.
pub(super) fn keep(mirror: &Path) -> io::Result<()> {
    std::fs::copy(mirror.join("config"), mirror.join(TEMPLATE)).map(drop)
}

fn template(mirror: &Path) -> io::Result<Vec<u8>> {
    match std::fs::read(mirror.join(TEMPLATE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(PLAIN.to_vec()),
        read => read,
    }
}

/// Makes the mirror's configuration what it was.
pub(super) fn restore(mirror: &Path) -> io::Result<()> {
    remove(&mirror.join("config.worktree"))?;
    let (config, template) = (mirror.join("config"), template(mirror)?);
    if std::fs::read(&config).is_ok_and(|found| found == template) {
        return Ok(());
    }
    let beside = mirror.join(format!("config.{}", Uuid::new_v4().simple()));
    std::fs::write(&beside, template)?;
    std::fs::rename(beside, config)
}

/// Makes `own` the common directory of a worktree, of which git keeps `git_dir` in the mirror.
pub(super) fn set(mirror: &Path, git_dir: &Path, own: &Path) -> io::Result<()> {
    let (mirror, own) = (std::path::absolute(mirror)?, std::path::absolute(own)?);
    std::fs::create_dir_all(&own)?;
    for name in SHARED {
        let link = own.join(name);
        if std::fs::symlink_metadata(&link).is_err() {
            symlink(mirror.join(name), link)?;
        }
    }
    if !own.join("HEAD").is_file() {
        std::fs::copy(mirror.join("HEAD"), own.join("HEAD"))?;
    }
    if !own.join("config").is_file() {
        std::fs::write(own.join("config"), template(&mirror)?)?;
    }
    let (file, line) = (git_dir.join("commondir"), format!("{}\n", own.display()));
    if std::fs::read(&file).is_ok_and(|found| found == line.as_bytes()) {
        return Ok(());
    }
    let beside = git_dir.join("commondir.new");
    std::fs::write(&beside, line)?;
    std::fs::rename(beside, file)
}
