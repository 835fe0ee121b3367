//! Releases of pi from npm, with a Node that is new enough for it.
//!
//! The package's dependencies of the same release are not all published, so that it cannot be installed in the usual way. Its
//! bundle runs without them: the package is unpacked as it is, and only what it loads at run time is installed beside it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use super::Version;
use crate::command::run;
use crate::executable::write_executable;
use crate::install::{INSTALL_LIMIT, Installation, npm_install, stamp, stamped};

const NODE: &str = "22.23.3";
/// What loads extensions, and what resizes images.
const BESIDE: [&str; 2] = ["jiti@2.7.0", "@silvia-odwyer/photon-node@0.3.4"];

/// The program of a release, installed now if it was not.
pub(super) fn pi(root: &Path, version: Version) -> anyhow::Result<PathBuf> {
    let installation = Installation {
        what: &format!("pi {version}"),
        root,
        name: &version.to_string(),
        ready: stamped,
    };
    let fill = |place: &Path| {
        let node = node_package()?;
        let with_version = format!("{node}@{NODE}");
        for package in [with_version.as_str()].into_iter().chain(BESIDE) {
            let mut npm = Command::new("npm");
            npm_install(&mut npm, place, package);
            run(npm, INSTALL_LIMIT)?;
        }
        let package = format!("@earendil-works/pi-coding-agent@{version}");
        let mut npm = Command::new("npm");
        npm.args(["pack", "--loglevel=error", &package]).current_dir(place);
        run(npm, INSTALL_LIMIT)?;
        let archive = format!("earendil-works-pi-coding-agent-{version}.tgz");
        let mut tar = Command::new("tar");
        tar.args(["-xzf", &archive]).current_dir(place);
        run(tar, INSTALL_LIMIT)?;
        fs::remove_file(place.join(&archive)).context("cannot remove the archive")?;
        let program = place.join("pi");
        let script = format!(
            "#!/bin/sh\nhere=$(dirname \"$0\")\n\
             exec \"$here/node_modules/{node}/bin/node\" \"$here/package/dist/bundle/cli.js\" \"$@\"\n"
        );
        write_executable(&program, &script);
        stamp(place, &program)
    };
    installation.get(&[("npm", &fill)])
}

/// The package that holds Node for this platform.
fn node_package() -> anyhow::Result<String> {
    let system = match std::env::consts::OS {
        "linux" => "linux",
        "macos" => "darwin",
        other => anyhow::bail!("there is no Node for {other}"),
    };
    let machine = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => anyhow::bail!("there is no Node for {other}"),
    };
    Ok(format!("node-{system}-{machine}"))
}
