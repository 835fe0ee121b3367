//! Chromium's headless shell, from the npm package that serverless hosts use: it is complete, in one package, and needs no
//! download beside the registry.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::command::run;
use crate::dirs::target_dir;
use crate::install::{INSTALL_LIMIT, Installation, npm_install, stamp, stamped};

/// The package; its version is that of the browser.
const PACKAGE: &str = "@sparticuz/chromium";
const PINNED: &str = "147.0.0";

/// The program is packed with Brotli; Node, which npm brings along, unpacks it.
const UNPACK: &str = "const fs = require('fs'), zlib = require('zlib'); \
    const [from, to] = process.argv.slice(1); \
    fs.writeFileSync(to, zlib.brotliDecompressSync(fs.readFileSync(from)))";

/// The program, installed now if it was not.
pub(super) fn headless_shell() -> anyhow::Result<PathBuf> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        bail!("no browser on the path, and none to install for this platform");
    }
    let installation = Installation {
        what: &format!("Chromium {PINNED}"),
        root: &target_dir().join("takopi-browser"),
        name: PINNED,
        ready: stamped,
    };
    installation.get(&[("npm", &fill)])
}

fn fill(place: &Path) -> anyhow::Result<()> {
    let mut npm = Command::new("npm");
    npm_install(&mut npm, place, &format!("{PACKAGE}@{PINNED}"));
    run(npm, INSTALL_LIMIT)?;
    let packed = place.join("node_modules").join(PACKAGE).join("bin/chromium.br");
    let program = place.join("chromium");
    let mut node = Command::new("node");
    node.args(["-e", UNPACK]).arg(&packed).arg(&program);
    run(node, INSTALL_LIMIT).context("cannot unpack it")?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    // A third of what is there, and never needed again.
    fs::remove_dir_all(place.join("node_modules"))?;
    stamp(place, &program)
}
