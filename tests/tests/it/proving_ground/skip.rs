//! A test that cannot run here is skipped by name.
use std::collections::BTreeSet;
use std::process::{Command, Output};

/// Runs tests of this program where neither an agent nor a browser can be found.
fn without_parts(required: Option<&str>, args: &[&str]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(args)
        .env("TAKOPI_TEST_CODEX", "/no/such/codex")
        .env("TAKOPI_TEST_CLAUDE", "/no/such/claude")
        .env("TAKOPI_TEST_BROWSER", "/no/such/browser")
        .env_remove("TAKOPI_REQUIRE_CODEX")
        .env_remove("TAKOPI_REQUIRE_CLAUDE")
        .env_remove("TAKOPI_REQUIRE_BROWSER");
    if let Some(variable) = required {
        command.env(variable, "1");
    }
    command.output().unwrap()
}

/// The tests that a filter selects.
fn listed(filter: &[&str]) -> BTreeSet<String> {
    let output = without_parts(None, &[filter, &["--list"]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

/// The tests that were printed as skipped because of `reason`.
fn skipped(output: &Output, reason: &str) -> BTreeSet<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let name = |line: &str| {
        let (name, rest) = line.split_once("SKIPPED ")?.1.split_once(": ")?;
        rest.contains(reason).then(|| name.to_owned())
    };
    text.lines().filter_map(name).collect()
}

#[test]
fn a_skipped_test_prints_its_own_name_and_the_reason() {
    // npm's wrapper is not replaced by TAKOPI_TEST_CODEX.
    let cases: [(&[&str], &str); 4] = [
        (
            &[
                "::real::",
                "--skip=npms_own_wrapper",
                "--skip=claude::",
                "--skip=acp::",
                "--skip=pi::",
            ],
            "TAKOPI_TEST_CODEX",
        ),
        (&["claude::real::"], "TAKOPI_TEST_CLAUDE"),
        (&["contract::codex_", "--skip=acp::"], "TAKOPI_TEST_CODEX"),
        (&["proving_ground::browser::"], "TAKOPI_TEST_BROWSER"),
    ];
    for (filter, reason) in cases {
        let tests = listed(filter);
        assert!(!tests.is_empty(), "{filter:?}");
        for threads in ["1", "4"] {
            let output = without_parts(None, &[filter, &["--test-threads", threads]].concat());
            assert!(output.status.success(), "{output:?}");
            assert_eq!(skipped(&output, reason), tests, "{output:?}");
        }
    }
}

#[test]
fn a_required_part_that_is_missing_fails_the_test() {
    let cases = [
        ("TAKOPI_REQUIRE_CODEX", "contract::codex_exec::shutdown_leaves_nothing"),
        (
            "TAKOPI_REQUIRE_BROWSER",
            "proving_ground::browser::a_page_is_typed_and_clicked_into_and_waited_for",
        ),
    ];
    for (variable, test) in cases {
        let output = without_parts(Some(variable), &["--exact", test]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(101), "{text}");
        assert!(text.contains(&format!("{test} needs ")), "{text}");
    }
}
