//! Token figures of a run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What token figures cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum UsageScope {
    /// This run alone.
    #[default]
    Turn,
    /// The whole conversation up to now. Such figures must not be added up.
    Thread,
    /// The last call of the model in this run: there may have been others. Such figures must not be added up.
    LastCall,
}

/// Tokens used, with the same keys on every transport.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Usage {
    /// Tokens sent to the model.
    #[serde(default)]
    pub input_tokens: u64,
    /// The part of the input that came from the model's cache.
    #[serde(default)]
    pub cached_input_tokens: u64,
    /// Tokens the model produced.
    #[serde(default)]
    pub output_tokens: u64,
    /// The part of the output that was reasoning.
    #[serde(default)]
    pub reasoning_output_tokens: u64,
    /// What these figures cover.
    #[serde(default)]
    pub scope: UsageScope,
    /// Further figures, kept as the engine gave them.
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

impl Usage {
    /// Adds the figures of another run to these. Figures of a whole thread are left out, because they contain runs
    /// that were already counted, and those of a last call, because they are not all.
    pub fn add(&mut self, other: &Self) {
        if other.scope != UsageScope::Turn {
            return;
        }
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.cached_input_tokens =
            self.cached_input_tokens.saturating_add(other.cached_input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.reasoning_output_tokens =
            self.reasoning_output_tokens.saturating_add(other.reasoning_output_tokens);
    }
}
