//! Many prompts over one runner: none lost, none answered twice.
//!
//! A [`Batch`] takes jobs from an [`Input`], runs them on an `Arc<dyn Runner>`, and appends each
//! result to a [`Journal`]. It knows no terminal and no engine; it reports
//! [`BatchEvent`]s.
//!
//! - **Order.** Prompts of one conversation run one after the other, in the order of the input; all
//!   else runs side by side, up to [`Batch::jobs`].
//! - **Results exactly once, prompts at least once.** A result is reported when it is synced, and a job with
//!   a result is never run again. A prompt that was in flight when the process died is sent again in
//!   the same conversation ([`OnCrash`]).
//! - **Bounds.** The input is read a window ahead; ids are kept as sixteen-byte digests, and these
//!   (and one token a named session) are the one thing that grows with a batch.
//! - **Ends.** After a cancel, running jobs may finish within a grace; those cancelled then have no result
//!   and are run again next time. Dropping the future cancels what runs.
//!
//! ```
//! use std::sync::Arc;
//! use takopi_batch::external::mpsc;
//! use takopi_batch::{Batch, BatchEvent, Journal, Source};
//! use takopi_core::demo::Demo;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let batch = Batch::new(Arc::new(Demo::new().runner())).jobs(4);
//! let (events, mut received) = mpsc::channel(64);
//! let source = Source::new("say hi\nsay bye\n".as_bytes());
//! let running = tokio::spawn(batch.run(source, Journal::none(), events));
//! while let Some(event) = received.recv().await {
//!     if let BatchEvent::Finished { result, .. } = event {
//!         println!("{}: {}", result.id, result.answer);
//!     }
//! }
//! let outcome = running.await??;
//! assert_eq!(outcome.report.ok, 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod digest;
mod event;
pub mod input;
mod job;
pub mod journal;
mod ledger;
mod order;
mod pace;
mod place;
mod report;
mod results;
mod retry;
pub mod run;

/// The types of other crates that appear in the signatures of this one, in the matching version.
pub mod external {
    pub use jiff::Timestamp;
    pub use takopi_core::external::{CancellationToken, mpsc};
    pub use takopi_projects::Projects;
}

pub use event::{BatchEvent, Halt, Tally};
pub use input::{Format, Input, InputError, LineError, PromptTemplate, TemplateError};
pub use job::{BatchJob, JobResult};
pub use journal::{Journal, JournalError, ResultCounts};
pub use report::BatchReport;
pub use run::{
    Batch, BatchError, InvalidInputError, OnChange, OnCrash, OnFailure, OnLimit, Outcome, Source,
};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
