//! Errors of an app-server, grouped by what can be done about them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use takopi_core::process::SpawnError;
use takopi_core::redact::{redact, redact_value};
use takopi_core::rpc::ErrorBody;
use thiserror::Error;

/// A fault of an app-server, or of talking to it. Tagged with the method that was called.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// It could not be started.
    #[error(transparent)]
    Spawn(#[from] Arc<SpawnError>),
    /// It ended, or was closed, before it answered.
    #[error("{method}: the app-server is gone")]
    Closed {
        /// What was called.
        method: String,
        /// The end of what it wrote to stderr, without credentials.
        stderr_tail: String,
    },
    /// It did not answer in time.
    #[error("{method}: no answer from the app-server within {limit:?}")]
    Timeout {
        /// What was called.
        method: String,
        /// How long was waited.
        limit: Duration,
    },
    /// It answered with an error.
    #[error("{message}")]
    Refused {
        /// What was called.
        method: String,
        /// The error's code, if it could be read.
        code: Option<i64>,
        /// The error's text, without credentials.
        message: String,
        /// Further data, without credentials.
        data: Option<Box<Value>>,
    },
    /// Its answer was not understood, or too long to be read.
    #[error("{method}: the app-server's answer was not understood: {detail}")]
    Answer {
        /// What was called.
        method: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The thread runs a turn of this client already.
    #[error("thread {thread} is running a turn already")]
    TurnRunning {
        /// The thread.
        thread: String,
    },
    /// The turn's events were not read, and a shared server cannot wait.
    #[error("the events of thread {thread} were not read in time")]
    Stalled {
        /// The thread.
        thread: String,
    },
    /// Its version is below the minimum.
    #[error(
        "codex {found} is too old: takopi needs {minimum} or newer (npm install -g @openai/codex)"
    )]
    TooOld {
        /// The version it reports.
        found: String,
        /// The least that will do.
        minimum: String,
    },
}

impl ClientError {
    pub(super) fn refused(method: &str, error: ErrorBody) -> Self {
        let ErrorBody { code, message, mut data, .. } = error;
        if let Some(data) = &mut data {
            redact_value(data);
        }
        Self::Refused {
            method: method.to_owned(),
            code,
            message: redact(&message).into_owned(),
            data,
        }
    }

    pub(super) fn answer(method: &str, detail: &str) -> Self {
        Self::Answer { method: method.to_owned(), detail: redact(detail).into_owned() }
    }

    /// Whether another codex holds the session.
    pub fn is_active_writer(&self) -> bool {
        matches!(self, Self::Refused { message, .. } if message.contains("already has an active writer"))
    }

    /// Whether the process behind the client is of no further use.
    pub fn is_fatal(&self) -> bool {
        matches!(
            self,
            Self::Spawn(_) | Self::Closed { .. } | Self::Timeout { .. } | Self::TooOld { .. }
        )
    }
}

impl From<SpawnError> for ClientError {
    fn from(error: SpawnError) -> Self {
        Self::Spawn(Arc::new(error))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    #[test]
    fn what_a_server_answers_is_shown_without_credentials() {
        let (method, text) = ("turn/start", "not with Bearer sk-SECRET-123");
        let body = format!(r#"{{"code":1,"message":"{text}","data":{{"why":"{text}"}}}}"#);
        let body = ErrorBody::read(serde_json::from_str::<&RawValue>(&body).unwrap());
        let errors = [ClientError::refused(method, body), ClientError::answer(method, text)];
        for error in errors {
            for shown in [error.to_string(), format!("{error:?}")] {
                assert!(shown.contains("not with Bearer [redacted]"), "{shown}");
                assert!(!shown.contains("SECRET"), "{shown}");
            }
        }
    }
}
