//! The request for a run.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{ApprovalHandler, RunError, SteerReceiver};
use crate::model::{Reason, ResumeToken};
use crate::settings::{RunSettings, directory_problem, for_each_setter};

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
    /// Whether the agent's messages are emitted in pieces while they are written, as actions of kind
    /// [`Answer`](crate::ActionKind::Answer). Engines that cannot stream emit none.
    pub deltas: bool,
    /// The same key again is the same run, on runners that keep runs (a fleet). Others ignore it.
    pub key: Option<String>,
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
            deltas: false,
            key: None,
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

    /// Sets [`Self::deltas`].
    pub fn deltas(mut self, deltas: bool) -> Self {
        self.deltas = deltas;
        self
    }

    /// Sets [`Self::key`].
    pub fn key(mut self, key: impl Into<Option<String>>) -> Self {
        self.key = key.into();
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

    /// The directory it is run in.
    pub fn working_directory(&self) -> Result<PathBuf, RunError> {
        let directory = match &self.settings.cwd {
            Some(directory) => std::path::absolute(directory),
            None => std::env::current_dir(),
        };
        directory.map_err(|error| invalid(format!("cannot find the directory to run in: {error}")))
    }

    /// Checks that the files and the directory it names exist: engines would omit some of them
    /// silently.
    pub fn check_files(&self) -> Result<(), RunError> {
        let directory = self.working_directory()?;
        if let Some(problem) = directory_problem(&directory) {
            return Err(invalid(problem));
        }
        for image in &self.settings.images {
            must_exist("image", image)?;
        }
        let schema = self.settings.output_schema.as_deref();
        schema.map_or(Ok(()), |file| must_exist("output schema", file))
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

fn must_exist(what: &str, file: &Path) -> Result<(), RunError> {
    if file.is_file() {
        return Ok(());
    }
    let fault = if file.exists() { "is not a file" } else { "does not exist" };
    Err(invalid(format!("the {what} {} {fault}", file.display())))
}

fn invalid(error: String) -> RunError {
    RunError::new(Reason::InvalidRequest, error)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_not_there_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let [file, none] = ["file", "none"].map(|name| directory.path().join(name));
        std::fs::write(&file, "{}").unwrap();
        let in_directory = || RunRequest::new("go").cwd(directory.path());
        let with_schema = |schema: &Path| {
            let mut request = in_directory();
            request.settings.output_schema = Some(schema.to_owned());
            request
        };
        assert!(with_schema(&file).image(&file).check_files().is_ok());
        for (request, fault) in [
            (RunRequest::new("go").cwd(&none), "none"),
            (in_directory().image(&none), "none does not exist"),
            (in_directory().image(directory.path()), "is not a file"),
            (with_schema(&none), "none does not exist"),
        ] {
            let error = request.check_files().unwrap_err();
            assert_eq!(error.reason, Reason::InvalidRequest);
            assert!(error.message.contains(fault), "{error:?}");
        }
    }
}
