//! What cannot work is refused in one line, with a code.

use super::lab::FleetLab;
use crate::cli::lab::{Lab, ran};

/// Every command that needs a fleet.
const COMMANDS: [&[&str]; 10] = [
    &["fleet", "init"],
    &["fleet", "status", "--once"],
    &["fleet", "jobs"],
    &["fleet", "cancel", "x"],
    &["fleet", "release", "x"],
    &["fleet", "gc", "--dry-run"],
    &["worker", "--engine", "demo"],
    &["run", "--engine", "demo", "--fleet", "hello"],
    &["batch", "--engine", "demo", "--fleet", "/dev/null"],
    &["serve", "--engine", "demo", "--fleet", "--listen", "127.0.0.1:0"],
];

#[test]
fn a_database_that_is_down_fails_every_command_in_one_line() {
    let lab = Lab::new();
    for args in COMMANDS {
        let mut command = lab.takopi(args);
        let ran = ran(command.env("TAKOPI_FLEET", "postgres://me:hunter2@127.0.0.1:1/fleet"));
        assert_eq!(ran.code, Some(1), "{args:?}: {}", ran.stderr);
        assert_eq!(ran.stderr.lines().count(), 1, "{args:?}: {}", ran.stderr);
        let said = ran.stderr.contains("cannot connect to me@127.0.0.1:1/fleet");
        assert!(said && !ran.stderr.contains("hunter2"), "{args:?}: {}", ran.stderr);
    }
}

#[test]
fn an_address_that_is_none_is_wrong_usage() {
    let lab = Lab::new();
    for args in COMMANDS {
        let mut command = lab.takopi(args);
        let wrong = ran(command.env("TAKOPI_FLEET", "http://example"));
        assert_eq!(wrong.code, Some(2), "{args:?}: {}", wrong.stderr);
        assert!(wrong.stderr.contains("is not a PostgreSQL URL"), "{args:?}: {}", wrong.stderr);
        let missing = ran(&mut lab.takopi(args));
        assert_eq!(missing.code, Some(2), "{args:?}: {}", missing.stderr);
        assert!(missing.stderr.contains("no fleet is named"), "{args:?}: {}", missing.stderr);
    }
}

#[test]
fn a_password_on_the_command_line_is_refused() {
    let lab = Lab::new();
    let url = "postgres://me:hunter2@127.0.0.1:1/fleet";
    let named = format!("--fleet={url}");
    for args in
        [&["fleet", "status", "--fleet", url][..], &["run", &named, "hi"], &["worker", &named]]
    {
        let ran = lab.run(args);
        assert_eq!(ran.code, Some(2), "{args:?}");
        assert!(
            ran.stderr.contains("PGPASSWORD") && !ran.stderr.contains("hunter2"),
            "{}",
            ran.stderr
        );
    }
}

#[test]
fn what_a_fleet_cannot_do_is_wrong_usage() {
    let Some(fleet) = FleetLab::new() else { return };
    for (args, said) in [
        (
            &["run", "--fleet", "--engine", "demo", "--last", "hi"][..],
            "--last: none of your last runs on the fleet is of demo",
        ),
        (
            &["run", "--fleet", "postgres://a@b/c", "hi"],
            "the address belongs to the flag: --fleet=URL",
        ),
        (&["run", "--on", "gpu", "hi"], "--fleet"),
        (&["run", "--fleet", "--engine", "demo", "--cd", "/", "hi"], "is in no place of the fleet"),
        (
            &["worker", "--engine", "demo", "--place", "app=/no/such"],
            "the place app: /no/such is not a directory",
        ),
        (&["worker", "--engine", "abacus"], "unknown engine `abacus`"),
    ] {
        let ran = fleet.run(args);
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(said), "{args:?}: {}", ran.stderr);
    }
}

#[test]
fn a_database_without_a_queue_says_how_to_create_it() {
    let Some(fleet) = FleetLab::empty() else { return };
    let ran = fleet.run(&["fleet", "status"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("create it with `takopi fleet init`"), "{}", ran.stderr);
}
