//! Tests that are skipped because something they need is not to be had on this machine.
//!
//! A skipped test passes, and prints `SKIPPED <test>: <reason>` with its own name. Where a variable such as
//! `TAKOPI_REQUIRE_CODEX=1` requires what is missing, it fails instead.

use std::env;
use std::fmt::Display;
use std::io::Write as _;
use std::panic::Location;
use std::thread;

/// The name of the running test, with its modules: libtest gives it to the test's thread.
///
/// On a thread without such a name (the main thread, or one of a runtime) it is the place of the call instead.
#[track_caller]
pub fn test_name() -> String {
    match thread::current().name() {
        Some(name) if name != "main" && !name.starts_with("tokio-") => name.to_owned(),
        _ => Location::caller().to_string(),
    }
}

/// Prints that the running test is skipped, and why.
#[track_caller]
pub fn skip(reason: impl Display) {
    report(&test_name(), &reason);
}

/// What a test needs, or `None` for a test to be skipped. Panics where `required_by` is a variable set to 1.
pub(crate) fn unless_found<T>(
    test: &str,
    what: &str,
    required_by: &str,
    found: anyhow::Result<T>,
) -> Option<T> {
    match found {
        Ok(found) => Some(found),
        Err(reason) if env::var_os(required_by).is_some_and(|it| it == "1") => {
            panic!("{test} needs {what}: {reason:#}")
        }
        Err(reason) => {
            report(test, &format_args!("{reason:#}"));
            None
        }
    }
}

fn report(test: &str, reason: &dyn Display) {
    // Not `println!`: the output of a passing test is captured and not shown.
    let _ = writeln!(std::io::stdout(), "SKIPPED {test}: {reason}");
}
