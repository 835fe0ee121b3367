//! Checks of Claude Code's installation.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use serde_json::Value;
use takopi_core::catalog::{EngineSetup, Finding, output};
use takopi_core::version::Version;
use tokio::process::Command;

use crate::MINIMUM_VERSION;
use crate::entry::PROGRAM;
use crate::sessions::config_directory;

/// How long Claude Code may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Since this release Claude Code reports when it is busy.
const REPORTS_STATE: Version = Version::new(2, 1, 105);
/// Since this release it is known to have `claude auth`. An older one takes the words for a prompt, and sends
/// it to the model.
const REPORTS_LOGIN: Version = Version::new(2, 1, 40);
/// The variable whose key Claude Code prefers to a login.
const KEY: &str = "ANTHROPIC_API_KEY";

/// Checks program, configuration, version and login. What depends on a failed check is left out.
pub(crate) async fn check(setup: &EngineSetup) -> Vec<Finding> {
    let program = match PROGRAM.executable(setup.program.as_deref()) {
        Ok(program) => program,
        Err(finding) => return vec![finding],
    };
    let mut findings = vec![Finding::ok(PROGRAM.name, program.display().to_string())];
    match config() {
        Ok(finding) => findings.extend(finding),
        Err(finding) => {
            findings.push(finding);
            return findings;
        }
    }
    match version(&program).await {
        Ok(version) => {
            findings.push(judged(version));
            findings.push(login(&program, version).await);
        }
        Err(finding) => findings.push(finding),
    }
    findings
}

/// Claude Code's own directory. It need not exist; without one that can be read, no session is stored.
fn config() -> Result<Option<Finding>, Finding> {
    let Some(directory) = config_directory() else { return Ok(None) };
    if let Err(error) = std::fs::read_dir(&directory)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        let text = format!("{} cannot be read: {error}", directory.display());
        let hint = "make it a directory of yours, or set CLAUDE_CONFIG_DIR to another one";
        return Err(Finding::problem("home", text, hint));
    }
    let file = directory.join("settings.json");
    let Ok(text) = std::fs::read_to_string(&file) else { return Ok(None) };
    let read = serde_json::from_str::<Value>(&text);
    Ok(read.err().filter(|_| !text.trim().is_empty()).map(|error| {
        let text = format!("{}: {error}", file.display());
        Finding::note("home", text, "Claude Code ignores all of this file until it is corrected")
    }))
}

/// The version; an error if there is no Claude Code to ask anything else.
async fn version(program: &Path) -> Result<Version, Finding> {
    let output = ask(Command::new(program).arg("--version")).await.map_err(|error| {
        Finding::problem("version", error, format!("reinstall it with `{}`", PROGRAM.install))
    })?;
    let printed = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let version = Version::find(&printed).filter(|_| printed.contains("Claude Code"));
    version.ok_or_else(|| {
        let printed: String = printed.chars().take(200).collect();
        let text = format!("{} printed no version of Claude Code: {printed:?}", program.display());
        let hint = format!("is it Claude Code? Name another program with --{} PATH", PROGRAM.flag);
        Finding::problem("version", text, hint)
    })
}

fn judged(version: Version) -> Finding {
    let update = format!("`{}@latest`", PROGRAM.install);
    if version < MINIMUM_VERSION {
        let text = format!("{version} is older than {MINIMUM_VERSION}");
        return Finding::problem("version", text, format!("update it with {update}"));
    }
    if version < REPORTS_STATE {
        let hint = format!(
            "before {REPORTS_STATE} Claude Code does not report when it is done: what background agents \
             answer after the first result is not seen; update it with {update}"
        );
        return Finding::note("version", version.to_string(), hint);
    }
    Finding::ok("version", version.to_string())
}

async fn login(program: &Path, version: Version) -> Finding {
    if version < REPORTS_LOGIN {
        let text = format!("not checked: {version} cannot report it");
        return Finding::note("login", text, "start `claude` and use /login if runs are refused");
    }
    let status = match Login::ask(program, true).await {
        Ok(status) => status,
        Err(error) => {
            return Finding::problem("login", error, "run `claude auth status` for details");
        }
    };
    if !status.logged_in {
        let hint = format!("log in with `claude auth login`, or set {KEY}");
        return Finding::problem("login", "not logged in", hint);
    }
    let has_key = std::env::var_os(KEY).is_some_and(|key| !key.is_empty());
    if has_key && Login::ask(program, false).await.is_ok_and(|without| without.logged_in) {
        let text = format!("{KEY} is set: runs are billed to the key, not to the login");
        return Finding::note("login", text, format!("unset {KEY} to use the login"));
    }
    Finding::ok("login", status.by)
}

/// What `claude auth status` reports.
struct Login {
    logged_in: bool,
    /// How, for people.
    by: String,
}

impl Login {
    async fn ask(program: &Path, with_key: bool) -> Result<Self, String> {
        let mut command = Command::new(program);
        command.args(["auth", "status"]);
        if !with_key {
            command.env_remove(KEY);
        }
        let output = ask(&mut command).await?;
        let status: Value = serde_json::from_slice(&output.stdout).map_err(|_| {
            let stderr = String::from_utf8_lossy(&output.stderr);
            let said = stderr.lines().map(str::trim).find(|line| !line.is_empty());
            let said = said.unwrap_or("`claude auth status` printed no status");
            said.chars().take(300).collect::<String>()
        })?;
        let text = |key: &str| status.get(key).and_then(Value::as_str);
        let logged_in = status.get("loggedIn").and_then(Value::as_bool);
        let method = text("authMethod").unwrap_or("unknown method");
        let by = match method {
            "api_key" => format!("API key ({})", text("apiKeySource").unwrap_or("unknown source")),
            "third_party" => text("apiProvider").unwrap_or(method).to_owned(),
            _ => {
                let plan = text("subscriptionType").map(|plan| format!(", {plan}"));
                format!("logged in ({method}{})", plan.unwrap_or_default())
            }
        };
        Ok(Self { logged_in: logged_in.unwrap_or(output.status.success()), by })
    }
}

/// Runs Claude Code to its end, away from the files of a project.
async fn ask(command: &mut Command) -> Result<Output, String> {
    output(command.current_dir("/"), ANSWER_LIMIT).await
}
