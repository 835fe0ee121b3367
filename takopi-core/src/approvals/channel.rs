//! Passes approval requests through a channel.

use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

use super::decision_of;
use crate::runner::{ApprovalHandler, ApprovalRequest, Decision, Reply};

/// Sends approval requests through a channel. Made by [`channel`].
#[derive(Debug, Clone)]
pub struct ChannelHandler {
    questions: mpsc::Sender<PendingApproval>,
}

/// An approval request that waits for its decision.
///
/// Dropped without an answer it is declined. When it is withdrawn, because the run ended or its time
/// was over, an answer has no effect.
#[derive(Debug)]
pub struct PendingApproval {
    /// What is asked.
    pub request: ApprovalRequest,
    reply: oneshot::Sender<Reply>,
}

/// A handler, and the receiver of its requests. Up to `capacity` requests wait to be read; further
/// ones wait for room. When the receiver is dropped everything is declined.
///
/// # Panics
///
/// If the capacity is zero.
pub fn channel(capacity: usize) -> (ChannelHandler, mpsc::Receiver<PendingApproval>) {
    let (questions, receiver) = mpsc::channel(capacity);
    (ChannelHandler { questions }, receiver)
}

impl PendingApproval {
    /// Answers it: with a [`Decision`], or a [`Reply`] with name and reason. `false` if it was
    /// withdrawn.
    pub fn answer(self, reply: impl Into<Reply>) -> bool {
        self.reply.send(reply.into()).is_ok()
    }

    /// Whether it was withdrawn.
    pub fn is_withdrawn(&self) -> bool {
        self.reply.is_closed()
    }

    /// Resolves when it is withdrawn.
    pub async fn withdrawn(&mut self) {
        self.reply.closed().await;
    }
}

impl ApprovalHandler for ChannelHandler {
    fn decide(&self, request: ApprovalRequest) -> BoxFuture<'static, Decision> {
        decision_of(self.reply(request))
    }

    fn reply(&self, request: ApprovalRequest) -> BoxFuture<'static, Reply> {
        let questions = self.questions.clone();
        let unread =
            || Reply::from(Decision::Decline).because("the reader of approval requests is gone");
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            if questions.send(PendingApproval { request, reply }).await.is_err() {
                return unread();
            }
            // Not kept while waiting: the receiver must see when the last handler is dropped.
            drop(questions);
            answer.await.unwrap_or_else(|_| {
                Reply::from(Decision::Decline).because("the request was dropped without an answer")
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::Question;

    fn request() -> ApprovalRequest {
        ApprovalRequest::new("lab".into(), Question::command("ls"), "/".into())
    }

    #[tokio::test]
    async fn an_answer_reaches_the_agent_with_the_name_of_the_person() {
        let (ask, mut questions) = channel(1);
        let asked = tokio::spawn(ask.reply(request()));
        let question = questions.recv().await.unwrap();
        assert!(question.answer(Reply::from(Decision::AcceptForSession).by("alice")));
        assert_eq!(asked.await.unwrap().to_string(), "accepted for the session by alice");
    }

    #[tokio::test]
    async fn a_request_that_is_dropped_or_never_read_is_declined() {
        let (ask, mut questions) = channel(1);
        let asked = tokio::spawn(ask.reply(request()));
        drop(questions.recv().await);
        assert_eq!(
            asked.await.unwrap().to_string(),
            "declined: the request was dropped without an answer"
        );
        drop(questions);
        let said = ask.reply(request()).await;
        assert_eq!(said.to_string(), "declined: the reader of approval requests is gone");
    }

    #[tokio::test]
    async fn the_reader_of_a_request_learns_of_its_withdrawal() {
        let (ask, mut questions) = channel(1);
        let asked = tokio::spawn(ask.reply(request()));
        let mut question = questions.recv().await.unwrap();
        assert!(!question.is_withdrawn());
        asked.abort();
        question.withdrawn().await;
        assert!(question.is_withdrawn());
        assert!(!question.answer(Decision::Accept));
    }
}
