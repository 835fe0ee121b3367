//! Why a turn failed, for machines and for people.
//!
//! The reason comes from the terminal reason, then from the labels of the error, then from the HTTP status,
//! and only then from phrases in the text: 2.0.45 prints nothing else. Texts are compared in lower case
//! and without apostrophes.
//!
//! A budget or a number of turns that is used up, a refusal of the model, a model that does not exist and
//! errors of the service without a meaning of their own (400, 500) are `engine_failed`. A credit balance
//! that is too low is `usage_limit`: waiting does not help, but the account can be topped up.

use std::borrow::Cow;

use takopi_core::failure::{
    self, Phrases, contains_any, folded, is_of_plugin, known_phrase, leading_status,
    reason_of_status,
};
use takopi_core::model::Reason;
use takopi_core::runner::RunError;

use crate::wire::TurnResult;

/// The label of a login that was refused.
const AUTHENTICATION: &str = "authentication_failed";

/// A failure as Claude Code reports it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fault {
    /// `error_max_turns`, … ; `success` for errors of the model's service.
    pub(crate) subtype: Option<String>,
    /// `prompt_too_long`, `aborted_tools`, …
    pub(crate) terminal_reason: Option<String>,
    /// `authentication_failed`, `billing_error`, …
    pub(crate) error: Option<String>,
    /// `usage_limit_reached`, …
    pub(crate) api_error: Option<String>,
    /// The HTTP status.
    pub(crate) status: Option<i64>,
    /// Whether the conversation says that it was interrupted.
    pub(crate) interrupted: bool,
    /// What Claude Code says.
    pub(crate) text: String,
}

impl Fault {
    /// A login that was refused, as a retry reports it.
    pub(crate) fn refused_login(status: Option<i64>) -> Self {
        let text = match status {
            Some(status) => format!("the login was refused with status {status}"),
            None => "the login was refused".to_owned(),
        };
        Self { error: Some(AUTHENTICATION.to_owned()), status, text, ..Self::default() }
    }

    /// Why a turn failed: by its result, and by what Claude Code said about the error before.
    pub(crate) fn of_result(result: &TurnResult, said: Self) -> Self {
        // Diagnostics are for the authors of Claude Code.
        let errors = result.errors.iter().filter(|error| !error.starts_with("[ede_diagnostic]"));
        let errors = errors.map(String::as_str).collect::<Vec<_>>().join("; ");
        let of_service = result.subtype.as_deref() == Some("success");
        let text = result.text.clone().filter(|_| of_service).unwrap_or(errors);
        Self {
            subtype: result.subtype.clone(),
            terminal_reason: result.terminal_reason.clone(),
            status: result.status.or(said.status),
            api_error: result.api_error.clone().or(said.api_error),
            text: if text.trim().is_empty() { said.text } else { text },
            error: said.error,
            interrupted: said.interrupted,
        }
    }

    /// Why, for machines.
    pub(crate) fn reason(&self) -> Reason {
        let terminal = self.terminal_reason.as_deref();
        match terminal {
            Some("prompt_too_long") => return Reason::ContextTooLong,
            Some(reason) if reason.starts_with("aborted") => return Reason::Interrupted,
            _ => {}
        }
        let text = folded(&self.text);
        let is_spent = contains_any(&text, USAGE);
        let limit = if is_spent { Reason::UsageLimit } else { Reason::RateLimit };
        if self.api_error.as_deref() == Some("usage_limit_reached") {
            return Reason::UsageLimit;
        }
        match self.error.as_deref() {
            Some(error) if is_refused_login(error) => return Reason::Auth,
            Some("billing_error") => return Reason::UsageLimit,
            Some("rate_limit") => return limit,
            Some("overloaded") => return Reason::Overloaded,
            _ => {}
        }
        // Before the status: a prompt that is too long and a credit that is too low are both 400.
        if let Some(reason) = reason_in_text(&text) {
            return reason;
        }
        match self.status.or_else(|| status_in_text(&text)) {
            Some(403) => Reason::Auth,
            Some(429) => limit,
            status => status.and_then(reason_of_status).unwrap_or_else(|| {
                if self.interrupted && terminal.is_none() {
                    Reason::Interrupted
                } else if failure::is_refused_login(&text) {
                    Reason::Auth
                } else {
                    Reason::EngineFailed
                }
            }),
        }
    }

    /// What failed, for people, and what to do next.
    pub(crate) fn error(&self, reason: &Reason) -> String {
        let text: Cow<'_, str> = match (reason, self.subtype.as_deref(), self.text.trim()) {
            (Reason::Interrupted, ..) => "interrupted".into(),
            (_, Some("error_max_turns"), "") => "reached the maximum number of turns".into(),
            (_, Some("error_max_budget_usd"), "") => "reached the budget".into(),
            (_, _, "") => "Claude Code reported a failure without a message".into(),
            (_, _, text) => text.into(),
        };
        advised(reason, self.subtype.as_deref(), &text)
    }
}

/// Whether a label says that the login was refused.
pub(crate) fn is_refused_login(error: &str) -> bool {
    error == AUTHENTICATION || error.starts_with("oauth_")
}

/// The end of a run whose login was refused.
pub(crate) fn authentication() -> RunError {
    let error = "not logged in, or the login was refused (run `claude auth login`, or check ANTHROPIC_API_KEY)";
    RunError::new(Reason::Auth, error)
}

/// Why a process died that printed nothing of its run, if its stderr is unambiguous. The message is takopi's own: what stderr
/// says is for a warning.
pub(crate) fn on_stderr(stderr: &str) -> Option<RunError> {
    stderr.lines().find_map(|line| {
        let text = folded(line);
        if text.contains("session id") && text.contains("already in use") {
            let error = "Claude Code reports that another process has this session";
            return Some(RunError::new(Reason::SessionBusy, error));
        }
        if let Some(reason) = known_phrase(&text, SESSION) {
            let error = "Claude Code found no such session in this directory";
            return Some(RunError::new(reason, error));
        }
        is_own_login(&text).then(authentication)
    })
}

fn advised(reason: &Reason, subtype: Option<&str>, text: &str) -> String {
    // What to type in Claude Code's own terminal is of no use here.
    let text = text.replace(" · Please run /login", "").replace("Please run /login", "");
    let advice = match (reason, subtype) {
        (Reason::Auth, _) if text.contains("claude auth login") => return text,
        (Reason::Auth, _) if folded(&text).contains("api key") => {
            "check ANTHROPIC_API_KEY, or remove it and run `claude auth login`"
        }
        (Reason::Auth, _) => "run `claude auth login`",
        (_, Some("error_max_turns" | "error_max_budget_usd")) => "resume the session to continue",
        (Reason::ContextTooLong, _) => "begin a new session, or shorten the prompt",
        _ => return text,
    };
    format!("{} ({advice})", text.trim_end())
}

const SESSION: &Phrases = &[(
    Reason::SessionNotFound,
    &["no conversation found", "does not match any session", "requires a valid session id"],
)];

const MODEL: &Phrases = &[
    (Reason::ContextTooLong, &["prompt is too long", "context window", "context limit"]),
    (Reason::UsageLimit, &["credit balance is too low"]),
    (Reason::Overloaded, &["overloaded_error", "529 overloaded"]),
];

/// Phrases of a limit that waiting a moment does not lift.
const USAGE: &[&str] =
    &["hit your", "limit reached", "usage limit", "spending cap", "out of extra usage"];

const LOGIN: &[&str] = &[
    "not logged in",
    "please run /login",
    "invalid api key",
    "failed to authenticate",
    "oauth token has expired",
    "oauth token revoked",
    "oauth token has been revoked",
    "authentication_error",
];

/// Whether a folded text says that Claude Code's own login was refused. A plugin or a tool server has a login of its own.
fn is_own_login(text: &str) -> bool {
    contains_any(text, LOGIN) && !is_of_plugin(text)
}

fn reason_in_text(text: &str) -> Option<Reason> {
    known_phrase(text, SESSION)
        .or_else(|| known_phrase(text, MODEL))
        .or_else(|| is_own_login(text).then_some(Reason::Auth))
        .or_else(|| contains_any(text, USAGE).then_some(Reason::UsageLimit))
}

/// The status in `api error: 500 …` and `request rejected (429)`.
fn status_in_text(text: &str) -> Option<i64> {
    ["api error: ", "request rejected ("].into_iter().find_map(|before| {
        let (_, rest) = text.split_once(before)?;
        leading_status(rest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_text(text: &str) -> Reason {
        Fault { text: text.to_owned(), ..Fault::default() }.reason()
    }

    #[test]
    fn texts_of_versions_that_print_nothing_else_are_understood() {
        for (text, reason) in [
            ("Invalid API key · Please run /login", Reason::Auth),
            ("Invalid API key · Fix external API key", Reason::Auth),
            ("API Error: 401 {\"type\":\"error\"}", Reason::Auth),
            ("Prompt is too long", Reason::ContextTooLong),
            ("Credit balance is too low", Reason::UsageLimit),
            ("Spending cap reached resets Mar 17, 2030, 5:46pm", Reason::UsageLimit),
            ("You’ve hit your limit · resets 5pm (UTC)", Reason::UsageLimit),
            ("Claude AI usage limit reached|1749924000", Reason::UsageLimit),
            ("API Error: Request rejected (429) · too many requests", Reason::RateLimit),
            ("API Error: 529 {\"error\":{\"type\":\"overloaded_error\"}}", Reason::Overloaded),
            ("API Error: 500 Internal server error", Reason::EngineFailed),
            ("API Error: 5000 apples", Reason::EngineFailed),
            ("No conversation found with session ID: x", Reason::SessionNotFound),
            ("something else", Reason::EngineFailed),
            ("", Reason::EngineFailed),
        ] {
            assert_eq!(by_text(text), reason, "{text}");
        }
    }

    #[test]
    fn every_usual_refused_login_is_recognised_with_advice() {
        for text in include_str!("../../takopi-core/src/failure/refused-logins.txt").lines() {
            let fault = Fault { text: text.to_owned(), ..Fault::default() };
            assert_eq!(fault.reason(), Reason::Auth, "{text}");
            assert!(fault.error(&Reason::Auth).contains("`claude auth login`"), "{text}");
        }
        for text in [
            "MCP server lab: 401 Unauthorized",
            "MCP server lab: failed to authenticate",
            "plugin drive: please sign in again",
        ] {
            assert_eq!(by_text(text), Reason::EngineFailed, "{text}");
        }
    }

    #[test]
    fn labels_and_status_count_before_the_text() {
        let fault = |error: &str, status, text: &str| Fault {
            error: Some(error.to_owned()),
            status,
            text: text.to_owned(),
            ..Fault::default()
        };
        for (fault, reason) in [
            (fault("authentication_failed", Some(403), "prompt is too long"), Reason::Auth),
            (fault("billing_error", Some(400), "x"), Reason::UsageLimit),
            (fault("rate_limit", Some(429), "would exceed your rate limit"), Reason::RateLimit),
            (fault("rate_limit", Some(429), "You've hit your limit"), Reason::UsageLimit),
            (fault("server_error", Some(529), "x"), Reason::Overloaded),
            (fault("server_error", Some(500), "x"), Reason::EngineFailed),
            (fault("model_not_found", Some(404), "x"), Reason::EngineFailed),
            (fault("invalid_request", Some(400), "x"), Reason::EngineFailed),
        ] {
            assert_eq!(fault.reason(), reason, "{fault:?}");
        }
        let too_long = Fault {
            terminal_reason: Some("prompt_too_long".to_owned()),
            ..fault("invalid_request", Some(400), "x")
        };
        assert_eq!(too_long.reason(), Reason::ContextTooLong);
    }

    #[test]
    fn an_error_says_what_to_do_next() {
        let error = |text: &str| {
            let fault = Fault { text: text.to_owned(), ..Fault::default() };
            fault.error(&fault.reason())
        };
        assert_eq!(
            error("Not logged in · Please run /login"),
            "Not logged in (run `claude auth login`)"
        );
        assert_eq!(
            error("Invalid API key · Fix external API key"),
            "Invalid API key · Fix external API key \
             (check ANTHROPIC_API_KEY, or remove it and run `claude auth login`)"
        );
        let turns = Fault { subtype: Some("error_max_turns".to_owned()), ..Fault::default() };
        assert_eq!(
            turns.error(&turns.reason()),
            "reached the maximum number of turns (resume the session to continue)"
        );
    }

    #[test]
    fn stderr_counts_only_where_it_is_unambiguous() {
        let reason = |stderr: &str| on_stderr(stderr).map(|error| error.reason);
        assert_eq!(
            reason("warning\nNo conversation found with session ID: 0"),
            Some(Reason::SessionNotFound)
        );
        assert_eq!(reason("Error: Session ID 0 is already in use."), Some(Reason::SessionBusy));
        assert_eq!(reason("Not logged in · Please run /login"), Some(Reason::Auth));
        for text in ["a plugin got 401 from its server", "MCP server lab: failed to authenticate"] {
            assert_eq!(reason(text), None, "{text}");
        }
    }

    #[test]
    fn what_stderr_says_is_not_the_error() {
        for stderr in [
            "No conversation found with session ID: 0 of mine",
            "Error: Session ID 0 of mine is already in use.",
            "Not logged in, says mine",
        ] {
            let error = on_stderr(stderr).unwrap().message;
            assert!(!error.contains("mine"), "{error}");
        }
    }
}
