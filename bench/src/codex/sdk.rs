//! OpenAI's own SDKs, installed once under `target/`, pinned, and given the codex of the other rows.
//!
//! Their newest releases are older than the codex they are given here; both take one of the caller's
//! choice. What an interrupted install left is replaced.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use takopi_tests::dirs;

pub(crate) const VERSION: &str = "0.163.0";

/// The scripts that drive the SDKs.
pub(crate) fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("sdk").join(name)
}

/// `@openai/codex-sdk`: its module. Without its dependency, which is another codex.
pub(crate) fn typescript() -> anyhow::Result<PathBuf> {
    let place = installed(&format!("node-{VERSION}"), |place| {
        let package = format!("@openai/codex-sdk@{VERSION}");
        let mut pack = Command::new("npm");
        run(pack.args(["pack", "--silent", &package, "--pack-destination"]).arg(place))?;
        let archive = place.join(format!("openai-codex-sdk-{VERSION}.tgz"));
        run(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(place))
    })?;
    Ok(place.join("package/dist/index.js"))
}

/// `openai-codex`: the Python that has it.
pub(crate) fn python() -> anyhow::Result<PathBuf> {
    let place = installed(&format!("python-{VERSION}"), |place| {
        run(Command::new("python3").args(["-m", "venv"]).arg(place))?;
        let mut pip = Command::new(place.join("bin/python"));
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]);
        run(pip.arg("--requirement").arg(script("requirements.txt")))
    })?;
    Ok(place.join("bin/python"))
}

/// A directory below `target/`, filled once. The stamp marks it as complete.
fn installed(name: &str, install: impl Fn(&Path) -> anyhow::Result<()>) -> anyhow::Result<PathBuf> {
    let place = dirs::target_dir().join("takopi-sdk").join(name);
    let stamp = place.join("takopi-stamp");
    if !stamp.exists() {
        eprintln!("  … installing the SDK {name}");
        if place.exists() {
            std::fs::remove_dir_all(&place).context("cannot remove half an installation")?;
        }
        std::fs::create_dir_all(&place)?;
        install(&place)?;
        std::fs::write(&stamp, "")?;
    }
    Ok(place)
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?} failed: {}", errors.lines().last().unwrap_or("it printed nothing"));
    }
    Ok(())
}
