//! Sending messages to a run that is under way.
//!
//! A message is either taken into the running turn or handed back to its sender, never lost. One that
//! is sent before the turn has begun waits for it; dropping the future of [`SteerSender::send`] takes
//! it back. A bounded number of messages waits; further senders wait for room.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use thiserror::Error;
use tokio::sync::{mpsc, oneshot};

/// How many messages wait for the engine.
const IN_LINE: usize = 8;

/// Sends messages to a run. Clones send to the same run.
#[derive(Debug, Clone)]
pub struct SteerSender {
    line: mpsc::Sender<SteerMessage>,
}

/// The run's end of the channel: goes into [`RunRequest::steering`](super::RunRequest::steering). It
/// serves one run; a second run with the same request receives nothing.
#[derive(Clone)]
pub struct SteerReceiver {
    line: Arc<Mutex<Option<mpsc::Receiver<SteerMessage>>>>,
}

/// The message was not taken into the turn: the engine cannot, or the turn was over.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the running turn did not take the message")]
pub struct SteerError {
    /// The message.
    pub text: String,
}

/// A channel for messages to one run.
///
/// ```
/// use takopi_core::RunRequest;
/// use takopi_core::runner::steer_channel;
///
/// let (steer, steering) = steer_channel();
/// let request = RunRequest::new("write the parser").steering(steering);
/// // While it runs: `steer.send("in Rust, please").await`
/// # drop((steer, request));
/// ```
pub fn steer_channel() -> (SteerSender, SteerReceiver) {
    let (sender, receiver) = mpsc::channel(IN_LINE);
    (SteerSender { line: sender }, SteerReceiver { line: Arc::new(Mutex::new(Some(receiver))) })
}

impl SteerSender {
    /// Sends a message to the run. Resolves when the engine has taken it, or when it is certain that
    /// it will not. If the future is dropped before the engine takes the message, it is not sent.
    pub async fn send(&self, text: impl Into<String>) -> Result<(), SteerError> {
        let text = text.into();
        let (taken, answer) = oneshot::channel();
        let follow_up = SteerMessage { text: text.clone(), taken };
        if self.line.send(follow_up).await.is_ok() && answer.await.is_ok() {
            return Ok(());
        }
        Err(SteerError { text })
    }
}

impl SteerReceiver {
    fn take(&self) -> Option<mpsc::Receiver<SteerMessage>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl fmt::Debug for SteerReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SteerReceiver").finish_non_exhaustive()
    }
}

/// A message to the run. Dropped without [`SteerMessage::taken`], it is handed back.
#[must_use = "a message that is dropped is handed back"]
pub struct SteerMessage {
    text: String,
    taken: oneshot::Sender<()>,
}

impl SteerMessage {
    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The turn has it.
    pub fn taken(self) {
        // The sender may be gone.
        let _ = self.taken.send(());
    }
}

// Not derived: messages to an agent are never logged.
impl fmt::Debug for SteerMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SteerMessage")
            .field("text", &format_args!("{} bytes", self.text.len()))
            .finish_non_exhaustive()
    }
}

/// The messages to a run, for its engine. Dropped, it hands back what waits.
#[derive(Debug)]
pub struct SteerMessages {
    line: Option<mpsc::Receiver<SteerMessage>>,
}

impl SteerMessages {
    pub(super) fn of(steering: Option<&SteerReceiver>) -> Self {
        Self { line: steering.and_then(SteerReceiver::take) }
    }

    /// The next one that was not taken back; never resolves when there will be none.
    pub async fn next(&mut self) -> SteerMessage {
        while let Some(line) = &mut self.line
            && let Some(follow_up) = line.recv().await
        {
            if !follow_up.taken.is_closed() {
                return follow_up;
            }
        }
        self.line = None;
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_message_is_never_logged() {
        let (taken, _answer) = oneshot::channel();
        let logged = format!("{:?}", SteerMessage { text: "my secret plan".to_owned(), taken });
        assert_eq!(logged, "SteerMessage { text: 14 bytes, .. }");
    }

    #[tokio::test]
    async fn a_message_that_was_taken_back_is_not_delivered() {
        let (steer, steering) = steer_channel();
        let mut messages = SteerMessages::of(Some(&steering));
        let mut taken_back = Box::pin(steer.send("drop the table"));
        assert_eq!(taken_back.as_mut().now_or_never(), None);
        let mut meant = Box::pin(steer.send("run the tests"));
        assert_eq!(meant.as_mut().now_or_never(), None);
        drop(taken_back);
        let follow_up = messages.next().await;
        assert_eq!(follow_up.text(), "run the tests");
        follow_up.taken();
        assert_eq!(meant.await, Ok(()));
    }
}
