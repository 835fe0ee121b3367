//! Whether a line may be a job, and whether there is anything to do for it.

use std::collections::HashMap;

use takopi_core::ResumeToken;

use super::{Batch, OnChange, OnCrash};
use crate::digest::Digest;
use crate::input::{InputError, LineError};
use crate::job::{BatchJob, session_named};
use crate::ledger::{Known, Ledger};

/// What is to be done for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Todo {
    /// Nothing: it succeeded before.
    Done,
    /// Nothing: it failed before, and that result stays.
    FailedBefore,
    /// It was in flight in a crash, and fails for it.
    Crashed,
    /// It is run.
    Run,
}

/// Decides about a job by what is known of it.
pub(super) fn todo(batch: &Batch, job: &BatchJob, ledger: &Ledger) -> Result<Todo, LineError> {
    let known = ledger.known(Digest::of(&job.id));
    if ledger.restored && batch.on_crash == OnCrash::Fail && known == Known::default() {
        return Err(LineError::Unrecorded(job.id.clone()));
    }
    let changed = known.prompt.is_some_and(|prompt| prompt != job.digest());
    if changed {
        match batch.on_change {
            OnChange::Refuse => return Err(LineError::Changed(job.id.clone())),
            OnChange::Rerun => return Ok(Todo::Run),
            OnChange::Keep => {}
        }
    }
    Ok(match known.outcome {
        _ if known.is_in_flight() && batch.on_crash == OnCrash::Fail => Todo::Crashed,
        Some(false) if batch.retry_failed => Todo::Run,
        Some(true) if !known.is_open() => Todo::Done,
        Some(false) if !known.is_open() => Todo::FailedBefore,
        _ => Todo::Run,
    })
}

/// The conversation a job names by its token.
pub(super) fn token(batch: &Batch, job: &BatchJob) -> Result<Option<ResumeToken>, LineError> {
    let ephemeral = job.settings.ephemeral.or(batch.template.settings.ephemeral) == Some(true);
    if ephemeral && (job.session.is_some() || job.resume.is_some()) {
        return Err(LineError::Ephemeral);
    }
    let Some(text) = &job.resume else { return Ok(None) };
    let engine = batch.runner.engine().to_string();
    if let Some(other) = job.resume_engine.as_ref().filter(|said| **said != engine) {
        return Err(LineError::OtherEngine(text.clone(), other.clone(), engine));
    }
    let token = session_named(&*batch.runner, text);
    let bad = || LineError::BadResume(text.clone(), engine);
    token.map(Some).ok_or_else(bad)
}

/// Looks at all jobs of an input before any is run.
pub(super) struct Check<'a> {
    batch: &'a Batch,
    ledger: &'a Ledger,
    lines: HashMap<Digest, u64>,
}

impl<'a> Check<'a> {
    pub(super) fn new(batch: &'a Batch, ledger: &'a Ledger) -> Self {
        Self { batch, ledger, lines: HashMap::new() }
    }

    pub(super) fn job(&mut self, job: &BatchJob) -> Result<Todo, InputError> {
        let id = Digest::of(&job.id);
        let vetted = match self.lines.insert(id, job.line) {
            Some(line) => Err(LineError::Duplicate(job.id.clone(), line)),
            None => token(self.batch, job).and_then(|_| {
                let todo = todo(self.batch, job, self.ledger)?;
                self.batch.place(job)?;
                // Found now rather than after hours.
                let missing = (todo == Todo::Run).then(|| job.settings.missing_path()).flatten();
                missing.map_or(Ok(todo), |missing| Err(LineError::Missing(missing)))
            }),
        };
        vetted.map_err(|fault| InputError { line: job.line, fault })
    }
}
