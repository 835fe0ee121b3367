//! A thin client of the Bot API.
//!
//! Promises:
//! - the token is in no error, no log line and no `Debug` text, and goes to no other server by a redirect;
//! - every call ends in bounded time;
//! - a response is read tolerantly: what is not used is ignored, and a page that is no JSON is an error of
//!   the service, not of the caller; texts of people are never part of an error.
//!
//! Why no ready-made client: see `docs/decisions/0009-telegram-client.md`.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};
use takopi_core::redact::REDACTED;
use thiserror::Error;

/// The public service.
pub const SERVICE: &str = "https://api.telegram.org";
/// How long one poll waits for updates.
const POLL: Duration = Duration::from_secs(50);
/// How long any other call may take.
const CALL: Duration = Duration::from_secs(25);
/// How long a failed call is not repeated, at first and at most.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(500);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long a file may take.
const FILE: Duration = Duration::from_mins(5);

/// The token of a bot. It is shown nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Reads a token: `123456:ABC…`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (id, secret) = text.split_once(':')?;
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let valid = !id.is_empty()
            && id.chars().all(|c| c.is_ascii_digit())
            && secret.len() >= 10
            && secret.chars().all(allowed);
        valid.then(|| Self(text.to_owned()))
    }

    /// The id of the bot, which is no secret.
    pub fn bot(&self) -> &str {
        self.0.split_once(':').map_or("", |(id, _)| id)
    }

    /// The token itself, to write it into a configuration.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ApiError {
    /// The service refused the call.
    #[error("{method}: {description} ({code})")]
    Refused {
        /// The method.
        method: String,
        /// The code, as in HTTP.
        code: u16,
        /// The service's description.
        description: String,
        /// How long to wait before the next call.
        retry_after: Option<Duration>,
    },
    /// There was no response, or none of the API. The service may have acted.
    #[error("{method}: {error}")]
    Lost {
        /// The method.
        method: String,
        /// What happened.
        error: String,
        /// Whether the service certainly did not act: it was not reached.
        unsent: bool,
    },
    /// A file is larger than it may be.
    #[error("the file is larger than {limit} bytes")]
    TooLarge {
        /// The largest size.
        limit: u64,
    },
}

impl ApiError {
    /// Whether the service refused with a description that contains a text.
    pub fn says(&self, text: &str) -> bool {
        matches!(self, Self::Refused { description, .. } if description.contains(text))
    }

    /// The code of the refusal.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::Lost { .. } | Self::TooLarge { .. } => None,
        }
    }

    /// How long the service wants to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            Self::Lost { .. } | Self::TooLarge { .. } => None,
        }
    }

    /// Whether the same call would fail again.
    pub fn is_lasting(&self) -> bool {
        let refused = self.code().is_some_and(|code| code < 500 && code != 429);
        refused || matches!(self, Self::TooLarge { .. })
    }
}

/// The Bot API for one bot. Clones share its connections.
#[derive(Clone)]
pub struct Api {
    http: reqwest::Client,
    service: String,
    token: Token,
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("service", &self.service).finish_non_exhaustive()
    }
}

impl Api {
    /// A client of this service, usually [`SERVICE`].
    pub fn new(service: impl Into<String>, token: Token) -> Result<Self, ApiError> {
        // Another part of the program may have chosen a provider before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let built = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(10))
            // The path of a request holds the token: it must not be sent to another server.
            .redirect(reqwest::redirect::Policy::none())
            .build();
        let http = built.map_err(|error| lost("start", &error.without_url()))?;
        Ok(Self { http, service: service.into(), token })
    }

    /// Calls a method.
    pub async fn call(&self, method: &str, params: &Value) -> Result<Value, ApiError> {
        self.call_within(method, params, CALL).await
    }

    async fn call_within(
        &self,
        method: &str,
        params: &Value,
        limit: Duration,
    ) -> Result<Value, ApiError> {
        let request = self.http.post(self.url(method)).json(params).timeout(limit);
        self.send(method, request).await
    }

    fn url(&self, method: &str) -> String {
        format!("{}/bot{}/{method}", self.service, self.token.0)
    }

    async fn send(
        &self,
        method: &str,
        request: reqwest::RequestBuilder,
    ) -> Result<Value, ApiError> {
        let lost = |error: reqwest::Error| self.scrubbed(lost(method, &error.without_url()));
        let response = request.send().await.map_err(lost)?;
        let status = response.status().as_u16();
        let body = response.bytes().await.map_err(lost)?;
        let lost = |error| ApiError::Lost { method: method.to_owned(), error, unsent: false };
        // A service that fails may have acted before, whatever it responds with.
        if status >= 500 {
            return Err(lost(format!("the service responded with status {status}")));
        }
        let Ok(mut body) = serde_json::from_slice::<Value>(&body) else {
            let error = format!("the service responded with status {status} and no JSON");
            return Err(lost(error));
        };
        if body["ok"] == true {
            return Ok(body["result"].take());
        }
        let seconds = body["parameters"]["retry_after"].as_u64();
        let description = body["description"].as_str().unwrap_or("no description");
        Err(self.scrubbed(ApiError::Refused {
            method: method.to_owned(),
            code: status,
            description: description.chars().take(300).collect(),
            retry_after: seconds.map(Duration::from_secs),
        }))
    }

    /// The error without the token, whoever put it there.
    fn scrubbed(&self, mut error: ApiError) -> ApiError {
        if let ApiError::Lost { error: text, .. } | ApiError::Refused { description: text, .. } =
            &mut error
        {
            *text = text.replace(&self.token.0, REDACTED);
        }
        error
    }

    /// Waits for updates from this offset on; with `wait` off it returns at once.
    pub async fn updates(&self, offset: i64, wait: bool) -> Result<Vec<Value>, ApiError> {
        let timeout = if wait { POLL.as_secs() } else { 0 };
        let allowed = ["message", "callback_query"];
        let params = json!({ "offset": offset, "timeout": timeout, "allowed_updates": allowed });
        let mut result = self.call_within("getUpdates", &params, POLL + CALL).await?;
        Ok(result.as_array_mut().map(std::mem::take).unwrap_or_default())
    }

    /// Downloads a file of at most `limit` bytes.
    pub async fn download(&self, file: &str, limit: u64) -> Result<Vec<u8>, ApiError> {
        let method = "getFile";
        let found = self.call(method, &json!({ "file_id": file })).await?;
        let path = found["file_path"].as_str().unwrap_or_default();
        let too_large = || ApiError::TooLarge { limit };
        if found["file_size"].as_u64().is_some_and(|size| size > limit) {
            return Err(too_large());
        }
        let url = format!("{}/file/bot{}/{path}", self.service, self.token.0);
        let lost = |error: reqwest::Error| self.scrubbed(lost(method, &error.without_url()));
        let mut response = self.http.get(url).timeout(FILE).send().await.map_err(lost)?;
        if !response.status().is_success() {
            let error = format!("the service responded with status {}", response.status().as_u16());
            return Err(ApiError::Lost { method: method.to_owned(), error, unsent: false });
        }
        let mut bytes = Vec::new();
        // The size that the service named need not be true.
        while let Some(chunk) = response.chunk().await.map_err(lost)? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() as u64 > limit {
                return Err(too_large());
            }
        }
        Ok(bytes)
    }

    /// Sends a file.
    pub async fn upload(
        &self,
        params: &Value,
        name: &str,
        bytes: Vec<u8>,
    ) -> Result<Value, ApiError> {
        let part = reqwest::multipart::Part::bytes(bytes).file_name(name.to_owned());
        let mut form = reqwest::multipart::Form::new().part("document", part);
        for (key, value) in params.as_object().into_iter().flatten() {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            form = form.text(key.clone(), text);
        }
        let request = self.http.post(self.url("sendDocument")).multipart(form).timeout(FILE);
        self.send("sendDocument", request).await
    }
}

/// Makes a call until it succeeds, fails for a lasting reason, or was tried this often. Pauses grow up to a
/// limit.
pub async fn retried<R, C>(attempts: usize, mut call: impl FnMut() -> C) -> Result<R, ApiError>
where
    C: Future<Output = Result<R, ApiError>>,
{
    let mut pause = FIRST_PAUSE;
    for _ in 1..attempts {
        match call().await {
            Err(error) if !error.is_lasting() => {
                tracing::warn!(%error, "retrying");
                tokio::time::sleep(error.retry_after().unwrap_or(pause)).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            ended => return ended,
        }
    }
    call().await
}

fn lost(method: &str, error: &reqwest::Error) -> ApiError {
    let unsent = error.is_connect() || error.is_builder();
    let error = if error.is_timeout() {
        "no response in time".to_owned()
    } else if error.is_connect() {
        "the service cannot be reached".to_owned()
    } else {
        "the connection broke".to_owned()
    };
    ApiError::Lost { method: method.to_owned(), error, unsent }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_checked_and_never_shown() {
        let token = Token::parse(" 123:ABCDEFGHIJ-_1\n").unwrap();
        assert_eq!(format!("{token:?}"), "Token");
        for wrong in
            ["", "123", "x:ABCDEFGHIJKL", "123:short", "123:ABCDEFGHIJ KL", ":ABCDEFGHIJKL"]
        {
            assert_eq!(Token::parse(wrong), None, "{wrong}");
        }
        assert_eq!(token.bot(), "123");
        let api = Api::new("http://127.0.0.1:9", token).unwrap();
        assert!(!format!("{api:?}").contains("ABCDEF"));
    }
}
