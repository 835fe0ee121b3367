//! Results of checks.

use serde::Serialize;

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
    /// The check, in one short name.
    pub check: String,
    /// How serious it is.
    #[serde(rename = "state")]
    pub status: Status,
    /// What was found.
    #[serde(rename = "what")]
    pub text: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Finding {
    /// All is as it should be.
    pub fn ok(check: impl Into<String>, text: impl Into<String>) -> Self {
        Self { check: check.into(), status: Status::Ok, text: text.into(), hint: None }
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
}
