//! What is pruned, and what is kept.

use takopi_projects::Kept;

use crate::lab::{Lab, commit};

#[test]
fn only_clean_worktrees_of_merged_branches_are_removed() {
    let lab = Lab::new();
    let repository = lab.repository();
    let directory = |branch: &str| repository.directory(branch).unwrap();
    let (merged, open, dirty, locked) =
        (directory("merged"), directory("open"), directory("dirty"), directory("locked"));
    commit(&merged, "feature");
    lab.git(&["merge", "--quiet", "merged"]);
    commit(&open, "unfinished");
    std::fs::write(dirty.join("untracked"), "x").unwrap();
    lab.git(&["worktree", "lock", locked.to_str().unwrap()]);

    let pruned = repository.prune().unwrap();
    let result = |branch: &str| {
        let found = pruned.iter().find(|it| it.branch.as_deref() == Some(branch)).unwrap();
        found.result.clone()
    };
    assert_eq!(result("merged"), Ok("its branch is merged into main".to_owned()));
    assert_eq!(result("open"), Err(Kept::NotMerged("main".to_owned())));
    assert_eq!(result("dirty"), Err(Kept::Dirty));
    assert_eq!(result("locked"), Err(Kept::Locked));
    assert!(
        !merged.exists() && open.exists() && dirty.join("untracked").exists() && locked.exists()
    );
    assert_eq!(lab.git(&["branch", "--list", "merged"]), "merged", "the branch stays");
    let text: Vec<String> = pruned.iter().map(ToString::to_string).collect();
    assert!(text.iter().any(|line| line.starts_with("kept open (")), "{text:?}");
}

#[test]
fn worktrees_elsewhere_are_not_touched() {
    let lab = Lab::new();
    let elsewhere = lab.root.path().join("elsewhere");
    lab.git(&["worktree", "add", "--quiet", "-b", "mine", elsewhere.to_str().unwrap()]);
    assert_eq!(lab.repository().prune().unwrap(), []);
    assert!(elsewhere.exists());
}

#[test]
fn a_worktree_without_a_branch_is_kept() {
    let lab = Lab::new();
    let directory = lab.repository().directory("topic").unwrap();
    crate::lab::git(&directory, &["checkout", "--quiet", "--detach"]);
    let pruned = lab.repository().prune().unwrap();
    assert_eq!(pruned[0].result, Err(Kept::Detached));
}

#[test]
fn a_clean_worktree_whose_branch_is_gone_on_the_remote_is_removed() {
    let lab = Lab::new();
    let root = lab.root.path().canonicalize().unwrap();
    lab.git(&["branch", "topic"]);
    crate::lab::git(&root, &["clone", "--quiet", "web", "clone"]);
    let project = takopi_projects::Project::new("clone", root.join("clone"));
    let repository = takopi_projects::Repository::open(&project).unwrap();
    let directory = repository.directory("topic").unwrap();
    commit(&directory, "squashed elsewhere");
    lab.git(&["branch", "-D", "topic"]);
    crate::lab::git(&root.join("clone"), &["fetch", "--quiet", "--prune"]);
    let pruned = repository.prune().unwrap();
    assert_eq!(pruned[0].result, Ok("its branch is gone on the remote".to_owned()));
    assert!(!directory.exists());
}

#[test]
fn ignored_files_that_go_with_a_worktree_are_named() {
    let lab = Lab::new();
    std::fs::write(lab.path().join(".gitignore"), "/target\n*.log\n").unwrap();
    lab.commit("settings");
    let repository = lab.repository();
    let directory = repository.directory("topic").unwrap();
    std::fs::create_dir(directory.join("target")).unwrap();
    for file in ["target/x", "a.log", "b.log", "c.log"] {
        std::fs::write(directory.join(file), "x").unwrap();
    }
    let pruned = repository.prune().unwrap();
    let said = "its branch is merged into main; ignored files went with it: a.log, b.log, c.log, …";
    assert_eq!(pruned[0].result, Ok(said.to_owned()));
}

#[test]
fn a_worktree_that_a_run_holds_is_kept() {
    let lab = Lab::new();
    let repository = lab.repository();
    let directory = repository.directory("topic").unwrap();
    let run = takopi_core::worktree::WorktreeLock::share(&directory).unwrap();
    assert!(run.is_some());
    let pruned = repository.prune().unwrap();
    assert_eq!(pruned[0].result, Err(Kept::InUse));
    assert!(directory.exists() && pruned[0].to_string().ends_with("an agent runs in it"));
    drop(run);
    assert!(repository.prune().unwrap()[0].result.is_ok());
    assert!(!directory.exists());
}
