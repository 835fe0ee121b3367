//! Releases of Claude Code from npm, without its installation scripts: these only link the program of the platform's package
//! to another place.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use super::Version;
use crate::command::run;
use crate::install::{INSTALL_LIMIT, Installation, npm_install, stamp, stamped};

/// Where releases are installed, and with which program.
pub(super) struct Installer {
    root: PathBuf,
    npm: OsString,
}

impl Installer {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root, npm: "npm".into() }
    }

    /// The program of a release, installed now if it was not.
    pub(super) fn binary(&self, version: Version) -> anyhow::Result<PathBuf> {
        let installation = Installation {
            what: &format!("Claude Code {version}"),
            root: &self.root,
            name: &version.to_string(),
            ready: stamped,
        };
        let fill = |place: &Path| {
            let mut npm = Command::new(&self.npm);
            npm_install(&mut npm, place, &format!("@anthropic-ai/claude-code@{version}"));
            run(npm, INSTALL_LIMIT)?;
            let program = find(place).context("the package has no program for this platform")?;
            stamp(place, &program)
        };
        installation.get(&[("npm", &fill)])
    }
}

/// The program within a fresh installation: `claude` in the package of the platform or, before there were such packages,
/// `cli.js`, which Node runs.
fn find(place: &Path) -> Option<PathBuf> {
    let packages = place.join("node_modules/@anthropic-ai");
    let entries = fs::read_dir(&packages).into_iter().flatten().flatten();
    let native = entries.map(|entry| entry.path().join("claude")).find(|it| it.is_file());
    let script = packages.join("claude-code/cli.js");
    native.or_else(|| script.is_file().then_some(script))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executable::write_executable;

    const V: Version = Version::new(1, 2, 3);

    /// An installer whose npm is a shell script. `$DIR` is where it is to install.
    fn installer(root: &Path, script: &str) -> Installer {
        let npm = root.join("npm");
        let text = format!("#!/bin/sh\nfor last; do DIR=$before; before=$last; done\n{script}\n");
        write_executable(&npm, &text);
        Installer { root: root.join("takopi-claude"), npm: npm.into() }
    }

    #[test]
    fn the_program_is_the_native_one_or_else_the_script() {
        for (file, found) in [
            ("claude-code/bin/claude.exe claude-code-linux-x64/claude", "linux-x64/claude"),
            ("claude-code/cli.js", "claude-code/cli.js"),
        ] {
            let root = tempfile::tempdir().unwrap();
            let script = format!(
                "cd $DIR; for f in {file}; do f=node_modules/@anthropic-ai/$f; mkdir -p $(dirname $f); touch $f; done"
            );
            let binary = installer(root.path(), &script).binary(V).unwrap();
            assert!(binary.to_str().unwrap().ends_with(found), "{binary:?}");
        }
    }

    #[test]
    fn a_package_without_a_program_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        let error = installer(root.path(), "mkdir -p $DIR/node_modules/@anthropic-ai/claude-code");
        let error = error.binary(V).unwrap_err().to_string();
        assert!(error.contains("no program for this platform"), "{error}");
    }
}
