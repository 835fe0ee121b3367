//! Follow-ups: messages that are added to a turn while it runs.
//!
//! codex accepts a message for as long as its turn runs, also after the model was asked for the last time: such a
//! message is written to the history, and nobody answers it. So the accepted ones are counted here. codex echoes a
//! message when it goes to the model, and whatever the agent does behind the echo shows that the model had it. What is
//! left when the turn is over gets a turn of its own, in the same run.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use takopi_core::runner::{SteerMessage, SteerMessages};
use tokio::time::timeout;

use crate::app_server::client::Client;
use crate::app_server::error::ClientError;
use crate::app_server::notification::Kind;
use crate::app_server::turn::steer;
use crate::common::Body;

/// How long codex may take at the end of a turn to say whether it took a message.
const REPLY_LIMIT: Duration = Duration::from_secs(10);

/// The follow-ups of a run.
#[derive(Default)]
pub(super) struct FollowUps {
    /// Nothing before the run's first turn has begun: another server may run it.
    messages: Option<SteerMessages>,
    /// Those that codex has not answered yet. Dropped, they are handed back to their senders.
    sending: FuturesUnordered<BoxFuture<'static, (SteerMessage, Result<(), ClientError>)>>,
    /// What the running turn accepted, in order.
    accepted: Vec<String>,
    /// The echoes of the running turn; the first is that of its prompt.
    echoes: usize,
    /// How many of these the agent had when it last did something.
    read: usize,
}

impl FollowUps {
    /// Takes these from now on.
    pub(super) fn listen(&mut self, messages: SteerMessages) {
        self.messages.get_or_insert(messages);
    }

    /// Sends messages to the turn for as long as this is polled. Never resolves. Cancel-safe.
    pub(super) async fn pass_on(&mut self, client: &Client, thread: &str, turn: &str) {
        loop {
            tokio::select! {
                biased;
                Some(sent) = self.sending.next() => self.sent(sent),
                message = next(&mut self.messages) => {
                    let client = client.clone();
                    let (thread, turn) = (thread.to_owned(), turn.to_owned());
                    let send = async move {
                        let sent = steer(&client, &thread, &turn, message.text()).await;
                        (message, sent)
                    };
                    self.sending.push(send.boxed());
                }
            }
        }
    }

    fn sent(&mut self, (message, sent): (SteerMessage, Result<(), ClientError>)) {
        match sent {
            Ok(()) => {
                self.accepted.push(message.text().to_owned());
                message.taken();
            }
            // It goes back to its sender.
            Err(error) => tracing::debug!(%error, "a turn did not take a follow-up"),
        }
    }

    /// Something happened in the turn.
    pub(super) fn notification(&mut self, kind: &Kind<'_>) {
        match kind {
            Kind::ItemCompleted(item) if matches!(item.body, Body::UserMessage) => self.echoes += 1,
            Kind::ItemStarted(item) if matches!(item.body, Body::UserMessage) => {}
            Kind::ItemStarted(_) | Kind::ItemCompleted(_) => self.read = self.echoes,
            _ => {}
        }
    }

    /// Whether the end of the turn may leave something unanswered.
    pub(super) fn is_busy(&self) -> bool {
        !self.sending.is_empty() || !self.accepted.is_empty()
    }

    /// The turn is over: what it accepted and the agent did not get.
    pub(super) async fn take_unread(&mut self) -> Option<String> {
        let replies = async {
            while let Some(sent) = self.sending.next().await {
                self.sent(sent);
            }
        };
        let _ = timeout(REPLY_LIMIT, replies).await;
        self.sending.clear();
        let accepted = std::mem::take(&mut self.accepted);
        // A server that echoes nothing, not even the prompt, does not show what was read.
        let read = if self.echoes == 0 { accepted.len() } else { self.read.saturating_sub(1) };
        (self.echoes, self.read) = (0, 0);
        let unread = accepted.get(read..).unwrap_or_default();
        (!unread.is_empty()).then(|| unread.join("\n\n"))
    }
}

async fn next(messages: &mut Option<SteerMessages>) -> SteerMessage {
    match messages {
        Some(messages) => messages.next().await,
        None => std::future::pending().await,
    }
}
