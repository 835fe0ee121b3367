//! How a process is started: arguments, environment, and how it is stopped.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use takopi_core::process::{EnvPolicy, Launch, StdinPlan, StopSequence, StopStep};
use takopi_core::runner::RunError;
use takopi_core::{Reason, RunRequest};

use crate::Pi;
use crate::extension::Extension;
use crate::options::Options;
use crate::permission_mode::PermissionMode;

/// The thinking levels that `effort` may name.
pub(crate) const THINKING_LEVELS: [&str; 7] =
    ["off", "minimal", "low", "medium", "high", "xhigh", "max"];

/// A process that serves one session. Two equal launches may share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PiLaunch {
    program: PathBuf,
    /// All arguments but those that name the session.
    args: Vec<String>,
    env: Vec<(OsString, OsString)>,
    env_policy: EnvPolicy,
    cwd: PathBuf,
    /// By which takopi's extension reports that it is loaded.
    pub(crate) sign: String,
}

/// How the session comes to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionArg<'a> {
    /// With an id that takopi has chosen.
    New(&'a str),
    /// From its file. pi would take an id that it does not know for a wish for a new session.
    Resume(&'a Path),
}

impl PiLaunch {
    /// How a request wants its process. Writes the extension below a directory.
    pub(crate) fn new(pi: &Pi, request: &RunRequest, state: &Path) -> Result<Self, RunError> {
        let options = Options::parse(pi.options.iter().chain(&request.settings.options))?;
        let settings = &request.settings;
        let mode = settings.permission_mode.as_deref().map(PermissionMode::parse).transpose();
        let mode = mode.map_err(|error| RunError::new(Reason::InvalidRequest, error))?;
        let extension = Extension::new(mode.unwrap_or_default(), &pi.tools, &pi.mcp_servers);
        let file = extension.write(state).map_err(|error| {
            let error = format!("cannot write pi's extension below {}: {error}", state.display());
            RunError::new(Reason::SpawnFailed, error)
        })?;
        let trusted = options.project_settings.unwrap_or(pi.project_settings);
        let mut args: Vec<String> = ["--mode", "rpc"].map(str::to_owned).to_vec();
        args.push(if trusted { "--approve" } else { "--no-approve" }.to_owned());
        let mut flag = |name: &str, value: &str| args.extend([name.to_owned(), value.to_owned()]);
        flag("--extension", &file.to_string_lossy());
        if let Some(model) = &settings.model {
            flag("--model", model);
        }
        if let Some(level) = &settings.effort {
            flag("--thinking", level);
        }
        for (name, value) in &options.flags {
            flag(name, value);
        }
        args.extend(pi.args.iter().cloned());
        let mut env: Vec<(OsString, OsString)> = Vec::new();
        env.extend(
            pi.config_dir.iter().map(|dir| ("PI_CODING_AGENT_DIR".into(), dir.clone().into())),
        );
        env.extend(request.env.iter().cloned());
        Ok(Self {
            program: pi.binary.clone(),
            args,
            env,
            env_policy: pi.env_policy.clone(),
            cwd: request.working_directory()?,
            sign: extension.sign,
        })
    }

    /// A variable as the process will have it, if takopi sets it; else as takopi itself has it.
    pub(crate) fn variable(&self, name: &str) -> Option<OsString> {
        let set = self.env.iter().rev().find(|(known, _)| known == name);
        set.map(|(_, value)| value.clone())
            .or_else(|| std::env::var_os(name))
            .filter(|value| !value.is_empty())
    }

    /// Where it runs.
    pub(crate) fn directory(&self) -> &Path {
        &self.cwd
    }

    /// The process for a session.
    pub(crate) fn launch(&self, session: SessionArg<'_>) -> Launch {
        let session: [OsString; 2] = match session {
            SessionArg::New(id) => ["--session-id".into(), id.into()],
            SessionArg::Resume(file) => ["--session".into(), file.into()],
        };
        let launch = Launch::new(&self.program)
            .args(self.args.iter().map(OsString::from).chain(session))
            .env_policy(self.env_policy.clone())
            .cwd(&self.cwd)
            .stdin(StdinPlan::Open)
            // Never SIGINT, which leaves its commands running. If takopi dies, the end of its input ends it.
            .interrupt_on_death(false)
            .stop_sequence(StopSequence::new([
                (StopStep::CloseStdin, Duration::from_secs(1)),
                (StopStep::Terminate, Duration::from_secs(2)),
            ]))
            .linger(Duration::from_secs(3));
        self.env.iter().fold(launch, |launch, (name, value)| launch.env(name, value))
    }
}

/// Refuses a value that pi would take for something else: a flag, or nothing.
pub(crate) fn check(request: &RunRequest) -> Result<(), RunError> {
    let refused = |error: String| Err(RunError::new(Reason::InvalidRequest, error));
    let settings = &request.settings;
    if let Some(level) = &settings.effort
        && !THINKING_LEVELS.contains(&level.as_str())
    {
        let known = THINKING_LEVELS.join(", ");
        return refused(format!("pi has no effort `{level}`; it has {known}"));
    }
    if let Some(model) = &settings.model
        && (model.is_empty() || model.starts_with('-'))
    {
        return refused(format!("`{model}` is no model"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn efforts_and_models_that_pi_would_misread_are_refused() {
        let error = |request: RunRequest| check(&request).map_err(|error| error.message);
        assert!(error(RunRequest::new("x").effort("high".to_owned())).is_ok());
        let refused = error(RunRequest::new("x").effort("huge".to_owned())).unwrap_err();
        assert!(refused.starts_with("pi has no effort `huge`; it has off, minimal"), "{refused}");
        assert!(error(RunRequest::new("x").model("--print".to_owned())).is_err());
    }

    #[test]
    fn projects_are_trusted_only_if_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let args = |pi: &Pi| PiLaunch::new(pi, &RunRequest::new("x"), dir.path()).unwrap().args;
        assert!(args(&Pi::new()).contains(&"--no-approve".to_owned()));
        assert!(args(&Pi::new().project_settings(true)).contains(&"--approve".to_owned()));
    }
}
