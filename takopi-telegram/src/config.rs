//! The table `[telegram]` of the configuration.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};
use takopi_core::redact::REDACTED;
use takopi_core::settings::parse_duration;
use thiserror::Error;

use crate::api::{SERVICE, Token};

/// The variable with the token.
pub const TOKEN_VARIABLE: &str = "TAKOPI_TELEGRAM_TOKEN";

/// A part of the configuration that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("[telegram]: {0}")]
pub struct ConfigError(String);

/// Which messages of a group are for the bot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Trigger {
    /// Those that mention it, reply to it, or are commands.
    #[default]
    Mentions,
    /// All.
    All,
}

/// Which session a message goes on in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// That of the message it replies to.
    #[default]
    Replies,
    /// A chat or topic is one conversation; `/new` begins another.
    Chat,
}

/// A text that `Debug` does not show.
#[derive(Clone, PartialEq)]
struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

/// How the bot behaves.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// The token in the file itself.
    token: Option<Secret>,
    /// A file with the token.
    token_file: Option<PathBuf>,
    /// The people who are answered.
    pub allowed_users: Vec<i64>,
    /// The groups that are answered, beside the private chats of those people.
    pub chats: Vec<i64>,
    /// Which messages of a group are for the bot.
    pub trigger: Trigger,
    /// Which session a message goes on in.
    pub mode: Mode,
    /// Whether a message to a busy session is added to the running turn instead of waiting.
    pub steer: bool,
    /// Turns a voice note into text: a command with `{file}` in it.
    pub transcribe: Option<String>,
    /// The directory for files of people, in the project.
    pub uploads: PathBuf,
    /// The largest file, in bytes.
    pub max_file: u64,
    /// How long a message waits for what is forwarded right behind it.
    pub forward_window: Duration,
    /// Where the service is.
    pub service: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            token: None,
            token_file: None,
            allowed_users: Vec::new(),
            chats: Vec::new(),
            trigger: Trigger::default(),
            mode: Mode::default(),
            steer: false,
            transcribe: None,
            uploads: "incoming".into(),
            max_file: 20 << 20,
            forward_window: Duration::from_millis(300),
            service: SERVICE.to_owned(),
        }
    }
}

impl Config {
    /// Reads the table. Its errors never contain the token.
    pub fn read(table: &Map<String, Value>) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        for (key, value) in table {
            let wrong = |expected: &str| ConfigError(format!("`{key}`: expected {expected}"));
            let text = || value.as_str().map(str::to_owned).ok_or_else(|| wrong("a text"));
            let ids =
                || -> Option<Vec<i64>> { value.as_array()?.iter().map(Value::as_i64).collect() };
            match key.as_str() {
                "token" => config.token = Some(Secret(text()?)),
                "token_file" => config.token_file = Some(text()?.into()),
                "allowed_users" => {
                    config.allowed_users = ids().ok_or_else(|| wrong("a list of user ids"))?;
                }
                "chats" => config.chats = ids().ok_or_else(|| wrong("a list of chat ids"))?,
                "trigger" => {
                    config.trigger = match text()?.as_str() {
                        "mentions" => Trigger::Mentions,
                        "all" => Trigger::All,
                        _ => return Err(wrong("`mentions` or `all`")),
                    }
                }
                "mode" => {
                    config.mode = match text()?.as_str() {
                        "replies" => Mode::Replies,
                        "chat" => Mode::Chat,
                        _ => return Err(wrong("`replies` or `chat`")),
                    }
                }
                "steer" => {
                    config.steer = value.as_bool().ok_or_else(|| wrong("true or false"))?;
                }
                "transcribe" => {
                    let command = text()?;
                    if !command.contains("{file}") {
                        return Err(wrong("a command with {file} in it"));
                    }
                    config.transcribe = Some(command);
                }
                "uploads" => {
                    let directory = PathBuf::from(text()?);
                    if !crate::files::is_plain(&directory) {
                        return Err(wrong("a directory inside of the project"));
                    }
                    config.uploads = directory;
                }
                "max_file" => {
                    config.max_file = value.as_u64().ok_or_else(|| wrong("a number of bytes"))?;
                }
                "forward_window" => {
                    let length = text()?;
                    config.forward_window = parse_duration(&length).map_err(|it| wrong(&it))?;
                }
                "service" => {
                    let address = text()?;
                    let read = reqwest::Url::parse(&address);
                    if !read.is_ok_and(|url| matches!(url.scheme(), "http" | "https")) {
                        return Err(wrong("an address, as http://localhost:8081"));
                    }
                    address.trim_end_matches('/').clone_into(&mut config.service);
                }
                _ => return Err(ConfigError(format!("unknown key `{key}`"))),
            }
        }
        Ok(config)
    }

    /// The token: of the variable, else of the file it is in, else of the configuration.
    pub fn token(&self) -> Result<Token, ConfigError> {
        let variable = std::env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty());
        let (token, from) = match (variable, &self.token_file, &self.token) {
            (Some(token), _, _) => (token, TOKEN_VARIABLE.to_owned()),
            (None, Some(file), _) => {
                let read = std::fs::read_to_string(file);
                let cannot =
                    |error| ConfigError(format!("cannot read {}: {error}", file.display()));
                (read.map_err(cannot)?, file.display().to_string())
            }
            (None, None, Some(token)) => (token.0.clone(), "`token`".to_owned()),
            (None, None, None) => {
                let hint =
                    format!("no token: run `takopi telegram setup`, or set {TOKEN_VARIABLE}");
                return Err(ConfigError(hint));
            }
        };
        let hint = "is no token of a bot, which looks like 123456:ABC…; @BotFather shows it";
        Token::parse(&token).ok_or_else(|| ConfigError(format!("{from} {hint}")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(table: impl std::borrow::Borrow<Value>) -> Result<Config, String> {
        Config::read(table.borrow().as_object().unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn every_key_is_read() {
        let config = read(json!({
            "token": "1:abcdefghijkl", "token_file": "/t", "allowed_users": [1, 2], "chats": [-100],
            "trigger": "all", "mode": "chat", "transcribe": "w {file}", "uploads": "in", "max_file": 5, "steer": true,
            "forward_window": "1s", "service": "http://localhost/",
        }));
        let config = config.unwrap();
        assert_eq!((config.trigger, config.mode), (Trigger::All, Mode::Chat));
        assert_eq!((config.allowed_users, config.chats), (vec![1, 2], vec![-100]));
        assert_eq!(config.service, "http://localhost");
    }

    #[test]
    fn errors_name_the_key_and_never_the_token() {
        assert_eq!(read(json!({ "tokn": 1 })).unwrap_err(), "[telegram]: unknown key `tokn`");
        let error = read(json!({ "allowed_users": ["me"] })).unwrap_err();
        assert_eq!(error, "[telegram]: `allowed_users`: expected a list of user ids");
        assert!(read(json!({ "uploads": "../x" })).unwrap_err().contains("inside of the project"));
        assert!(read(json!({ "transcribe": "whisper" })).unwrap_err().contains("{file}"));
        for service in ["localhost:8081", "", "ftp://x", "api.telegram.org"] {
            let error = read(json!({ "service": service })).unwrap_err();
            assert!(error.contains("`service`: expected an address"), "{error}");
        }
        let config = read(json!({ "token": "SECRETSECRET" })).unwrap();
        assert!(!format!("{config:?}").contains("SECRET"), "{config:?}");
        let error = config.token().unwrap_err().to_string();
        assert!(error.contains("`token` is no token") && !error.contains("SECRET"), "{error}");
    }
}
