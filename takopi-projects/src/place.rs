//! From a context to the directory it names.

use std::path::PathBuf;

use thiserror::Error;

use crate::config::{Project, Projects};
use crate::context::Context;
use crate::worktree::{Repository, WorktreeError};

/// Why a context has no directory. One line.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// There is no such project (any more).
    #[error("there is no project {name}{}", choices(.known))]
    Unknown {
        /// The name.
        name: String,
        /// The projects that there are.
        known: Vec<String>,
    },
    /// The directory of the project does not exist, or the branch has none.
    #[error(transparent)]
    Worktree(#[from] WorktreeError),
}

fn choices(names: &[String]) -> String {
    if names.is_empty() {
        return "; `takopi projects add` registers one".to_owned();
    }
    format!("; known projects: {}", names.join(", "))
}

impl Projects {
    /// The project that a context names.
    pub fn project_of(&self, context: &Context) -> Result<&Project, PlaceError> {
        self.get(&context.project).ok_or_else(|| PlaceError::Unknown {
            name: context.project.clone(),
            known: self.iter().map(|project| project.name.clone()).collect(),
        })
    }

    /// The directory that a context names. The worktree of a branch is created when it is first asked for.
    /// Blocks.
    pub fn directory(&self, context: &Context) -> Result<PathBuf, PlaceError> {
        Ok(self.project_of(context)?.directory(context.branch.as_deref())?)
    }
}

impl Project {
    /// Its directory, or that of a branch. Blocks.
    pub fn directory(&self, branch: Option<&str>) -> Result<PathBuf, WorktreeError> {
        if let Some(branch) = branch {
            return Repository::open(self)?.directory(branch);
        }
        if self.path.is_dir() {
            return Ok(self.path.clone());
        }
        Err(WorktreeError::Missing { project: self.name.clone(), path: self.path.clone() })
    }
}
