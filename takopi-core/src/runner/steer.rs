//! Saying something to a run that is under way.
//!
//! A follow-up is either taken into the running turn or handed back, never lost in between: whoever
//! says it learns which. One that is said before the turn has begun waits for it; while it waits it
//! can be taken back, by dropping the future that says it. Few wait at once; who says more waits in
//! line.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use thiserror::Error;
use tokio::sync::{mpsc, oneshot};

/// How many follow-ups wait for the engine.
const IN_LINE: usize = 8;

/// The end at which follow-ups are said. Clones say them to the same run.
#[derive(Debug, Clone)]
pub struct SteerSender {
    line: mpsc::Sender<SteerMessage>,
}

/// The end at which the run hears them: goes into
/// [`RunRequest::steering`](super::RunRequest::steering). It serves one run; a second run with the
/// same request hears nothing.
#[derive(Clone)]
pub struct SteerReceiver {
    line: Arc<Mutex<Option<mpsc::Receiver<SteerMessage>>>>,
}

/// The follow-up was not taken into the turn: the engine cannot, or the turn was over.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the running turn did not take the follow-up")]
pub struct SteerError {
    /// What was said.
    pub text: String,
}

/// The two ends of a run's steering.
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
    /// Says something to the run. Resolves when the engine has taken it, or when it is certain that
    /// it will not. Dropped before the engine asked for it, it is not said.
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

/// Something said to the run. Dropped without [`SteerMessage::taken`], it is handed back.
#[must_use = "a follow-up that is dropped is handed back"]
pub struct SteerMessage {
    text: String,
    taken: oneshot::Sender<()>,
}

impl SteerMessage {
    /// What was said.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The turn has it.
    pub fn taken(self) {
        // Whoever said it may have gone.
        let _ = self.taken.send(());
    }
}

// Not derived: what is said to an agent is never logged.
impl fmt::Debug for SteerMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SteerMessage")
            .field("text", &format_args!("{} bytes", self.text.len()))
            .finish_non_exhaustive()
    }
}

/// What is said to a run, as its engine hears it. Dropped, it hands back whatever waits.
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

    #[tokio::test]
    async fn a_follow_up_that_was_taken_back_is_not_heard() {
        let (steer, steering) = steer_channel();
        let mut heard = SteerMessages::of(Some(&steering));
        let mut taken_back = Box::pin(steer.send("drop the table"));
        assert_eq!(taken_back.as_mut().now_or_never(), None);
        let mut meant = Box::pin(steer.send("run the tests"));
        assert_eq!(meant.as_mut().now_or_never(), None);
        drop(taken_back);
        let follow_up = heard.next().await;
        assert_eq!(follow_up.text(), "run the tests");
        follow_up.taken();
        assert_eq!(meant.await, Ok(()));
    }
}
