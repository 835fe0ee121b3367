//! SDKs of others, installed once under `target/`, pinned, and given the agent of the other rows.
//!
//! What an interrupted install left is replaced.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use takopi_tests::dirs;

/// A script that drives an SDK, or what it needs.
pub(crate) fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("sdk").join(name)
}

/// A Python that has what a file of requirements lists, and nothing else.
pub(crate) fn python(name: &str, requirements: &str) -> anyhow::Result<PathBuf> {
    let place = installed(name, |place| {
        run(Command::new("python3").args(["-m", "venv"]).arg(place))?;
        let mut pip = Command::new(place.join("bin/python"));
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]);
        run(pip.arg("--requirement").arg(script(requirements)))
    })?;
    Ok(place.join("bin/python"))
}

/// A directory below `target/`, filled once. The stamp marks it as complete.
pub(crate) fn installed(
    name: &str,
    install: impl Fn(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<PathBuf> {
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

pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?} failed: {}", errors.lines().last().unwrap_or("it printed nothing"));
    }
    Ok(())
}
