//! The checks. Each is made by itself: one that fails does not prevent the others.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use nix::unistd::Uid;
use takopi_core::catalog::{EngineEntry, EngineSetup, Finding, Status};
use takopi_core::locks::{Holder, NoLeases, SessionKey};
use takopi_core::process::{descriptor_limit, end_strays, find_program, strays};
use takopi_core::{EngineId, Host, ResumeToken};

use crate::args::DoctorArgs;
use crate::config;
use crate::engines;

/// Fewer open files than this are not enough for an agent.
const FEW_DESCRIPTORS: u64 = 256;

/// Makes all checks; with `--fix` also repairs what can be repaired.
pub(super) async fn all(args: &DoctorArgs, config: Option<&Path>) -> Vec<Finding> {
    let mut findings = vec![settings(config)];
    findings.extend(installations(args, config::load(config).unwrap_or_default()).await);
    #[cfg(feature = "telegram")]
    findings.extend(crate::telegram::doctor(&config::load(config).unwrap_or_default()).await);
    #[cfg(feature = "fleet")]
    findings.extend(crate::fleet::findings(&config::load(config).unwrap_or_default()).await);
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

/// Checks the engine that was named, or all. An engine that is not installed is a problem only if it was
/// chosen, or its program was named.
async fn installations(args: &DoctorArgs, config: config::Config) -> Vec<Finding> {
    // The configuration file may name the programs of engines.
    let mut flags = args.flags.clone();
    flags.fill(config.programs);
    let variable = std::env::var("TAKOPI_ENGINE").ok().filter(|engine| !engine.is_empty());
    let only = args.engine.clone();
    let name = only.clone().or(variable).or(config.engine);
    let chosen = match engines::named(name.as_deref()) {
        Ok(chosen) => chosen,
        Err(error) => {
            return vec![Finding::problem("engine", error.to_string(), "choose one of these")];
        }
    };
    let mut findings = Vec::new();
    let mut missing = Vec::new();
    for entry in engines::all().filter(|entry| only.is_none() || entry.id() == chosen.id()) {
        if entry.program().is_none() && entry.id() != chosen.id() && !entry.is_installed() {
            missing.push(entry.id().to_string());
            continue;
        }
        let program = entry.program();
        let named = program.and_then(|program| flags.programs.get(program.flag)).cloned();
        let found = match program {
            Some(program) if named.is_none() && entry.id() != chosen.id() => {
                match find_program(Path::new(program.name), None) {
                    Some(_) => entry.doctor(&EngineSetup::new()).await,
                    None => vec![Finding::note(program.name, "not installed", program.advice())],
                }
            }
            _ => entry.doctor(&EngineSetup::new().program(named)).await,
        };
        findings.extend(found.into_iter().map(|finding| finding.engine(entry.id())));
    }
    if !missing.is_empty() {
        let text = format!("not installed: {}", missing.join(", "));
        findings.push(Finding::note("others", text, "`takopi engines` shows all engines"));
    }
    if name.is_none() {
        suggest_another(chosen, &mut findings);
    }
    findings
}

/// Whoever has another engine need not install the default one.
fn suggest_another(default: &dyn EngineEntry, findings: &mut [Finding]) {
    let is_program = |entry: &dyn EngineEntry, finding: &Finding, status: Status| {
        let name = entry.program().map(|program| program.name);
        name == Some(finding.check.as_str()) && finding.status == status
    };
    let others = engines::all().filter(|entry| entry.id() != default.id());
    let mut installed =
        others.filter(|entry| findings.iter().any(|it| is_program(*entry, it, Status::Ok)));
    let Some(other) = installed.next() else { return };
    let missing = findings.iter_mut().find(|it| is_program(default, it, Status::Problem));
    if let Some(hint) = missing.and_then(|finding| finding.hint.as_mut()) {
        let (title, id) = (other.title(), other.id());
        *hint = format!(
            "{hint}; to use {title} by default, set TAKOPI_ENGINE={id} or `engine = \"{id}\"` in the configuration file"
        );
    }
}

fn settings(named: Option<&Path>) -> Finding {
    let path = named.map(Path::to_owned).or_else(config::default_path);
    match (config::load(named), path) {
        (Err(error), _) => {
            let text = error.root_cause().to_string();
            Finding::problem("config", text, "correct the file, or move it away")
        }
        (Ok(_), Some(path)) if path.exists() => Finding::ok("config", path.display().to_string()),
        (Ok(_), Some(path)) => Finding::ok("config", format!("none ({})", path.display())),
        (Ok(_), None) => Finding::ok("config", "none"),
    }
}

/// The directory for locks and run records must be accessible to the user alone.
fn state(directory: &Path, fix: bool) -> Finding {
    let shown = directory.display().to_string();
    let metadata = match directory.metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Finding::ok("state", format!("{shown} (not created yet)"));
        }
        Err(error) => {
            let hint = "set TAKOPI_STATE_DIR to another directory";
            return Finding::problem("state", format!("{shown}: {error}"), hint);
        }
    };
    if !metadata.is_dir() || metadata.uid() != Uid::effective().as_raw() {
        let hint = "set TAKOPI_STATE_DIR to another directory";
        return Finding::problem("state", format!("{shown} is not a directory that you own"), hint);
    }
    let (writable, readable) = (metadata.mode() & 0o022 != 0, metadata.mode() & 0o055 != 0);
    if !writable && !readable {
        return Finding::ok("state", shown);
    }
    let closed = std::fs::Permissions::from_mode(0o700);
    if fix && std::fs::set_permissions(directory, closed).is_ok() {
        return Finding::ok("state", format!("{shown} (access of others removed)"));
    }
    let hint = format!("run `takopi doctor --fix` or `chmod 700 {shown}`");
    if writable {
        Finding::problem("state", format!("{shown} is writable by others"), hint)
    } else {
        Finding::note("state", format!("{shown} is readable by others"), hint)
    }
}

/// Takes a lock and releases it.
async fn locks(host: &Host) -> Finding {
    let engine = EngineId::from_static("doctor");
    let token = ResumeToken::new(engine.clone(), std::process::id().to_string());
    let key = SessionKey::new(&token);
    let hint = "set TAKOPI_STATE_DIR to another directory, preferably on a local disk";
    match host.session_locks().try_lock(&key, &Holder::here(engine), &NoLeases).await {
        Ok(Some(_guard)) => Finding::ok("locks", "work"),
        Ok(None) => Finding::problem("locks", "a free lock could not be taken", hint),
        Err(error) => Finding::problem("locks", error.to_string(), hint),
    }
}

/// Processes that a killed takopi left running.
fn leftovers(directory: &Path, fix: bool) -> Finding {
    let found = if fix { end_strays(directory) } else { strays(directory) };
    if found.is_empty() {
        return Finding::ok("strays", "none");
    }
    let list: Vec<String> =
        found.iter().map(|stray| format!("{} {}", stray.pid, stray.command)).collect();
    let list = takopi_bridge::present::one_line(&list.join("; "), 300);
    if fix {
        return Finding::ok("strays", format!("stopped: {list}"));
    }
    let hint = "no running takopi owns them; `takopi doctor --fix` stops them";
    Finding::problem("strays", list, hint)
}

fn descriptors() -> Finding {
    match descriptor_limit() {
        Some(limit) if limit < FEW_DESCRIPTORS => {
            let hint = "raise the limit with `ulimit -n 1024`";
            Finding::note("files", format!("only {limit} can be open at once"), hint)
        }
        Some(limit) => Finding::ok("files", format!("{limit} can be open at once")),
        None => Finding::ok("files", "no limit known"),
    }
}
