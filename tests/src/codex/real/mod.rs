//! The real codex, pinned, and installed once under `target/` by the tests themselves.
//!
//! - A codex named by `TAKOPI_TEST_CODEX` wins over the pinned one.
//! - Where there is no npm, and PyPI does not have the pinned release, the nearest one that PyPI has is taken:
//!   [`Codex::version`] is the one in use.
//! - When no codex can be had, a test prints `SKIPPED <test>: <reason>` and passes; with `TAKOPI_REQUIRE_CODEX=1` it fails.
//! - `TAKOPI_TEST_CODEX_VERSIONS=0.125.0,0.166.0` names the releases for suites that run over several.
//! - These functions block while they install (some ten seconds, once). Each codex is tried once per process before it is
//!   handed out.

mod install;
pub mod raw;

use std::env;
use std::path::Path;
use std::sync::OnceLock;

use anyhow::Context as _;

use self::install::Installer;
use crate::dirs::target_dir;
pub use crate::program::Program as Codex;
use crate::program::Releases;
use crate::skip;
pub use crate::version::Version;

/// The release that takopi is proven on.
pub const PINNED: Version = Version::new(0, 166, 0);

/// The newest release on PyPI, for machines with no npm: not every release gets there.
const NEWEST_ON_PYPI: Version = Version::new(0, 163, 0);

/// The codex to test with: the one `TAKOPI_TEST_CODEX` names, or the pinned one.
pub fn codex() -> anyhow::Result<Codex> {
    static FOUND: OnceLock<Result<Codex, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let found = match env::var_os("TAKOPI_TEST_CODEX") {
            Some(path) => Codex::named(Path::new(&path)).context("TAKOPI_TEST_CODEX"),
            None => release(PINNED).or_else(|pinned| {
                // Both reasons would be the same; the first is the one to act on.
                release(NEWEST_ON_PYPI).map_err(|_| pinned)
            }),
        };
        found.map_err(|error| format!("{error:#}"))
    });
    found.clone().map_err(anyhow::Error::msg)
}

/// [`codex`], for tests: `let Some(codex) = real::codex_or_skip() else { return };`
#[track_caller]
pub fn codex_or_skip() -> Option<Codex> {
    or_skip(codex())
}

/// The releases a version suite is to run over: those in `TAKOPI_TEST_CODEX_VERSIONS`, or the pinned one.
pub fn versions() -> Vec<Version> {
    let Ok(listed) = env::var("TAKOPI_TEST_CODEX_VERSIONS") else {
        return vec![PINNED];
    };
    let parse = |text: &str| text.parse().expect("TAKOPI_TEST_CODEX_VERSIONS");
    listed.split(',').map(parse).collect()
}

/// A given release. For the pinned one this is [`codex`], so that `TAKOPI_TEST_CODEX` wins here too.
pub fn codex_version(version: Version) -> anyhow::Result<Codex> {
    if version == PINNED { codex() } else { release(version) }
}

/// [`codex_version`], for tests.
#[track_caller]
pub fn codex_version_or_skip(version: Version) -> Option<Codex> {
    or_skip(codex_version(version))
}

/// npm's own `codex` of the pinned release: a Node script around the binary, which is what users have.
pub fn npm_wrapper() -> anyhow::Result<Codex> {
    static FOUND: OnceLock<Result<Codex, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let wrapper = installer().npm_wrapper(PINNED).and_then(Codex::tried);
        wrapper.map_err(|error| format!("{error:#}"))
    });
    found.clone().map_err(anyhow::Error::msg)
}

/// [`npm_wrapper`], for tests.
#[track_caller]
pub fn npm_wrapper_or_skip() -> Option<Codex> {
    or_skip(npm_wrapper())
}

/// Skips the test when codex is older than what the test is about.
#[track_caller]
pub fn older_than(codex: &Codex, needed: Version) -> bool {
    let older = codex.version < needed;
    if older {
        skip::skip(format_args!("needs codex {needed}, and this one is {}", codex.version));
    }
    older
}

/// A codex, or a skipped test; a failed one where `TAKOPI_REQUIRE_CODEX=1`.
#[track_caller]
fn or_skip<T>(found: anyhow::Result<T>) -> Option<T> {
    skip::unless_found(&skip::test_name(), "the real codex", "TAKOPI_REQUIRE_CODEX", found)
}

fn installer() -> Installer {
    Installer::new(target_dir().join("takopi-codex"))
}

/// Installs and tries a release, once per process: a machine without a network should not be asked for every test.
fn release(version: Version) -> anyhow::Result<Codex> {
    static RELEASES: Releases = Releases::new();
    RELEASES.get(version, || installer().binary(version))
}

impl Version {
    /// The namespace in which this codex offers the tools of an MCP server to the model.
    pub fn mcp_namespace(self, server: &str) -> String {
        let old = self < Self::new(0, 136, 0);
        format!("mcp__{server}{}", if old { "__" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_of_mcp_tools_has_drifted() {
        assert_eq!(Version::new(0, 130, 0).mcp_namespace("lab"), "mcp__lab__");
        assert_eq!(Version::new(0, 136, 0).mcp_namespace("lab"), "mcp__lab");
    }
}
