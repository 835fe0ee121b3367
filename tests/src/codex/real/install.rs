//! Releases of codex, from npm or else from PyPI.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, anyhow};

use super::Version;
use crate::command::run;
use crate::install::{INSTALL_LIMIT, Installation, npm_install, stamp, stamped};

/// Where releases are installed, and with which programs.
#[derive(Clone, Debug)]
pub(super) struct Installer {
    pub(super) root: PathBuf,
    /// The command lines before their arguments.
    pub(super) npm: Vec<OsString>,
    pub(super) pip: Vec<OsString>,
}

impl Installer {
    pub(super) fn new(root: PathBuf) -> Self {
        Self {
            root,
            npm: vec!["npm".into()],
            pip: vec!["python3".into(), "-m".into(), "pip".into()],
        }
    }

    /// The binary of a release, installed now if it was not.
    pub(super) fn binary(&self, version: Version) -> anyhow::Result<PathBuf> {
        let installation = Installation {
            what: &format!("codex {version}"),
            root: &self.root,
            name: &version.to_string(),
            ready: stamped,
        };
        let from = |command: fn(&Self, Version, &Path) -> Command| {
            move |place: &Path| {
                run(command(self, version, place), INSTALL_LIMIT)?;
                complete(place)
            }
        };
        installation.get(&[("npm", &from(Self::npm_command)), ("PyPI", &from(Self::pip_command))])
    }

    /// npm's own `codex`, a Node script that starts the binary. Only an installation made by npm has it.
    pub(super) fn npm_wrapper(&self, version: Version) -> anyhow::Result<PathBuf> {
        self.binary(version)?;
        let wrapper = self.place(version).join("node_modules/.bin/codex");
        if wrapper.exists() {
            Ok(wrapper)
        } else {
            Err(anyhow!("codex {version} was not installed by npm"))
        }
    }

    fn place(&self, version: Version) -> PathBuf {
        self.root.join(version.to_string())
    }

    fn npm_command(&self, version: Version, into: &Path) -> Command {
        let mut command = command(&self.npm);
        npm_install(&mut command, into, &format!("@openai/codex@{version}"));
        command
    }

    fn pip_command(&self, version: Version, into: &Path) -> Command {
        let mut command = command(&self.pip);
        command
            .args(["install", "--no-deps", "--quiet", "--retries=2"])
            .args(["--disable-pip-version-check", "--target"])
            .arg(into)
            .arg(format!("openai-codex-cli-bin=={version}"));
        command
    }
}

fn command(line: &[OsString]) -> Command {
    let (program, args) = line.split_first().expect("a command line has a program");
    let mut command = Command::new(program);
    command.args(args);
    command
}

fn complete(place: &Path) -> anyhow::Result<()> {
    let binary = find_binary(place).context("the package has no binary for this platform")?;
    // pip does not always keep the mode.
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o755))
        .context("cannot make codex executable")?;
    stamp(place, &binary)
}

/// The binary within a fresh installation: `codex_cli_bin/bin/codex` from PyPI; from npm
/// `node_modules/@openai/PACKAGE/vendor/TARGET/DIR/codex`, where DIR has been `codex` and is `bin`.
fn find_binary(place: &Path) -> Option<PathBuf> {
    let from_pip = place.join("codex_cli_bin/bin/codex");
    if from_pip.is_file() {
        return Some(from_pip);
    }
    let below = |dir: PathBuf| -> Vec<PathBuf> {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    below(place.join("node_modules/@openai"))
        .into_iter()
        .flat_map(|package| below(package.join("vendor")))
        .flat_map(|target| [target.join("bin/codex"), target.join("codex/codex")])
        .find(|binary| binary.is_file())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const V: Version = Version::new(1, 2, 3);

    /// An installer whose npm and pip are shell scripts. `$DIR` is where they are to install.
    fn installer(root: &Path, npm: &str, pip: &str) -> Installer {
        let shell = |script: &str| {
            // The directory follows `--prefix` or `--target`, second to last.
            let script = format!("for last; do DIR=$before; before=$last; done; {script}");
            vec!["sh".into(), "-c".into(), script.into(), "sh".into()]
        };
        Installer { root: root.join("takopi-codex"), npm: shell(npm), pip: shell(pip) }
    }

    const GOOD_NPM: &str = "B=$DIR/node_modules/@openai/codex-x/vendor/x/bin; mkdir -p $B; \
        touch $B/codex; mkdir $DIR/node_modules/.bin; touch $DIR/node_modules/.bin/codex";
    const GOOD_PIP: &str = "mkdir -p $DIR/codex_cli_bin/bin; touch $DIR/codex_cli_bin/bin/codex";

    #[test]
    fn many_at_once_install_once() {
        let root = tempfile::tempdir().unwrap();
        let calls = root.path().join("calls");
        let npm = format!("echo call >> {}; {GOOD_NPM}", calls.display());
        let installer = installer(root.path(), &npm, "exit 1");
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| assert!(installer.binary(V).unwrap().is_file()));
            }
        });
        assert_eq!(fs::read_to_string(calls).unwrap(), "call\n");
        assert!(installer.npm_wrapper(V).is_ok());
    }

    #[test]
    fn pip_is_asked_when_npm_fails_or_brings_no_binary() {
        for npm in ["exit 1", "mkdir -p $DIR/node_modules/@openai/codex"] {
            let root = tempfile::tempdir().unwrap();
            let installer = installer(root.path(), npm, GOOD_PIP);
            let binary = installer.binary(V).unwrap();
            assert!(binary.ends_with("1.2.3/codex_cli_bin/bin/codex"));
            let mode = binary.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o111, 0o111);
            assert!(!binary.with_file_name("node_modules").exists());
            assert!(installer.npm_wrapper(V).is_err());
        }
    }

    #[test]
    fn both_reasons_are_given_and_nothing_is_left() {
        let root = tempfile::tempdir().unwrap();
        let mut installer = installer(root.path(), "", "echo no network >&2; exit 1");
        installer.npm = vec!["takopi-no-such-npm".into()];
        let error = installer.binary(V).unwrap_err().to_string();
        assert!(error.contains("takopi-no-such-npm is not installed"), "{error}");
        assert!(error.contains("no network"), "{error}");
        let left = fs::read_dir(&installer.root).unwrap().flatten();
        let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
        assert_eq!(left, ["1.2.3.lock"]);
    }

    #[test]
    fn what_a_killed_install_left_is_replaced() {
        let root = tempfile::tempdir().unwrap();
        let installer = installer(root.path(), GOOD_NPM, "exit 1");
        for half in ["1.2.3", "1.2.3.installing-xyz"] {
            fs::create_dir_all(installer.root.join(half).join("codex_cli_bin/bin")).unwrap();
            fs::write(installer.root.join(half).join("codex_cli_bin/bin/codex"), "half").unwrap();
        }
        let binary = installer.binary(V).unwrap();
        assert!(binary.ends_with("vendor/x/bin/codex"));
        assert!(!installer.root.join("1.2.3.installing-xyz").exists());
    }
}
