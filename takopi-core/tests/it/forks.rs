//! What a process that is forked without exec does to the locks of its parent.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::apart::{ChildProcess, receive_line, report};
use crate::common::{LAB, key};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use takopi_core::locks::{FileLocks, Holder, LocalLocks, NoLeases, SessionLocks};
use takopi_core::worktree::WorktreeLock;
use tempfile::TempDir;

fn locks(state: &Path) -> FileLocks {
    FileLocks::new(LocalLocks::new(), state.join("locks"))
}

/// A linked worktree.
fn worktree(state: &Path) -> PathBuf {
    state.join("tree")
}

/// Plays a part in a process of its own: holds locks, and drops them in a forked process.
pub(crate) async fn play() {
    let state = PathBuf::from(std::env::var("TAKOPI_STATE_DIR").unwrap());
    let locks = locks(&state);
    let session = locks.lock(key("a"), Holder::here(LAB), Arc::new(NoLeases)).await.unwrap();
    let worktree = WorktreeLock::share(&worktree(&state)).unwrap().unwrap();
    // SAFETY: no other thread of this process has locked what the child uses but the allocator, which is
    // made for it.
    let child = match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            drop((session, worktree));
            // SAFETY: ends this process at once; what else it has is the parent's.
            unsafe { libc::_exit(0) };
        }
        ForkResult::Parent { child } => child,
    };
    let ended = tokio::task::spawn_blocking(move || waitpid(child, None)).await.unwrap().unwrap();
    assert!(matches!(ended, WaitStatus::Exited(_, 0)), "{ended:?}");
    report("dropped in the child");
    assert_eq!(receive_line().as_deref(), Some("drop"));
    drop((session, worktree));
    report("dropped");
    receive_line();
}

#[tokio::test]
async fn locks_that_are_dropped_in_a_forked_process_stay_the_parents() {
    let state = TempDir::new().unwrap();
    let tree = worktree(state.path());
    let git = state.path().join("main/.git/worktrees/tree");
    std::fs::create_dir_all(&tree).unwrap();
    std::fs::create_dir_all(&git).unwrap();
    std::fs::write(tree.join(".git"), format!("gitdir: {}\n", git.display())).unwrap();
    let (locks, holder) = (locks(state.path()), Holder::here(LAB));
    let mut actor = ChildProcess::new("fork", state.path());

    actor.expect("dropped in the child");
    assert!(locks.try_lock(&key("a"), &holder, &NoLeases).await.unwrap().is_none());
    assert!(locks.path(&key("a")).exists());
    assert!(WorktreeLock::own(&tree).unwrap().is_none());

    actor.send_line("drop");
    actor.expect("dropped");
    assert!(locks.try_lock(&key("a"), &holder, &NoLeases).await.unwrap().is_some());
    assert!(WorktreeLock::own(&tree).unwrap().is_some());
    actor.finish();
}
