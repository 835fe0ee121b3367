//! The sessions that an engine has stored.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Serialize;
use thiserror::Error;

use crate::model::{OUTPUT_TAIL_BYTES, ResumeToken, tail};

/// The stored sessions of an engine. Reading them changes nothing.
pub trait SessionStore: Send + Sync {
    /// Where the sessions are stored, for messages.
    fn location(&self) -> &Path;

    /// The sessions, most recently written first; with a directory, only those that began there.
    fn list<'a>(&'a self, directory: Option<&Path>)
    -> Box<dyn Iterator<Item = StoredSession> + 'a>;

    /// The one session whose id begins with this prefix.
    fn find(&self, prefix: &str) -> Result<StoredSession, SessionError>;

    /// The messages and commands of a session, in order.
    fn transcript(&self, session: &ResumeToken) -> Result<Vec<TranscriptEntry>, SessionError>;

    /// The same for a session of a list, without looking for it again.
    fn transcript_of(&self, session: &StoredSession) -> Result<Vec<TranscriptEntry>, SessionError> {
        self.transcript(&session.token)
    }
}

/// A stored session.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredSession {
    /// Its token.
    pub token: ResumeToken,
    /// When it was last written.
    pub updated: Timestamp,
    /// When it was created, as the engine wrote it.
    pub created: Option<String>,
    /// The directory it began in.
    pub cwd: Option<PathBuf>,
    /// Its name, if it was given one.
    pub name: Option<String>,
    /// The beginning of its first prompt.
    pub first_prompt: Option<String>,
    /// The file that it is stored in, if it has one of its own.
    pub file: Option<PathBuf>,
}

impl StoredSession {
    /// A session of which no more is known.
    pub fn new(token: ResumeToken, updated: Timestamp) -> Self {
        Self {
            token,
            updated,
            created: None,
            cwd: None,
            name: None,
            first_prompt: None,
            file: None,
        }
    }
}

/// The author of a transcript entry, or what kind of step it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Role {
    /// A message of the user.
    User,
    /// A message of the agent.
    Agent,
    /// A command that the agent ran.
    Command,
    /// Anything else, e.g. that a turn was interrupted.
    Note,
}

/// A message or a step of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TranscriptEntry {
    /// The author, or the kind of step.
    pub role: Role,
    /// The message, or the command.
    pub text: String,
    /// How the command ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    /// The end of what the command printed, if the engine stored it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tail: Option<String>,
    /// When it was written, as the engine wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

impl TranscriptEntry {
    /// An entry.
    pub fn new(role: Role, text: impl Into<String>) -> Self {
        Self { role, text: text.into(), exit_code: None, output_tail: None, at: None }
    }

    /// Sets what the command printed, of which the end is kept.
    pub fn set_output(&mut self, output: &str) {
        let output = output.trim_end();
        self.output_tail = (!output.is_empty()).then(|| tail(output, OUTPUT_TAIL_BYTES).to_owned());
    }
}

/// Stored sessions could not be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SessionError {
    /// It is not known where the engine stores its sessions.
    #[error("cannot find the stored sessions: {0}")]
    NoStore(String),
    /// No id begins with the prefix.
    #[error("no session {0:?} was found; `takopi sessions -n 0` lists all sessions")]
    NotFound(String),
    /// Several ids begin with the prefix.
    #[error("{count} sessions begin with {prefix:?}; give more of the id")]
    Ambiguous {
        /// The prefix.
        prefix: String,
        /// How many.
        count: usize,
    },
    /// A session's file cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}
