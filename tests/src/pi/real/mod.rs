//! The real pi, pinned, and installed once under `target/` by the tests themselves.
//!
//! - A pi named by `TAKOPI_TEST_PI` wins over the pinned one.
//! - When no pi can be had, a test prints `SKIPPED <test>: <reason>` and passes; with `TAKOPI_REQUIRE_PI=1` it fails.
//! - These functions block while they install.

mod install;

use std::env;
use std::path::Path;
use std::sync::OnceLock;

use anyhow::Context as _;

use crate::dirs::target_dir;
pub use crate::program::Program as Pi;
use crate::skip;
pub use crate::version::Version;

/// The release that takopi is proven on.
pub const PINNED: Version = Version::new(1, 5, 0);

/// The pi to test with: the one `TAKOPI_TEST_PI` names, or the pinned one.
pub fn pi() -> anyhow::Result<Pi> {
    static FOUND: OnceLock<Result<Pi, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let found = match env::var_os("TAKOPI_TEST_PI") {
            Some(path) => Pi::named(Path::new(&path)).context("TAKOPI_TEST_PI"),
            None => install::pi(&target_dir().join("takopi-pi"), PINNED).and_then(Pi::tried),
        };
        found.map_err(|error| format!("{error:#}"))
    });
    found.clone().map_err(anyhow::Error::msg)
}

/// [`pi`], for tests: `let Some(pi) = real::pi_or_skip() else { return };`
#[track_caller]
pub fn pi_or_skip() -> Option<Pi> {
    skip::unless_found(&skip::test_name(), "the real pi", "TAKOPI_REQUIRE_PI", pi())
}
