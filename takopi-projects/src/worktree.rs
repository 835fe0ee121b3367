//! The git worktree of a branch.
//!
//! Promises of [`Repository::directory`]:
//! - a branch that is checked out in the project itself runs there; one that has a worktree in the project's
//!   directory of worktrees runs in that, whoever created it; otherwise the worktree is created;
//! - two callers that ask for the same branch at once, in one process or in two, get one worktree: they take
//!   turns by a kernel lock in the repository, which a crash frees;
//! - a new worktree is never inside another linked worktree;
//! - names are safe: one that git refuses is refused before anything is created, none is taken for an option
//!   or leaves the directory of worktrees, and two branches never share a directory;
//! - the directory of worktrees does not appear in `git status`;
//! - every failure is one line.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Component, Path, PathBuf};

use thiserror::Error;
use uuid::Uuid;

use crate::config::Project;
use crate::exclude;
use crate::git::{Git, GitError};

/// The longest part of a branch's name in the name of its directory, in bytes.
const LONGEST_STEM: usize = 80;
/// The longest part of a branch's name: git names a file after it, with `.lock` behind it.
const LONGEST_PART: usize = 250;

/// Why there is no directory for a branch. One line each.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WorktreeError {
    /// The directory of the project does not exist.
    #[error("project {project}: the directory {} does not exist; correct its `path`", path.display())]
    Missing {
        /// The project.
        project: String,
        /// The directory.
        path: PathBuf,
    },
    /// The directory of the project is not in a git repository with files.
    #[error("project {project}: {} is not a git repository with a work tree, so it has no branches", path.display())]
    NotARepository {
        /// The project.
        project: String,
        /// The directory.
        path: PathBuf,
    },
    /// Git does not accept the name.
    #[error("{0:?} is not a name that git accepts for a branch")]
    BadBranch(String),
    /// The name is too long for a file.
    #[error("the name of the branch is too long: git takes {LONGEST_PART} bytes between slashes")]
    LongBranch,
    /// The branch is checked out somewhere else.
    #[error("branch {branch} is checked out at {}; switch that to another branch, or work there", at.display())]
    Elsewhere {
        /// The branch.
        branch: String,
        /// Where it is checked out.
        at: PathBuf,
    },
    /// There is something at the path of the new worktree.
    #[error("cannot create the worktree of {branch}: {} exists and is not empty; move it away", path.display())]
    Occupied {
        /// The branch.
        branch: String,
        /// The path.
        path: PathBuf,
    },
    /// The directory of worktrees is inside another worktree.
    #[error("worktrees in {} would be inside the worktree {}; set `worktrees` of the project to another directory", directory.display(), worktree.display())]
    Nested {
        /// The directory of worktrees.
        directory: PathBuf,
        /// The worktree it is inside of.
        worktree: PathBuf,
    },
    /// The repository has no commit to start a branch from.
    #[error("cannot start branch {branch} from {base}: there is no such branch or commit{}", hint(.base))]
    NoBase {
        /// The new branch.
        branch: String,
        /// The branch that it should start from.
        base: String,
    },
    /// Git failed.
    #[error("cannot create the worktree of {branch}: {error}")]
    Git {
        /// The branch.
        branch: String,
        /// What git said.
        error: GitError,
    },
    /// Git could not write the files of the branch.
    #[error("cannot create the worktree of {branch}: {error}; is there room on the disk of {}?", directory.display())]
    Unwritten {
        /// The branch.
        branch: String,
        /// The directory of worktrees.
        directory: PathBuf,
        /// What git said.
        error: GitError,
    },
    /// A file could not be used.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
}

fn hint(base: &str) -> &'static str {
    if base == "HEAD" { "; the repository has no commits yet" } else { "; correct its `base`" }
}

/// A worktree, as git lists it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Listed {
    pub(crate) path: PathBuf,
    pub(crate) branch: Option<String>,
    pub(crate) locked: bool,
}

/// The git repository of a project.
#[derive(Debug, Clone)]
pub struct Repository {
    pub(crate) git: Git,
    pub(crate) project: String,
    /// The project's own directory, or the main worktree if that is a linked one.
    pub(crate) main: PathBuf,
    /// Where the project is inside of a worktree: empty if it is its top.
    below: PathBuf,
    /// Where git keeps what all worktrees share.
    common: PathBuf,
    pub(crate) worktrees: PathBuf,
    base: Option<String>,
}

impl Repository {
    /// The repository of a project.
    pub fn open(project: &Project) -> Result<Self, WorktreeError> {
        Self::open_with(project, Git::default())
    }

    /// The same, with this git.
    pub fn open_with(project: &Project, git: Git) -> Result<Self, WorktreeError> {
        let name = || project.name.clone();
        let path = project.path.clone();
        if !path.is_dir() {
            return Err(WorktreeError::Missing { project: name(), path });
        }
        let failed = |error| match error {
            error @ (GitError::Missing { .. } | GitError::TimedOut { .. }) => {
                WorktreeError::Git { branch: project.name.clone(), error }
            }
            GitError::Failed(_) => {
                WorktreeError::NotARepository { project: name(), path: path.clone() }
            }
        };
        let mut asked = vec!["rev-parse", "--path-format=absolute"];
        asked.extend(["--show-toplevel", "--git-dir", "--git-common-dir"]);
        let answer = git.run(&path, asked).map_err(failed)?;
        let answered: Vec<PathBuf> = answer.lines().map(PathBuf::from).collect();
        let [top, own, common] = <[PathBuf; 3]>::try_from(answered)
            .map_err(|_| WorktreeError::NotARepository { project: name(), path: path.clone() })?;
        let real = path.canonicalize().unwrap_or_else(|_| path.clone());
        let below = real.strip_prefix(&top).unwrap_or(Path::new("")).to_owned();
        let listed = list(&git, &path).map_err(failed)?;
        let first = listed.first().map(|first| first.path.clone());
        let main = match first {
            // It is the main worktree. Git lists the git directory in its place if that is elsewhere.
            _ if own == common => top,
            Some(first) if first != common => first,
            _ => git.work_tree(&common).unwrap_or(top),
        };
        let worktrees = std::path::absolute(main.join(&project.worktrees)).unwrap_or_default();
        let base = project.base.clone();
        Ok(Self { git, project: name(), main, below, common, worktrees, base })
    }

    /// The directory to work on a branch in. Blocks, and may take as long as git takes to write all
    /// files of the branch.
    pub fn directory(&self, branch: &str) -> Result<PathBuf, WorktreeError> {
        self.check_branch(branch)?;
        let _lock = self.lock()?;
        let listed = self.list(branch)?;
        let found = listed.iter().find(|it| it.branch.as_deref() == Some(branch));
        if let Some(found) = found.filter(|found| found.path.is_dir()) {
            return self.usable(branch, found).map(|top| self.inside(&top));
        }
        let top = self.create(branch, &listed, found)?;
        Ok(self.inside(&top))
    }

    /// A worktree that has the branch checked out: whether it can be used.
    fn usable(&self, branch: &str, found: &Listed) -> Result<PathBuf, WorktreeError> {
        let ours = found.path == self.main || is_inside(&found.path, &self.worktrees);
        if ours {
            return Ok(found.path.clone());
        }
        Err(WorktreeError::Elsewhere { branch: branch.to_owned(), at: found.path.clone() })
    }

    /// The project inside of a worktree. A branch may lack the project's subdirectory.
    fn inside(&self, top: &Path) -> PathBuf {
        let directory = top.join(&self.below);
        if directory.is_dir() { directory } else { top.to_owned() }
    }

    fn check_branch(&self, branch: &str) -> Result<(), WorktreeError> {
        let full = format!("refs/heads/{branch}");
        // Git accepts a dash in a reference but not in a branch.
        let refused = branch.starts_with('-')
            || branch == "HEAD"
            || !self.git.agrees(&self.main, &["check-ref-format", &full]);
        if branch.split('/').any(|part| part.len() > LONGEST_PART) {
            return Err(WorktreeError::LongBranch);
        }
        if refused { Err(WorktreeError::BadBranch(branch.to_owned())) } else { Ok(()) }
    }

    fn create(
        &self,
        branch: &str,
        listed: &[Listed],
        gone: Option<&Listed>,
    ) -> Result<PathBuf, WorktreeError> {
        let directory = real_prefix(&self.worktrees);
        let linked = listed.iter().skip(1).map(|it| &it.path);
        if let Some(worktree) = linked.into_iter().find(|it| is_inside(&directory, it)) {
            return Err(WorktreeError::Nested { directory, worktree: worktree.clone() });
        }
        self.exclude(&directory)?;
        let path = directory.join(directory_name(branch));
        let occupied = path.symlink_metadata().is_ok()
            && !std::fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_none());
        if occupied {
            return Err(WorktreeError::Occupied { branch: branch.to_owned(), path });
        }
        let text = path.to_string_lossy().into_owned();
        let local = format!("refs/heads/{branch}");
        let mut args: Vec<String> = ["worktree", "add", "--quiet"].map(str::to_owned).to_vec();
        if gone.is_some() {
            // Its directory was deleted: git still lists it and insists on being asked twice.
            args.push("--force".to_owned());
        }
        let mut begun = None;
        if self.exists(&local) {
            args.extend(["--".to_owned(), text, branch.to_owned()]);
        } else {
            let start = self.start(branch)?;
            let track = if start.starts_with("refs/remotes/") { "--track" } else { "--no-track" };
            args.extend([track, "-b", branch, "--"].map(str::to_owned));
            begun = self.commit(&start);
            args.extend([text, start]);
        }
        if let Err(error) = self.git.run(&self.main, &args) {
            if matches!(error, GitError::TimedOut { .. }) {
                let shown = path.to_string_lossy();
                let _ = self.git.run(&self.main, ["worktree", "remove", "--force", "--", &shown]);
            }
            // Somebody else's branch of that name stays.
            let is_ours = !error.to_string().contains("already exists");
            if let Some(start) = begun.filter(|_| is_ours) {
                self.take_back(branch, &start);
            }
            let branch = branch.to_owned();
            if error.is_of_disk() {
                return Err(WorktreeError::Unwritten { branch, directory, error });
            }
            return Err(WorktreeError::Git { branch, error });
        }
        tracing::info!(project = %self.project, branch, path = %path.display(), "worktree created");
        Ok(path)
    }

    /// Removes the branch that git created before it failed, if it is where it began.
    fn take_back(&self, branch: &str, start: &str) {
        if self.commit(&format!("refs/heads/{branch}")).as_deref() == Some(start) {
            let _ = self.git.run(&self.main, ["branch", "--quiet", "-D", "--", branch]);
        }
    }

    fn commit(&self, name: &str) -> Option<String> {
        let name = format!("{name}^{{commit}}");
        let asked = ["rev-parse", "--verify", "--quiet", "--end-of-options", &name];
        Some(self.git.run(&self.main, asked).ok()?.trim().to_owned())
    }

    /// What a new branch starts from: the branch of that name on a remote, else the base.
    fn start(&self, branch: &str) -> Result<String, WorktreeError> {
        let remote = format!("refs/remotes/origin/{branch}");
        if self.exists(&remote) {
            return Ok(remote);
        }
        let base = self.base();
        // The commit itself: git would otherwise set the new branch up to follow the base.
        let commit = self.commit(&base);
        commit.ok_or_else(|| WorktreeError::NoBase { branch: branch.to_owned(), base })
    }

    /// The branch that new branches start from: as configured, else the remote's default branch, else the
    /// current one.
    pub fn base(&self) -> String {
        if let Some(base) = &self.base {
            return base.clone();
        }
        let remote = ["symbolic-ref", "--quiet", "refs/remotes/origin/HEAD"];
        let remote = self.git.run(&self.main, remote).ok();
        let remote = remote.map(|name| name.trim().to_owned()).filter(|name| self.exists(name));
        remote.unwrap_or_else(|| "HEAD".to_owned())
    }

    /// The branch that is checked out in the project.
    pub fn current(&self) -> Option<String> {
        let name = self.git.run(&self.main, ["symbolic-ref", "--quiet", "--short", "HEAD"]).ok()?;
        Some(name.trim().to_owned())
    }

    /// The main worktree of the repository.
    pub fn main_directory(&self) -> &Path {
        &self.main
    }

    /// How many worktrees there are in the directory of worktrees.
    pub fn count(&self) -> usize {
        let listed = list(&self.git, &self.main).unwrap_or_default();
        listed.iter().skip(1).filter(|it| is_inside(&it.path, &self.worktrees)).count()
    }

    pub(crate) fn exists(&self, reference: &str) -> bool {
        self.git.agrees(&self.main, &["show-ref", "--verify", "--quiet", reference])
    }

    pub(crate) fn list(&self, branch: &str) -> Result<Vec<Listed>, WorktreeError> {
        let listed = list(&self.git, &self.main);
        let mut listed =
            listed.map_err(|error| WorktreeError::Git { branch: branch.to_owned(), error })?;
        // In place of the main worktree git lists its git directory if that is elsewhere.
        if listed.iter().all(|it| it.path != self.main)
            && let Some(first) = listed.first_mut()
        {
            first.path.clone_from(&self.main);
        }
        Ok(listed)
    }

    /// One caller at a time, in all processes. Dropping the file frees the lock, and so does a crash.
    pub(crate) fn lock(&self) -> Result<File, WorktreeError> {
        let path = self.common.join("takopi-worktrees.lock");
        let open = || {
            let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
            file.lock()?;
            Ok(file)
        };
        open().map_err(|error| WorktreeError::File { path: path.clone(), error })
    }

    /// Keeps the directory of worktrees out of `git status`, without a change to the project's files.
    fn exclude(&self, directory: &Path) -> Result<(), WorktreeError> {
        let Ok(inside) = directory.strip_prefix(&self.main) else { return Ok(()) };
        let Some(inside) = inside.to_str().filter(|inside| !inside.is_empty()) else {
            return Ok(());
        };
        let path = self.common.join(exclude::FILE);
        exclude::exclude(&self.git, &self.main, &self.common, "", inside)
            .map_err(|error| WorktreeError::File { path, error })
    }
}

/// All worktrees of a repository, the main one first.
fn list(git: &Git, directory: &Path) -> Result<Vec<Listed>, GitError> {
    let text = git.run(directory, ["worktree", "list", "--porcelain", "-z"])?;
    let mut listed: Vec<Listed> = Vec::new();
    for line in text.split('\0') {
        if let Some(path) = line.strip_prefix("worktree ") {
            listed.push(Listed { path: path.into(), ..Listed::default() });
        } else if let Some(last) = listed.last_mut() {
            if let Some(branch) = line.strip_prefix("branch refs/heads/") {
                last.branch = Some(branch.to_owned());
            } else if line == "locked" || line.starts_with("locked ") {
                last.locked = true;
            }
        }
    }
    Ok(listed)
}

/// Whether a path is in a directory, or the directory itself; symbolic links are followed.
pub(crate) fn is_inside(path: &Path, directory: &Path) -> bool {
    real_prefix(path).starts_with(real_prefix(directory))
}

/// The path with the links of the part that exists resolved, and without `..`.
fn real_prefix(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                clean.pop();
            }
            component => clean.push(component),
        }
        if let Ok(real) = clean.canonicalize() {
            clean = real;
        }
    }
    clean
}

/// The name of a branch's directory. Different branches have different names: what is replaced or cut off is
/// made up for by a hash.
fn directory_name(branch: &str) -> String {
    let safe = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    let mut stem: String = branch.chars().map(|c| if safe(c) { c } else { '-' }).collect();
    while stem.len() > LONGEST_STEM {
        stem.pop();
    }
    // Letters of either case are one on some file systems.
    if stem == branch && branch == branch.to_lowercase() {
        return stem;
    }
    let hash = Uuid::new_v5(&Uuid::NAMESPACE_URL, branch.as_bytes()).simple().to_string();
    format!("{stem}-{}", &hash[..8])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_names_stay_and_others_get_a_hash() {
        assert_eq!(directory_name("fix-1.2"), "fix-1.2");
        assert!(directory_name("fix/parser").starts_with("fix-parser-"));
        assert_ne!(directory_name("fix/parser"), directory_name("fix-parser"));
        assert_ne!(directory_name("Fix"), directory_name("fix"));
        assert!(directory_name(&"ü".repeat(200)).len() < 100);
    }

    proptest! {
        #[test]
        fn a_directory_name_is_one_safe_component(branch in "\\PC{1,100}") {
            prop_assume!(!branch.starts_with('.') && !branch.starts_with('-'));
            let name = directory_name(&branch);
            prop_assert_eq!(Path::new(&name).components().count(), 1);
            prop_assert!(!name.contains('/') && !name.starts_with('.') && name.len() < 100);
        }
    }
}
