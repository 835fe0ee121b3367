//! Reads jobs from lines.
//!
//! The formats: text, one prompt a line, whose id is the number of the line; JSON Lines, an object a line;
//! and, if asked for, tables of comma- or tab-separated values. Unless the format is given, the first line
//! that is not blank decides: `{` begins JSON. Blank lines are counted and left out, a byte order mark and
//! carriage returns are taken off. A [`PromptTemplate`] is put around every prompt.
//!
//! A line is held in memory one at a time and is bounded ([`LINE_LIMIT`]). A bad line is an error with
//! its number, and reading goes on behind it, so that all of them can be reported.

mod table;
mod template;

use std::io::{self, BufRead as _, BufReader, Read};

use serde::Deserialize;
use serde_json::{Map, Value};
use takopi_core::RunSettings;
use takopi_core::settings::SettingError;
use thiserror::Error;

use self::table::{Head, Place};
pub use self::template::{PromptTemplate, TemplateError};
use crate::job::BatchJob;

/// How long a line may be.
pub const LINE_LIMIT: usize = 16 << 20;

/// How the lines are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One prompt a line.
    Text,
    /// One JSON object a line.
    JsonLines,
    /// Comma-separated values; the first line names the columns.
    Csv,
    /// Tab-separated values; the first line names the columns.
    Tsv,
}

/// An invalid line.
#[derive(Debug, Error)]
#[error("line {line}: {fault}")]
#[non_exhaustive]
pub struct InputError {
    /// The number of the line, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub fault: LineError,
}

/// What is wrong with a line.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LineError {
    /// The input could not be read.
    #[error("cannot be read: {0}")]
    Read(io::Error),
    /// It is too long.
    #[error("longer than {} MiB", LINE_LIMIT >> 20)]
    TooLong,
    /// It is not text.
    #[error("not UTF-8")]
    NotUtf8,
    /// It is not the JSON that is expected.
    #[error("{0}")]
    BadJson(String),
    /// It is not the table that is expected.
    #[error("{0}")]
    BadTable(String),
    /// The template of the prompt has a column that the job does not have.
    #[error("the template has a column `{0}`; there is {1}")]
    NoColumn(String, String),
    /// A file or directory of the job does not exist.
    #[error("{0}")]
    Missing(String),
    /// It names a project or a branch that it cannot run in.
    #[error("{0}")]
    Place(String),
    /// There is no prompt.
    #[error("the prompt is empty")]
    NoPrompt,
    /// The id is empty.
    #[error("the id is empty")]
    NoId,
    /// It names a conversation in two ways.
    #[error(
        "`session` and `resume` exclude each other: takopi finds the token of a named session itself"
    )]
    TwoSessions,
    /// It names a conversation that is not to be stored.
    #[error(
        "`ephemeral` excludes `session` and `resume`: a session that is not stored has no next prompt"
    )]
    Ephemeral,
    /// It names a conversation that this engine cannot have.
    #[error("`{0}` is not a session of {1}")]
    BadResume(String, String),
    /// It names a conversation of another engine.
    #[error("`{0}` is a session of {1}; this batch runs on {2}")]
    OtherEngine(String, String, String),
    /// Its id was used before.
    #[error("the id `{0}` is already used on line {1}")]
    Duplicate(String, u64),
    /// An id that was run with another prompt.
    #[error("the prompt of `{0}` differs from the one that was sent under this id before")]
    Changed(String),
    /// It may have been in flight in a crash, of which there is no record any more.
    #[error(
        "the prompt of `{0}` may have been sent before: the `.state` of the results was missing, which recorded \
         that; run the batch without `--on-crash fail` to send it"
    )]
    Unrecorded(String),
}

/// Reads jobs.
///
/// ```
/// use takopi_batch::Input;
///
/// let text = "{\"id\":\"a\",\"prompt\":\"say hi\",\"session\":\"s\"}\n\n{\"prompt\":\"bye\"}\n";
/// let jobs: Vec<_> = Input::new(text.as_bytes()).collect::<Result<_, _>>()?;
/// assert_eq!((jobs[0].id.as_str(), jobs[0].session.as_deref()), ("a", Some("s")));
/// assert_eq!((jobs[1].id.as_str(), jobs[1].line), ("3", 3));
/// # Ok::<(), takopi_batch::InputError>(())
/// ```
#[derive(Debug)]
pub struct Input<R> {
    reader: BufReader<R>,
    format: Option<Format>,
    /// The line that decided the format, if none was given.
    decided: Option<u64>,
    line: u64,
    over: bool,
    template: Option<PromptTemplate>,
    /// The columns of a table, once they were read.
    head: Option<Head>,
}

impl<R: Read> Input<R> {
    /// Reads jobs from `reader`, and finds out how they are written.
    pub fn new(reader: R) -> Self {
        let reader = BufReader::with_capacity(64 << 10, reader);
        Self {
            reader,
            format: None,
            decided: None,
            line: 0,
            over: false,
            template: None,
            head: None,
        }
    }

    /// Sets the format; `None` detects it.
    pub fn format(mut self, format: Option<Format>) -> Self {
        self.format = format;
        self
    }

    /// Sets a template that is put around every prompt.
    pub fn template(mut self, template: Option<PromptTemplate>) -> Self {
        self.template = template;
        self
    }

    /// Whether the next line is here already, so that it can be had without waiting.
    pub(crate) fn has_next_line(&self) -> bool {
        memchr::memchr(b'\n', self.reader.buffer()).is_some()
    }

    /// The next line without its end; `None` at the end of the input.
    fn next_line(&mut self) -> Result<Option<Vec<u8>>, LineError> {
        let mut line = Vec::new();
        let (mut any, mut too_long) = (false, false);
        loop {
            let bytes = match self.reader.fill_buf() {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    self.over = true;
                    return Err(LineError::Read(error));
                }
            };
            if bytes.is_empty() {
                break;
            }
            any = true;
            let end = memchr::memchr(b'\n', bytes);
            let part = &bytes[..end.unwrap_or(bytes.len())];
            too_long |= line.len() + part.len() > LINE_LIMIT;
            if !too_long {
                line.extend_from_slice(part);
            }
            let used = end.map_or(bytes.len(), |end| end + 1);
            self.reader.consume(used);
            if end.is_some() {
                break;
            }
        }
        match (any, too_long) {
            (false, _) => Ok(None),
            (_, true) => Err(LineError::TooLong),
            _ => Ok(Some(line)),
        }
    }

    /// The job of a line or record; `number` is that of its first line.
    fn job(&mut self, line: &str, number: u64) -> Result<BatchJob, LineError> {
        let line = line.trim_end_matches('\r');
        let json = line.trim_start().starts_with('{');
        let found = if json { Format::JsonLines } else { Format::Text };
        let format = *self.format.get_or_insert_with(|| {
            self.decided = Some(number);
            found
        });
        let mut job = match format {
            Format::Csv | Format::Tsv => self.table_job(line)?,
            Format::Text if self.decided == Some(number) && begins_array(line) => {
                let what =
                    "a JSON array: a batch reads one object a line; `jq -c '.[]' FILE` converts it";
                return Err(LineError::BadJson(what.to_owned()));
            }
            Format::JsonLines if line.trim() == "{" => {
                let what = "a JSON object must be on one line; `jq -c . FILE` converts it";
                return Err(LineError::BadJson(what.to_owned()));
            }
            Format::Text => BatchJob { prompt: line.to_owned(), ..BatchJob::default() },
            Format::JsonLines if !json => {
                let why = self.decided.map(|line| format!(" (line {line} is one, so all must be)"));
                let what = format!("not a JSON object{}", why.unwrap_or_default());
                return Err(LineError::BadJson(what));
            }
            Format::JsonLines => {
                serde_json::from_str::<Written>(line).map_err(|error| bad_json(&error))?.job()?
            }
        };
        job.line = number;
        if job.id.is_empty() {
            job.id = number.to_string();
        }
        if job.prompt.trim().is_empty() {
            return Err(LineError::NoPrompt);
        }
        if let Some(template) = self.template.as_ref().filter(|_| self.head.is_none()) {
            let value = |name: &str| match name {
                "prompt" => Some(job.prompt.clone()),
                "id" => Some(job.id.clone()),
                "session" => Some(job.session.clone().unwrap_or_default()),
                _ => None,
            };
            let there_is = || "`prompt`, `id` and `session`".to_owned();
            job.prompt =
                template.fill(value).map_err(|name| LineError::NoColumn(name, there_is()))?;
        }
        Ok(job)
    }

    /// A job of a table, whose head was read.
    fn table_job(&self, record: &str) -> Result<BatchJob, LineError> {
        let head =
            self.head.as_ref().ok_or_else(|| LineError::BadTable("no columns".to_owned()))?;
        let mut cells = head.record(record)?;
        let cell = |name: &str| {
            let text = cells.get(name).and_then(Value::as_str).unwrap_or_default();
            head.has(name).then(|| text.to_owned())
        };
        if let Some(template) = &self.template {
            let filled = template.fill(cell).map_err(|name| {
                LineError::NoColumn(name, format!("`{}`", head.names().join("`, `")))
            })?;
            // What the template shows and a job does not know is only for the template.
            cells.retain(|name, _| !template.uses(name) || is_known(name));
            cells.insert("prompt".to_owned(), filled.into());
        } else if !head.has("prompt") {
            let error = "there is no column `prompt`; --template makes a prompt of other columns";
            return Err(LineError::BadTable(error.to_owned()));
        }
        if let Some(text) = cells.get("ephemeral").and_then(Value::as_str) {
            let value = text.parse::<bool>().map_or_else(|_| text.into(), Value::Bool);
            cells.insert("ephemeral".to_owned(), value);
        }
        if !cells.contains_key("prompt") {
            return Err(LineError::NoPrompt);
        }
        serde_json::from_value::<Written>(cells.into()).map_err(|error| bad_json(&error))?.job()
    }

    /// What stands between the cells, if this is a table.
    fn delimiter(&self) -> Option<u8> {
        match self.format {
            Some(Format::Csv) => Some(b','),
            Some(Format::Tsv) => Some(b'\t'),
            _ => None,
        }
    }

    /// Reads the head of a table, if this is its first line: `true` if there is no job in it.
    fn is_head(&mut self, line: &str) -> Result<bool, LineError> {
        let Some(delimiter) = self.delimiter().filter(|_| self.head.is_none()) else {
            return Ok(false);
        };
        let head = Head::read(line, delimiter);
        self.over = head.is_err();
        self.head = Some(head?);
        Ok(true)
    }

    /// The rest of a record that goes on in the next lines.
    fn rest_of_record(&mut self, text: &str) -> Result<String, LineError> {
        let mut record = text.to_owned();
        let Some(delimiter) = self.delimiter() else { return Ok(record) };
        let mut place = Place::default().behind(text, delimiter);
        while place == Place::Quoted {
            let Some(more) = self.next_line()? else {
                let error = "a quote opens a cell that is not closed";
                return Err(LineError::BadTable(error.to_owned()));
            };
            self.line += 1;
            let more = std::str::from_utf8(&more).map_err(|_| LineError::NotUtf8)?;
            place = place.behind(more, delimiter);
            record.push('\n');
            record.push_str(more);
            if record.len() > LINE_LIMIT {
                return Err(LineError::TooLong);
            }
        }
        Ok(record)
    }

    fn read_job(&mut self, text: &str) -> Result<Option<BatchJob>, LineError> {
        let line = self.line;
        let text = self.rest_of_record(text)?;
        if self.is_head(&text)? {
            return Ok(None);
        }
        self.job(&text, line).map(Some)
    }
}

fn begins_array(line: &str) -> bool {
    let inside = line.trim().strip_prefix('[').map(str::trim_start);
    inside.is_some_and(|inside| inside.is_empty() || inside.starts_with(['{', '"']))
}

/// The fields of a job that are no settings of its run.
const OWN: [&str; 6] = ["id", "prompt", "resume", "session", "project", "branch"];

/// Whether a job has such a field.
fn is_known(name: &str) -> bool {
    OWN.contains(&name) || RunSettings::NAMES.contains(&name)
}

impl<R: Read> Iterator for Input<R> {
    type Item = Result<BatchJob, InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.over {
            self.line += 1;
            let line = match self.next_line() {
                Ok(Some(line)) => line,
                Ok(None) => {
                    self.over = true;
                    break;
                }
                Err(fault) => return Some(Err(InputError { line: self.line, fault })),
            };
            let mark = if self.line == 1 { &b"\xEF\xBB\xBF"[..] } else { b"" };
            let bytes = line.strip_prefix(mark).unwrap_or(&line);
            let read = match std::str::from_utf8(bytes) {
                Ok(text) if text.trim().is_empty() => continue,
                Ok(text) => {
                    let line = self.line;
                    match self.read_job(text) {
                        Ok(None) => continue,
                        Ok(Some(job)) => Ok(job),
                        Err(fault) => return Some(Err(InputError { line, fault })),
                    }
                }
                Err(_) => Err(LineError::NotUtf8),
            };
            return Some(read.map_err(|fault| InputError { line: self.line, fault }));
        }
        None
    }
}

/// A job as it stands in JSON.
#[derive(Deserialize)]
#[serde(expecting = "a job: a JSON object with a `prompt`")]
struct Written {
    id: Option<Id>,
    prompt: Option<String>,
    resume: Option<Resume>,
    session: Option<String>,
    project: Option<String>,
    branch: Option<String>,
    /// The settings of the run.
    #[serde(flatten)]
    settings: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "`id` must be a string or an integer")]
enum Id {
    Text(String),
    Number(i64),
}

/// A token as a text, or as results have it.
#[derive(Deserialize)]
#[serde(untagged, expecting = "`resume` must be a session id, a resume line, or a token")]
enum Resume {
    Text(String),
    Token { engine: Option<String>, value: String },
}

impl Written {
    fn job(self) -> Result<BatchJob, LineError> {
        if self.session.is_some() && self.resume.is_some() {
            return Err(LineError::TwoSessions);
        }
        let id = match self.id {
            Some(Id::Text(text)) if text.trim().is_empty() => return Err(LineError::NoId),
            Some(Id::Text(text)) => text,
            Some(Id::Number(number)) => number.to_string(),
            None => String::new(),
        };
        let (resume, resume_engine) = match self.resume {
            Some(Resume::Text(text)) => (Some(text), None),
            Some(Resume::Token { engine, value }) => (Some(value), engine),
            None => (None, None),
        };
        let mut settings = RunSettings::default();
        for (name, value) in &self.settings {
            settings.set(name, value).map_err(|error| match error {
                SettingError::Unknown { name } => unknown_field(&name),
                error => LineError::BadJson(error.to_string()),
            })?;
        }
        let prompt =
            self.prompt.ok_or_else(|| LineError::BadJson("missing field `prompt`".to_owned()))?;
        let Self { session, project, branch, .. } = self;
        let line = 0;
        Ok(BatchJob { id, line, prompt, session, resume, resume_engine, project, branch, settings })
    }
}

fn unknown_field(name: &str) -> LineError {
    let known: Vec<_> =
        OWN.iter().chain(RunSettings::NAMES).map(|name| format!("`{name}`")).collect();
    LineError::BadJson(format!("unknown field `{name}`, expected one of {}", known.join(", ")))
}

/// The error without its line, which is always the first: there is only one.
fn bad_json(error: &serde_json::Error) -> LineError {
    let text = error.to_string();
    let column = error.column();
    LineError::BadJson(match text.strip_suffix(&format!(" at line 1 column {column}")) {
        Some(what) if column > 0 => format!("{what} (column {column})"),
        _ => text,
    })
}

#[cfg(test)]
mod tests;
