//! `takopi fleet demo`: the whole tour.

use std::path::Path;

use takopi_tests::postgres;

use crate::cli::lab::{Lab, ran};

#[test]
fn the_demo_kills_a_worker_loses_nothing_and_leaves_nothing() {
    // The same programs as the tests have; the demo installs none.
    if postgres::shared_or_skip().is_none() || postgres::private::installed().is_none() {
        return;
    }
    let lab = Lab::new();
    let temporary = lab.path("tmp");
    std::fs::create_dir(&temporary).unwrap();
    open_for_all(lab.path("").as_path());
    open_for_all(&temporary);
    let mut command = lab.takopi(&["fleet", "demo", "--prompts", "12"]);
    let ran = ran(command.env("TMPDIR", &temporary));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    for part in
        ["(SIGKILL) with", "✓ 12 prompts, 12 answers, one each", "were run again by the others"]
    {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
    let left: Vec<_> =
        std::fs::read_dir(&temporary).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn the_demo_without_postgresql_says_what_to_do() {
    let lab = Lab::new();
    let ran = lab.run(&["fleet", "demo", "--postgres", "/no/such"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("/no/such has no initdb and postgres"), "{}", ran.stderr);
}

/// The server runs as another user if the tests run as root.
fn open_for_all(directory: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o777)).unwrap();
}
