//! Results of checks.

use serde::Serialize;

use crate::model::EngineId;
use crate::redact::redact;

/// How serious a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Status {
    /// As it should be.
    Ok,
    /// Worth knowing.
    Note,
    /// Something must be done.
    Problem,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// The engine whose installation was checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineId>,
    /// The check, in one short name.
    pub check: String,
    /// How serious it is.
    #[serde(rename = "state")]
    pub status: Status,
    /// What was found, without credentials: a program may be quoted.
    #[serde(rename = "what")]
    pub text: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Finding {
    /// All is as it should be.
    pub fn ok(check: impl Into<String>, text: impl Into<String>) -> Self {
        let (check, text) = (check.into(), redact(&text.into()).into_owned());
        Self { engine: None, check, status: Status::Ok, text, hint: None }
    }

    /// Something worth knowing.
    pub fn note(
        check: impl Into<String>,
        text: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { status: Status::Note, hint: Some(hint.into()), ..Self::ok(check, text) }
    }

    /// Something that must be repaired.
    pub fn problem(
        check: impl Into<String>,
        text: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { status: Status::Problem, hint: Some(hint.into()), ..Self::ok(check, text) }
    }

    /// Sets [`Self::engine`].
    pub fn engine(mut self, engine: EngineId) -> Self {
        self.engine = Some(engine);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_reported_without_credentials() {
        for finding in [
            Finding::ok("login", "as Bearer sk-SECRET-123"),
            Finding::note("login", "as Bearer sk-SECRET-123", "none"),
            Finding::problem("login", "as Bearer sk-SECRET-123", "none"),
        ] {
            assert_eq!(finding.text, "as Bearer [redacted]");
        }
    }
}
