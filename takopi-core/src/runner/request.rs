//! The request for a run.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{ApprovalHandler, SteerReceiver};
use crate::model::ResumeToken;
use crate::settings::{RunSettings, for_each_setter};

/// One run: a prompt, and how to run it.
///
/// ```
/// use std::time::Duration;
/// use takopi_core::{ResumeToken, RunRequest};
///
/// let request = RunRequest::new("add a test for the parser")
///     .resume(ResumeToken::new("codex", "0199f3a5-0000-7000-8000-000000000000"))
///     .cwd("/srv/project")
///     .idle_timeout(Duration::from_secs(300));
/// assert_eq!(request.prompt, "add a test for the parser");
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct RunRequest {
    /// The prompt.
    pub prompt: String,
    /// The session to resume; without one a new session is begun.
    pub resume: Option<ResumeToken>,
    /// Directory, model, limits and the like.
    pub settings: RunSettings,
    /// Variables for the engine, on top of what it inherits.
    pub env: Vec<(OsString, OsString)>,
    /// Decides approval requests; without a handler every request is declined.
    pub approvals: Option<Arc<dyn ApprovalHandler>>,
    /// Messages into the running turn. Engines that cannot take them hand them back.
    pub steering: Option<SteerReceiver>,
    /// Cancels the run; its stream still ends with `Completed`.
    pub cancel: CancellationToken,
}

impl RunRequest {
    /// A request with nothing set but the prompt.
    pub fn new(prompt: impl Into<String>) -> Self {
        Self {
            prompt: prompt.into(),
            resume: None,
            settings: RunSettings::default(),
            env: Vec::new(),
            approvals: None,
            steering: None,
            cancel: CancellationToken::new(),
        }
    }

    /// Sets [`Self::resume`].
    pub fn resume(mut self, resume: impl Into<Option<ResumeToken>>) -> Self {
        self.resume = resume.into();
        self
    }

    /// Sets all of [`Self::settings`] at once.
    pub fn settings(mut self, settings: RunSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Adds a variable for the engine.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Sets [`Self::approvals`].
    pub fn approvals(mut self, approvals: Arc<dyn ApprovalHandler>) -> Self {
        self.approvals = Some(approvals);
        self
    }

    /// Sets [`Self::steering`].
    pub fn steering(mut self, steering: SteerReceiver) -> Self {
        self.steering = Some(steering);
        self
    }

    /// Sets [`Self::cancel`].
    pub fn cancel(mut self, cancel: CancellationToken) -> Self {
        self.cancel = cancel;
        self
    }

    /// Adds an image.
    pub fn image(mut self, file: impl Into<PathBuf>) -> Self {
        self.settings.images.push(file.into());
        self
    }

    /// Adds an option of the engine.
    pub fn option(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.options.push((key.into(), value.into()));
        self
    }
}

macro_rules! setters {
    ($( $name:ident: $type:ty => $value:expr; )*) => {
        impl RunRequest {
            $(
                #[doc = concat!("Sets [`RunSettings::", stringify!($name), "`].")]
                pub fn $name(mut self, $name: $type) -> Self {
                    self.settings.$name = $value;
                    self
                }
            )*
        }
    };
}

for_each_setter!(setters);

// Not derived: the prompt is never logged.
impl fmt::Debug for RunRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunRequest")
            .field("prompt", &format_args!("{} bytes", self.prompt.len()))
            .field("resume", &self.resume)
            .field("cwd", &self.settings.cwd)
            .finish_non_exhaustive()
    }
}
