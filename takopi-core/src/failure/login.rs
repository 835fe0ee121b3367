//! Whether a text reports that the agent's own login was refused.

use super::contains_any;

/// Phrases of a refused login.
const LOGIN: &[&str] = &[
    "not authenticated",
    "unauthenticated",
    "failed to authenticate",
    "not logged in",
    "not signed in",
    "login required",
    "login failed",
    "login expired",
    "login has expired",
    "must be logged in",
    "been logged out",
    "please re-authenticate",
    "please reauthenticate",
    "no credentials",
    "\"unauthorized",
    "please log in",
    "please login",
    "please sign in",
    "must log in",
    "must sign in",
    "need to log in",
    "need to sign in",
    "log in again",
    "sign in again",
    "session expired",
    "session has expired",
    "token expired",
    "token has expired",
    "token is expired",
    "token is invalid",
    "invalid_token",
    "invalid_grant",
    "invalid_api_key",
    "refresh_token_expired",
    "refresh_token_reused",
    "refresh_token_invalidated",
    "token_invalidated",
    "token_expired",
    "missing bearer or basic authentication",
];

/// Parts of a login, and phrases for an invalid one, in the same sentence.
const LOGIN_PARTS: &[&str] = &[
    "access token",
    "refresh token",
    "auth token",
    "id token",
    "token refresh",
    "api key",
    "api-key",
    "api_key",
    "credentials",
    "authentication",
];
const NOT_HELD: &[&str] = &[
    "expired",
    "revoked",
    "invalid",
    "incorrect",
    "missing",
    "required",
    "rejected",
    "refused",
    "failed",
    "could not be refreshed",
    "not set",
    "not found",
    "not valid",
    "no longer valid",
];

/// What stands ahead of a 401 that is an HTTP status.
const STATUS_NAMES: &[&str] = &["status", "code", "error", "http", "http/1.1", "http/2"];

/// Who else has a login, which is not that of the agent.
const PLUGINS: &[&str] = &["mcp", "plugin", "connector", "marketplace"];

/// Whether a [folded](super::folded) text reports that the agent's own login is invalid. A text about a plugin or a
/// tool server never does.
///
/// ```
/// use takopi_core::failure::is_refused_login;
/// assert!(is_refused_login("please log out and sign in again"));
/// assert!(!is_refused_login("mcp server lab: 401 unauthorized"));
/// ```
pub fn is_refused_login(text: &str) -> bool {
    let refused = contains_any(text, LOGIN)
        || text.trim_start().starts_with("unauthorized")
        || text
            .split([':', '.', ';', ',', '(', ')', '"', '\n'])
            .any(|part| part.trim() == "unauthorized")
        || has_status_401(text)
        || text.split(['.', ';', '\n']).any(|sentence| {
            contains_any(sentence, LOGIN_PARTS) && contains_any(sentence, NOT_HELD)
        });
    refused && !is_of_plugin(text)
}

/// Whether a [folded](super::folded) text is about a plugin or a tool server: their logins are their own.
pub fn is_of_plugin(text: &str) -> bool {
    contains_any(text, PLUGINS)
}

/// Whether a 401 in the text is a status, and not just a number.
fn has_status_401(text: &str) -> bool {
    text.match_indices("401").any(|(at, number)| {
        let (before, after) = (&text[..at], &text[at + number.len()..]);
        let is_alone =
            !before.ends_with(char::is_alphanumeric) && !after.starts_with(char::is_alphanumeric);
        let name = before.trim_end_matches([' ', ':', '=', '(', '"']);
        let is_named = STATUS_NAMES.iter().any(|status| name.ends_with(status));
        is_alone && (is_named || after.trim_start().starts_with("unauthorized"))
    })
}

#[cfg(test)]
mod tests {
    use super::super::folded;
    use super::*;

    #[test]
    fn every_usual_refused_login_is_recognised() {
        for text in include_str!("refused-logins.txt").lines() {
            assert!(is_refused_login(&folded(text)), "{text}");
        }
    }

    #[test]
    fn what_only_sounds_like_a_refused_login_is_none() {
        for text in [
            "unexpected token: invalid JSON",
            "the login page test failed to compile",
            "token limit exceeded",
            "session 01a1 is invalid",
            "permission denied: not authorized to write /etc",
            "write failed: unauthorized path /etc",
            "the tests for the api expired",
            "line 401: unexpected end of file",
            "the test expects status 4012",
            "401 files changed",
        ] {
            assert!(!is_refused_login(&folded(text)), "{text}");
        }
    }

    #[test]
    fn a_login_of_a_plugin_is_not_that_of_the_agent() {
        for text in include_str!("refused-logins.txt").lines() {
            assert!(!is_refused_login(&folded(&format!("MCP server lab: {text}"))), "{text}");
        }
    }
}
