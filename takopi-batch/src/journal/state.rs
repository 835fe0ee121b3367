//! The state file: what was sent, and which conversations were opened.

use std::io::{self, Write as _};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use takopi_core::ResumeToken;
use tokio::sync::Notify;
use uuid::Uuid;

use super::disk::DiskFile;
use crate::digest::Digest;
use crate::ledger::{Last, Ledger, Session};

/// One line of the state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Line {
    /// The batch's own name.
    Batch { id: Uuid },
    /// The state was missing, and what follows was learnt from the results.
    Restored,
    /// A prompt is about to be sent.
    Sent {
        job: Digest,
        prompt: Digest,
        attempt: u32,
        /// The attempt whose key it has, if that is another one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        keyed: Option<u32>,
        /// The job was not in flight any more when the file was made short.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        over: bool,
        /// The result that was there before is not this prompt's.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        outdates: bool,
    },
    /// A job without a name for its conversation opened one.
    Opened { job: Digest, resume: ResumeToken },
    /// The conversation of a name.
    Session { name: Digest, resume: ResumeToken, proven: bool },
    /// The conversation of a name was never stored by the engine; the next prompt begins another.
    Forgotten { name: Digest },
    /// A job is not in flight any more: it was stopped cleanly, or its result is on disk. The
    /// latter shows in the results; this line keeps it if the result is removed by hand.
    Returned { job: Digest },
}

impl Line {
    /// Applies the line.
    pub(crate) fn apply(self, ledger: &mut Ledger) {
        match self {
            Self::Batch { id } => ledger.batch = Some(id),
            Self::Restored => ledger.restored = true,
            Self::Sent { job, prompt, attempt, keyed, over, outdates } => {
                ledger.sent(job, prompt, attempt, keyed.unwrap_or(attempt));
                if over {
                    ledger.returned(job);
                }
                if let Some(known) = ledger.jobs.get_mut(&job).filter(|_| outdates) {
                    known.outdated = known.outcome.is_some() && known.last != Last::Settled;
                }
            }
            // What has its result needs its conversation no more.
            Self::Opened { job, resume } => {
                if ledger.jobs.get(&job).is_some_and(|known| known.last != Last::Settled) {
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

    /// Writes all that is known as lines.
    pub(crate) fn write_all(ledger: &Ledger, to: &mut impl io::Write) -> io::Result<()> {
        let mut write = |line: &Self| {
            serde_json::to_writer(&mut *to, line)?;
            to.write_all(b"\n")
        };
        if let Some(id) = ledger.batch {
            write(&Self::Batch { id })?;
        }
        if ledger.restored {
            write(&Self::Restored)?;
        }
        for (job, known) in &ledger.jobs {
            if let Some(prompt) = known.prompt {
                write(&Self::Sent {
                    job: *job,
                    prompt,
                    attempt: known.attempts,
                    keyed: (known.keyed != known.attempts).then_some(known.keyed),
                    over: !known.is_in_flight(),
                    outdates: known.outdated,
                })?;
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

/// The state while a batch runs. A line is handed to the kernel before [`Self::append`] returns, so a
/// killed process loses none.
#[derive(Debug)]
pub(crate) struct StateFile {
    open: Option<Mutex<Open>>,
    appended: Notify,
}

#[derive(Debug)]
struct Open {
    file: DiskFile,
    fault: Option<io::Error>,
}

impl StateFile {
    pub(crate) fn none() -> Self {
        Self { open: None, appended: Notify::new() }
    }

    pub(super) fn new(file: DiskFile) -> Self {
        Self { open: Some(Mutex::new(Open { file, fault: None })), appended: Notify::new() }
    }

    /// Appends a line, which is synced soon. An error is kept for [`Self::fault`].
    pub(crate) fn append(&self, line: &Line) {
        self.append_unsynced(line);
        self.appended.notify_one();
    }

    /// Appends a line that is synced when another one is.
    pub(crate) fn append_unsynced(&self, line: &Line) {
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
