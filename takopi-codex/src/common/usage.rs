//! Token figures, in either spelling.

use serde::de::MapAccess;
use serde_json::value::RawValue;
use takopi_core::model::{Usage, UsageScope};

use super::labels::snake_case;
use takopi_core::tolerant::{Read, Tolerant, next_key, skip};

/// Figures as Codex gives them: under the same keys on both transports, others kept.
#[derive(Debug, Default)]
pub(crate) struct Figures(Usage);

impl Figures {
    /// The figures, which cover this.
    pub(crate) fn covering(mut self, scope: UsageScope) -> Usage {
        self.0.scope = scope;
        self.0
    }
}

impl<'de> Tolerant<'de> for Figures {
    fn from_object<A: MapAccess<'de>>(mut object: A) -> Result<Option<Self>, A::Error> {
        let mut usage = Usage::default();
        while let Some(key) = next_key(&mut object)? {
            let key = snake_case(key);
            let figure = match &*key {
                "input_tokens" => &mut usage.input_tokens,
                "cached_input_tokens" => &mut usage.cached_input_tokens,
                "output_tokens" => &mut usage.output_tokens,
                "reasoning_output_tokens" => &mut usage.reasoning_output_tokens,
                // Ours, and it must not stand twice.
                "scope" => {
                    skip(&mut object)?;
                    continue;
                }
                _ => {
                    let raw: &RawValue = object.next_value()?;
                    if let Ok(value) = serde_json::from_str(raw.get()) {
                        usage.others.entry(key).or_insert(value);
                    }
                    continue;
                }
            };
            let Read(tokens) = object.next_value::<Read<i64>>()?;
            *figure = tokens.and_then(|tokens| u64::try_from(tokens).ok()).unwrap_or(0);
        }
        Ok(Some(Self(usage)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_transports_give_the_same_keys() {
        let exec = r#"{"input_tokens":22,"cached_input_tokens":6,"cache_write_input_tokens":0,"output_tokens":14,"reasoning_output_tokens":4}"#;
        let server = r#"{"inputTokens":22,"cachedInputTokens":6,"cacheWriteInputTokens":0,"outputTokens":14,"reasoningOutputTokens":4}"#;
        for json in [exec, server] {
            let Read(figures) = serde_json::from_str::<Read<Figures>>(json).unwrap();
            let usage = figures.unwrap().covering(UsageScope::Thread);
            let expected = r#"{"input_tokens":22,"cached_input_tokens":6,"output_tokens":14,"reasoning_output_tokens":4,"scope":"thread","cache_write_input_tokens":0}"#;
            assert_eq!(serde_json::to_string(&usage).unwrap(), expected);
        }
    }

    #[test]
    fn odd_figures_are_zero() {
        let json = r#"{"input_tokens":-1,"output_tokens":"7","x":[1]}"#;
        let Read(figures) = serde_json::from_str::<Read<Figures>>(json).unwrap();
        let usage = figures.unwrap().covering(UsageScope::Turn);
        assert_eq!((usage.input_tokens, usage.output_tokens), (0, 0));
        assert_eq!(usage.others["x"], serde_json::json!([1]));
    }
}
