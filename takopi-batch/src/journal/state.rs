//! The state file: what was sent, and which conversations were opened.

use std::fs::File;
use std::io::{self, Write as _};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use takopi_core::ResumeToken;
use tokio::sync::Notify;

use crate::digest::Digest;
use crate::ledger::{Known, Ledger, Session};

/// One line of the state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Line {
    /// A prompt is about to be sent.
    Sent { job: Digest, prompt: Digest, attempt: u32 },
    /// A job without a name for its conversation opened one.
    Opened { job: Digest, resume: ResumeToken },
    /// The conversation of a name.
    Session { name: Digest, resume: ResumeToken, proven: bool },
    /// The conversation of a name was never stored by the engine; the next prompt begins another.
    Forgotten { name: Digest },
    /// A job was stopped in good order, and is to be sent again.
    Returned { job: Digest },
}

impl Line {
    /// Takes the line in.
    pub(crate) fn apply(self, ledger: &mut Ledger) {
        match self {
            Self::Sent { job, prompt, attempt } => ledger.sent(job, prompt, attempt),
            // What has its result needs its conversation no more.
            Self::Opened { job, resume } => {
                if ledger.jobs.get(&job).is_some_and(Known::is_open) {
                    ledger.tokens.insert(job, resume);
                }
            }
            Self::Session { name, resume, proven } => {
                ledger.sessions.insert(name, Session { token: resume, proven });
            }
            Self::Forgotten { name } => {
                ledger.sessions.remove(&name);
            }
            Self::Returned { job } => ledger.returned(job),
        }
    }

    /// Writes all that is known, once, in lines that give it again.
    pub(crate) fn write_all(ledger: &Ledger, to: &mut impl io::Write) -> io::Result<()> {
        let mut write = |line: &Self| {
            serde_json::to_writer(&mut *to, line)?;
            to.write_all(b"\n")
        };
        for (job, known) in &ledger.jobs {
            if let Some(prompt) = known.prompt {
                write(&Self::Sent { job: *job, prompt, attempt: known.attempts })?;
                if !known.in_flight && known.outcome.is_none() {
                    write(&Self::Returned { job: *job })?;
                }
            }
        }
        for (job, token) in &ledger.tokens {
            write(&Self::Opened { job: *job, resume: token.clone() })?;
        }
        for (name, session) in &ledger.sessions {
            let Session { token, proven } = session.clone();
            write(&Self::Session { name: *name, resume: token, proven })?;
        }
        Ok(())
    }
}

/// The state while a batch runs. Lines are in the kernel's hands when [`Self::append`] returns, so
/// a killed process loses none.
#[derive(Debug)]
pub(crate) struct StateFile {
    open: Option<Mutex<Open>>,
    appended: Notify,
}

#[derive(Debug)]
struct Open {
    file: File,
    fault: Option<io::Error>,
}

impl StateFile {
    pub(crate) fn none() -> Self {
        Self { open: None, appended: Notify::new() }
    }

    pub(crate) fn new(file: File) -> Self {
        Self { open: Some(Mutex::new(Open { file, fault: None })), appended: Notify::new() }
    }

    /// Appends a line. An error is kept for [`Self::fault`].
    pub(crate) fn append(&self, line: &Line) {
        let Some(open) = &self.open else { return };
        let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.fault.is_some() {
            return;
        }
        let written = serde_json::to_vec(line).map_err(io::Error::from).and_then(|mut bytes| {
            bytes.push(b'\n');
            open.file.write_all(&bytes)
        });
        open.fault = written.err();
        self.appended.notify_one();
    }

    /// Waits for a line that was not waited for yet.
    pub(crate) async fn appended(&self) {
        self.appended.notified().await;
    }

    /// Why a line could not be written, once.
    pub(crate) fn fault(&self) -> Option<io::Error> {
        self.open.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner).fault.take()
    }
}
