//! The linked git worktree of a run: held while an agent works in it, and only then.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::StreamExt;
use futures::future::BoxFuture;
use takopi_core::model::{Completed, Reason, TakopiEvent};
use takopi_core::runner::{Engine, EngineRun, ResumeCodec};
use takopi_core::worktree::WorktreeLock;
use takopi_core::{EngineId, EngineRunner, RunRequest, Runner};

use crate::common::engines::{codec, lab, lab_elsewhere, started};
use crate::common::{LAB, TestHost, end};

/// What git writes for a worktree `tree` of the repository `main`.
fn worktree(root: &Path) -> PathBuf {
    let (tree, git) = (root.join("tree"), root.join("main/.git/worktrees/tree"));
    std::fs::create_dir_all(&tree).unwrap();
    std::fs::create_dir_all(&git).unwrap();
    std::fs::write(tree.join(".git"), format!("gitdir: {}\n", git.display())).unwrap();
    tree
}

/// Runs until it is cancelled.
async fn turn(run: EngineRun) {
    let _ = run.emit(started("a")).await;
    run.stop().cancelled().await;
    let _ = run.emit(Completed::success(LAB, "")).await;
}

/// Whether the worktree could be removed while a run goes on that was asked to work in it.
async fn is_free_beside(runner: &dyn Runner, tree: &Path) -> bool {
    let mut events = runner.run(RunRequest::new("go").cwd(tree));
    assert!(matches!(events.next().await, Some(TakopiEvent::Started(_))));
    let is_free = WorktreeLock::own(tree).unwrap().is_some();
    events.cancel();
    end(events).await;
    is_free
}

#[tokio::test]
async fn a_worktree_is_held_by_the_runs_in_it_until_their_end() {
    let test_host = TestHost::on_test_runtime();
    let tree = worktree(test_host.directory.path());
    let runner = lab(&test_host.host, turn);
    assert!(!is_free_beside(&runner, &tree).await);
    runner.shutdown().await;
    let owned = WorktreeLock::own(&tree).unwrap().unwrap();
    let refused = end(runner.run(RunRequest::new("go").cwd(&tree))).await;
    assert_eq!(refused.reason, Some(Reason::InvalidRequest));
    drop(owned);
}

/// An engine that says nothing about directories.
struct Plain;

impl Engine for Plain {
    fn id(&self) -> EngineId {
        LAB
    }

    fn resume_codec(&self) -> ResumeCodec {
        codec()
    }

    fn run(self: Arc<Self>, run: EngineRun) -> BoxFuture<'static, ()> {
        Box::pin(turn(run))
    }
}

#[tokio::test]
async fn an_engine_that_says_nothing_else_works_where_its_request_says() {
    let test_host = TestHost::on_test_runtime();
    let tree = worktree(test_host.directory.path());
    let runner = EngineRunner::new(Plain).on(test_host.host.clone());
    assert!(!is_free_beside(&runner, &tree).await);
}

#[tokio::test]
async fn a_worktree_is_not_held_by_a_run_that_works_elsewhere() {
    let test_host = TestHost::on_test_runtime();
    let tree = worktree(test_host.directory.path());
    assert!(is_free_beside(&lab_elsewhere(&test_host.host, turn), &tree).await);
}
