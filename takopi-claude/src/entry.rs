//! Claude Code for programs with many engines.

use std::sync::Arc;

use futures::future::BoxFuture;
use takopi_core::catalog::{
    EngineEntry, EngineSetup, Feature, Finding, PortableSessions, Program, SessionError,
    SessionStore, SetupError, TransportInfo,
};
use takopi_core::{Completed, EngineId, Reason, Runner};

use crate::{CLAUDE, Claude, TITLE, doctor, sessions};

/// The program, and how to install it.
pub(crate) const PROGRAM: Program = Program::new(
    "claude",
    "claude-bin",
    "TAKOPI_CLAUDE_BIN",
    "npm install -g @anthropic-ai/claude-code",
);

const STREAM_JSON: TransportInfo = TransportInfo::new(
    "stream-json",
    "`claude -p` with lines of JSON in both directions: the agent can ask for approval, sessions stay warm",
    &[
        Feature::Approvals,
        Feature::Steering,
        Feature::HostTools,
        Feature::Images,
        Feature::Deltas,
        Feature::Resume,
    ],
);

/// Claude Code for programs with many engines: its stored sessions, its checks, its hints.
///
/// Two options are for takopi and set what [`EngineSetup`] has fields for: `project_settings` and
/// `background`, each `true` or `false`.
///
/// ```
/// use takopi_claude::ClaudeEntry;
/// use takopi_core::catalog::{EngineEntry, EngineSetup};
///
/// let options = vec![("background".to_owned(), "false".to_owned())];
/// let runner = ClaudeEntry.runner(&EngineSetup::new().options(options))?;
/// assert_eq!(runner.engine(), takopi_claude::CLAUDE);
/// # Ok::<(), takopi_core::catalog::SetupError>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct ClaudeEntry;

impl EngineEntry for ClaudeEntry {
    fn id(&self) -> EngineId {
        CLAUDE
    }

    fn title(&self) -> &'static str {
        TITLE
    }

    fn transports(&self) -> &[TransportInfo] {
        &[STREAM_JSON]
    }

    fn settings(&self) -> &[&str] {
        &["model", "effort", "permission_mode", "images", "output_schema", "options"]
    }

    fn program(&self) -> Option<&Program> {
        Some(&PROGRAM)
    }

    fn runner(&self, setup: &EngineSetup) -> Result<Arc<dyn Runner>, SetupError> {
        self.transport(setup.transport.as_deref())?;
        Ok(Arc::new(configured(setup)?.runner()))
    }

    fn sessions(&self) -> Result<Option<Box<dyn SessionStore>>, SessionError> {
        Ok(Some(Box::new(sessions::open()?)))
    }

    fn portable(&self, setup: &EngineSetup) -> Option<Arc<dyn PortableSessions>> {
        configured(setup).ok()?.portable_sessions()
    }

    fn doctor<'a>(&'a self, setup: &'a EngineSetup) -> BoxFuture<'a, Vec<Finding>> {
        Box::pin(doctor::check(setup))
    }

    fn edits_hint(&self) -> Option<&'static str> {
        Some("--permission-mode acceptEdits allows changes to files")
    }

    fn hint(&self, completed: &Completed) -> Option<String> {
        match completed.reason.as_ref()? {
            Reason::EngineMissing => Some(PROGRAM.advice()),
            Reason::EngineTooOld => Some(format!("update it with `{}@latest`", PROGRAM.install)),
            Reason::Auth => {
                Some("log in with `claude auth login`, or set ANTHROPIC_API_KEY".to_owned())
            }
            _ => None,
        }
    }
}

/// Claude Code as a setup describes it.
fn configured(setup: &EngineSetup) -> Result<Claude, SetupError> {
    let mut claude = Claude::new().env_policy(setup.env_policy.clone()).keep_warm(setup.keep_warm);
    if let Some(program) = &setup.program {
        claude = claude.binary(program);
    }
    let mut project_settings = setup.project_settings;
    let mut background = setup.background.unwrap_or(true);
    let mut options = Vec::new();
    for (key, value) in &setup.options {
        match key.as_str() {
            "project_settings" => project_settings = switch(key, value)?,
            "background" => background = switch(key, value)?,
            _ => options.push((key.clone(), value.clone())),
        }
    }
    Ok(claude.project_settings(project_settings).background(background).options(options))
}

fn switch(key: &str, value: &str) -> Result<bool, SetupError> {
    value.parse().map_err(|_| SetupError::new(format!("-c {key}: expected true or false")))
}

#[cfg(test)]
mod tests {
    use takopi_core::RunSettings;

    use super::*;

    fn hint(reason: Reason) -> Option<String> {
        ClaudeEntry.hint(&Completed::failure(CLAUDE, reason, ""))
    }

    #[test]
    fn failures_that_a_person_can_repair_have_a_hint() {
        assert!(hint(Reason::Auth).is_some_and(|hint| hint.contains("`claude auth login`")));
        assert!(hint(Reason::EngineMissing).is_some_and(|hint| hint.contains("npm install")));
        assert!(hint(Reason::EngineTooOld).is_some_and(|hint| hint.contains("@latest")));
        assert_eq!(hint(Reason::EngineFailed), None);
    }

    #[test]
    fn every_setting_that_is_named_exists() {
        for name in ClaudeEntry.settings() {
            assert!(RunSettings::NAMES.contains(name), "{name}");
        }
    }

    #[test]
    fn only_the_one_transport_can_be_chosen() {
        let runner =
            |name: &str| ClaudeEntry.runner(&EngineSetup::new().transport(name.to_owned()));
        assert!(runner("stream-json").is_ok());
        let error = runner("exec").err().unwrap().to_string();
        assert_eq!(error, "claude has no transport `exec`; it has stream-json");
    }

    #[test]
    fn options_of_takopi_win_over_the_setup_and_are_not_passed_on() {
        let option = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let configured = |setup: EngineSetup, options: &[(String, String)]| {
            configured(&setup.options(options.to_vec())).map(|claude| format!("{claude:?}"))
        };
        let shown = |setup, options: &[_]| configured(setup, options).unwrap();
        let plain = shown(EngineSetup::new(), &[option("max_turns", "3")]);
        assert!(plain.contains("project_settings: false") && plain.contains("background: true"));
        assert!(plain.contains("max_turns"), "{plain}");
        let batch = EngineSetup::new().background(false);
        assert!(shown(batch.clone(), &[]).contains("background: false"));
        assert!(shown(batch, &[option("background", "true")]).contains("background: true"));
        let run = EngineSetup::new().project_settings(true);
        assert!(shown(run.clone(), &[]).contains("project_settings: true"));
        let off = shown(run, &[option("project_settings", "false")]);
        assert!(off.contains("project_settings: false") && off.contains("options: []"), "{off}");
        let error = configured(EngineSetup::new(), &[option("background", "maybe")]).unwrap_err();
        assert_eq!(error.to_string(), "-c background: expected true or false");
    }
}
