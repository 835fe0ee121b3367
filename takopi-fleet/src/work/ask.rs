//! Approval requests of a run, on their way to the submitter and back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use takopi_core::runner::{ApprovalHandler, ApprovalRequest, Decision, Reply};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::frame::Frame;

/// Who waits for the answer to which question.
pub(super) type Answers = Arc<Mutex<HashMap<String, oneshot::Sender<Reply>>>>;

/// Passes approval requests to the submitter.
pub(super) struct Remote {
    pub(super) frames: mpsc::Sender<Frame>,
    pub(super) answers: Answers,
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
        Box::pin(async move {
            let id = Uuid::new_v4().simple().to_string();
            let (sender, answer) = oneshot::channel();
            answers.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), sender);
            let asked = Asked { id: id.clone(), frames: frames.clone(), answers };
            let sent = frames.send(Frame::Ask { id, request: Box::new(request) }).await;
            let reply = match sent {
                Ok(()) => answer.await.ok(),
                Err(_) => None,
            };
            drop(asked);
            reply.unwrap_or_else(|| {
                Reply::from(Decision::Decline).because("the submitter does not answer")
            })
        })
    }
}
