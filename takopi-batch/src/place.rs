//! Where a job runs that names a project or a branch.

use std::path::PathBuf;

use takopi_core::RunRequest;
use takopi_projects::{Context, Project, Projects, WorktreeError};

use crate::input::LineError;
use crate::job::BatchJob;

/// A project, and a branch of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JobPlace {
    project: Project,
    branch: Option<String>,
}

impl JobPlace {
    /// The place that a job names; `None` if it names none. A branch alone is one of the job's directory, else of
    /// the project of the batch, else of the repository that the batch runs in. Nothing is created.
    pub(crate) fn of(
        job: &BatchJob,
        projects: &Projects,
        default: Option<&str>,
        template: &RunRequest,
    ) -> Result<Option<Self>, LineError> {
        let own = job.settings.cwd.as_ref();
        let wrong = |text: String| LineError::Place(text);
        if job.project.is_none() && job.branch.is_none() {
            return Ok(None);
        }
        if job.project.is_some() && own.is_some() {
            return Err(wrong("`cwd` and `project` both name a directory; use one".to_owned()));
        }
        let name = job.project.as_deref().or(default.filter(|_| own.is_none()));
        let project = if let Some(name) = name {
            let found = projects.project_of(&Context::new(name));
            found.map_err(|error| wrong(error.to_string()))?.clone()
        } else {
            let directory = own.or(template.settings.cwd.as_ref()).cloned();
            let directory = directory.map_or_else(std::env::current_dir, Ok);
            let directory = directory.and_then(std::path::absolute);
            Project::new("here", directory.map_err(|error| wrong(error.to_string()))?)
        };
        Ok(Some(Self { project, branch: job.branch.clone() }))
    }

    /// The project, whose settings are those of the job unless it has its own.
    pub(crate) fn project(&self) -> &Project {
        &self.project
    }

    /// Its directory; the worktree of a branch is created when it is first asked for.
    pub(crate) async fn directory(self) -> Result<PathBuf, String> {
        let found = tokio::task::spawn_blocking(move || -> Result<PathBuf, WorktreeError> {
            self.project.directory(self.branch.as_deref())
        });
        found.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
    }
}
