//! Checks of pi's installation.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use takopi_core::catalog::{EngineSetup, Finding, output};
use takopi_core::version::Version;
use tokio::process::Command;

use crate::MINIMUM_VERSION;
use crate::entry::PROGRAM;
use crate::sessions::{agent_directory, own_variable};

/// How long pi may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Files of its own directory that it refuses to start with, or ignores, if they are not JSON.
const SETTINGS: [&str; 3] = ["settings.json", "models.json", "auth.json"];

/// Checks program, configuration, version and login. What depends on a failed check is left out.
pub(crate) async fn check(setup: &EngineSetup) -> Vec<Finding> {
    let program = match PROGRAM.executable(setup.program.as_deref()) {
        Ok(program) => program,
        Err(finding) => return vec![finding],
    };
    let mut findings = vec![Finding::ok(PROGRAM.name, program.display().to_string())];
    findings.extend(config());
    match version(&program).await {
        Ok(finding) => {
            findings.push(finding);
            findings.push(models(&program).await);
        }
        Err(finding) => findings.push(finding),
    }
    findings
}

/// Settings that cannot be read.
fn config() -> Option<Finding> {
    let directory = agent_directory(&own_variable)?;
    let broken = |name: &str| {
        let file = directory.join(name);
        let text = std::fs::read_to_string(&file).ok().filter(|text| !text.trim().is_empty())?;
        let error = serde_json::from_str::<Value>(&text).err()?;
        let text = format!("{}: {error}", file.display());
        Some(Finding::note("home", text, "correct the file, or pi ignores it or does not start"))
    };
    SETTINGS.iter().find_map(|name| broken(name))
}

async fn version(program: &Path) -> Result<Finding, Finding> {
    let reinstall = format!("reinstall it with `{}`", PROGRAM.install);
    let output = output(Command::new(program).arg("--version").current_dir("/"), ANSWER_LIMIT)
        .await
        .map_err(|error| Finding::problem("version", error, reinstall.clone()))?;
    let printed = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let Some(version) = Version::find(&printed) else {
        let printed: String = printed.chars().take(200).collect();
        let text = format!("{} printed no version: {printed:?}", program.display());
        let hint = format!("is it pi, with Node 22.19 or newer? {reinstall}");
        return Err(Finding::problem("version", text, hint));
    };
    if version < MINIMUM_VERSION {
        let text = format!("{version} is older than {MINIMUM_VERSION}");
        let update = format!("update it with `{}@latest`", PROGRAM.install);
        return Ok(Finding::problem("version", text, update));
    }
    Ok(Finding::ok("version", version.to_string()))
}

/// pi lists the models that it has a login or a key for.
async fn models(program: &Path) -> Finding {
    let mut command = Command::new(program);
    command.args(["--list-models", "--offline", "--no-approve"]).current_dir("/");
    let output = match output(&mut command, ANSWER_LIMIT).await {
        Ok(output) => output,
        Err(error) => return Finding::note("login", error, "run `pi --list-models` for details"),
    };
    let printed = String::from_utf8_lossy(&output.stdout);
    // The first line is a heading.
    let models = printed.lines().filter(|line| !line.trim().is_empty()).count().saturating_sub(1);
    if models == 0 {
        let hint = "start `pi` and use /login, or set the API key of your provider";
        return Finding::problem("login", "no model can be used: no login, no API key", hint);
    }
    Finding::ok("login", format!("{models} models can be used"))
}
