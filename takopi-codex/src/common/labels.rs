//! Labels that the two transports spell differently.

use std::borrow::Cow;

use takopi_core::tolerant::Tolerant;

/// Turns app-server's `camelCase` into exec's `snake_case`.
pub(crate) fn snake_case(label: Cow<'_, str>) -> Cow<'_, str> {
    if !label.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return label;
    }
    let mut snake = String::with_capacity(label.len() + 4);
    for letter in label.chars() {
        if letter.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    Cow::Owned(snake)
}

/// The status of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Status {
    InProgress,
    Completed,
    Failed,
    Declined,
    Interrupted,
    Other(String),
}

impl Status {
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Declined => "declined",
            Self::Interrupted => "interrupted",
            Self::Other(label) => label,
        }
    }
}

impl Tolerant<'_> for Status {
    fn from_text(label: &str) -> Option<Self> {
        Some(match label {
            "in_progress" | "inProgress" => Self::InProgress,
            "completed" => Self::Completed,
            "failed" => Self::Failed,
            "declined" => Self::Declined,
            "interrupted" => Self::Interrupted,
            other => Self::Other(snake_case(Cow::Borrowed(other)).into_owned()),
        })
    }
}

/// What a message is to the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessagePhase {
    /// A remark along the way; never the answer.
    Commentary,
    /// The answer.
    FinalAnswer,
}

impl MessagePhase {
    /// An unknown phase counts as none: such a message is kept for the answer.
    pub(crate) fn new(label: &str) -> Option<Self> {
        match label {
            "commentary" => Some(Self::Commentary),
            "final_answer" | "finalAnswer" => Some(Self::FinalAnswer),
            _ => None,
        }
    }
}

impl Tolerant<'_> for MessagePhase {
    fn from_text(label: &str) -> Option<Self> {
        Self::new(label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_become_one() {
        for (wire, label) in [
            ("spawnAgent", "spawn_agent"),
            ("spawn_agent", "spawn_agent"),
            ("cacheWriteInputTokens", "cache_write_input_tokens"),
            ("Started", "started"),
            ("", ""),
        ] {
            assert_eq!(snake_case(wire.into()), label);
        }
        for (wire, label) in [
            ("inProgress", "in_progress"),
            ("in_progress", "in_progress"),
            ("declined", "declined"),
            ("notYetKnown", "not_yet_known"),
        ] {
            assert_eq!(Status::from_text(wire).unwrap().as_str(), label);
        }
    }
}
