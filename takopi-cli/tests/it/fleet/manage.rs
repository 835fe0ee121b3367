//! `takopi fleet`: init, status, jobs, cancel, release, gc; and `takopi doctor`.

use serde_json::Value;

use super::lab::FleetLab;
use crate::cli::lab::{Running, ran};

#[test]
fn a_queue_is_created_once_and_then_up_to_date() {
    let Some(fleet) = FleetLab::empty() else { return };
    let first = fleet.run(&["fleet", "init"]);
    assert_eq!(first.code, Some(0), "{}", first.stderr);
    assert!(
        first.stderr.contains("was created") && first.stderr.contains("grant takopi_work"),
        "{}",
        first.stderr
    );
    let second = fleet.run(&["fleet", "init"]);
    assert_eq!(second.code, Some(0));
    assert!(second.stderr.contains("is up to date"), "{}", second.stderr);
}

#[test]
fn the_status_is_a_picture_and_json() {
    let Some(fleet) = FleetLab::new() else { return };
    let _worker = fleet.worker("alpha", &["--slots", "3", "--label", "gpu", "--lease", "10m"]);
    let shown = fleet.run(&["fleet", "status"]);
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    for part in ["1 worker · 0/3 slots busy · 0 waiting", "● alpha  □□□", "demo, label:gpu"]
    {
        assert!(shown.stdout.contains(part), "{part}: {}", shown.stdout);
    }
    let json = fleet.run(&["fleet", "status", "--json"]);
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["status"]["workers"][0]["machine"], "alpha");
    assert!(json["leases"][0]["seconds_left"].as_f64().unwrap() > 1.0);
}

#[test]
fn a_job_is_cancelled_by_the_beginning_of_its_id() {
    let Some(fleet) = FleetLab::new() else { return };
    let run = Running::start(fleet.takopi(&["run", "--fleet", "--engine", "demo", "hello"]));
    let job = fleet.wait_for_job(&["queued"]);
    let ran = fleet.run(&["fleet", "cancel", &job[..8]]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains(&format!("{job} was cancelled")), "{}", ran.stderr);
    assert_eq!(run.end().code, Some(130));
    let over = fleet.run(&["fleet", "cancel", &job]);
    assert_eq!((over.code, over.stderr.contains("is over")), (Some(1), true), "{}", over.stderr);
    let none = fleet.run(&["fleet", "cancel", "nonsense"]);
    assert_eq!(none.code, Some(1));
    assert!(none.stderr.contains("there is no job nonsense of yours"), "{}", none.stderr);
    let listed = fleet.run(&["fleet", "jobs"]);
    assert!(
        listed.stdout.contains(&job[..30]) && listed.stdout.contains("interrupted"),
        "{}",
        listed.stdout
    );
    assert_eq!(fleet.run(&["fleet", "jobs", "--open"]).stdout, "");
    assert!(fleet.run(&["fleet", "jobs", "--all"]).stdout.contains("of takopi"));
}

#[test]
fn a_session_is_released_and_old_rows_are_removed() {
    let Some(fleet) = FleetLab::new() else { return };
    let _worker = fleet.worker("alpha", &[]);
    assert_eq!(fleet.run(&["run", "--fleet", "--engine", "demo", "hello"]).code, Some(0));
    let session = fleet.jobs()[0]["session"].as_str().unwrap().to_owned();
    let released = fleet.run(&["fleet", "release", &session]);
    assert_eq!(released.code, Some(0), "{}", released.stderr);
    assert!(released.stderr.contains(&format!("demo session {session}")), "{}", released.stderr);
    let unknown = fleet.run(&["fleet", "release", "demo-0"]);
    assert_eq!(unknown.code, Some(1));
    assert!(
        unknown.stderr.contains("the fleet has no session demo-0 of yours"),
        "{}",
        unknown.stderr
    );
    for (args, said) in [
        (&["fleet", "gc", "--dry-run"][..], "would be removed"),
        (&["fleet", "gc"], "were removed"),
    ] {
        let ran = fleet.run(args);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(
            ran.stderr.contains("0 events, 0 results, 0 sessions") && ran.stderr.contains(said),
            "{}",
            ran.stderr
        );
    }
}

#[test]
fn the_doctor_checks_database_bells_clock_and_workers() {
    let Some(fleet) = FleetLab::new() else { return };
    let alone = fleet.run(&["doctor", "--engine", "demo"]);
    assert_eq!(alone.code, Some(0), "{}", alone.stdout);
    for part in [
        "✓ fleet    takopi@",
        "✓ bells    LISTEN works",
        "✓ clock    within",
        "! workers  none serves",
    ] {
        assert!(alone.stdout.contains(part), "{part}: {}", alone.stdout);
    }
    let _worker = fleet.worker("alpha", &["--slots", "3"]);
    let served = fleet.run(&["doctor", "--engine", "demo"]);
    assert!(served.stdout.contains("✓ workers  1 with 3 slots, 0 jobs wait"), "{}", served.stdout);
    let mut command = fleet.lab.takopi(&["doctor", "--engine", "demo"]);
    let down = ran(command.env("TAKOPI_FLEET", "postgres://me:hunter2@127.0.0.1:1/fleet"));
    assert_eq!(down.code, Some(1));
    assert!(
        down.stdout.contains("✗ fleet    the fleet's database cannot be reached"),
        "{}",
        down.stdout
    );
    assert!(!down.stdout.contains("hunter2"));
}
