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
mod version;

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, anyhow};

use self::install::Installer;
pub use self::version::Version;
use crate::dirs::target_dir;
use crate::{command, skip};

/// The release that takopi is proven on.
pub const PINNED: Version = Version::new(0, 166, 0);

/// The newest release on PyPI, for machines with no npm: not every release gets there.
const NEWEST_ON_PYPI: Version = Version::new(0, 163, 0);

/// A codex that answers `--version` does so within this, even on a busy machine.
const VERSION_LIMIT: Duration = Duration::from_mins(1);

/// A codex that runs here.
#[derive(Clone, Debug)]
pub struct Codex {
    /// The program.
    pub path: PathBuf,
    /// The version that it reports.
    pub version: Version,
}

impl AsRef<Path> for Codex {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

/// The codex to test with: the one `TAKOPI_TEST_CODEX` names, or the pinned one.
pub fn codex() -> anyhow::Result<Codex> {
    static FOUND: OnceLock<Result<Codex, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let found = match env::var_os("TAKOPI_TEST_CODEX") {
            Some(path) => named(Path::new(&path)).context("TAKOPI_TEST_CODEX"),
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
        let wrapper = installer().npm_wrapper(PINNED).and_then(tried);
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
    static FOUND: Mutex<BTreeMap<Version, Result<Codex, String>>> = Mutex::new(BTreeMap::new());
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    let found = found.entry(version).or_insert_with(|| {
        let installed = installer().binary(version).and_then(tried);
        installed.map_err(|error| format!("{error:#}"))
    });
    found.clone().map_err(anyhow::Error::msg)
}

/// A codex given by path or, without a slash, by name. Tests run it from other directories, so the path is made absolute.
fn named(path: &Path) -> anyhow::Result<Codex> {
    let by_name = path.components().count() == 1;
    tried(if by_name { path.to_owned() } else { std::path::absolute(path)? })
}

/// Runs `--version`, so that a codex which cannot run here is found out before any test blames takopi.
fn tried(path: PathBuf) -> anyhow::Result<Codex> {
    let mut command = Command::new(&path);
    command.arg("--version");
    let output = command::run(command, VERSION_LIMIT)?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let last = printed.split_whitespace().last();
    let version = last.and_then(|text| text.parse().ok());
    let version = version.ok_or_else(|| anyhow!("{} printed {printed:?}", path.display()))?;
    Ok(Codex { path, version })
}
