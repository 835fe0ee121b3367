//! Checks of an agent's installation.

use std::os::unix::fs::PermissionsExt as _;

use takopi_core::Host;
use takopi_core::catalog::{EngineSetup, Finding};
use takopi_core::process::find_program;
use takopi_core::version::version_of;

use crate::Agent;

/// Checks program and version. A protocol has no question for the login: only a run shows it.
pub(crate) async fn check(agent: &Agent, setup: &EngineSetup) -> Vec<Finding> {
    let named = setup.program.clone().unwrap_or_else(|| agent.program());
    let name = named.display().to_string();
    let Some(program) = find_program(&named, None) else {
        return vec![Finding::problem(
            agent.id().as_str(),
            format!("{name} was not found"),
            advice(agent),
        )];
    };
    let mode = program.metadata().map_or(0, |metadata| metadata.permissions().mode());
    if program.is_dir() || mode & 0o111 == 0 {
        let text = format!("{} cannot be executed", program.display());
        return vec![Finding::problem(
            agent.id().as_str(),
            text,
            format!("chmod +x {}", program.display()),
        )];
    }
    let mut findings = vec![Finding::ok(agent.id().as_str(), program.display().to_string())];
    let version = match Host::global() {
        Ok(host) => version_of(&host, &program, &setup.env_policy, &[]).await,
        Err(_) => None,
    };
    findings.push(version.map_or_else(
        || {
            let text = format!("{name} --version printed no version");
            Finding::note("version", text, "takopi runs it all the same")
        },
        |version| Finding::ok("version", version.to_string()),
    ));
    let text = "not known before a run: the protocol does not tell";
    findings.push(Finding::note("login", text, format!("if a run fails: {}", agent.login())));
    findings
}

/// How to get the program.
pub(crate) fn advice(agent: &Agent) -> String {
    let id = agent.id();
    match agent.install() {
        Some(install) => {
            format!(
                "install it with `{install}`, or name it in the configuration: [engines.{id}] command = […]"
            )
        }
        None => format!("correct `command` of [engines.{id}] in the configuration"),
    }
}
