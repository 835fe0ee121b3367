//! Why a turn failed, for machines and for people.
//!
//! Agents report failures of their model as errors of `session/prompt`, each with data of its own, or as text in an
//! ordinary end. The reason comes from the code, then from the data, then from phrases in the text.

use serde_json::Value;
use takopi_core::failure::{
    Phrases, contains_any, folded, is_of_plugin, is_refused_login, known_phrase, leading_status,
    reason_of_status,
};
use takopi_core::model::Reason;
use takopi_core::redact::redact;
use takopi_core::rpc::ErrorBody;
use takopi_core::runner::RunError;

use crate::Agent;

/// The code of an agent that is not logged in.
const AUTH_REQUIRED: i64 = -32000;

/// Folded phrases about a login, beside those of every agent.
const LOGIN: &[&str] = &["unauthorized", "must specify the gemini_api_key"];

/// Folded phrases about a model that does not respond.
const KNOWN: &Phrases = &[
    (
        Reason::UsageLimit,
        &["usage limit", "quota exceeded", "insufficient_quota", "credit balance"],
    ),
    (Reason::RateLimit, &["rate limit", "rate_limit", "too many requests"]),
    (Reason::Overloaded, &["overloaded", "high demand", "service unavailable"]),
    (
        Reason::ContextTooLong,
        &[
            "context window",
            "context length",
            "context_length_exceeded",
            "prompt is too long",
            "input token count",
        ],
    ),
];

/// A prompt that was answered with an error.
pub(crate) fn of_prompt(agent: &Agent, error: &ErrorBody) -> RunError {
    let text = text_of(error);
    let reason = reason_of(error, &text);
    failed(agent, reason, &text)
}

/// A turn that ended as if all were well, with an error as its text.
pub(crate) fn of_text(agent: &Agent, text: &str) -> RunError {
    let reason = reason_in_text(text.trim()).unwrap_or(Reason::EngineFailed);
    failed(agent, reason, text.trim())
}

/// A session that could not be opened.
///
/// Agents have five ways to say that there is no such session, so every error is that but for those that are known to
/// be another.
pub(crate) fn of_resume(agent: &Agent, session: &str, error: &ErrorBody) -> RunError {
    let text = text_of(error);
    let reason = reason_of(error, &text);
    if matches!(reason, Reason::Auth | Reason::RateLimit | Reason::UsageLimit | Reason::Overloaded)
    {
        return failed(agent, reason, &text);
    }
    let text = redact(&text);
    let error = format!("{} has no session {session} here: {text}", agent.id());
    RunError::new(Reason::SessionNotFound, error)
}

/// A session that could not be begun, or a setting that was refused.
pub(crate) fn of_new(agent: &Agent, error: &ErrorBody) -> RunError {
    of_prompt(agent, error)
}

/// Whether another process holds the session.
pub(crate) fn is_busy(error: &ErrorBody) -> bool {
    let reason = error.data.as_ref().and_then(|data| data.get("reason")?.as_str());
    reason == Some("thread_active_writer") || error.message.contains("already has an active writer")
}

fn failed(agent: &Agent, reason: Reason, text: &str) -> RunError {
    let text = redact(text);
    let text = match reason {
        Reason::Auth => format!("{} is not logged in: {text}; {}", agent.title(), agent.login()),
        _ => text.into_owned(),
    };
    RunError::new(reason, text)
}

fn is_auth(error: &ErrorBody) -> bool {
    matches!(error.code, Some(AUTH_REQUIRED | 401))
}

fn reason_of(error: &ErrorBody, text: &str) -> Reason {
    if is_auth(error) {
        return Reason::Auth;
    }
    let kind = error.data.as_ref().and_then(|data| data.get("errorKind")?.as_str());
    let by_kind = match kind {
        Some("rate_limit") => Some(Reason::RateLimit),
        Some("overloaded") => Some(Reason::Overloaded),
        Some("authentication_failed") => Some(Reason::Auth),
        Some("billing_error" | "usage_limit") => Some(Reason::UsageLimit),
        Some("prompt_too_long") => Some(Reason::ContextTooLong),
        _ => None,
    };
    by_kind
        .or_else(|| error.code.and_then(reason_of_status))
        .or_else(|| reason_in_text(text))
        .unwrap_or(Reason::EngineFailed)
}

/// The reason in a text. A plugin or a tool server that was refused is no reason to log in to the agent.
fn reason_in_text(text: &str) -> Option<Reason> {
    let folded = folded(text);
    leading_status(text)
        .and_then(reason_of_status)
        .or_else(|| known_phrase(&folded, KNOWN))
        .or_else(|| {
            (is_refused_login(&folded) || contains_any(&folded, LOGIN)).then_some(Reason::Auth)
        })
        .filter(|reason| !(*reason == Reason::Auth && is_of_plugin(&folded)))
}

/// What an error says: its data where the message says nothing.
fn text_of(error: &ErrorBody) -> String {
    let message = error.message.trim();
    let message = message.strip_prefix("Internal error: ").unwrap_or(message);
    let detail = error.data.as_ref().and_then(|data| match &**data {
        Value::String(text) => Some(text.as_str()),
        data => ["details", "message", "error"].iter().find_map(|name| data.get(name)?.as_str()),
    });
    match detail {
        Some(detail) if matches!(message, "Internal error" | "Invalid request" | "") => {
            detail.to_owned()
        }
        Some(detail) if !message.contains(detail) => format!("{message}: {detail}"),
        _ => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use serde_json::value::RawValue;

    use super::*;

    fn error(value: &Value) -> ErrorBody {
        ErrorBody::read(&RawValue::from_string(value.to_string()).unwrap())
    }

    fn agent() -> Agent {
        Agent::preset("opencode").unwrap()
    }

    #[test]
    fn each_agents_way_to_report_a_failure_has_its_reason() {
        for (value, reason) in [
            (json!({ "code": -32000, "message": "Authentication required" }), "auth"),
            (
                json!({ "code": -32603, "message": "Internal error: token expired", "data": { "errorName": "APIError" } }),
                "auth",
            ),
            (
                json!({ "code": -32603, "message": "Internal error", "data": { "details": "401 token expired" } }),
                "auth",
            ),
            (json!({ "code": 401, "message": "nope" }), "auth"),
            (json!({ "code": 429, "message": "slow" }), "rate_limit"),
            (
                json!({ "code": -32603, "message": "x", "data": { "errorKind": "rate_limit" } }),
                "rate_limit",
            ),
            (
                json!({ "code": -32603, "message": "x", "data": { "errorKind": "unknown" } }),
                "engine_failed",
            ),
            (json!({ "code": 500, "message": "The model is overloaded." }), "overloaded"),
            (json!({ "code": -32603, "message": "Internal error", "data": {} }), "engine_failed"),
        ] {
            assert_eq!(of_prompt(&agent(), &error(&value)).reason.as_str(), reason, "{value}");
        }
    }

    #[test]
    fn an_error_in_the_text_of_a_turn_has_a_reason_too() {
        let reason = |text: &str| of_text(&agent(), text).reason.as_str().to_owned();
        assert_eq!(
            reason("We’re currently experiencing high demand, which may…\n\n"),
            "overloaded"
        );
        assert_eq!(reason("You’ve hit your usage limit."), "usage_limit");
        assert_eq!(reason("unexpected status 404"), "engine_failed");
    }

    #[test]
    fn an_error_of_a_resume_is_an_unknown_session_unless_it_is_known_to_be_another() {
        let resume = |value: &Value| of_resume(&agent(), "ses_1", &error(value));
        for value in [
            json!({ "code": -32002, "message": "Resource not found: session:x" }),
            json!({ "code": -32603, "message": "Internal error: OpenCode service failure", "data": { "service": "session" } }),
            json!({ "code": -32603, "message": "Internal error", "data": { "details": "no rollout found" } }),
            json!({ "code": -32602, "message": "Unknown sessionId" }),
        ] {
            let failed = resume(&value);
            assert_eq!(failed.reason, Reason::SessionNotFound, "{value}");
            assert!(failed.message.contains("ses_1"), "{failed}");
        }
        assert_eq!(resume(&json!({ "code": -32000, "message": "log in" })).reason, Reason::Auth);
        let busy = json!({ "code": -32600, "message": "in use", "data": { "reason": "thread_active_writer" } });
        assert!(is_busy(&error(&busy)));
    }

    #[test]
    fn every_usual_refused_login_is_recognised_with_advice() {
        let (agent, login) = (agent(), agent().login());
        for text in include_str!("../../takopi-core/src/failure/refused-logins.txt").lines() {
            let message = error(&json!({ "code": -32603, "message": text }));
            let details =
                json!({ "code": -32603, "message": "Internal error", "data": { "details": text } });
            for failed in [
                of_text(&agent, text),
                of_prompt(&agent, &message),
                of_new(&agent, &error(&details)),
                of_resume(&agent, "ses_1", &message),
                of_resume(&agent, "ses_1", &error(&details)),
            ] {
                assert_eq!(failed.reason, Reason::Auth, "{text}");
                assert!(failed.message.contains(login), "{failed}");
            }
        }
    }

    #[test]
    fn a_plugin_that_is_not_logged_in_is_no_refused_login() {
        for text in ["MCP server lab: 401 Unauthorized", "401: plugin drive: please sign in again"]
        {
            let message = error(&json!({ "code": -32603, "message": text }));
            assert_eq!(of_text(&agent(), text).reason, Reason::EngineFailed, "{text}");
            assert_eq!(of_prompt(&agent(), &message).reason, Reason::EngineFailed, "{text}");
            let resumed = of_resume(&agent(), "ses_1", &message);
            assert_eq!(resumed.reason, Reason::SessionNotFound, "{text}");
        }
    }
}
