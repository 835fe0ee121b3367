//! Built without the feature `fleet`: no flags, and every run is on this machine.

use std::sync::Arc;

use clap::Args;
use takopi_core::{ResumeToken, Runner};

use crate::args::{RunArgs, RunOptions};
use crate::config::FleetTable;
use crate::exit::Usage;

/// No flags.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct FleetFlags {}

/// How runs are submitted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Submitting {
    Attended,
    Unattended,
    AtMostOnce,
}

#[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "the same as with the feature")]
impl FleetFlags {
    pub(crate) fn fill(&self, _table: FleetTable) {}

    pub(crate) fn secrets(&self) -> impl Iterator<Item = &'static str> + use<> {
        std::iter::once("TAKOPI_FLEET")
    }

    pub(crate) fn check(&self, _args: &RunArgs) -> Result<(), Usage> {
        Ok(())
    }

    pub(crate) fn last(&self, _runner: &dyn Runner) -> anyhow::Result<Option<ResumeToken>> {
        Ok(None)
    }

    pub(crate) fn pages(&self) -> axum::Router {
        axum::Router::new()
    }

    pub(crate) fn submitting(&self, local: Arc<dyn Runner>) -> Arc<dyn Runner> {
        local
    }
}

#[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "the same as with the feature")]
impl RunOptions {
    pub(crate) fn join_fleet(&self, _how: Submitting) -> anyhow::Result<()> {
        Ok(())
    }
}
