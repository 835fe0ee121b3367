//! What a run is asked to do.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{ApprovalHandler, Steering};
use crate::model::ResumeToken;

/// One run: a prompt, and how to run it.
///
/// ```
/// use std::time::Duration;
/// use takopi_core::{ResumeToken, RunRequest};
///
/// let request = RunRequest::new("add a test for the parser")
///     .resume(ResumeToken::new("codex", "0199f3a5-0000-7000-8000-000000000000"))
///     .cwd("/srv/project")
///     .idle_timeout(Duration::from_secs(300))
///     .build();
/// assert_eq!(request.prompt, "add a test for the parser");
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct RunRequest {
    /// What the agent is asked.
    pub prompt: String,
    /// The session to go on with; without one a new session is begun.
    pub resume: Option<ResumeToken>,
    /// The directory to work in; the current one if not given.
    pub cwd: Option<PathBuf>,
    /// The model to use.
    pub model: Option<String>,
    /// How hard the model should think.
    pub effort: Option<String>,
    /// The engine's sandbox mode.
    pub sandbox: Option<String>,
    /// Images that go with the prompt.
    pub images: Vec<PathBuf>,
    /// A file with a JSON Schema the answer must follow.
    pub output_schema: Option<PathBuf>,
    /// Further settings of the engine, as `key`, `value`.
    pub settings: Vec<(String, String)>,
    /// Variables for the engine, on top of what it inherits.
    pub env: Vec<(OsString, OsString)>,
    /// How long to wait for the session while others use it; `None` waits for as long as it takes,
    /// zero fails at once.
    pub wait: Option<Duration>,
    /// How long the engine may be silent.
    pub idle_timeout: Option<Duration>,
    /// How long the run may take from the engine's start.
    pub wall_timeout: Option<Duration>,
    /// Who decides what the agent may do; nobody if not given.
    pub approvals: Option<Arc<dyn ApprovalHandler>>,
    /// Lets follow-ups into the running turn. Engines that cannot take them hand them back.
    pub steering: Option<Steering>,
    /// Cancels the run; its stream still ends with `Completed`.
    pub cancel: CancellationToken,
}

impl RunRequest {
    /// Begins a request.
    #[expect(clippy::new_ret_no_self, reason = "reads as the request it will be")]
    pub fn new(prompt: impl Into<String>) -> RunRequestBuilder {
        RunRequestBuilder {
            request: Self {
                prompt: prompt.into(),
                resume: None,
                cwd: None,
                model: None,
                effort: None,
                sandbox: None,
                images: Vec::new(),
                output_schema: None,
                settings: Vec::new(),
                env: Vec::new(),
                wait: None,
                idle_timeout: None,
                wall_timeout: None,
                approvals: None,
                steering: None,
                cancel: CancellationToken::new(),
            },
        }
    }
}

// Not derived: the prompt is never logged.
impl fmt::Debug for RunRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunRequest")
            .field("prompt", &format_args!("{} bytes", self.prompt.len()))
            .field("resume", &self.resume)
            .field("cwd", &self.cwd)
            .finish_non_exhaustive()
    }
}

/// Builds a [`RunRequest`].
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct RunRequestBuilder {
    request: RunRequest,
}

/// One setter a field, so that the documentation stands once, on the fields.
macro_rules! setters {
    ($( $name:ident: $type:ty => $value:expr; )*) => {
        $(
            #[doc = concat!("Sets [`RunRequest::", stringify!($name), "`].")]
            pub fn $name(mut self, $name: $type) -> Self {
                self.request.$name = $value;
                self
            }
        )*
    };
}

impl RunRequestBuilder {
    setters! {
        resume: impl Into<Option<ResumeToken>> => resume.into();
        cwd: impl Into<PathBuf> => Some(cwd.into());
        model: impl Into<String> => Some(model.into());
        effort: impl Into<String> => Some(effort.into());
        sandbox: impl Into<String> => Some(sandbox.into());
        output_schema: impl Into<PathBuf> => Some(output_schema.into());
        wait: impl Into<Option<Duration>> => wait.into();
        idle_timeout: impl Into<Option<Duration>> => idle_timeout.into();
        wall_timeout: impl Into<Option<Duration>> => wall_timeout.into();
        approvals: Arc<dyn ApprovalHandler> => Some(approvals);
        steering: Steering => Some(steering);
        cancel: CancellationToken => cancel;
    }

    /// Adds an image.
    pub fn image(mut self, file: impl Into<PathBuf>) -> Self {
        self.request.images.push(file.into());
        self
    }

    /// Adds a setting of the engine.
    pub fn setting(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.request.settings.push((key.into(), value.into()));
        self
    }

    /// Adds a variable for the engine.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.request.env.push((name.into(), value.into()));
        self
    }

    /// The request.
    pub fn build(self) -> RunRequest {
        self.request
    }
}
