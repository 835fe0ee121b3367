//! Reading the results of a batch.
//!
//! Of several with one id the last counts; a last line that was cut short does not. The file is read twice, and twenty
//! bytes a job are kept, not the results.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use serde::Deserialize;

use crate::digest::Digest;
use crate::job::JobResult;
use crate::journal::JournalError;

impl JobResult {
    /// Reads the results of a file one by one, in their order. Of several with one id the last counts; a last line that
    /// was cut short does not.
    ///
    /// ```
    /// use takopi_batch::JobResult;
    ///
    /// let file = tempfile::NamedTempFile::new()?;
    /// let times = r#""started":"2026-01-01T00:00:00Z","ended":"2026-01-01T00:00:05Z""#;
    /// let line = |answer| format!(r#"{{"id":"a","ok":true,"answer":"{answer}",{times},"attempts":1}}"#);
    /// std::fs::write(file.path(), [line("first"), line("last")].join("\n"))?;
    /// let mut answers = Vec::new();
    /// JobResult::read_each(file.path(), |result| answers.push(result.answer))?;
    /// assert_eq!(answers, ["last"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_each(
        out: impl AsRef<Path>,
        mut take: impl FnMut(Self),
    ) -> Result<(), JournalError> {
        each_last(out.as_ref(), |line| {
            take(serde_json::from_slice(line).ok()?);
            Some(())
        })
    }
}

/// The id of a result.
#[derive(Deserialize)]
struct Id<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
}

/// Passes on the last line of each id; `None` says that it is no result.
pub(crate) fn each_last(
    out: &Path,
    mut take: impl FnMut(&[u8]) -> Option<()>,
) -> Result<(), JournalError> {
    let mut last = HashMap::new();
    each(out, |number, line| {
        let Id { id } = serde_json::from_slice(line).ok()?;
        last.insert(Digest::of(&id), number);
        Some(())
    })?;
    let last: HashSet<u64> = last.into_values().collect();
    each(out, |number, line| if last.contains(&number) { take(line) } else { Some(()) })
}

fn each(out: &Path, mut take: impl FnMut(u64, &[u8]) -> Option<()>) -> Result<(), JournalError> {
    let fault = |error| JournalError::Io { doing: "read", path: out.to_owned(), error };
    let mut reader = BufReader::new(File::open(out).map_err(fault)?);
    let (mut line, mut number) = (Vec::new(), 0);
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line).map_err(fault)? == 0 {
            return Ok(());
        }
        number += 1;
        let text = line.trim_ascii();
        let is_whole = line.last() == Some(&b'\n');
        if !text.is_empty() && take(number, text).is_none() && is_whole {
            return Err(JournalError::NotAResult(out.to_owned(), number));
        }
    }
}
