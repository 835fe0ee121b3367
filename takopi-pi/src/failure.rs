//! Why a run failed, for machines and for people.
//!
//! pi reports failures of the model's service as text: the HTTP status, a colon, and the body. The reason
//! comes from phrases first (a prompt that is too long is a 400 like any other), then from the status.

use serde_json::Value;
use takopi_core::failure::{
    Phrases, folded, is_of_plugin, is_refused_login, known_phrase, leading_status, reason_of_status,
};
use takopi_core::model::Reason;

const PHRASES: &Phrases = &[
    (
        Reason::ContextTooLong,
        &["context length", "context window", "context_length_exceeded", "prompt is too long"],
    ),
    (
        Reason::UsageLimit,
        &["usage limit", "insufficient_quota", "quota exceeded", "credit balance"],
    ),
    (Reason::Auth, &["no api key", "no model selected", "no models available", "unauthorized"]),
    (Reason::Interrupted, &["operation was aborted", "request was aborted"]),
    (Reason::Overloaded, &["overloaded"]),
    (Reason::RateLimit, &["rate limit", "rate_limit"]),
];

/// Phrases of a pi that does not start, on its stderr.
const ON_STDERR: &Phrases = &[
    (Reason::SessionNotFound, &["no session found matching"]),
    (
        Reason::InvalidRequest,
        &["unknown option", "not found. use --list-models", "no models match"],
    ),
    (Reason::Auth, &["no api key", "no models available", "no model selected"]),
];

/// The reason and the message of a failure that pi reports as this text.
pub(crate) fn of_text(text: &str) -> (Reason, String) {
    let status = leading_status(text);
    let folded = folded(text);
    let reason = known_phrase(&folded, PHRASES)
        // A plugin or a tool server that was refused is no reason to log in to pi.
        .filter(|reason| !(*reason == Reason::Auth && is_of_plugin(&folded)))
        .or_else(|| match status {
            Some(403) => Some(Reason::Auth),
            status => status.and_then(reason_of_status),
        })
        .or_else(|| is_refused_login(&folded).then_some(Reason::Auth))
        .unwrap_or(Reason::EngineFailed);
    let mut message = readable(text, status);
    if reason == Reason::Auth {
        message.push_str(" (log in with `/login` in pi, or set the provider's API key)");
    }
    (reason, message)
}

/// The text without the JSON around it.
fn readable(text: &str, status: Option<i64>) -> String {
    let body = text.split_once(": ").filter(|_| status.is_some()).map(|(_, body)| body);
    let body: Option<Value> = body.and_then(|body| serde_json::from_str(body).ok());
    let message = body
        .as_ref()
        .and_then(|body| body["message"].as_str().or_else(|| body["error"]["message"].as_str()));
    match (status, message) {
        (Some(status), Some(message)) => format!("{status}: {message}"),
        _ if text.trim().is_empty() => "pi reported a failure without a message".to_owned(),
        _ => text.trim().to_owned(),
    }
}

/// Why a pi exited that never answered, by what it wrote to stderr.
pub(crate) fn on_stderr(stderr: &str) -> Option<(Reason, String)> {
    let lines = || stderr.lines().map(str::trim).filter(|line| !line.is_empty());
    let known = lines().find_map(|line| Some((known_phrase(&folded(line), ON_STDERR)?, line)));
    known.map(|(reason, line)| (reason, line.trim_start_matches("Error: ").to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_and_phrases_have_reasons() {
        let reason = |text: &str| of_text(text).0;
        assert_eq!(reason(r#"401: {"message":"bad key"}"#), Reason::Auth);
        assert_eq!(reason(r#"403: {"message":"no"}"#), Reason::Auth);
        assert_eq!(reason(r#"429: {"message":"slow down"}"#), Reason::RateLimit);
        assert_eq!(reason(r#"429: {"code":"insufficient_quota"}"#), Reason::UsageLimit);
        assert_eq!(
            reason(r#"400: {"message":"maximum context length is 8"}"#),
            Reason::ContextTooLong
        );
        assert_eq!(reason(r#"500: {"message":"kaput"}"#), Reason::EngineFailed);
        assert_eq!(reason("terminated"), Reason::EngineFailed);
    }

    #[test]
    fn every_usual_refused_login_is_recognised_with_advice() {
        for text in include_str!("../../takopi-core/src/failure/refused-logins.txt").lines() {
            let (reason, message) = of_text(text);
            assert_eq!(reason, Reason::Auth, "{text}");
            assert!(message.contains("`/login` in pi"), "{message}");
        }
        for text in ["MCP server lab: 401 Unauthorized", "plugin drive: please sign in again"] {
            assert_eq!(of_text(text).0, Reason::EngineFailed, "{text}");
        }
    }

    #[test]
    fn messages_are_for_people() {
        assert_eq!(of_text(r#"500: {"message":"kaput"}"#).1, "500: kaput");
        assert!(of_text(r#"401: {"message":"bad key"}"#).1.contains("/login"));
        assert_eq!(of_text("").1, "pi reported a failure without a message");
        let (reason, text) =
            on_stderr("Warning: x\nError: No session found matching 'y'\n").unwrap();
        assert_eq!(
            (reason, text.as_str()),
            (Reason::SessionNotFound, "No session found matching 'y'")
        );
        assert_eq!(on_stderr("some crash"), None);
    }
}
