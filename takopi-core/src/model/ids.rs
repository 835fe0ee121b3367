//! Names of engines and sessions.

use std::borrow::Cow;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name of an engine: `codex`, `demo`, …
///
/// ```
/// use takopi_core::model::EngineId;
/// const CODEX: EngineId = EngineId::from_static("codex");
/// assert_eq!(CODEX, EngineId::from("codex".to_owned()));
/// ```
#[derive(
    Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
#[schemars(description = "The name of an engine.")]
pub struct EngineId(#[schemars(with = "String")] Cow<'static, str>);

impl EngineId {
    /// A name known at compile time; costs nothing to clone.
    pub const fn from_static(name: &'static str) -> Self {
        Self(Cow::Borrowed(name))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for EngineId {
    fn from(name: String) -> Self {
        Self(Cow::Owned(name))
    }
}

impl From<&'static str> for EngineId {
    fn from(name: &'static str) -> Self {
        Self::from_static(name)
    }
}

impl fmt::Display for EngineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What it takes to go on with an earlier conversation: the engine and its name for the session.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct ResumeToken {
    /// The engine that holds the session.
    pub engine: EngineId,
    /// The session, as the engine names it.
    pub value: String,
}

impl ResumeToken {
    /// A token for a session of an engine.
    pub fn new(engine: impl Into<EngineId>, value: impl Into<String>) -> Self {
        Self { engine: engine.into(), value: value.into() }
    }
}
