//! One try of one job.

use std::sync::Arc;

use futures::StreamExt as _;
use jiff::Timestamp;
use takopi_core::{Completed, Reason, ResumeToken, RunRequest, Runner, TakopiEvent};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::digest::Digest;
use crate::event::BatchEvent;
use crate::journal::{Line, StateFile};
use crate::order::Queued;
use crate::place::JobPlace;
use crate::retry::Seen;

/// What a try needs.
pub(super) struct Attempt {
    pub(super) runner: Arc<dyn Runner>,
    pub(super) request: RunRequest,
    /// Where it runs, if the job names that.
    pub(super) place: Option<JobPlace>,
    pub(super) queued: Queued,
    pub(super) state: Arc<StateFile>,
    /// Receives every event of the run, if wanted.
    pub(super) events: Option<mpsc::Sender<BatchEvent>>,
}

/// What came of a try.
pub(super) struct Tried {
    pub(super) queued: Queued,
    pub(super) completed: Completed,
    pub(super) seen: Seen,
    /// The conversation that was asked for.
    pub(super) asked: Option<ResumeToken>,
    pub(super) began: Instant,
    pub(super) started: Timestamp,
}

impl Attempt {
    /// Runs it to its end. `synced` is waited for before the prompt is sent; if it cannot be, the batch
    /// is about to end for that.
    pub(super) async fn run(mut self, synced: Option<oneshot::Receiver<()>>) -> Tried {
        if let Some(synced) = synced
            && synced.await.is_err()
        {
            std::future::pending::<()>().await;
        }
        let (began, started) = (Instant::now(), Timestamp::now());
        let asked = self.request.resume.clone();
        let is_stored = !self.request.settings.is_ephemeral();
        let engine = self.runner.engine();
        let mut seen = Seen::default();
        if let Some(place) = self.place.take() {
            match place.directory().await {
                Ok(directory) => self.request.settings.cwd = Some(directory),
                Err(error) => {
                    let completed = Completed::failure(engine, Reason::InvalidRequest, error);
                    return Tried { queued: self.queued, completed, seen, asked, began, started };
                }
            }
        }
        let mut completed = None;
        let mut stream = self.runner.run(self.request);
        while let Some(event) = stream.next().await {
            seen.event(&event);
            if let TakopiEvent::Started(started) = &event
                && is_stored
                && asked.as_ref() != Some(&started.resume)
            {
                self.state.append(&opened(&self.queued, started.resume.clone()));
            }
            if let TakopiEvent::Completed(end) = &event {
                completed = Some(Completed::clone(end));
            }
            if let Some(events) = &self.events {
                let job = self.queued.job.id.clone();
                // The run goes on without a consumer.
                let _ = events.send(BatchEvent::Run { job, event }).await;
            }
        }
        let missing_end =
            || Completed::failure(engine, Reason::Protocol, "the run ended without a result");
        let completed = completed.unwrap_or_else(missing_end);
        Tried { queued: self.queued, completed, seen, asked, began, started }
    }
}

/// The line that keeps a conversation which a job opened.
fn opened(queued: &Queued, resume: ResumeToken) -> Line {
    match &queued.job.session {
        Some(name) => Line::Session { name: Digest::of(name), resume, proven: false },
        None => Line::Opened { job: Digest::of(&queued.job.id), resume },
    }
}
