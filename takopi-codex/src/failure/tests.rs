//! What each failure is taken for.

use super::*;

fn reason(json: &str) -> Reason {
    let Read(fault) = serde_json::from_str::<Read<Fault<'_>>>(json).unwrap();
    fault.unwrap().reason()
}

#[test]
fn structured_fields_come_first() {
    for (json, expected) in [
        (r#"{"message":"m","codexErrorInfo":"unauthorized"}"#, Reason::Auth),
        (r#"{"message":"m","codexErrorInfo":"usageLimitExceeded"}"#, Reason::UsageLimit),
        (r#"{"message":"m","codex_error_info":"usage_limit_exceeded"}"#, Reason::UsageLimit),
        (r#"{"message":"m","codexErrorInfo":"contextWindowExceeded"}"#, Reason::ContextTooLong),
        (r#"{"message":"m","codexErrorInfo":"rateLimitExceeded"}"#, Reason::RateLimit),
        (r#"{"message":"m","codexErrorInfo":"serverOverloaded"}"#, Reason::Overloaded),
        (
            r#"{"message":"m","codexErrorInfo":{"httpConnectionFailed":{"httpStatusCode":401}}}"#,
            Reason::Auth,
        ),
        (
            r#"{"message":"m","codexErrorInfo":{"responseTooManyFailedAttempts":{"httpStatusCode":429}}}"#,
            Reason::RateLimit,
        ),
        // Text and field disagree.
        (
            r#"{"message":"You've hit your usage limit","codexErrorInfo":"rateLimitExceeded"}"#,
            Reason::RateLimit,
        ),
        // Without information in the field, the text counts.
        (
            r#"{"message":"We’re currently experiencing high demand","codexErrorInfo":"internalServerError"}"#,
            Reason::Overloaded,
        ),
        (
            r#"{"message":"boom","codexErrorInfo":{"responseStreamDisconnected":{"httpStatusCode":null}}}"#,
            Reason::EngineFailed,
        ),
        (r#"{"message":"boom","codexErrorInfo":["odd"]}"#, Reason::EngineFailed),
    ] {
        assert_eq!(reason(json), expected, "{json}");
    }
}

#[test]
fn then_comes_the_data_of_the_error() {
    for (json, expected) in [
        (r#"{"message":"no","data":{"codexErrorInfo":"unauthorized"}}"#, Reason::Auth),
        (r#"{"message":"no","data":{"reason":"refresh failed: invalid_grant"}}"#, Reason::Auth),
        (r#"{"message":"no","data":"quota exceeded"}"#, Reason::UsageLimit),
        (r#"{"message":"no","data":null}"#, Reason::EngineFailed),
    ] {
        assert_eq!(reason(json), expected, "{json}");
    }
}

#[test]
fn a_refused_request_is_read_by_its_data_and_then_by_its_text() {
    use serde_json::json;
    for (message, data, expected) in [
        ("no", Some(json!({ "codexErrorInfo": "usageLimitExceeded" })), Reason::UsageLimit),
        ("no", Some(json!({ "cause": "token refresh failed: invalid_grant" })), Reason::Auth),
        ("Server overloaded; retry later.", None, Reason::Overloaded),
        ("thread not found: 01a1", Some(json!({ "odd": 1 })), Reason::SessionNotFound),
        ("failed to refresh token: 400", None, Reason::Auth),
        ("boom", None, Reason::EngineFailed),
    ] {
        assert_eq!(reason_of_refusal(message, data.as_ref()), expected, "{message} {data:?}");
    }
}

#[test]
fn then_come_phrases_with_either_apostrophe() {
    for (text, expected) in [
        ("You've hit your usage limit. Try again at 3:04 PM.", Reason::UsageLimit),
        (
            "You’ve hit your usage limit for gpt-5.5. Switch to another model now",
            Reason::UsageLimit,
        ),
        ("Your workspace is out of credits. Add credits to continue.", Reason::UsageLimit),
        ("Quota exceeded. Check your plan and billing details.", Reason::UsageLimit),
        (
            "We're currently experiencing high demand, which may cause temporary errors.",
            Reason::Overloaded,
        ),
        ("Selected model is at capacity. Please try a different model.", Reason::Overloaded),
        ("Codex ran out of room in the model's context window.", Reason::ContextTooLong),
        (
            "unexpected status 401 Unauthorized: token expired, url: http://h/v1/responses",
            Reason::Auth,
        ),
        (
            "Your access token could not be refreshed because your refresh token was revoked. Please log out and sign in again.",
            Reason::Auth,
        ),
        ("exceeded retry limit, last status: 429 Too Many Requests", Reason::RateLimit),
        (
            "exceeded retry limit, last status: 503 Service Unavailable, request id: x",
            Reason::Overloaded,
        ),
        ("thread 01a1 already has an active writer", Reason::SessionBusy),
        ("no rollout found for thread id 01a1", Reason::SessionNotFound),
        ("thread not found: 01a1", Reason::SessionNotFound),
        (
            "failed to read thread: thread-store internal error: failed to read session metadata /c/rollout-x-01a1.jsonl: rollout at /c/rollout-x-01a1.jsonl is empty",
            Reason::SessionNotFound,
        ),
        ("stream disconnected before completion: boom from mock model", Reason::EngineFailed),
        ("the test expects status 4012 and status x", Reason::EngineFailed),
        ("", Reason::EngineFailed),
    ] {
        assert_eq!(Fault::new(text).reason(), expected, "{text}");
    }
}

#[test]
fn a_plugin_that_is_not_logged_in_is_no_refused_login() {
    for text in [
        "The lab MCP server is not logged in. Run `codex mcp login lab`.",
        "required MCP servers failed to initialize: lab: handshaking with MCP server failed: 401 Unauthorized",
        "plugin github: invalid_grant",
        "MCP client for `lab` failed to start: token refresh failed",
        "connector drive: please sign in again",
        "rmcp: unexpected status 401",
    ] {
        assert_eq!(Fault::new(text).reason(), Reason::EngineFailed, "{text}");
        let data = serde_json::json!({ "cause": text });
        assert_eq!(reason_of_refusal("no", Some(&data)), Reason::EngineFailed, "{text}");
        let data = serde_json::json!({ "cause": "401 Unauthorized" });
        assert_eq!(reason_of_refusal(text, Some(&data)), Reason::EngineFailed, "{text}");
    }
}

#[test]
fn every_usual_refused_login_is_recognised_with_advice() {
    for text in include_str!("../../../takopi-core/src/failure/refused-logins.txt").lines() {
        let fault = Fault::new(text);
        assert_eq!(fault.reason(), Reason::Auth, "{text}");
        assert!(fault.error(&Reason::Auth).contains("codex login"), "{text}");
        assert_eq!(reason_of_refusal(text, None), Reason::Auth, "{text}");
        let data = serde_json::json!({ "cause": text });
        assert_eq!(reason_of_refusal("no", Some(&data)), Reason::Auth, "{text} in the data");
    }
}

#[test]
fn what_only_sounds_like_a_login_is_none() {
    for text in [
        "unexpected token: invalid JSON",
        "the login page test failed to compile",
        "token limit exceeded",
        "session 01a1 is invalid",
        "permission denied: not authorized to write /etc",
        "the tests for the api expired",
    ] {
        assert_ne!(Fault::new(text).reason(), Reason::Auth, "{text}");
    }
}

#[test]
fn stderr_counts_only_where_it_leaves_no_doubt() {
    for (stderr, expected) in [
        (
            "WARNING: x\nError: thread/resume: thread/resume failed: no rollout found for thread id 01a1 (code -32600)\n\nStack backtrace:\n   0: <unknown>",
            Some(Reason::SessionNotFound),
        ),
        (
            "Error: thread/resume: thread/resume failed: thread 01a1 already has an active writer (code -32600)",
            Some(Reason::SessionBusy),
        ),
        (
            "Error: thread/resume: thread/resume failed: failed to read thread: thread-store internal error: failed to read session metadata /c/rollout-x-01a1.jsonl: rollout at /c/rollout-x-01a1.jsonl is empty (code -32603)",
            Some(Reason::SessionNotFound),
        ),
        ("Not logged in", Some(Reason::Auth)),
        ("ERROR rmcp::transport: worker quit: 401 Unauthorized", None),
        ("ERROR plugin_loader: not logged in", None),
        ("ERROR rmcp: too many requests, quota exceeded", None),
        ("ERROR codex_core::session: failed to record rollout items: thread 01a1 not found", None),
        ("", None),
    ] {
        assert_eq!(reason_on_stderr(stderr, true), expected, "{stderr}");
    }
    let stderr = "thread 01a1 already has an active writer\nno rollout found for thread id 01a1";
    assert_eq!(reason_on_stderr(stderr, false), None, "no session is being opened");
    let stderr = format!("{stderr}\nNot logged in");
    assert_eq!(reason_on_stderr(&stderr, false), Some(Reason::Auth));
}

#[test]
fn a_refused_login_tells_the_person_what_to_do() {
    let fault = Fault::new("unexpected status 401 Unauthorized: token expired");
    assert_eq!(
        fault.error(&fault.reason()),
        "unexpected status 401 Unauthorized: token expired (run `codex login`)"
    );
    let fault = Fault::new("not signed in, run codex login");
    assert_eq!(fault.error(&fault.reason()), "not signed in, run codex login");
    let other = Fault::new("boom");
    assert_eq!(other.error(&other.reason()), "boom");
}

#[test]
fn message_and_details_read_as_exec_prints_them() {
    let json = r#"{"message":"a","additionalDetails":"b"}"#;
    let Read(fault) = serde_json::from_str::<Read<Fault<'_>>>(json).unwrap();
    assert_eq!(fault.unwrap().text(), "a (b)");
    assert_eq!(Fault::default().text(), "codex reported a failure without a message");
}
