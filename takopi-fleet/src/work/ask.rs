//! Approval requests of a run, on their way to the submitter and back.
//!
//! A submitter that lives decides by itself how long an answer takes. One that is gone gives none: its questions are declined once they
//! are [`PATIENCE`] old, so that no run, and no slot, is held by a question that nobody reads.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use takopi_core::runner::{ApprovalHandler, ApprovalRequest, Decision, Reply};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;
use uuid::Uuid;

use crate::board::Board;
use crate::frame::Frame;

/// How long an answer may take when the submitter is gone: it may be started again, and attach to the run.
const PATIENCE: Duration = Duration::from_mins(5);
/// How often it is looked whether the submitter is gone.
const LOOK: Duration = Duration::from_secs(15);

/// Who waits for the answer to which question.
pub(super) type Answers = Arc<Mutex<HashMap<String, oneshot::Sender<Reply>>>>;

/// Passes approval requests to the submitter.
pub(super) struct Remote {
    pub(super) frames: mpsc::Sender<Frame>,
    pub(super) answers: Answers,
    pub(super) board: Arc<dyn Board>,
    pub(super) worker: String,
    pub(super) job: String,
}

/// Withdraws a question when nobody waits for its answer any more.
struct Asked {
    id: String,
    frames: mpsc::Sender<Frame>,
    answers: Answers,
}

impl Drop for Asked {
    fn drop(&mut self) {
        let waiting = self.answers.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
        if waiting.is_some() {
            let _ = self.frames.try_send(Frame::Withdrawn { id: std::mem::take(&mut self.id) });
        }
    }
}

impl ApprovalHandler for Remote {
    fn decide(&self, request: ApprovalRequest) -> BoxFuture<'static, Decision> {
        let reply = self.reply(request);
        Box::pin(async move { reply.await.decision })
    }

    fn reply(&self, request: ApprovalRequest) -> BoxFuture<'static, Reply> {
        let (frames, answers) = (self.frames.clone(), self.answers.clone());
        let gone = gone(self.board.clone(), self.worker.clone(), self.job.clone());
        Box::pin(async move {
            let id = Uuid::new_v4().simple().to_string();
            let (sender, answer) = oneshot::channel();
            answers.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), sender);
            let asked = Asked { id: id.clone(), frames: frames.clone(), answers };
            let sent = frames.send(Frame::Ask { id, request: Box::new(request) }).await;
            let reply = match sent {
                Ok(()) => tokio::select! {
                    biased;
                    reply = answer => reply.ok(),
                    () = gone => None,
                },
                Err(_) => None,
            };
            drop(asked);
            reply.unwrap_or_else(|| {
                Reply::from(Decision::Decline).because("the submitter does not answer")
            })
        })
    }
}

/// Resolves when the submitter of a job is gone, [`PATIENCE`] from now at the earliest.
async fn gone(board: Arc<dyn Board>, worker: String, job: String) {
    sleep(PATIENCE).await;
    loop {
        match board.is_abandoned(&worker, &job).await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => tracing::debug!("cannot look for a submitter: {error}"),
        }
        sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests;
