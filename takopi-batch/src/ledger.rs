//! What earlier runs of a batch recorded: its jobs and its conversations.
//!
//! Ids and names are kept as digests: some sixty bytes a job, and a token a named session.

use std::collections::HashMap;

use takopi_core::ResumeToken;
use uuid::Uuid;

use crate::digest::Digest;

/// What is known of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Known {
    /// What was sent under its id.
    pub(crate) prompt: Option<Digest>,
    /// How often.
    pub(crate) attempts: u32,
    /// The attempt whose key it was sent with: the same run, if that is still there.
    pub(crate) keyed: u32,
    /// Whether its result is ok, if it has one.
    pub(crate) outcome: Option<bool>,
    /// What was sent last.
    pub(crate) last: Last,
    /// What was sent since the result is another prompt: the result is not its answer.
    pub(crate) outdated: bool,
}

/// The state of the last prompt that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Last {
    /// Its result is the newest there is, or nothing was sent.
    #[default]
    Settled,
    /// It was sent, and its outcome is unknown.
    InFlight,
    /// It was stopped cleanly.
    Returned,
}

impl Known {
    /// It was sent, and its outcome is unknown.
    pub(crate) fn is_in_flight(&self) -> bool {
        self.last == Last::InFlight
    }

    /// Whether it is still to be run, as far as is known.
    pub(crate) fn is_open(&self) -> bool {
        self.is_in_flight() || self.outdated || self.outcome.is_none()
    }
}

/// A named conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) token: ResumeToken,
    /// A turn in it succeeded, so the engine has stored it.
    pub(crate) proven: bool,
}

/// All that is known.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The batch's own name, the first part of the keys of its runs.
    pub(crate) batch: Option<Uuid>,
    pub(crate) jobs: HashMap<Digest, Known>,
    pub(crate) sessions: HashMap<Digest, Session>,
    /// The conversations of jobs in flight that have no named one.
    pub(crate) tokens: HashMap<Digest, ResumeToken>,
    /// The state was missing once: what was in flight before is not known.
    pub(crate) restored: bool,
}

impl Ledger {
    /// What is known of a job.
    pub(crate) fn known(&self, job: Digest) -> Known {
        self.jobs.get(&job).copied().unwrap_or_default()
    }

    /// A prompt was sent, with the key of attempt `keyed`.
    pub(crate) fn sent(&mut self, job: Digest, prompt: Digest, attempt: u32, keyed: u32) {
        let known = self.jobs.entry(job).or_default();
        let changed = known.prompt.is_some_and(|before| before != prompt);
        known.prompt = Some(prompt);
        if changed {
            // What another prompt opened is another conversation.
            self.tokens.remove(&job);
        }
        // Results are read first: a result of this attempt shows that it is over.
        if attempt > known.attempts {
            known.attempts = attempt;
            known.keyed = keyed;
            known.last = Last::InFlight;
            known.outdated |= changed && known.outcome.is_some();
        }
    }

    /// There is a result.
    pub(crate) fn closed(&mut self, job: Digest, ok: bool, attempts: u32) {
        let known = self.jobs.entry(job).or_default();
        known.attempts = attempts;
        known.outcome = Some(ok);
        known.last = Last::Settled;
        known.outdated = false;
        self.tokens.remove(&job);
    }

    /// A prompt of a named conversation ended in this one. Returns what is new about it, if anything is.
    pub(crate) fn spoken(
        &mut self,
        name: Digest,
        token: ResumeToken,
        ok: bool,
    ) -> Option<&Session> {
        let known = self.sessions.get(&name);
        let proven = ok || known.is_some_and(|known| known.proven);
        let session = Session { token, proven };
        if known == Some(&session) {
            return None;
        }
        Some(self.sessions.entry(name).insert_entry(session).into_mut())
    }

    /// It is not in flight any more.
    pub(crate) fn returned(&mut self, job: Digest) {
        if let Some(known) = self.jobs.get_mut(&job).filter(|known| known.is_in_flight()) {
            known.last = Last::Returned;
        }
    }
}
