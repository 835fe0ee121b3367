//! Running a batch: options and outcome.

mod attempt;
mod driver;
mod intake;
mod vet;

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use takopi_core::{RunRequest, Runner};
use takopi_projects::Projects;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::event::{BatchEvent, Halt};
use crate::input::{Format, Input, InputError, LineError, PromptTemplate};
use crate::job::BatchJob;
use crate::journal::{Journal, JournalError};
use crate::place::JobPlace;
use crate::report::BatchReport;

/// How many invalid lines are listed.
const LISTED: usize = 20;
/// How long what runs may take to finish when a batch is cancelled.
const GRACE: Duration = Duration::from_secs(30);

/// What happens to the other jobs when a job fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailure {
    /// They go on.
    #[default]
    Continue,
    /// Later prompts of its conversation fail unsent (`skipped`).
    SkipSession,
    /// Nothing more is started.
    Stop,
}

/// What happens to a prompt that was in flight when an earlier run of the batch was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnCrash {
    /// It is sent again, in the same conversation.
    #[default]
    Resend,
    /// It fails. Each prompt is then on record, synced, before it is sent.
    Fail,
}

/// What happens to an id whose prompt differs from the one that was sent under it before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnChange {
    /// The input is refused.
    #[default]
    Refuse,
    /// What is done stays done.
    Keep,
    /// It is run again, and its new result counts.
    Rerun,
}

/// What happens when the account is at its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnLimit {
    /// The queue pauses, and resumes when the limit ends.
    #[default]
    Wait,
    /// Nothing more is started.
    Stop,
}

/// Where the jobs come from.
pub struct Source {
    reader: Box<dyn Read + Send>,
    format: Option<Format>,
    total: Option<u64>,
}

impl Source {
    /// Jobs from a reader, which is read on a thread of its own as there is room for them.
    pub fn new(reader: impl Read + Send + 'static) -> Self {
        Self { reader: Box::new(reader), format: None, total: None }
    }

    /// Sets the format; see [`Input::format`].
    pub fn format(mut self, format: Option<Format>) -> Self {
        self.format = format;
        self
    }

    /// Sets how many there are, as [`Batch::check`] counted them.
    pub fn total(mut self, total: u64) -> Self {
        self.total = Some(total);
        self
    }
}

/// An input with invalid lines.
#[derive(Debug, Error)]
#[error("{}{}", self.list(), self.rest())]
pub struct InvalidInputError {
    /// The first errors.
    pub errors: Vec<InputError>,
    /// How many more errors there are.
    pub more: u64,
}

impl InvalidInputError {
    fn list(&self) -> String {
        let lines: Vec<String> = self.errors.iter().map(ToString::to_string).collect();
        lines.join("\n")
    }

    fn rest(&self) -> String {
        if self.more > 0 { format!("\nand {} more", self.more) } else { String::new() }
    }
}

/// A batch that could not go on.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BatchError {
    /// Its files failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The state could not be written.
    #[error("cannot write the state of the batch: {0}")]
    State(std::io::Error),
    /// The thread that reads the input could not be started.
    #[error("cannot start the thread that reads the input: {0}")]
    Input(std::io::Error),
    /// A task of the batch panicked.
    #[error("a task of the batch failed: {0}")]
    Task(String),
}

/// The outcome of a batch.
#[derive(Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// What this run did.
    pub report: BatchReport,
    /// Jobs that failed in earlier runs.
    pub failed_before: u64,
    /// Jobs that were read and have no result: they are for the next time.
    pub left: u64,
    /// Why it ended before its input did.
    pub halt: Option<Halt>,
}

/// A batch to be run. See the [crate].
#[derive(Clone)]
pub struct Batch {
    runner: Arc<dyn Runner>,
    template: RunRequest,
    prompt_template: Option<PromptTemplate>,
    projects: Projects,
    project: Option<String>,
    jobs: usize,
    retries: u32,
    retry_failed: bool,
    on_failure: OnFailure,
    on_crash: OnCrash,
    on_change: OnChange,
    on_limit: OnLimit,
    total_timeout: Option<Duration>,
    grace: Duration,
    report_runs: bool,
    stop: CancellationToken,
}

/// One setter a field.
macro_rules! setters {
    ($( $(#[$doc:meta])* $name:ident: $type:ty; )*) => {
        $( $(#[$doc])* pub fn $name(mut self, $name: $type) -> Self {
            self.$name = $name;
            self
        } )*
    };
}

impl Batch {
    /// A batch on this runner: one job at a time, two retries.
    pub fn new(runner: Arc<dyn Runner>) -> Self {
        Self {
            runner,
            template: RunRequest::new(""),
            prompt_template: None,
            projects: Projects::default(),
            project: None,
            jobs: 1,
            retries: 2,
            retry_failed: false,
            on_failure: OnFailure::default(),
            on_crash: OnCrash::default(),
            on_change: OnChange::default(),
            on_limit: OnLimit::default(),
            total_timeout: None,
            grace: GRACE,
            report_runs: false,
            stop: CancellationToken::new(),
        }
    }

    setters! {
        /// The defaults of every job. Prompt and session are the job's.
        template: RunRequest;
        /// Is put around every prompt.
        prompt_template: Option<PromptTemplate>;
        /// The projects that jobs can name.
        projects: Projects;
        /// The project of jobs that name a branch only.
        project: Option<String>;
        /// How many run at once.
        jobs: usize;
        /// How often a job is retried, if a retry can help.
        retries: u32;
        /// Runs jobs again whose result is not ok.
        retry_failed: bool;
        /// What happens to the other jobs when a job fails.
        on_failure: OnFailure;
        /// What happens to prompts that were in flight in a crash.
        on_crash: OnCrash;
        /// What happens to ids whose prompt changed.
        on_change: OnChange;
        /// What happens when the account is at its limit.
        on_limit: OnLimit;
        /// How long the batch may take; what runs then is cancelled.
        total_timeout: Option<Duration>;
        /// How long what runs may take to finish when the batch is cancelled.
        grace: Duration;
        /// Reports every event of every run ([`BatchEvent::Run`]).
        report_runs: bool;
        /// Cancels the batch.
        stop: CancellationToken;
    }

    /// The place that a job names.
    fn place(&self, job: &BatchJob) -> Result<Option<JobPlace>, LineError> {
        JobPlace::of(job, &self.projects, self.project.as_deref(), &self.template)
    }

    /// Reads all of an input and counts its jobs, before anything is run.
    pub fn check(
        &self,
        input: impl Read,
        format: Option<Format>,
        journal: &Journal,
    ) -> Result<u64, InvalidInputError> {
        self.plan(input, format, journal, |_, _| ())
    }

    /// The same, and calls a function with each job: whether it would be run.
    pub fn plan(
        &self,
        input: impl Read,
        format: Option<Format>,
        journal: &Journal,
        mut each: impl FnMut(&BatchJob, bool),
    ) -> Result<u64, InvalidInputError> {
        let mut vetting = vet::Check::new(self, &journal.ledger);
        let (mut total, mut bad) = (0, InvalidInputError { errors: Vec::new(), more: 0 });
        for read in Input::new(input).format(format).template(self.prompt_template.clone()) {
            let vetted = read.and_then(|job| {
                let todo = vetting.job(&job)?;
                each(&job, todo == vet::Todo::Run);
                Ok(())
            });
            match vetted {
                Ok(()) => total += 1,
                Err(error) if bad.errors.len() < LISTED => bad.errors.push(error),
                Err(_) => bad.more += 1,
            }
        }
        if bad.errors.is_empty() { Ok(total) } else { Err(bad) }
    }

    /// Runs all that is to be run. The runner is not shut down.
    pub async fn run(
        self,
        source: Source,
        journal: Journal,
        events: mpsc::Sender<BatchEvent>,
    ) -> Result<Outcome, BatchError> {
        driver::Driver::new(self, source, journal, events)?.drive().await
    }
}
