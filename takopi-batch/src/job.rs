//! One prompt of a batch, and its result.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use takopi_core::{
    Completed, EngineId, Reason, ResumeToken, RunRequest, RunSettings, Runner, Usage,
};

use crate::digest::Digest;
use crate::order::Queued;
use crate::place::JobPlace;

/// A prompt of a batch, and how it differs from the others.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct BatchJob {
    /// Its name among the results.
    pub id: String,
    /// The line it stands on.
    pub line: u64,
    /// What the agent is asked.
    pub prompt: String,
    /// The conversation it is part of, by a name of the caller's.
    pub session: Option<String>,
    /// The conversation it goes on with, by its id or its resume line.
    pub resume: Option<String>,
    /// The engine of that conversation, if it is given.
    pub resume_engine: Option<String>,
    /// The project it runs in, by its name.
    pub project: Option<String>,
    /// The branch it runs on, in a git worktree of its own.
    pub branch: Option<String>,
    /// How it is run; what is not set is as in the batch's template.
    pub settings: RunSettings,
}

impl BatchJob {
    /// Identifies prompt, conversation and place: a change of one counts as another prompt.
    pub(crate) fn digest(&self) -> Digest {
        let mut texts = vec![Some(&*self.prompt), self.session.as_deref(), self.resume.as_deref()];
        // Without a place it is the digest of earlier versions: files keep it.
        if self.project.is_some() || self.branch.is_some() {
            texts.extend([self.project.as_deref(), self.branch.as_deref()]);
        }
        Digest::of_all(&texts)
    }

    /// About how many bytes it takes in memory.
    pub(crate) fn weight(&self) -> usize {
        let texts = [&self.session, &self.resume, &self.project, &self.branch];
        let texts = texts.into_iter().flatten().map(String::len);
        let own = size_of::<Self>() + self.prompt.len() + self.id.len();
        own + texts.sum::<usize>() + self.settings.weight()
    }

    /// The request for it: what it does not set is as in the project that it names, else as in the template.
    pub(crate) fn request(
        &self,
        template: &RunRequest,
        place: Option<&JobPlace>,
        engine: &EngineId,
    ) -> RunRequest {
        let mut request = template.clone();
        request.prompt.clone_from(&self.prompt);
        request.settings.clone_from(&self.settings);
        if let Some(place) = place {
            request.settings.fill_from(&place.project().settings_for(engine, engine));
        }
        request.settings.fill_from(&template.settings);
        request
    }
}

/// The session a text names for this runner: an id, or a text with a resume line.
pub(crate) fn session_named(runner: &dyn Runner, text: &str) -> Option<ResumeToken> {
    let text = text.trim();
    runner.token(text.trim_matches('`')).or_else(|| runner.extract_resume(text))
}

/// The result of a job: one line of the results.
///
/// ```
/// let line = r#"{"id":"7","ok":true,"answer":"fine","attempts":1,
///     "started":"2026-01-01T00:00:00Z","ended":"2026-01-01T00:00:02Z"}"#;
/// let result: takopi_batch::JobResult = serde_json::from_str(line)?;
/// assert!(result.ok);
/// assert_eq!(result.took().as_secs(), 2);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JobResult {
    /// The job.
    pub id: String,
    /// Whether it succeeded.
    pub ok: bool,
    /// The agent's answer; empty when there is none.
    pub answer: String,
    /// What went wrong, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What went wrong, for machines; besides those of a run, `skipped`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The name of its conversation, if the job has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The conversation, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<ResumeToken>,
    /// Tokens used by the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// When its first attempt in that run of the batch began, if it was not the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began: Option<Timestamp>,
    /// When its last attempt began.
    pub started: Timestamp,
    /// When it was over.
    pub ended: Timestamp,
    /// How often its prompt was sent, in all runs of the batch.
    pub attempts: u32,
}

impl JobResult {
    pub(crate) fn new(queued: Queued, completed: Completed, started: Timestamp) -> Self {
        Self {
            id: queued.job.id,
            ok: completed.ok,
            answer: completed.answer,
            error: completed.error,
            reason: completed.reason,
            session: queued.job.session,
            resume: completed.resume,
            usage: completed.usage,
            began: queued.began.filter(|began| *began != started),
            started,
            ended: Timestamp::now(),
            attempts: queued.attempts,
        }
    }

    /// How long its last attempt took.
    pub fn took(&self) -> Duration {
        Duration::try_from(self.ended.duration_since(self.started)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_part_of_what_a_job_is_and_none_is_as_in_earlier_versions() {
        let plain = BatchJob { prompt: "p".to_owned(), ..BatchJob::default() };
        assert_eq!(plain.digest(), Digest::of_all(&[Some("p"), None, None]), "files keep this");
        let branch = Some("b".to_owned());
        let on_branch = BatchJob { branch: branch.clone(), ..plain.clone() };
        let in_project = BatchJob { project: branch, ..plain.clone() };
        assert_ne!(plain.digest(), on_branch.digest());
        assert_ne!(on_branch.digest(), in_project.digest());
    }
}
