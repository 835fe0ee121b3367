//! The figures of a batch.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};
use takopi_core::{Reason, Usage};

use crate::job::JobResult;
use crate::journal::JournalError;
use crate::results::each_last;

/// Figures of a batch.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[non_exhaustive]
pub struct BatchReport {
    /// Jobs that succeeded.
    pub ok: u64,
    /// Jobs that failed, by reason.
    pub failed: BTreeMap<String, u64>,
    /// Prompts sent: more than jobs, if some were sent again.
    pub attempts: u64,
    /// How many of these were sent again.
    pub sent_again: u64,
    /// Tokens used. Figures of whole conversations are not among them.
    pub usage: Usage,
    /// When the first began.
    pub began: Option<Timestamp>,
    /// When the last was over.
    pub ended: Option<Timestamp>,
    /// The time all of them took together; in seconds, as JSON.
    #[serde(rename = "work_seconds", serialize_with = "seconds")]
    pub work: Duration,
}

/// A length of time in JSON.
pub(crate) fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

/// What a report takes from a result. The answer is not among it.
#[derive(Deserialize)]
struct Figures {
    ok: bool,
    #[serde(default)]
    reason: Option<Reason>,
    #[serde(default)]
    usage: Option<Usage>,
    #[serde(default)]
    began: Option<Timestamp>,
    started: Timestamp,
    ended: Timestamp,
    attempts: u32,
}

impl BatchReport {
    /// Reads results. Of several with one id the last counts; a last line that was cut short does not.
    ///
    /// The file is read twice, and twenty bytes a job are kept, not the results.
    ///
    /// ```
    /// use takopi_batch::BatchReport;
    ///
    /// let file = tempfile::NamedTempFile::new()?;
    /// let times = r#""started":"2026-01-01T00:00:00Z","ended":"2026-01-01T00:00:05Z""#;
    /// std::fs::write(
    ///     file.path(),
    ///     format!(
    ///         "{{\"id\":\"a\",\"ok\":false,\"answer\":\"\",\"reason\":\"overloaded\",{times},\"attempts\":3}}\n\
    ///          {{\"id\":\"a\",\"ok\":true,\"answer\":\"hi\",{times},\"attempts\":4}}\n"
    ///     ),
    /// )?;
    /// let report = BatchReport::read(file.path())?;
    /// assert_eq!((report.ok, report.failures(), report.attempts), (1, 0, 4));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read(out: impl AsRef<Path>) -> Result<Self, JournalError> {
        let mut report = Self::default();
        each_last(out.as_ref(), |line| {
            let figures: Figures = serde_json::from_slice(line).ok()?;
            report.count(figures.ok, figures.reason.as_ref(), figures.attempts);
            report.spent(figures.usage.as_ref(), figures.started, figures.ended);
            report.begins(figures.began);
            Some(())
        })?;
        Ok(report)
    }

    /// Adds a result, whose id must be a new one.
    pub fn add(&mut self, result: &JobResult) {
        self.count(result.ok, result.reason.as_ref(), result.attempts);
        self.spent(result.usage.as_ref(), result.started, result.ended);
        self.begins(result.began);
    }

    /// How many failed.
    pub fn failures(&self) -> u64 {
        self.failed.values().sum()
    }

    /// Takes in when a job began, if known. Pauses between its attempts are part of the time.
    fn begins(&mut self, at: Option<Timestamp>) {
        self.began = self.began.into_iter().chain(at).min();
    }

    fn count(&mut self, ok: bool, reason: Option<&Reason>, attempts: u32) {
        self.attempts += u64::from(attempts);
        self.sent_again += u64::from(attempts.saturating_sub(1));
        if ok {
            self.ok += 1;
        } else {
            let reason = reason.map_or("unknown", Reason::as_str);
            *self.failed.entry(reason.to_owned()).or_default() += 1;
        }
    }

    fn spent(&mut self, usage: Option<&Usage>, started: Timestamp, ended: Timestamp) {
        if let Some(usage) = usage {
            self.usage.add(usage);
        }
        self.begins(Some(started));
        self.ended = Some(self.ended.map_or(ended, |last| last.max(ended)));
        self.work += Duration::try_from(ended.duration_since(started)).unwrap_or_default();
    }
}
