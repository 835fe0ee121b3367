//! What earlier lives of a batch left: what is known of its jobs, and its conversations.
//!
//! Ids and names are kept as digests: some sixty bytes a job, and a token a named session.

use std::collections::HashMap;

use takopi_core::ResumeToken;

use crate::digest::Digest;

/// What is known of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Known {
    /// What was sent under its id.
    pub(crate) prompt: Option<Digest>,
    /// How often.
    pub(crate) attempts: u32,
    /// Whether its result is ok, if it has one.
    pub(crate) outcome: Option<bool>,
    /// It was sent, and nobody knows what came of it.
    pub(crate) in_flight: bool,
}

impl Known {
    /// Whether it is still to be run, as far as is known.
    pub(crate) fn is_open(&self) -> bool {
        self.in_flight || self.outcome.is_none()
    }
}

/// A conversation with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) token: ResumeToken,
    /// A turn in it went well, so the engine has it stored.
    pub(crate) proven: bool,
}

/// All that is known.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) jobs: HashMap<Digest, Known>,
    pub(crate) sessions: HashMap<Digest, Session>,
    /// The conversations of jobs in flight that have no named one.
    pub(crate) tokens: HashMap<Digest, ResumeToken>,
}

impl Ledger {
    /// A prompt was sent.
    pub(crate) fn sent(&mut self, job: Digest, prompt: Digest, attempt: u32) {
        let known = self.jobs.entry(job).or_default();
        known.prompt = Some(prompt);
        // Results are read first: one of this attempt says that it is over.
        if attempt > known.attempts {
            known.attempts = attempt;
            known.in_flight = true;
        }
    }

    /// There is a result.
    pub(crate) fn closed(&mut self, job: Digest, ok: bool, attempts: u32) {
        let known = self.jobs.entry(job).or_default();
        known.attempts = attempts;
        known.outcome = Some(ok);
        known.in_flight = false;
        self.tokens.remove(&job);
    }

    /// It was stopped in good order, and is to be sent again.
    pub(crate) fn returned(&mut self, job: Digest) {
        if let Some(known) = self.jobs.get_mut(&job) {
            known.in_flight = false;
        }
    }
}
