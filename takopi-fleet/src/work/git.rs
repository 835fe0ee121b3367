//! Places in git: the tree of a session travels as a commit.
//!
//! A place is `git:URL@REF`. A worker keeps one mirror of each repository and one worktree of it for each session. After a turn the
//! whole tree, with what is not committed, becomes a commit on top of its `HEAD`, which is pushed under a name of its own
//! (`refs/takopi/SESSION/TOKEN`); which one is the newest is stored in the commit of the result. So a worker that was lost can push,
//! and nobody will look at it. Before a turn that runs elsewhere that commit is fetched, and its tree is placed on its parent.
//!
//! What a lost turn left in the worktree of its own machine stays there: the agent finds it.

mod apart;

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use std::{fmt, io};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use takopi_core::RunError;
use takopi_core::model::Reason;
use takopi_core::process::SECRET_VARIABLES;
use thiserror::Error;
use tokio::process::Command;
use tokio::time::timeout;
use uuid::Uuid;

use crate::board::Piece;
use crate::files::digits;

/// The name under which the newest tree of a session is stored; no engine has files of that name.
pub(super) const TREE: &str = "takopi:tree";
/// Makes a mirror.
const INIT: [&str; 3] = ["init", "--quiet", "--bare"];
/// How long a call of git may take.
const LIMIT: Duration = Duration::from_mins(10);
/// What git prints when this machine is out of something, which is not the repository's fault.
const OUT_OF: [&str; 5] = [
    "No space left on device",
    "Disk quota exceeded",
    "Read-only file system",
    "Cannot allocate memory",
    "Too many open files",
];
/// What a repository or its configuration may want to run is not run by the worker.
const SAFE: [&str; 6] = [
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "protocol.ext.allow=never",
];

/// A repository, and what a new session begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GitPlace {
    url: String,
    reference: String,
}

impl GitPlace {
    /// `git:URL@REF`; `None` if it is not that.
    pub(crate) fn parse(place: &str) -> Option<Self> {
        let (url, reference) = place.strip_prefix("git:")?.rsplit_once('@')?;
        let plain = |text: &str| {
            !text.is_empty()
                && !text.starts_with('-')
                && !text.bytes().any(|byte| byte <= b' ' || byte == 127)
        };
        let place = Self { url: url.to_owned(), reference: reference.to_owned() };
        (plain(url) && plain(reference) && place.scope().is_some()).then_some(place)
    }

    /// What a worker offers to serve it: `git:HOST/OWNER`, or `git:file`.
    pub(crate) fn need(&self) -> Option<String> {
        Some(format!("git:{}", self.scope()?))
    }

    fn scope(&self) -> Option<String> {
        let scheme = ["https://", "ssh://"].iter().find_map(|it| self.url.strip_prefix(it));
        let (host, path) = match scheme {
            _ if self.url.strip_prefix("file:///").is_some() => return Some("file".to_owned()),
            Some(rest) => rest.split_once('/')?,
            // As in `git@HOST:OWNER/NAME`.
            None if !self.url.contains("::") && self.url.contains('@') => {
                self.url.split_once(':')?
            }
            None => return None,
        };
        // Whatever git, ssh or the server could read otherwise than this does: it would be another repository than the worker allows.
        if self.url.contains(['?', '#', '%', '\\']) {
            return None;
        }
        let (user, host) = host.rsplit_once('@').unwrap_or(("", host));
        let path = path.strip_suffix('/').unwrap_or(path);
        let path = if scheme.is_none() { path.strip_prefix('/').unwrap_or(path) } else { path };
        let plain = |part: &str| !matches!(part, "" | "." | "..");
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
        let good = path.split('/').all(plain)
            && !host.is_empty()
            && host.bytes().all(is_host)
            && !user.contains(['@', '[', ']']);
        let (owner, _) = path.split_once('/')?;
        good.then(|| format!("{}/{owner}", host.to_ascii_lowercase()))
    }
}

/// What a worker must offer for a place.
pub(crate) fn need_of(place: &str) -> String {
    GitPlace::parse(place).and_then(|git| git.need()).unwrap_or_else(|| format!("place:{place}"))
}

/// The worktree of a session.
pub(super) struct Tree {
    url: String,
    sid: Uuid,
    mirror: PathBuf,
    pub(super) path: PathBuf,
    record: PathBuf,
    /// The name of what was stored before.
    old: Option<String>,
}

/// Which tree is the newest, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Snapshot {
    reference: String,
    commit: String,
}

/// The newest commit of a session, in its mirror.
struct Fetched {
    commit: String,
    /// The name of the stored tree that it is; `None` if none is stored.
    stored: Option<String>,
    /// Nobody else works in the mirror.
    lock: std::fs::File,
}

/// Which tree is here.
#[derive(Serialize, Deserialize)]
struct Record {
    generation: i64,
    reference: Option<String>,
}

impl Tree {
    /// The worktree of a session, which may not be there yet.
    pub(super) fn of(state: &Path, place: &GitPlace, sid: Uuid) -> Self {
        let name = digits(Sha256::new_with_prefix(&place.url));
        let (git, trees) = (state.join("git"), state.join("git/trees"));
        Self {
            url: place.url.clone(),
            sid,
            mirror: git.join("mirrors").join(&name[..16]),
            path: trees.join(sid.to_string()),
            record: trees.join(format!("{sid}.json")),
            old: None,
        }
    }

    /// Whether the tree of this generation is here, or what a lost turn made of it.
    pub(super) fn is_current(&mut self, generation: i64) -> bool {
        let record = std::fs::read(&self.record).ok();
        let record: Option<Record> = record.and_then(|text| serde_json::from_slice(&text).ok());
        let found = record.filter(|it| it.generation == generation && self.path.is_dir());
        self.old = found.as_ref().and_then(|record| record.reference.clone());
        found.is_some()
    }

    /// Places the stored tree, or that of the reference if none is stored.
    pub(super) async fn place(
        &mut self,
        generation: i64,
        stored: Option<&Piece>,
        place: &GitPlace,
    ) -> Result<(), RunError> {
        let Fetched { commit, stored, lock } = self.fetch_newest(stored, place).await?;
        if self.git_dir().is_dir() && self.path.is_dir() {
            self.link().map_err(failed)?;
            self.in_tree(["checkout", "--quiet", "--detach", "--force", &commit]).await?;
            self.in_tree(["clean", "--quiet", "-d", "--force"]).await?;
        } else {
            for left in [&self.git_dir(), &self.path, &self.own()] {
                remove(left).map_err(failed)?;
            }
            let add = ["worktree", "add", "--quiet", "--force", "--detach"].map(OsStr::new);
            let rest = [self.path.as_os_str(), OsStr::new(&commit)];
            self.in_mirror(add.into_iter().chain(rest)).await?;
        }
        drop(lock);
        if let Some(reference) = stored {
            // What was not committed is not committed here either.
            self.in_tree(["reset", "--quiet", "--mixed", &format!("{commit}^")]).await?;
            self.old = Some(reference);
        }
        self.save(generation, self.old.clone()).map_err(failed)
    }

    /// What git keeps of the worktree is gone, by whatever an agent or a person did there: makes it again, with the newest `HEAD` that is
    /// stored. The tree is not touched: it may be the only copy.
    pub(super) async fn mend(
        &self,
        stored: Option<&Piece>,
        place: &GitPlace,
    ) -> Result<(), RunError> {
        let Fetched { commit, stored, lock } = self.fetch_newest(stored, place).await?;
        let head = if stored.is_some() { format!("{commit}^") } else { commit };
        // Git adds no worktree to a directory with something in it, and calls this one by the same name.
        let beside = self.again();
        for left in [&self.git_dir(), &beside] {
            remove(left).map_err(failed)?;
        }
        let path = beside.join(self.sid.to_string());
        let add =
            ["worktree", "add", "--quiet", "--force", "--no-checkout", "--detach"].map(OsStr::new);
        let rest = [path.as_os_str(), OsStr::new(&head)];
        self.in_mirror(add.into_iter().chain(rest)).await?;
        self.link().map_err(failed)?;
        let link = format!("{}\n", self.path.join(".git").display());
        std::fs::write(self.git_dir().join("gitdir"), link).map_err(failed)?;
        drop(lock);
        self.in_tree(["reset", "--quiet", "--mixed"]).await?;
        // Last: as long as it is there, this is not done.
        remove(&beside).map_err(failed)
    }

    /// Brings the newest commit into the mirror, which is made if it is not there.
    async fn fetch_newest(
        &self,
        stored: Option<&Piece>,
        place: &GitPlace,
    ) -> Result<Fetched, RunError> {
        let stored: Option<Snapshot> = match stored {
            Some(piece) => Some(serde_json::from_slice(&piece.data).map_err(|error| {
                let error = format!("the record of the session's tree cannot be read: {error}");
                RunError::new(Reason::Protocol, error)
            })?),
            None => None,
        };
        let directory = self.mirror.clone();
        std::fs::create_dir_all(&directory).map_err(failed)?;
        // One at a time in a mirror; the lock goes with the file.
        let lock = tokio::task::spawn_blocking(move || {
            let lock = std::fs::File::create(directory.join("takopi.lock"))?;
            lock.lock().map(|()| lock)
        });
        let lock = lock.await.map_err(std::io::Error::other).and_then(|lock| lock);
        let lock = lock.map_err(failed)?;
        if !self.mirror.join("HEAD").is_file() {
            call(&self.mirror, None, INIT, None).await?;
            apart::keep(&self.mirror).map_err(failed)?;
        }
        let commit = if let Some(Snapshot { reference, commit }) = &stored {
            self.fetch(["fetch", "--quiet", "--no-tags", "--", &self.url, reference]).await?;
            commit.clone()
        } else {
            let heads = "+refs/heads/*:refs/remotes/origin/*";
            self.fetch(["fetch", "--quiet", "--tags", "--force", "--", &self.url, heads]).await?;
            self.resolve(&place.reference).await?
        };
        Ok(Fetched { commit, stored: stored.map(|it| it.reference), lock })
    }

    /// Whether git has what it keeps of the worktree.
    pub(super) fn is_whole(&self) -> bool {
        self.git_dir().join("HEAD").is_file() && !self.again().exists()
    }

    /// Where a worktree is added while what git keeps of it is made again.
    fn again(&self) -> PathBuf {
        self.path.with_added_extension("again")
    }

    /// What git keeps of the worktree, in the mirror: it names it by the worktree's directory.
    fn git_dir(&self) -> PathBuf {
        self.mirror.join("worktrees").join(self.sid.to_string())
    }

    /// The session's own part of the repository.
    fn own(&self) -> PathBuf {
        self.path.with_added_extension("git")
    }

    /// Keeps what the agent configures apart from the worker's calls, and from other sessions.
    pub(super) fn set_apart(&self) -> Result<(), RunError> {
        apart::set(&self.mirror, &self.git_dir(), &self.own()).map_err(failed)
    }

    /// Makes `.git` in the worktree lead to its repository again, whatever an agent made of it.
    fn link(&self) -> std::io::Result<()> {
        let link = self.path.join(".git");
        remove(&link)?;
        let mut file = std::fs::File::create_new(link)?;
        writeln!(file, "gitdir: {}", self.git_dir().display())
    }

    /// A repository that cannot be fetched is the fault of the job that names it: another machine could not, either.
    async fn fetch<const N: usize>(&self, args: [&str; N]) -> Result<(), RunError> {
        self.in_mirror(args).await.map(drop).map_err(|error| match error {
            GitError::Refused(_) | GitError::TooLong => {
                let error = format!("{} cannot be fetched: {error}", self.url);
                RunError::new(Reason::InvalidRequest, error)
            }
            GitError::NotStarted(_) | GitError::Config(_) | GitError::OutOf(_) => error.into(),
        })
    }

    async fn in_mirror<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
    ) -> Result<String, GitError> {
        apart::restore(&self.mirror).map_err(GitError::Config)?;
        call(&self.mirror, None, args, None).await
    }

    async fn in_tree<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
    ) -> Result<String, GitError> {
        self.with_index(None, args).await
    }

    /// A call in the worktree, with an index of its own.
    async fn with_index<A: AsRef<OsStr>>(
        &self,
        index: Option<&Path>,
        args: impl IntoIterator<Item = A>,
    ) -> Result<String, GitError> {
        apart::restore(&self.mirror).map_err(GitError::Config)?;
        let tree = WorkTree { git_dir: self.git_dir(), path: &self.path };
        call(&self.mirror, Some(&tree), args, index).await
    }

    async fn resolve(&self, reference: &str) -> Result<String, RunError> {
        for name in [format!("refs/remotes/origin/{reference}"), reference.to_owned()] {
            let name = format!("{name}^{{commit}}");
            let found = ["rev-parse", "--verify", "--quiet", "--end-of-options", &name];
            if let Ok(commit) = self.in_mirror(found).await {
                return Ok(commit.trim().to_owned());
            }
        }
        let error = format!("{} has no {reference}", self.url);
        Err(RunError::new(Reason::InvalidRequest, error))
    }

    /// Makes a commit of the whole tree and pushes it in the name of the token.
    pub(super) async fn push(&self, token: i64) -> Result<(Snapshot, Piece), RunError> {
        let index = self.record.with_extension("index");
        let _ = std::fs::remove_file(&index);
        self.with_index(Some(&index), ["read-tree", "HEAD"]).await?;
        self.with_index(Some(&index), ["add", "--all"]).await?;
        let tree = self.with_index(Some(&index), ["write-tree"]).await?;
        let message = format!("takopi: session {} at {token}", self.sid);
        let identity = ["-c", "user.name=takopi", "-c", "user.email=takopi@localhost"];
        let args = ["commit-tree", tree.trim(), "-p", "HEAD", "-m", &message];
        let commit = self.with_index(Some(&index), [&identity[..], &args[..]].concat()).await;
        let _ = std::fs::remove_file(&index);
        let commit = commit?.trim().to_owned();
        let reference = format!("refs/takopi/{}/{token}", self.sid);
        let pushed = format!("{commit}:{reference}");
        self.in_mirror(["push", "--quiet", "--force", "--", &self.url, &pushed]).await?;
        let snapshot = Snapshot { reference, commit };
        let data = serde_json::to_vec(&snapshot).map_err(failed)?;
        Ok((snapshot, Piece { path: TREE.to_owned(), start: 0, data }))
    }

    /// The result was stored under this token, with what was pushed if it could be: the commit before is not needed any more.
    pub(super) async fn committed(self, token: i64, pushed: Option<Snapshot>) {
        let newest = pushed.as_ref().map(|it| it.reference.clone()).or_else(|| self.old.clone());
        if let Err(error) = self.save(token, newest.clone()) {
            tracing::warn!("cannot record the tree of a session: {error}");
        }
        if let Some(old) = self.old.as_ref().filter(|old| Some(*old) != newest.as_ref()) {
            let delete = ["push", "--quiet", "--delete", "--", &self.url, old];
            if let Err(error) = self.in_mirror(delete).await {
                tracing::debug!("cannot remove {old}: {error}");
            }
        }
    }

    fn save(&self, generation: i64, reference: Option<String>) -> std::io::Result<()> {
        let beside = self.record.with_extension("new");
        std::fs::write(&beside, serde_json::to_vec(&Record { generation, reference })?)?;
        std::fs::rename(beside, &self.record)
    }
}

/// Why a call of git failed.
#[derive(Debug, Error)]
enum GitError {
    #[error("git does not start: {0}")]
    NotStarted(io::Error),
    #[error("the mirror's configuration cannot be restored: {0}")]
    Config(io::Error),
    #[error("git took longer than {LIMIT:?}")]
    TooLong,
    /// This machine is out of something.
    #[error("{0}")]
    OutOf(String),
    #[error("{0}")]
    Refused(String),
}

impl GitError {
    /// By what git printed.
    fn of(text: &str) -> Self {
        let redacted = |line| takopi_core::redact::redact(line).to_string();
        let is_out_of = |line: &&str| OUT_OF.iter().any(|what| line.contains(what));
        let mut own = text.lines().filter(|line| !line.starts_with("remote:"));
        if let Some(line) = own.find(is_out_of) {
            return Self::OutOf(redacted(line));
        }
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        Self::Refused(redacted(last.unwrap_or("git failed")))
    }
}

impl From<GitError> for RunError {
    fn from(error: GitError) -> Self {
        failed(error)
    }
}

/// This machine could not do it.
fn failed(error: impl fmt::Display) -> RunError {
    RunError::new(Reason::SpawnFailed, format!("the git place cannot be used: {error}"))
}

/// Removes what is there, a link itself and not what it leads to.
pub(super) fn remove(path: &Path) -> std::io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// A worktree of a mirror.
struct WorkTree<'a> {
    git_dir: PathBuf,
    path: &'a Path,
}

/// A call of git in a mirror, or in a worktree of it. The repository is named, so that none is obeyed which is found there: the
/// directory is an agent's.
fn command<A: AsRef<OsStr>>(
    mirror: &Path,
    tree: Option<&WorkTree<'_>>,
    args: impl IntoIterator<Item = A>,
    index: Option<&Path>,
) -> Command {
    let mut command = Command::new("git");
    // Those that were set for takopi itself would be another repository.
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR"] {
        command.env_remove(name);
    }
    if let Some(WorkTree { git_dir, path }) = tree {
        command.arg("--git-dir").arg(git_dir).arg("--work-tree").arg(path);
        command.current_dir(path).env("GIT_COMMON_DIR", mirror);
    } else {
        command.arg("--git-dir").arg(mirror).current_dir(mirror);
    }
    // A mirror is stored as every git can read it, whatever this machine's is configured for.
    command.env("GIT_DEFAULT_REF_FORMAT", "files");
    command.args(SAFE).args(args).env("GIT_TERMINAL_PROMPT", "0");
    // What it prints is read: see `OUT_OF`.
    command.env("LC_ALL", "C");
    // What runs for a repository is not to know how to reach the database.
    for name in SECRET_VARIABLES {
        command.env_remove(name);
    }
    command.envs(index.map(|index| ("GIT_INDEX_FILE", index)));
    command
}

async fn call<A: AsRef<OsStr>>(
    mirror: &Path,
    tree: Option<&WorkTree<'_>>,
    args: impl IntoIterator<Item = A>,
    index: Option<&Path>,
) -> Result<String, GitError> {
    let mut command = command(mirror, tree, args, index);
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = match timeout(LIMIT, command.output()).await {
        Ok(output) => output.map_err(GitError::NotStarted)?,
        Err(_) => return Err(GitError::TooLong),
    };
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(GitError::of(&String::from_utf8_lossy(&output.stderr)))
}

#[cfg(test)]
mod tests;
