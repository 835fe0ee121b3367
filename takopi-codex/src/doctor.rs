//! Checks of codex's installation.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use takopi_core::catalog::{EngineSetup, Finding, output};
use tokio::process::Command;

use crate::MINIMUM_VERSION;
use crate::entry::PROGRAM;
use crate::rollouts::codex_home;
use takopi_core::version::Version;

/// How long codex may take to answer, on a busy machine too.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Since this release codex itself refuses a second writer on a session.
const GUARDS_SESSIONS: Version = Version::new(0, 147, 0);

/// Checks program, configuration, version and login. What depends on a failed check is left out.
pub(crate) async fn check(setup: &EngineSetup) -> Vec<Finding> {
    let program = match PROGRAM.executable(setup.program.as_deref()) {
        Ok(program) => program,
        Err(finding) => return vec![finding],
    };
    let mut findings = vec![Finding::ok("codex", program.display().to_string())];
    let config = match config() {
        Ok(config) => config,
        Err(finding) => {
            findings.push(finding);
            return findings;
        }
    };
    match version(&program).await {
        Ok(finding) => {
            findings.push(finding);
            findings.push(login(&program, &config).await);
        }
        Err(finding) => findings.push(finding),
    }
    findings
}

/// Codex's own configuration. Codex does not start with a missing home or a broken file.
fn config() -> Result<toml::Table, Finding> {
    let Some(home) = codex_home() else { return Ok(toml::Table::new()) };
    let is_set = std::env::var_os("CODEX_HOME").is_some_and(|value| !value.is_empty());
    if is_set && !home.is_dir() {
        let text = format!("CODEX_HOME={} is not a directory", home.display());
        return Err(Finding::problem("home", text, "create it, or unset CODEX_HOME"));
    }
    let file = home.join("config.toml");
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        let text = format!("{}:{line}: {}", file.display(), error.message());
        Finding::problem("home", text, "correct codex's configuration file")
    })
}

/// The version; an error if there is no codex to ask anything else.
async fn version(program: &Path) -> Result<Finding, Finding> {
    let output = ask(program, &["--version"]).await.map_err(|error| {
        Finding::problem("version", error, format!("reinstall it with `{}`", PROGRAM.install))
    })?;
    let printed = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let Some(version) = Version::find(&printed) else {
        let text = format!("{} printed no version: {printed:?}", program.display());
        let hint = format!("is it codex? Name another program with --{} PATH", PROGRAM.flag);
        return Err(Finding::problem("version", text, hint));
    };
    if version < MINIMUM_VERSION {
        let text = format!("{version} is older than {MINIMUM_VERSION}");
        let hint = format!("update it with `{}@latest`", PROGRAM.install);
        return Ok(Finding::problem("version", text, hint));
    }
    if version < GUARDS_SESSIONS {
        let hint = format!(
            "before {GUARDS_SESSIONS} codex does not refuse a second writer: \
             do not resume a session by hand while takopi uses it"
        );
        return Ok(Finding::note("version", version.to_string(), hint));
    }
    Ok(Finding::ok("version", version.to_string()))
}

async fn login(program: &Path, config: &toml::Table) -> Finding {
    let output = match ask(program, &["login", "status"]).await {
        Ok(output) => output,
        Err(error) => return Finding::note("login", error, "run `codex login status` for details"),
    };
    let printed = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    let status = printed.iter().flat_map(|text| text.lines()).find(|it| it.contains("ogged in"));
    let ok = output.status.success();
    let status = status.unwrap_or(if ok { "logged in" } else { "not logged in" });
    if ok {
        return Finding::ok("login", status);
    }
    // Another provider than OpenAI need not have a login.
    match config.get("model_provider").and_then(toml::Value::as_str) {
        Some(provider) if provider != "openai" => {
            let text = format!("{status}; the model provider is {provider:?}");
            Finding::note("login", text, "log in with `codex login` if it needs an OpenAI account")
        }
        _ => Finding::problem("login", status, "log in with `codex login`"),
    }
}

async fn ask(program: &Path, args: &[&str]) -> Result<Output, String> {
    output(Command::new(program).args(args), ANSWER_LIMIT).await
}
