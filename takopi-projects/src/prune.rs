//! Removes worktrees that are not needed any more.
//!
//! Only worktrees in the project's directory of worktrees are looked at. One is removed if its branch is merged
//! into the base or is gone, if no agent runs in it, and if it is clean: no changes, no files that git does not
//! know, not locked. Its branch stays, so no commit is lost, and a later message creates the worktree again.
//! Everything else is kept, with the reason. Git itself refuses to remove a worktree that became dirty in the
//! meantime. Ignored files go with the worktree; they are named.

use std::fmt;
use std::path::{Path, PathBuf};

use takopi_core::worktree::WorktreeLock;

use crate::worktree::{Listed, Repository, WorktreeError, is_inside};

/// How many ignored files are named.
const NAMED: usize = 3;

/// What happened to a worktree.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruned {
    /// Its directory.
    pub path: PathBuf,
    /// Its branch.
    pub branch: Option<String>,
    /// Why it was removed, or why it was kept.
    pub result: Result<String, Kept>,
}

/// Why a worktree was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kept {
    /// It has changes or files that git does not know.
    Dirty,
    /// An agent runs in it.
    InUse,
    /// It is locked with `git worktree lock`.
    Locked,
    /// Its branch has commits that the base does not have.
    NotMerged(String),
    /// It has no branch: its commits might be nowhere else.
    Detached,
    /// Git failed.
    Failed(String),
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dirty => f.write_str("it has uncommitted changes"),
            Self::InUse => f.write_str("an agent runs in it"),
            Self::Locked => f.write_str("it is locked"),
            Self::NotMerged(base) => write!(f, "its branch is not merged into {base}"),
            Self::Detached => f.write_str("it has no branch"),
            Self::Failed(error) => f.write_str(error),
        }
    }
}

impl fmt::Display for Pruned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let branch = self.branch.as_deref().unwrap_or("(no branch)");
        let path = self.path.display();
        match &self.result {
            Ok(why) => write!(f, "removed {branch} ({path}): {why}"),
            Err(kept) => write!(f, "kept {branch} ({path}): {kept}"),
        }
    }
}

impl Repository {
    /// Removes what is not needed any more, and reports on every worktree.
    pub fn prune(&self) -> Result<Vec<Pruned>, WorktreeError> {
        let _lock = self.lock()?;
        let listed = self.list(&self.project)?;
        let ours = listed.into_iter().skip(1).filter(|it| is_inside(&it.path, &self.worktrees));
        let pruned = ours.map(|worktree| {
            let result = self.prune_one(&worktree);
            Pruned { path: worktree.path, branch: worktree.branch, result }
        });
        let pruned = pruned.collect();
        // Forgets worktrees whose directories were deleted by hand.
        let _ = self.git.run(&self.main, ["worktree", "prune"]);
        Ok(pruned)
    }

    fn prune_one(&self, worktree: &Listed) -> Result<String, Kept> {
        if worktree.locked {
            return Err(Kept::Locked);
        }
        if !worktree.path.is_dir() {
            return Ok("its directory is gone".to_owned());
        }
        let Some(branch) = &worktree.branch else { return Err(Kept::Detached) };
        // Held until it is removed: no run begins in it meanwhile.
        let lock = WorktreeLock::own(&worktree.path);
        let Some(_lock) = lock.map_err(|error| Kept::Failed(error.to_string()))? else {
            return Err(Kept::InUse);
        };
        let why = self.needless(branch)?;
        if !self.is_clean(&worktree.path)? {
            return Err(Kept::Dirty);
        }
        let ignored = self.ignored(&worktree.path);
        let path = worktree.path.to_string_lossy();
        let removed = self.git.run(&self.main, ["worktree", "remove", "--", &path]);
        removed.map(|_| why + &ignored).map_err(|error| Kept::Failed(error.to_string()))
    }

    /// What is said of the files that git ignores.
    fn ignored(&self, path: &Path) -> String {
        let status = self.git.run(path, ["status", "--porcelain", "--ignored", "-z"]);
        let status = status.unwrap_or_default();
        let names: Vec<&str> = status.split('\0').filter_map(|it| it.strip_prefix("!! ")).collect();
        if names.is_empty() {
            return String::new();
        }
        let more = if names.len() > NAMED { ", …" } else { "" };
        let shown: Vec<&str> = names.into_iter().take(NAMED).collect();
        format!("; ignored files went with it: {}{more}", shown.join(", "))
    }

    /// Why a branch needs no worktree.
    fn needless(&self, branch: &str) -> Result<String, Kept> {
        let full = format!("refs/heads/{branch}");
        if !self.exists(&full) {
            return Ok("its branch is gone".to_owned());
        }
        let upstream = ["for-each-ref", "--format=%(upstream:track)", &full];
        let upstream = self.git.run(&self.main, upstream).unwrap_or_default();
        if upstream.trim() == "[gone]" {
            return Ok("its branch is gone on the remote".to_owned());
        }
        let base = self.base();
        let shown = base.trim_start_matches("refs/remotes/").to_owned();
        let shown = if base == "HEAD" { self.current().unwrap_or(shown) } else { shown };
        if self.git.agrees(&self.main, &["merge-base", "--is-ancestor", &full, &base]) {
            return Ok(format!("its branch is merged into {shown}"));
        }
        Err(Kept::NotMerged(shown))
    }

    /// A branch that is gone leaves files that git reports as new: they are compared with nothing, so such a
    /// worktree counts as dirty unless it is empty.
    fn is_clean(&self, path: &Path) -> Result<bool, Kept> {
        let status = self.git.run(path, ["status", "--porcelain", "--untracked-files=all"]);
        status.map(|text| text.is_empty()).map_err(|error| Kept::Failed(error.to_string()))
    }
}
