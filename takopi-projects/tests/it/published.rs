//! What of a directory other machines can get.

use takopi_projects::{Git, Published, PublishedError};

use crate::lab::{Lab, git};

fn of(lab: &Lab) -> Result<Published, PublishedError> {
    Published::of(&Git::default(), &lab.path())
}

/// A repository whose `main` is in a bare one beside it.
fn pushed() -> Lab {
    let lab = Lab::new();
    git(lab.root.path(), &["init", "--quiet", "--bare", "shared.git"]);
    lab.git(&["remote", "add", "origin", "../shared.git"]);
    lab.git(&["push", "--quiet", "origin", "main"]);
    lab
}

#[test]
fn what_was_pushed_is_named_by_its_address_and_commit() {
    let lab = pushed();
    let inside = lab.path().join("src");
    std::fs::create_dir(&inside).unwrap();
    let found = Published::of(&Git::default(), &inside).unwrap();
    let shared = lab.root.path().canonicalize().unwrap().join("shared.git");
    assert_eq!(found.root, lab.path());
    assert_eq!(found.url, format!("file://{}", shared.display()));
    assert_eq!(found.commit, lab.git(&["rev-parse", "HEAD"]));
}

#[test]
fn what_others_would_not_get_is_refused() {
    let lab = pushed();
    std::fs::write(lab.path().join("new file"), "").unwrap();
    let dirty = of(&lab).unwrap_err().to_string();
    assert!(dirty.contains("not committed, such as \"new file\""), "{dirty}");
    lab.commit("new file");
    let ahead = of(&lab).unwrap_err();
    assert!(matches!(&ahead, PublishedError::NotPushed { remote, .. } if remote == "origin"));
    lab.git(&["push", "--quiet", "origin", "HEAD:refs/heads/other"]);
    assert_eq!(of(&lab).unwrap().commit, lab.git(&["rev-parse", "HEAD"]));
    lab.git(&["remote", "set-url", "origin", "http://example.org/acme/app"]);
    assert_eq!(of(&lab).unwrap_err(), PublishedError::Address("origin".to_owned()));
}

#[test]
fn a_directory_without_a_repository_a_commit_or_a_remote_is_refused() {
    let lab = Lab::new();
    assert_eq!(of(&lab).unwrap_err(), PublishedError::NoRemote(lab.path()));
    let outside = Published::of(&Git::default(), lab.root.path()).unwrap_err();
    assert!(matches!(outside, PublishedError::NoCommit { .. }), "{outside:?}");
    git(lab.root.path(), &["init", "--quiet", "empty"]);
    let empty = Published::of(&Git::default(), &lab.root.path().join("empty")).unwrap_err();
    assert!(matches!(empty, PublishedError::NoCommit { .. }), "{empty:?}");
}
