//! Credentials are removed from text of an engine that is about a failure.
//!
//! An engine's errors, warnings and stderr may quote what it was given: an `Authorization` header, an
//! environment, a URL. [`redact`] replaces what looks like a credential with `[redacted]`.
//!
//! **What is redacted.** The run's buffer calls `redact_event` for every event, so it holds for every
//! engine and transport: `Completed.error`; title, message and details of warnings; the message of an
//! action that failed; the details `stderr_tail`, `error_message`, `error` and `reason` of any action.
//! Log lines with an engine's text use [`redacted`].
//!
//! **What is not.** The answer, messages of the agent, command titles and output, diffs and what an
//! approval asks for are the user's own content. A person who asks for a key must get it, and a person
//! who approves a command must see it as it is.
//!
//! **What is found.** Keys of well-known shapes (`sk-…`, `ghp_…`, `xoxb-…`, `AKIA…`), JSON Web Tokens,
//! bearer and basic credentials, values of names such as `api_key` or `password`, passwords in URLs,
//! PEM private keys; in colour too. It is a safety net: a secret of no known shape under a harmless name is
//! not found.
//!
//! One pass from left to right, in linear time. Redacting twice changes nothing more.

mod event;
mod scan;

use std::borrow::Cow;
use std::fmt;

pub(crate) use event::redact_event;
pub use event::redact_value;

use scan::Scanner;

/// What stands in place of a credential.
pub const REDACTED: &str = "[redacted]";

/// The text without credentials; borrowed if there are none.
///
/// ```
/// use takopi_core::redact::redact;
/// assert_eq!(redact("401: Bearer sk-abc123def456 refused"), "401: Bearer [redacted] refused");
/// assert_eq!(redact("postgres://app:hunter2@db/main"), "postgres://app:[redacted]@db/main");
/// assert_eq!(redact("exit status 1 in src/main.rs"), "exit status 1 in src/main.rs");
/// ```
pub fn redact(text: &str) -> Cow<'_, str> {
    redact_from(text, 0)
}

/// The same for what stands from this position on. A credential is found by what stands before it, too.
pub(crate) fn redact_from(text: &str, start: usize) -> Cow<'_, str> {
    let mut clean = String::new();
    let mut copied = start;
    for secret in Scanner::new(text).filter(|secret| secret.end > start) {
        clean.push_str(text.get(copied..secret.start).unwrap_or_default());
        clean.push_str(REDACTED);
        copied = secret.end;
    }
    if copied == start {
        return Cow::Borrowed(&text[start..]);
    }
    clean.push_str(&text[copied..]);
    Cow::Owned(clean)
}

/// Shows something without credentials, for log lines.
///
/// ```
/// use takopi_core::redact::redacted;
/// assert_eq!(redacted("api_key=4f9d").to_string(), "api_key=[redacted]");
/// ```
pub fn redacted<T: fmt::Display + ?Sized>(shown: &T) -> Redacted<'_, T> {
    Redacted(shown)
}

/// Shows something without credentials. Made by [`redacted`].
#[derive(Debug)]
pub struct Redacted<'a, T: ?Sized>(&'a T);

impl<T: fmt::Display + ?Sized> fmt::Display for Redacted<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redact(&self.0.to_string()))
    }
}

#[cfg(test)]
mod tests;
