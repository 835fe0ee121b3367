//! Codex for programs with many engines.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use takopi_core::catalog::{
    EngineEntry, EngineSetup, Feature, Finding, PortableSessions, Program, SessionError,
    SessionStore, SetupError, TransportInfo,
};
use takopi_core::{Completed, EngineId, EngineRunner, Reason, Runner};

use crate::app_server::{CodexAppServer, PoolLimits};
use crate::rollouts;
use crate::{CODEX, Codex, doctor};

/// How long an idle shared process is kept.
const KEEP_SHARED: Duration = Duration::from_mins(1);

/// The program, and how to install it.
pub(crate) const PROGRAM: Program =
    Program::new("codex", "codex-bin", "TAKOPI_CODEX_BIN", "npm install -g @openai/codex");

const APP_SERVER: TransportInfo = TransportInfo::new(
    "app-server",
    "`codex app-server`: the agent can ask for approval, sessions stay warm",
    &[
        Feature::Approvals,
        Feature::Steering,
        Feature::HostTools,
        Feature::Images,
        Feature::Deltas,
        Feature::Resume,
    ],
);
const EXEC: TransportInfo = TransportInfo::new(
    "exec",
    "`codex exec`: one process per run, no approvals",
    &[Feature::Images, Feature::Resume],
);

/// Codex for programs with many engines: both transports, its stored sessions, its checks.
///
/// ```
/// use takopi_codex::CodexEntry;
/// use takopi_core::catalog::{EngineEntry, EngineSetup};
///
/// let runner = CodexEntry.runner(&EngineSetup::new().transport("exec".to_owned()))?;
/// assert_eq!(runner.engine(), takopi_codex::CODEX);
/// # Ok::<(), takopi_core::catalog::SetupError>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct CodexEntry;

impl EngineEntry for CodexEntry {
    fn id(&self) -> EngineId {
        CODEX
    }

    fn title(&self) -> &'static str {
        "OpenAI Codex"
    }

    fn transports(&self) -> &[TransportInfo] {
        &[APP_SERVER, EXEC]
    }

    fn settings(&self) -> &[&str] {
        &["model", "effort", "sandbox", "images", "output_schema", "ephemeral", "options"]
    }

    fn program(&self) -> Option<&Program> {
        Some(&PROGRAM)
    }

    fn runner(&self, setup: &EngineSetup) -> Result<Arc<dyn Runner>, SetupError> {
        let transport = self.transport(setup.transport.as_deref())?;
        let codex = codex_of(setup);
        if transport.name == EXEC.name {
            return Ok(Arc::new(codex.exec()));
        }
        let server = CodexAppServer::new(codex);
        let server = match setup.shared_by {
            Some(busy) => server.keep_warm(KEEP_SHARED).shared(limits(busy)),
            None => server.keep_warm(setup.keep_warm),
        };
        Ok(Arc::new(EngineRunner::new(server)))
    }

    fn sessions(&self) -> Result<Option<Box<dyn SessionStore>>, SessionError> {
        Ok(Some(Box::new(rollouts::open()?)))
    }

    fn portable(&self, setup: &EngineSetup) -> Option<Arc<dyn PortableSessions>> {
        codex_of(setup).portable_sessions()
    }

    fn doctor<'a>(&'a self, setup: &'a EngineSetup) -> BoxFuture<'a, Vec<Finding>> {
        Box::pin(doctor::check(setup))
    }

    fn hint(&self, completed: &Completed) -> Option<String> {
        match completed.reason.as_ref()? {
            Reason::EngineMissing => Some(PROGRAM.advice()),
            Reason::EngineTooOld => Some(format!("update it with `{}@latest`", PROGRAM.install)),
            Reason::Auth => Some("log in with `codex login`".to_owned()),
            _ => None,
        }
    }

    fn sandbox_hint(&self, sandbox: Option<&str>) -> Option<String> {
        // Without a setting of the user, codex's default is read-only.
        let read_only = sandbox.is_none_or(|sandbox| sandbox == "read-only");
        read_only.then(|| {
            "the sandbox may be read-only: --sandbox workspace-write allows changes to files"
                .to_owned()
        })
    }
}

fn codex_of(setup: &EngineSetup) -> Codex {
    let codex = Codex::new().env_policy(setup.env_policy.clone());
    match &setup.program {
        Some(program) => codex.binary(program),
        None => codex,
    }
}

/// Enough processes for so many busy sessions, and one more: a full process is replaced while its last
/// runs go on.
fn limits(busy: usize) -> PoolLimits {
    let limits = PoolLimits::default();
    PoolLimits::new(limits.busy, limits.loaded, busy.div_ceil(limits.busy) + 1)
}

#[cfg(test)]
mod tests {
    use takopi_core::RunSettings;

    use super::*;

    fn hint(reason: Reason) -> Option<String> {
        CodexEntry.hint(&Completed::failure(CODEX, reason, ""))
    }

    #[test]
    fn failures_that_a_person_can_repair_have_a_hint() {
        assert_eq!(hint(Reason::Auth).as_deref(), Some("log in with `codex login`"));
        assert!(hint(Reason::EngineMissing).is_some_and(|hint| hint.contains("npm install")));
        assert!(hint(Reason::EngineTooOld).is_some_and(|hint| hint.contains("@latest")));
        assert_eq!(hint(Reason::EngineFailed), None);
    }

    #[test]
    fn the_sandbox_is_suspected_only_while_it_is_read_only() {
        assert!(CodexEntry.sandbox_hint(None).is_some());
        assert!(CodexEntry.sandbox_hint(Some("read-only")).is_some());
        assert_eq!(CodexEntry.sandbox_hint(Some("workspace-write")), None);
    }

    #[test]
    fn exec_cannot_ask_for_approval_and_app_server_can() {
        let approvals =
            |name: &str| CodexEntry.transport(Some(name)).unwrap().supports(Feature::Approvals);
        assert!(approvals("app-server") && !approvals("exec"));
        assert_eq!(CodexEntry.default_transport().name, "app-server");
    }

    #[test]
    fn every_setting_that_is_named_exists() {
        for name in CodexEntry.settings() {
            assert!(RunSettings::NAMES.contains(name), "{name}");
        }
    }
}
