//! Stands in for the engine until it is there: it has the same settings, and every run of it fails.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use takopi_core::process::{EnvPolicy, find_program};
use takopi_core::runner::ResumeCodec;
use takopi_core::{
    Completed, Engine, EngineId, EngineRun, EngineRunner, Reason, RunError, RunRequest,
};

use crate::permission_mode::permission_mode;
use crate::{CLAUDE, resume_codec};

#[derive(Debug, Clone)]
pub(super) struct Claude {
    binary: PathBuf,
    env_policy: EnvPolicy,
    keep_warm: Duration,
    background: bool,
    project_settings: bool,
    options: Vec<(String, String)>,
}

impl Claude {
    pub(super) fn new() -> Self {
        Self {
            binary: PathBuf::from("claude"),
            env_policy: EnvPolicy::default(),
            keep_warm: Duration::ZERO,
            background: true,
            project_settings: false,
            options: Vec::new(),
        }
    }

    pub(super) fn binary(mut self, program: impl Into<PathBuf>) -> Self {
        self.binary = program.into();
        self
    }

    pub(super) fn env_policy(mut self, policy: EnvPolicy) -> Self {
        self.env_policy = policy;
        self
    }

    pub(super) fn keep_warm(mut self, keep_warm: Duration) -> Self {
        self.keep_warm = keep_warm;
        self
    }

    pub(super) fn background(mut self, background: bool) -> Self {
        self.background = background;
        self
    }

    pub(super) fn project_settings(mut self, apply: bool) -> Self {
        self.project_settings = apply;
        self
    }

    pub(super) fn options(mut self, options: Vec<(String, String)>) -> Self {
        self.options = options;
        self
    }

    pub(super) fn runner(self) -> EngineRunner<Self> {
        EngineRunner::new(self)
    }
}

impl Engine for Claude {
    fn id(&self) -> EngineId {
        CLAUDE
    }

    fn resume_codec(&self) -> ResumeCodec {
        resume_codec()
    }

    fn check(&self, request: &RunRequest) -> Result<(), RunError> {
        let refused = |error: String| RunError::new(Reason::InvalidRequest, error);
        let mode = request.settings.permission_mode.as_deref().map(permission_mode);
        mode.transpose().map_err(refused)?;
        request.settings.missing_path().map_or(Ok(()), |missing| Err(refused(missing)))
    }

    fn run(self: Arc<Self>, run: EngineRun) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let (reason, error) = if find_program(&self.binary, None).is_some() {
                (Reason::EngineFailed, "Claude Code cannot be run yet".to_owned())
            } else {
                (Reason::EngineMissing, format!("{} was not found", self.binary.display()))
            };
            let _ = run.emit(Completed::failure(CLAUDE, reason, error)).await;
        })
    }
}
