//! Codex over `codex exec --json`: one process a run.
//!
//! For one-shot runs, and for callers that want a process of its own for each run. takopi-core starts
//! and ends the process and holds the session's lock; here is what to start ([`CodexExec`]) and what
//! its lines mean ([`ExecTranslator`]).
//!
//! Promises: the prompt goes over stdin, never in an argument; codex always runs in the request's
//! directory, else in the current one; on cancel it gets SIGINT first, so that it ends its own
//! commands; a version that is too old ends the run, but no run waits for the version.

mod args;
mod translator;
mod wire;

use std::path::Path;

use futures::future::BoxFuture;
use takopi_core::jsonl::LineEngine;
use takopi_core::paths::Directory;
use takopi_core::process::{Launch, StdinPlan, StopSequence};
use takopi_core::runner::ResumeCodec;
use takopi_core::{EngineId, EngineRun, Reason, ResumeToken, RunError, RunRequest};

pub use args::find_exec_only_flag;
pub use translator::ExecTranslator;

use crate::{CODEX, Codex, resume_codec};

/// Codex over `codex exec --json`, as an engine. Made into a runner by [`Codex::exec`].
#[derive(Debug, Clone)]
pub struct CodexExec {
    codex: Codex,
}

impl CodexExec {
    /// Runs this codex.
    pub fn new(codex: Codex) -> Self {
        Self { codex }
    }
}

impl LineEngine for CodexExec {
    type Translator = ExecTranslator;

    fn id(&self) -> EngineId {
        CODEX
    }

    fn resume_codec(&self) -> ResumeCodec {
        resume_codec()
    }

    fn can_be_ephemeral(&self) -> bool {
        true
    }

    fn check(&self, request: &RunRequest) -> Result<(), RunError> {
        if let Some(flag) = find_exec_only_flag(&self.codex.args) {
            return Err(RunError::new(
                Reason::InvalidRequest,
                format!(
                    "`{flag}` belongs to `codex exec` itself and cannot be among the extra arguments"
                ),
            ));
        }
        check_request(request)
    }

    fn launch(
        &self,
        request: &RunRequest,
        resume: Option<&ResumeToken>,
    ) -> Result<Launch, RunError> {
        Ok(self
            .codex
            .launch(request)
            .args(args::arguments(&self.codex.all_args(), request, resume))
            .cwd(request.working_directory()?)
            .stdin(StdinPlan::Payload(request.prompt.clone().into_bytes()))
            .stop_sequence(StopSequence::interrupt_first())
            .interrupt_on_death(true))
    }

    fn translator(&self, request: &RunRequest, resume: Option<&ResumeToken>) -> ExecTranslator {
        let directory = directory_of(&request.working_directory().unwrap_or_default());
        ExecTranslator::of(self.codex.title(), directory, resume.cloned())
    }

    fn early_failure(&self, run: &EngineRun) -> BoxFuture<'static, RunError> {
        self.codex.too_old(run.host(), &run.request)
    }
}

/// Looks whether everything a request names is there, and means something to codex.
pub(crate) fn check_request(request: &RunRequest) -> Result<(), RunError> {
    if request.settings.permission_mode.is_some() {
        // Ignored, it could allow more than was meant.
        let error = "codex has no permission modes; set `sandbox` instead";
        return Err(RunError::new(Reason::InvalidRequest, error));
    }
    request.check_files()
}

/// A directory by the names codex may call it by.
pub(crate) fn directory_of(directory: &Path) -> Directory {
    let resolved = directory.canonicalize().unwrap_or_default();
    Directory::new([directory, resolved.as_path()])
}
