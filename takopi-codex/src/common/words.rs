//! Words that the two transports spell differently.

use std::borrow::Cow;

use super::tolerant::Tolerant;

/// Turns app-server's `camelCase` into exec's `snake_case`.
pub(crate) fn snake_case(word: Cow<'_, str>) -> Cow<'_, str> {
    if !word.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return word;
    }
    let mut snake = String::with_capacity(word.len() + 4);
    for letter in word.chars() {
        if letter.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    Cow::Owned(snake)
}

/// Where an item stands, in its own words.
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
            Self::Other(word) => word,
        }
    }
}

impl Tolerant<'_> for Status {
    fn from_text(word: &str) -> Option<Self> {
        Some(match word {
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
    /// Said along the way; never the answer.
    Commentary,
    /// The answer.
    FinalAnswer,
}

impl MessagePhase {
    /// A phase nobody here knows counts as none: such a message is kept for the answer.
    pub(crate) fn new(word: &str) -> Option<Self> {
        match word {
            "commentary" => Some(Self::Commentary),
            "final_answer" | "finalAnswer" => Some(Self::FinalAnswer),
            _ => None,
        }
    }
}

impl Tolerant<'_> for MessagePhase {
    fn from_text(word: &str) -> Option<Self> {
        Self::new(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_become_one() {
        for (wire, word) in [
            ("spawnAgent", "spawn_agent"),
            ("spawn_agent", "spawn_agent"),
            ("cacheWriteInputTokens", "cache_write_input_tokens"),
            ("Started", "started"),
            ("", ""),
        ] {
            assert_eq!(snake_case(wire.into()), word);
        }
        for (wire, word) in [
            ("inProgress", "in_progress"),
            ("in_progress", "in_progress"),
            ("declined", "declined"),
            ("notYetKnown", "not_yet_known"),
        ] {
            assert_eq!(Status::from_text(wire).unwrap().as_str(), word);
        }
    }
}
