//! Why a run failed, by phrases and statuses that mean the same for every engine.
//!
//! An engine looks at its structured fields first, and at texts last. Texts are compared folded: in lower
//! case and without apostrophes, which programs type in two ways.

mod login;

use crate::model::Reason;

pub use login::{is_of_plugin, is_refused_login};

/// Folded phrases and what they mean. The first that matches counts.
pub type Phrases = [(Reason, &'static [&'static str])];

/// A text in the form in which phrases are looked for.
///
/// ```
/// assert_eq!(takopi_core::failure::folded("You’ve hit your Limit"), "youve hit your limit");
/// ```
pub fn folded(text: &str) -> String {
    text.chars()
        .filter(|letter| !matches!(letter, '\'' | '’'))
        .flat_map(char::to_lowercase)
        .collect()
}

/// Whether a folded text has one of these phrases.
pub fn contains_any(text: &str, phrases: &[&str]) -> bool {
    phrases.iter().any(|phrase| text.contains(phrase))
}

/// What the first known phrase in a folded text means.
pub fn known_phrase(text: &str, known: &Phrases) -> Option<Reason> {
    known.iter().find(|(_, phrases)| contains_any(text, phrases)).map(|(reason, _)| reason.clone())
}

/// What an HTTP status of the model's service means, where it means the same everywhere.
pub fn reason_of_status(status: i64) -> Option<Reason> {
    match status {
        401 => Some(Reason::Auth),
        429 => Some(Reason::RateLimit),
        503 | 529 => Some(Reason::Overloaded),
        _ => None,
    }
}

/// The three digits at the beginning of a text, if they are a number of their own.
pub fn leading_status(text: &str) -> Option<i64> {
    let digits = text.get(..3)?;
    let ends = !text[3..].starts_with(|letter: char| letter.is_alphanumeric());
    digits.parse().ok().filter(|_| ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_phrase_that_matches_counts() {
        let known: &Phrases =
            &[(Reason::Auth, &["log in"]), (Reason::RateLimit, &["slow down", "log in later"])];
        assert_eq!(known_phrase("please log in later", known), Some(Reason::Auth));
        assert_eq!(known_phrase("slow down", known), Some(Reason::RateLimit));
        assert_eq!(known_phrase("hello", known), None);
    }

    #[test]
    fn a_status_is_three_digits_alone() {
        assert_eq!(leading_status("401 Unauthorized"), Some(401));
        assert_eq!(leading_status("429"), Some(429));
        for text in ["", "40", "4010", "40x", "abc", "401a"] {
            assert_eq!(leading_status(text), None, "{text}");
        }
        assert_eq!(reason_of_status(529), Some(Reason::Overloaded));
        assert_eq!(reason_of_status(404), None);
    }
}
