//! The checks, each by itself: one that fails does not keep the others from being made.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use nix::unistd::{AccessFlags, Uid, access};
use takopi_codex::{MINIMUM_VERSION, Version};
use takopi_core::locks::{Holder, NoLeases, SessionKey};
use takopi_core::process::{descriptor_limit, end_strays, find_program, strays};
use takopi_core::{EngineId, Host, ResumeToken};
use tokio::process::Command;

use super::Finding;
use crate::args::DoctorArgs;
use crate::hints::INSTALL;
use crate::{config, sessions};

/// How long codex may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Fewer open files than this are few for an agent.
const FEW_DESCRIPTORS: u64 = 256;
/// Since this release codex guards its sessions by itself.
const GUARDS_SESSIONS: &str = "0.147.0";

/// Makes all checks; with `--fix` it repairs what it can on the way.
pub(super) async fn all(args: &DoctorArgs, config: Option<&Path>) -> Vec<Finding> {
    let mut findings = vec![settings(config)];
    // The file may say which codex to use.
    let configured = config::load(config).ok().and_then(|config| config.codex_bin);
    let program = args.codex_bin.clone().or(configured).unwrap_or_else(|| "codex".into());
    match codex(&program) {
        Ok(program) => {
            findings.push(Finding::ok("codex", program.display().to_string()));
            findings.push(version(&program).await);
            findings.push(login(&program).await);
        }
        Err(finding) => findings.push(finding),
    }
    match Host::global() {
        Ok(host) => {
            findings.push(state(host.state_directory(), args.fix));
            findings.push(locks(&host).await);
            findings.push(leftovers(host.state_directory(), args.fix));
        }
        Err(error) => {
            let hint = "free some memory and processes, and try again";
            findings.push(Finding::problem("state", error.to_string(), hint));
        }
    }
    findings.push(descriptors());
    findings
}

fn settings(named: Option<&Path>) -> Finding {
    let path = named.map(Path::to_owned).or_else(config::default_path);
    match (config::load(named), path) {
        (Err(error), _) => {
            let what = error.root_cause().to_string();
            Finding::problem("config", what, "correct the file, or move it away")
        }
        (Ok(_), Some(path)) if path.exists() => Finding::ok("config", path.display().to_string()),
        (Ok(_), Some(path)) => Finding::ok("config", format!("none ({})", path.display())),
        (Ok(_), None) => Finding::ok("config", "none"),
    }
}

/// The program, if there is one that can be run.
fn codex(program: &Path) -> Result<PathBuf, Finding> {
    let Some(found) = find_program(program, None) else {
        let what = format!("{} was not found", program.display());
        let hint = format!("install it with `{INSTALL}`, or name it with --codex-bin PATH");
        return Err(Finding::problem("codex", what, hint));
    };
    if access(&found, AccessFlags::X_OK).is_err() {
        let what = format!("{} is not executable", found.display());
        return Err(Finding::problem("codex", what, format!("chmod +x {}", found.display())));
    }
    Ok(found)
}

async fn version(program: &Path) -> Finding {
    let said = match ask(program, &["--version"]).await {
        Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Err(why) => {
            return Finding::problem("version", why, format!("`{INSTALL}` installs it anew"));
        }
    };
    let Some(version) = Version::find(&said) else {
        let what = format!("{said:?} is no version");
        return Finding::note("version", what, "is it a codex? --codex-bin names another");
    };
    if version < MINIMUM_VERSION {
        let what = format!("{version} is older than {MINIMUM_VERSION}");
        return Finding::problem("version", what, format!("`{INSTALL}@latest` updates it"));
    }
    if Version::find(GUARDS_SESSIONS).is_some_and(|guards| version < guards) {
        let hint = format!(
            "before {GUARDS_SESSIONS} only takopi keeps two runs apart on a session: \
             do not resume one by hand while takopi uses it"
        );
        return Finding::note("version", version.to_string(), hint);
    }
    Finding::ok("version", version.to_string())
}

async fn login(program: &Path) -> Finding {
    let output = match ask(program, &["login", "status"]).await {
        Ok(output) => output,
        Err(why) => return Finding::note("login", why, "`codex login status` says more"),
    };
    let said = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    let said = said.iter().flat_map(|text| text.lines()).find(|line| line.contains("ogged in"));
    let said = said.unwrap_or(if output.status.success() { "logged in" } else { "not logged in" });
    if output.status.success() {
        return Finding::ok("login", said);
    }
    match provider() {
        Some(provider) => {
            let hint = "log in with `codex login` if it wants an OpenAI account";
            Finding::note("login", format!("{said}; the model provider is {provider:?}"), hint)
        }
        None => Finding::problem("login", said, "log in with `codex login`"),
    }
}

/// The model provider of codex's own configuration, if it is not OpenAI.
fn provider() -> Option<String> {
    let file = sessions::codex_home()?.join("config.toml");
    let config: toml::Table = std::fs::read_to_string(file).ok()?.parse().ok()?;
    let provider = config.get("model_provider")?.as_str()?;
    (provider != "openai").then(|| provider.to_owned())
}

/// The directory for locks and records: the user's, and nobody else's.
fn state(directory: &Path, fix: bool) -> Finding {
    let shown = directory.display().to_string();
    let metadata = match directory.metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Finding::ok("state", format!("{shown} (not yet made)"));
        }
        Err(error) => {
            let hint = "TAKOPI_STATE_DIR chooses another directory";
            return Finding::problem("state", format!("{shown}: {error}"), hint);
        }
    };
    if !metadata.is_dir() || metadata.uid() != Uid::effective().as_raw() {
        let hint = "TAKOPI_STATE_DIR chooses another directory";
        return Finding::problem("state", format!("{shown} is not a directory of yours"), hint);
    }
    let (writable, readable) = (metadata.mode() & 0o022 != 0, metadata.mode() & 0o055 != 0);
    if !writable && !readable {
        return Finding::ok("state", shown);
    }
    let closed = std::fs::Permissions::from_mode(0o700);
    if fix && std::fs::set_permissions(directory, closed).is_ok() {
        return Finding::ok("state", format!("{shown} (now closed to others)"));
    }
    let hint = format!("`takopi doctor --fix`, or chmod 700 {shown}");
    if writable {
        Finding::problem("state", format!("{shown} can be written to by others"), hint)
    } else {
        Finding::note("state", format!("{shown} can be read by others"), hint)
    }
}

/// Takes a lock and lets it go.
async fn locks(host: &Host) -> Finding {
    let engine = EngineId::from_static("doctor");
    let token = ResumeToken::new(engine.clone(), std::process::id().to_string());
    let key = SessionKey::new(&token);
    let hint = "TAKOPI_STATE_DIR chooses another directory, best on a local disk";
    match host.session_locks().try_lock(&key, &Holder::here(engine), &NoLeases).await {
        Ok(Some(_guard)) => Finding::ok("locks", "work"),
        Ok(None) => Finding::problem("locks", "a lock that nobody holds was not given", hint),
        Err(error) => Finding::problem("locks", error.to_string(), hint),
    }
}

/// What takopis that were killed left running.
fn leftovers(directory: &Path, fix: bool) -> Finding {
    let found = if fix { end_strays(directory) } else { strays(directory) };
    if found.is_empty() {
        return Finding::ok("strays", "none");
    }
    let list: Vec<String> =
        found.iter().map(|stray| format!("{} {}", stray.pid, stray.command)).collect();
    let list = takopi_bridge::present::one_line(&list.join("; "), 300);
    if fix {
        return Finding::ok("strays", format!("ended: {list}"));
    }
    let hint = "they belong to no takopi that lives; `takopi doctor --fix` ends them";
    Finding::problem("strays", list, hint)
}

fn descriptors() -> Finding {
    match descriptor_limit() {
        Some(limit) if limit < FEW_DESCRIPTORS => {
            let hint = "`ulimit -n 1024` raises it";
            Finding::note("files", format!("only {limit} may be open at once"), hint)
        }
        Some(limit) => Finding::ok("files", format!("{limit} may be open at once")),
        None => Finding::ok("files", "no limit known"),
    }
}

/// Runs codex for an answer; says in words why there is none.
async fn ask(program: &Path, args: &[&str]) -> Result<Output, String> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).kill_on_drop(true);
    let what = format!("`{} {}`", program.display(), args.join(" "));
    match tokio::time::timeout(PATIENCE, command.output()).await {
        Ok(Ok(output)) => Ok(output),
        Ok(Err(error)) => Err(format!("{what} cannot be run: {error}")),
        Err(_) => Err(format!("{what} did not answer within {} s", PATIENCE.as_secs())),
    }
}
