//! Why a turn failed, for machines and for people.
//!
//! The reason comes from structured fields first (`codexErrorInfo`, the HTTP status in it), then from
//! `error.data`, and only then from phrases in the text. stderr is looked at last, for few phrases:
//! the log of a plugin that was refused is no evidence about the user's login.

use std::borrow::Cow;

use serde::de::MapAccess;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use takopi_core::failure::{
    Phrases, contains_any, folded, is_of_plugin, is_refused_login, known_phrase, leading_status,
    reason_of_status,
};
use takopi_core::model::Reason;

use crate::common::{Read, Tolerant, first, next_key, skip, snake_case};

/// A failure as Codex reports it.
#[derive(Debug, Default)]
pub(crate) struct Fault<'a> {
    message: Option<Cow<'a, str>>,
    details: Option<Cow<'a, str>>,
    info: Option<Info<'a>>,
    data: Option<&'a RawValue>,
}

impl<'a> Fault<'a> {
    /// A fault of which only the text is known.
    pub(crate) fn new(message: impl Into<Cow<'a, str>>) -> Self {
        Self { message: Some(message.into()), ..Self::default() }
    }

    /// The message, without the details.
    pub(crate) fn message(&self) -> &str {
        self.message.as_deref().unwrap_or_default()
    }

    /// What stands behind it.
    pub(crate) fn details(&self) -> Option<&str> {
        self.details.as_deref().filter(|details| !details.trim().is_empty())
    }

    /// Message and details; exec prints them in one.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        match (self.message(), self.details()) {
            ("", None) => Cow::Borrowed("codex reported a failure without a message"),
            ("", Some(details)) => Cow::Borrowed(details),
            (message, None) => Cow::Borrowed(message),
            (message, Some(details)) => Cow::Owned(format!("{message} ({details})")),
        }
    }

    /// Why, for machines.
    pub(crate) fn reason(&self) -> Reason {
        self.info
            .as_ref()
            .and_then(Info::reason)
            .or_else(|| self.data.and_then(|data| reason_in_data(data, &self.text())))
            .or_else(|| reason_in_text(&self.text(), false))
            .unwrap_or(Reason::EngineFailed)
    }

    /// The error for people: message, details, and what to do next.
    pub(crate) fn error(&self, reason: &Reason) -> String {
        advised(reason, self.text().into_owned())
    }
}

impl<'de> Tolerant<'de> for Fault<'de> {
    fn from_input(text: &'de str) -> Option<Self> {
        Some(Self::new(text))
    }

    fn from_text(text: &str) -> Option<Self> {
        Some(Self::new(text.to_owned()))
    }

    fn from_object<A: MapAccess<'de>>(mut object: A) -> Result<Option<Self>, A::Error> {
        let object = &mut object;
        let mut fault = Self::default();
        while let Some(key) = next_key(object)? {
            match &*key {
                "message" => first(&mut fault.message, object)?,
                "additional_details" | "additionalDetails" => first(&mut fault.details, object)?,
                "codex_error_info" | "codexErrorInfo" => first(&mut fault.info, object)?,
                "data" => {
                    let data = object.next_value()?;
                    fault.data.get_or_insert(data);
                }
                _ => skip(object)?,
            }
        }
        Ok(Some(fault))
    }
}

/// Why a request was refused: by the data of the error, then by its text.
pub(crate) fn reason_of_refusal(message: &str, data: Option<&Value>) -> Reason {
    data.and_then(|data| to_raw_value(data).ok())
        .and_then(|data| reason_in_data(&data, message))
        .unwrap_or_else(|| Fault::new(message).reason())
}

/// Adds what a person can do.
pub(crate) fn advised(reason: &Reason, error: String) -> String {
    if *reason == Reason::Auth && !error.contains("codex login") {
        format!("{error} (run `codex login`)")
    } else {
        error
    }
}

/// `codexErrorInfo`: a label, or an object with one label and an HTTP status.
#[derive(Debug)]
struct Info<'a> {
    label: Cow<'a, str>,
    status: Option<i64>,
}

impl Info<'_> {
    fn reason(&self) -> Option<Reason> {
        match &*snake_case(Cow::Borrowed(&*self.label)) {
            "unauthorized" => Some(Reason::Auth),
            "usage_limit_exceeded" => Some(Reason::UsageLimit),
            "rate_limit_exceeded" => Some(Reason::RateLimit),
            "context_window_exceeded" => Some(Reason::ContextTooLong),
            "server_overloaded" | "flex_unavailable" | "policy_capacity_unavailable" => {
                Some(Reason::Overloaded)
            }
            _ => self.status.and_then(reason_of_status),
        }
    }
}

impl<'de> Tolerant<'de> for Info<'de> {
    fn from_input(text: &'de str) -> Option<Self> {
        Some(Self { label: Cow::Borrowed(text), status: None })
    }

    fn from_text(text: &str) -> Option<Self> {
        Some(Self { label: Cow::Owned(text.to_owned()), status: None })
    }

    fn from_object<A: MapAccess<'de>>(mut object: A) -> Result<Option<Self>, A::Error> {
        let mut info = None;
        while let Some(label) = next_key(&mut object)? {
            let Read(status) = object.next_value::<Read<HttpStatus>>()?;
            info.get_or_insert(Self { label, status: status.map(|HttpStatus(status)| status) });
        }
        Ok(info)
    }
}

/// The status in `{"httpStatusCode":401}`.
struct HttpStatus(i64);

impl<'de> Tolerant<'de> for HttpStatus {
    fn from_object<A: MapAccess<'de>>(mut object: A) -> Result<Option<Self>, A::Error> {
        let mut status = None;
        while let Some(key) = next_key(&mut object)? {
            match &*key {
                "httpStatusCode" | "http_status_code" => first(&mut status, &mut object)?,
                _ => skip(&mut object)?,
            }
        }
        Ok(status.map(Self))
    }
}

/// `data` of a JSON-RPC error with this message: a fault of its own, or anything with a telling
/// phrase in it.
fn reason_in_data(data: &RawValue, message: &str) -> Option<Reason> {
    let fault =
        serde_json::from_str::<Read<Fault<'_>>>(data.get()).ok().and_then(|Read(fault)| fault);
    let info = fault.and_then(|fault| fault.info.as_ref().and_then(Info::reason));
    info.or_else(|| reason_in_text(data.get(), is_of_plugin(&folded(message))))
}

/// Phrases about a session that cannot be opened.
const SESSION: &Phrases = &[
    (Reason::SessionBusy, &["already has an active writer"]),
    (
        Reason::SessionNotFound,
        &[
            "no rollout found for",
            "thread not found",
            "no thread with id",
            "no saved session found",
            // `rollout at PATH.jsonl is empty`: codex was killed before it had written anything of a new session.
            ".jsonl is empty",
        ],
    ),
];

/// Phrases about a model that does not respond.
const MODEL: &Phrases = &[
    (
        Reason::ContextTooLong,
        &[
            "ran out of room in the models context window",
            "context window exceeded",
            "exceeds the context window",
            "context_length_exceeded",
            "maximum context length",
        ],
    ),
    (
        Reason::UsageLimit,
        &[
            "hit your usage limit",
            "reached your usage limit",
            "usage_limit_reached",
            "workspace is out of credits",
            "hit your spend cap",
            "quota exceeded",
            "insufficient_quota",
            "to use codex with your chatgpt plan",
        ],
    ),
    (
        Reason::RateLimit,
        &["rate limit reached", "rate limit exceeded", "rate_limit_exceeded", "too many requests"],
    ),
    (
        Reason::Overloaded,
        &[
            "experiencing high demand",
            "model is at capacity",
            "capacity is unavailable",
            "capacity unavailable",
            "server_is_overloaded",
            "server overloaded",
            "overloaded_error",
        ],
    ),
];

/// Codex's own phrases about a refused login, beside those of every agent.
const LOGIN: &[&str] = &["run codex login", "run `codex login`"];

/// Phrases about a refused login on stderr, where a bare 401 may belong to anything.
const LOGIN_ON_STDERR: &[&str] =
    &["log out and sign in again", "not logged in", "run codex login", "run `codex login`"];

/// The reason in a text; `of_plugin` if the text, or its context, is about a plugin.
fn reason_in_text(text: &str, of_plugin: bool) -> Option<Reason> {
    let text = folded(text);
    let of_plugin = of_plugin || is_of_plugin(&text);
    known_phrase(&text, SESSION)
        .or_else(|| known_phrase(&text, MODEL))
        .or_else(|| (is_refused_login(&text) || contains_any(&text, LOGIN)).then_some(Reason::Auth))
        .or_else(|| status_in_text(&text).and_then(reason_of_status))
        .filter(|reason| !(of_plugin && *reason == Reason::Auth))
}

/// Why a process failed, if its stderr is unambiguous. A session can only be missing or held while codex is `opening` one:
/// later its stderr is about another session.
pub(crate) fn reason_on_stderr(stderr: &str, opening: bool) -> Option<Reason> {
    stderr.lines().find_map(|line| {
        let line = folded(line);
        known_phrase(&line, SESSION)
            .filter(|_| opening)
            .or_else(|| contains_any(&line, LOGIN_ON_STDERR).then_some(Reason::Auth))
            .filter(|reason| !(*reason == Reason::Auth && is_of_plugin(&line)))
    })
}

/// The status in `unexpected status 401 …` and `last status: 429 …`.
fn status_in_text(text: &str) -> Option<i64> {
    let behind = text.split("status").skip(1);
    behind.map(|rest| rest.trim_start_matches([':', ' '])).find_map(leading_status)
}

#[cfg(test)]
mod tests;
