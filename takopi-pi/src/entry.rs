//! pi for programs with many engines.

use std::sync::Arc;

use futures::future::BoxFuture;
use takopi_core::catalog::{
    EngineEntry, EngineSetup, Feature, Finding, Program, SessionError, SessionStore, SetupError,
    TransportInfo,
};
use takopi_core::{Completed, EngineId, Reason, Runner};

use crate::options::PROJECT_SETTINGS;
use crate::{PI, Pi, TITLE, doctor, sessions};

/// The program, and how to install it.
pub(crate) const PROGRAM: Program =
    Program::new("pi", "pi-bin", "TAKOPI_PI_BIN", "npm install -g @earendil-works/pi-coding-agent");

const RPC: TransportInfo = TransportInfo::new(
    "rpc",
    "`pi --mode rpc`: lines of JSON in both directions, sessions stay warm",
    &[
        Feature::Approvals,
        Feature::Steering,
        Feature::HostTools,
        Feature::Images,
        Feature::Deltas,
        Feature::Resume,
    ],
);

/// pi for programs with many engines: its stored sessions, its checks, its hints.
///
/// ```
/// use takopi_core::catalog::{EngineEntry, EngineSetup};
/// use takopi_pi::PiEntry;
///
/// let runner = PiEntry.runner(&EngineSetup::new())?;
/// assert_eq!(runner.engine(), takopi_pi::PI);
/// # Ok::<(), takopi_core::catalog::SetupError>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct PiEntry;

impl EngineEntry for PiEntry {
    fn id(&self) -> EngineId {
        PI
    }

    fn title(&self) -> &'static str {
        TITLE
    }

    fn transports(&self) -> &[TransportInfo] {
        &[RPC]
    }

    fn settings(&self) -> &[&str] {
        &["model", "effort", "permission_mode", "images", "options"]
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
                Some("start `pi` and use /login, or set the API key of your provider".to_owned())
            }
            _ => None,
        }
    }
}

/// pi as a setup describes it.
fn configured(setup: &EngineSetup) -> Result<Pi, SetupError> {
    let mut pi = Pi::new().env_policy(setup.env_policy.clone()).keep_warm(setup.keep_warm);
    if let Some(program) = &setup.program {
        pi = pi.binary(program);
    }
    let mut project_settings = setup.project_settings;
    let mut options = Vec::new();
    for (key, value) in &setup.options {
        if key == PROJECT_SETTINGS {
            project_settings = value
                .parse()
                .map_err(|_| SetupError::new(format!("-c {key}: expected true or false")))?;
        } else {
            options.push((key.clone(), value.clone()));
        }
    }
    Ok(pi.project_settings(project_settings).options(options))
}

#[cfg(test)]
mod tests {
    use takopi_core::RunSettings;

    use super::*;

    #[test]
    fn failures_that_a_person_can_repair_have_a_hint() {
        let hint = |reason| PiEntry.hint(&Completed::failure(PI, reason, ""));
        assert!(hint(Reason::Auth).is_some_and(|hint| hint.contains("/login")));
        assert!(hint(Reason::EngineMissing).is_some_and(|hint| hint.contains("npm install")));
        assert!(hint(Reason::EngineTooOld).is_some_and(|hint| hint.contains("@latest")));
        assert_eq!(hint(Reason::EngineFailed), None);
    }

    #[test]
    fn every_setting_that_is_named_exists() {
        for name in PiEntry.settings() {
            assert!(RunSettings::NAMES.contains(name), "{name}");
        }
    }

    #[test]
    fn an_option_of_takopi_wins_over_the_setup_and_is_not_passed_on() {
        let option = |value: &str| vec![("project_settings".to_owned(), value.to_owned())];
        let shown = |setup: EngineSetup| format!("{:?}", configured(&setup).unwrap());
        let trusted = EngineSetup::new().project_settings(true);
        assert!(shown(trusted.clone()).contains("project_settings: true"));
        assert!(shown(trusted.options(option("false"))).contains("project_settings: false"));
        let error = configured(&EngineSetup::new().options(option("maybe"))).unwrap_err();
        assert_eq!(error.to_string(), "-c project_settings: expected true or false");
    }
}
