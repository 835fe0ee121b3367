//! Why a run got no session, for engines with one process per session.

use thiserror::Error;

use super::OfferError;
use crate::process::SpawnError;
use crate::runner::{EngineRun, RunError, StoppedError};

/// Why a run ended before its turn did.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The run was stopped: its end is known already.
    #[error(transparent)]
    Stopped(#[from] StoppedError),
    /// The run fails with this.
    #[error(transparent)]
    Refused(#[from] RunError),
}

impl OpenError {
    /// Ends the run, unless it was stopped.
    pub async fn end(self, run: &EngineRun) {
        match self {
            Self::Stopped(_) => {}
            Self::Refused(refusal) => run.fail(refusal).await,
        }
    }
}

impl From<SpawnError> for OpenError {
    fn from(error: SpawnError) -> Self {
        Self::Refused(error.into())
    }
}

impl From<OfferError> for OpenError {
    fn from(error: OfferError) -> Self {
        match error {
            OfferError::Busy(refusal) => Self::Refused(refusal),
            OfferError::Stopped(stopped) => Self::Stopped(stopped),
        }
    }
}
