//! axe-core, which finds what keeps people with disabilities from using a page; from npm, installed once under `target/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::run;
use crate::dirs::target_dir;
use crate::install::{INSTALL_LIMIT, Installation, npm_install, stamp, stamped};
use crate::skip;

const PACKAGE: &str = "axe-core";
const PINNED: &str = "4.14.0";

/// The script, for [`Page::serious_violations`](super::Page::serious_violations): `let Some(axe) = axe_or_skip() else { return };`
#[track_caller]
pub fn axe_or_skip() -> Option<String> {
    let test = skip::test_name();
    let found = installed().and_then(|script| Ok(fs::read_to_string(script)?));
    skip::unless_found(
        &test,
        "axe-core",
        "TAKOPI_REQUIRE_BROWSER",
        found.map_err(|error| anyhow::anyhow!("{error:#}")),
    )
}

fn installed() -> anyhow::Result<PathBuf> {
    let installation = Installation {
        what: &format!("axe-core {PINNED}"),
        root: &target_dir().join("takopi-axe"),
        name: PINNED,
        ready: stamped,
    };
    installation.get(&[("npm", &fill)])
}

fn fill(place: &Path) -> anyhow::Result<()> {
    let mut npm = Command::new("npm");
    npm_install(&mut npm, place, &format!("{PACKAGE}@{PINNED}"));
    run(npm, INSTALL_LIMIT)?;
    stamp(place, &place.join("node_modules").join(PACKAGE).join("axe.min.js"))
}
