//! The real Claude Code, pinned, and installed once under `target/` by the tests themselves.
//!
//! - A claude named by `TAKOPI_TEST_CLAUDE` wins over the pinned one.
//! - When no claude can be had, a test prints `SKIPPED <test>: <reason>` and passes; with `TAKOPI_REQUIRE_CLAUDE=1` it fails.
//! - `TAKOPI_TEST_CLAUDE_VERSIONS=2.0.45,2.1.325` names the releases for suites that run over several. A release takes some
//!   350 MB, so only the pinned one is installed unless others are asked for.
//! - These functions block while they install. Each claude is tried once per process before it is handed out.

mod install;

use std::env;
use std::path::Path;
use std::sync::OnceLock;

use anyhow::Context as _;

use self::install::Installer;
use crate::dirs::target_dir;
pub use crate::program::Program as Claude;
use crate::program::Releases;
use crate::skip;
pub use crate::version::Version;

/// The release that takopi is proven on.
pub const PINNED: Version = Version::new(2, 1, 325);

/// Releases whose lines and habits differ: half a year older, and a year older.
pub const OLDER: [Version; 2] = [Version::new(2, 1, 210), Version::new(2, 0, 45)];

/// The claude to test with: the one `TAKOPI_TEST_CLAUDE` names, or the pinned one.
pub fn claude() -> anyhow::Result<Claude> {
    static FOUND: OnceLock<Result<Claude, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let found = match env::var_os("TAKOPI_TEST_CLAUDE") {
            Some(path) => Claude::named(Path::new(&path)).context("TAKOPI_TEST_CLAUDE"),
            None => release(PINNED),
        };
        found.map_err(|error| format!("{error:#}"))
    });
    found.clone().map_err(anyhow::Error::msg)
}

/// [`claude`], for tests: `let Some(claude) = real::claude_or_skip() else { return };`
#[track_caller]
pub fn claude_or_skip() -> Option<Claude> {
    or_skip(claude())
}

/// The releases a version suite is to run over: those in `TAKOPI_TEST_CLAUDE_VERSIONS`, or the pinned one.
pub fn versions() -> Vec<Version> {
    let Ok(listed) = env::var("TAKOPI_TEST_CLAUDE_VERSIONS") else {
        return vec![PINNED];
    };
    let parse = |text: &str| text.parse().expect("TAKOPI_TEST_CLAUDE_VERSIONS");
    listed.split(',').map(parse).collect()
}

/// A given release. For the pinned one this is [`claude`], so that `TAKOPI_TEST_CLAUDE` wins here too.
pub fn claude_version(version: Version) -> anyhow::Result<Claude> {
    if version == PINNED { claude() } else { release(version) }
}

/// [`claude_version`], for tests.
#[track_caller]
pub fn claude_version_or_skip(version: Version) -> Option<Claude> {
    or_skip(claude_version(version))
}

/// Skips the test when claude is older than what the test is about.
#[track_caller]
pub fn older_than(claude: &Claude, needed: Version) -> bool {
    let older = claude.version < needed;
    if older {
        skip::skip(format_args!("needs claude {needed}, and this one is {}", claude.version));
    }
    older
}

#[track_caller]
fn or_skip<T>(found: anyhow::Result<T>) -> Option<T> {
    skip::unless_found(&skip::test_name(), "the real Claude Code", "TAKOPI_REQUIRE_CLAUDE", found)
}

/// Installs and tries a release, once per process.
fn release(version: Version) -> anyhow::Result<Claude> {
    static RELEASES: Releases = Releases::new();
    RELEASES.get(version, || Installer::new(target_dir().join("takopi-claude")).binary(version))
}
