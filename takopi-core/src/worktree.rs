//! The lock of a linked git worktree: a run in it holds it together with other runs, and whoever removes the
//! worktree needs it alone.
//!
//! The lock is a kernel lock on a file in the worktree's own git directory: it goes with the worktree, a crash
//! frees it, and it appears in no `git status`. A directory that is no linked worktree needs none. The runs of a
//! process in one worktree use one descriptor.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

const NAME: &str = "takopi.lock";
/// More than a `.git` file has, which is one path.
const GIT_FILE_BYTES: u64 = 8 * 1024;

/// The files that runs of this process share, by path.
static SHARED: Mutex<BTreeMap<PathBuf, Weak<LockedFile>>> = Mutex::new(BTreeMap::new());

/// A held lock; dropping it frees it.
#[derive(Debug)]
#[must_use = "dropping it frees the lock"]
pub struct WorktreeLock {
    _file: Arc<LockedFile>,
}

/// A file with a lock on it.
#[derive(Debug)]
struct LockedFile {
    file: File,
    process: u32,
}

impl LockedFile {
    fn new(file: File) -> Self {
        Self { file, process: std::process::id() }
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // Not left to the close: a process that was forked a moment ago may hold a copy of the descriptor
        // until it executes its program. In a process that was forked and goes on, the lock is the parent's.
        if self.process == std::process::id() {
            let _ = self.file.unlock();
        }
    }
}

impl WorktreeLock {
    /// Holds the worktree that a directory is in, together with other runs. `None` if it is in no linked
    /// worktree, or in one whose git directory cannot be written: nobody can remove that.
    pub fn share(directory: &Path) -> Result<Option<Self>, String> {
        let Some(path) = lock_file(directory) else { return Ok(None) };
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.retain(|_, file| file.strong_count() > 0);
        if let Some(file) =
            shared.get(&path).and_then(Weak::upgrade).filter(|it| is_at(&it.file, &path))
        {
            return Ok(Some(Self { _file: file }));
        }
        let Ok(file) = open(&path) else { return Ok(None) };
        match file.try_lock_shared() {
            Ok(()) => {
                let file = Arc::new(LockedFile::new(file));
                shared.insert(path, Arc::downgrade(&file));
                Ok(Some(Self { _file: file }))
            }
            Err(TryLockError::WouldBlock) => {
                Err(format!("the worktree {} is being removed; try again", directory.display()))
            }
            // A file system without locks.
            Err(TryLockError::Error(error)) => {
                tracing::warn!(%error, "cannot lock a worktree");
                Ok(None)
            }
        }
    }

    /// Holds a worktree alone; `None` while runs hold it.
    pub fn own(worktree: &Path) -> io::Result<Option<Self>> {
        let path = lock_file(worktree).ok_or(io::ErrorKind::NotFound)?;
        let file = open(&path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { _file: Arc::new(LockedFile::new(file)) })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    // An agent can write there: without waiting, because a pipe would wait for its reader.
    regular(OpenOptions::new().create(true).truncate(false).write(true), path)
}

/// Opens a regular file, without waiting for anything.
fn regular(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.custom_flags(libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

/// Whether the path still leads to this file: a worktree may be removed by hand and created again.
fn is_at(file: &File, path: &Path) -> bool {
    let id = |it: &std::fs::Metadata| (it.dev(), it.ino());
    matches!((&file.metadata(), &path.metadata()), (Ok(a), Ok(b)) if id(a) == id(b))
}

/// The lock file of the linked worktree that a directory is in: `.git` is then a file that names a directory
/// in `worktrees` of the repository.
fn lock_file(directory: &Path) -> Option<PathBuf> {
    // Every run comes here, most of them at the top of an ordinary repository: one look suffices for these.
    if directory.join(".git").is_dir() {
        return None;
    }
    let mut top = directory.canonicalize().ok()?;
    loop {
        top.push(".git");
        match top.metadata() {
            Ok(git) if git.is_dir() => return None,
            Ok(git) if git.is_file() => break,
            // As git does, which passes over a pipe or a device.
            Ok(_) | Err(_) => {}
        }
        top.pop();
        if !top.pop() {
            return None;
        }
    }
    let mut text = String::new();
    let file = regular(OpenOptions::new().read(true), &top).ok()?;
    file.take(GIT_FILE_BYTES).read_to_string(&mut text).ok()?;
    top.pop();
    let git = top.join(text.strip_prefix("gitdir:")?.trim());
    let is_linked = git.parent().and_then(Path::file_name).is_some_and(|it| it == "worktrees");
    is_linked.then(|| git.join(NAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What git writes for a worktree `tree` of the repository `main`.
    fn worktree(root: &Path) -> PathBuf {
        let (tree, git) = (root.join("tree"), root.join("main/.git/worktrees/tree"));
        std::fs::create_dir_all(tree.join("src")).unwrap();
        std::fs::create_dir_all(&git).unwrap();
        std::fs::write(tree.join(".git"), format!("gitdir: {}\n", git.display())).unwrap();
        tree
    }

    #[test]
    fn a_worktree_is_owned_only_while_no_run_shares_it() {
        let root = tempfile::TempDir::new().unwrap();
        let tree = worktree(root.path());
        let first = WorktreeLock::share(&tree).unwrap().unwrap();
        let second = WorktreeLock::share(&tree.join("src")).unwrap().unwrap();
        assert!(WorktreeLock::own(&tree).unwrap().is_none());
        drop(first);
        assert!(WorktreeLock::own(&tree).unwrap().is_none());
        drop(second);
        let owned = WorktreeLock::own(&tree).unwrap().unwrap();
        assert!(WorktreeLock::share(&tree).unwrap_err().contains("is being removed"));
        drop(owned);
        assert!(WorktreeLock::share(&tree).unwrap().is_some());
    }

    #[test]
    fn a_lock_is_freed_although_a_copy_of_its_descriptor_is_open() {
        let root = tempfile::TempDir::new().unwrap();
        let tree = worktree(root.path());
        let shared = WorktreeLock::share(&tree).unwrap().unwrap();
        let file = SHARED.lock().unwrap()[&lock_file(&tree).unwrap()].upgrade().unwrap();
        // As a process has it that is being started.
        let _copy = file.file.try_clone().unwrap();
        drop((shared, file));
        assert!(WorktreeLock::own(&tree).unwrap().is_some());
    }

    #[test]
    fn a_worktree_that_was_created_again_has_a_lock_of_its_own() {
        let root = tempfile::TempDir::new().unwrap();
        let tree = worktree(root.path());
        let first = WorktreeLock::share(&tree).unwrap().unwrap();
        std::fs::rename(root.path().join("main"), root.path().join("old")).unwrap();
        let again = worktree(root.path());
        let second = WorktreeLock::share(&again).unwrap().unwrap();
        drop(first);
        assert!(WorktreeLock::own(&again).unwrap().is_none());
        drop(second);
        assert!(WorktreeLock::own(&again).unwrap().is_some());
    }

    #[test]
    fn what_is_no_regular_file_is_not_waited_for() {
        let mode = nix::sys::stat::Mode::S_IRWXU;
        let root = tempfile::TempDir::new().unwrap();
        let (pipe, device) = (root.path().join("pipe"), root.path().join("device"));
        for directory in [&pipe, &device] {
            std::fs::create_dir(directory).unwrap();
        }
        nix::unistd::mkfifo(&pipe.join(".git"), mode).unwrap();
        std::os::unix::fs::symlink("/dev/zero", device.join(".git")).unwrap();
        let tree = worktree(root.path());
        nix::unistd::mkfifo(&root.path().join("main/.git/worktrees/tree").join(NAME), mode)
            .unwrap();
        for directory in [pipe, device, tree] {
            let (send, received) = std::sync::mpsc::channel();
            let looked_at = directory.clone();
            std::thread::spawn(move || send.send(WorktreeLock::share(&looked_at).unwrap()));
            let limit = std::time::Duration::from_mins(1);
            let lock = received.recv_timeout(limit).expect("it waits");
            assert!(lock.is_none(), "{}", directory.display());
        }
    }

    #[test]
    fn a_git_file_of_any_size_is_read_in_part() {
        let root = tempfile::TempDir::new().unwrap();
        let large = std::fs::File::create(root.path().join(".git")).unwrap();
        // Without blocks on the disk.
        large.set_len(1 << 36).unwrap();
        assert!(WorktreeLock::share(root.path()).unwrap().is_none());
    }

    #[test]
    fn other_directories_have_no_lock() {
        let root = tempfile::TempDir::new().unwrap();
        worktree(root.path());
        let main = root.path().join("main");
        assert!(WorktreeLock::share(&main).unwrap().is_none(), "the repository itself");
        assert!(WorktreeLock::share(Path::new("/nowhere/at/all")).unwrap().is_none());
        let module = root.path().join("module");
        std::fs::create_dir(&module).unwrap();
        std::fs::write(module.join(".git"), "gitdir: ../main/.git/modules/module\n").unwrap();
        assert!(WorktreeLock::share(&module).unwrap().is_none(), "a submodule");
    }
}
