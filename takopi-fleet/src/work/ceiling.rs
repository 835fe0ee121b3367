//! What a job may ask of a worker.
//!
//! Whoever may enqueue may run code, within the worker's configuration: a job can ask for less than that, and never for more. What
//! a job does not set is as the worker's engine is set up.

use std::collections::BTreeSet;

use takopi_core::RunError;
use takopi_core::model::Reason;

use crate::spec::JobSpec;

/// Values that a job may ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Allowed {
    /// All.
    Any,
    /// These.
    Only(BTreeSet<String>),
}

impl Allowed {
    /// These, and no others.
    pub fn only<S: Into<String>>(values: impl IntoIterator<Item = S>) -> Self {
        Self::Only(values.into_iter().map(Into::into).collect())
    }

    fn has(&self, value: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Only(values) => values.contains(value),
        }
    }
}

/// What a job may ask of a worker. Engines and places are bounded by what the worker serves.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ceiling {
    /// Sandboxes. By default `read-only` and `workspace-write`.
    pub sandboxes: Allowed,
    /// Permission modes. By default those in which commands need an approval: not `bypassPermissions` and `auto`.
    pub permission_modes: Allowed,
    /// Options of the engine, by their keys. None by default: with some of them everything else can be set.
    pub options: Allowed,
    /// Variables for the engine, by their names. None by default.
    pub env: Allowed,
    /// Whether the submitter may answer approval requests, and so allow what the sandbox does not.
    pub approvals: bool,
    /// Whether jobs may run in an empty directory of their session, without a place.
    pub scratch: bool,
}

impl Default for Ceiling {
    fn default() -> Self {
        Self {
            sandboxes: Allowed::only(["read-only", "workspace-write"]),
            permission_modes: Allowed::only([
                "default",
                "manual",
                "plan",
                "acceptEdits",
                "dontAsk",
            ]),
            options: Allowed::only::<String>([]),
            env: Allowed::only::<String>([]),
            approvals: true,
            scratch: true,
        }
    }
}

impl Ceiling {
    /// Everything is allowed: for fleets whose submitters are trusted as the worker's own user is.
    pub fn open() -> Self {
        Self {
            sandboxes: Allowed::Any,
            permission_modes: Allowed::Any,
            options: Allowed::Any,
            env: Allowed::Any,
            approvals: true,
            scratch: true,
        }
    }

    /// Refuses a job that asks for more.
    pub(super) fn check(&self, spec: &JobSpec, place: Option<&str>) -> Result<(), RunError> {
        let one = |what: &str, allowed: &Allowed, value: &str| {
            if allowed.has(value) { Ok(()) } else { Err(refused(&format!("the {what} {value:?}"))) }
        };
        if let Some(sandbox) = &spec.sandbox {
            one("sandbox", &self.sandboxes, sandbox)?;
        }
        if let Some(mode) = &spec.permission_mode {
            one("permission mode", &self.permission_modes, mode)?;
        }
        for (key, _) in &spec.options {
            one("option", &self.options, key)?;
        }
        for (name, _) in &spec.env {
            one("variable", &self.env, name)?;
        }
        if spec.asks && !self.approvals {
            return Err(refused("approvals by the submitter"));
        }
        if place.is_none() && !self.scratch {
            return Err(refused("runs without a place"));
        }
        Ok(())
    }
}

fn refused(what: &str) -> RunError {
    let error = format!("the worker does not allow {what}: its configuration is the ceiling");
    RunError::new(Reason::InvalidRequest, error)
}
