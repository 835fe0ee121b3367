//! The inbox of one turn: what the reader delivered and the consumer has not taken yet.
//!
//! Bounded by bytes. A message that is larger than the bound by itself is taken when the inbox is
//! empty. When there is no room, the reader waits ([`Sender::room`]): on a process that serves one
//! session for as long as it takes, on a shared one only while the consumer goes on reading, because
//! the neighbours wait too. Behind that the inbox overflows: only the end of the turn is still kept.
//!
//! What the client itself has to report (warnings, an end that was too long) takes no room from the
//! messages of the server, and overflows nothing.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::common::head;
use serde_json::value::RawValue;
use takopi_core::redact::redact;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::notification::Notification;
use super::requests::ServerRequest;

/// About how many bytes of messages wait for a turn's consumer.
const INBOX_BYTES: usize = 32 * 1024 * 1024;
/// What a message takes beside its text.
const MESSAGE_BYTES: usize = 256;
/// How many warnings wait for a turn's consumer; further ones are only logged.
const WARNINGS: usize = 64;
/// On a shared process: how long the reader waits for a consumer that takes nothing.
const NO_PROGRESS: Duration = Duration::from_secs(1);
/// On a shared process: how long the reader waits for the consumer of one turn, in all.
const SHARED_WAIT: Duration = Duration::from_secs(10);

/// What reaches a running turn.
#[derive(Debug)]
pub(super) enum TurnMessage {
    Notification(Notification),
    /// A notification about a sub-agent of the turn.
    Subagent(Notification),
    Request(ServerRequest),
    /// Something about the connection that the consumer should know.
    Warning(String),
    /// The end of the turn was too long to be read.
    EndTooLong,
    /// More came than the consumer took.
    Overflow,
}

impl TurnMessage {
    fn is_end(&self) -> bool {
        matches!(self, Self::Notification(notification) if notification.is_turn_end())
    }
}

/// A pair of ends; `usage_before` is the thread's usage before the turn.
pub(super) fn inbox(usage_before: Option<Box<RawValue>>) -> (Sender, Inbox) {
    let shared = Arc::new(Shared::default());
    (Sender { shared: shared.clone() }, Inbox { usage_before, shared })
}

/// The reading end.
#[derive(Debug)]
pub(super) struct Inbox {
    /// The thread's last usage before the turn.
    pub(super) usage_before: Option<Box<RawValue>>,
    shared: Arc<Shared>,
}

/// The writing end. Dropping it closes the inbox behind what is in it.
#[derive(Debug)]
pub(super) struct Sender {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// A message arrived, or the inbox was closed.
    arrived: Notify,
    /// A message was taken, or the inbox was closed.
    taken: Notify,
    overflow: CancellationToken,
}

#[derive(Debug, Default)]
struct Queue {
    messages: VecDeque<(TurnMessage, usize)>,
    bytes: usize,
    /// How many of the messages are warnings.
    warnings: usize,
    /// How many messages were taken so far.
    taken: u64,
    /// How long the reader has waited for this inbox.
    waited: Duration,
    closed: bool,
}

impl Queue {
    fn has_room(&self, weight: usize) -> bool {
        self.messages.is_empty() || self.bytes + weight + MESSAGE_BYTES <= INBOX_BYTES
    }

    fn push(&mut self, message: TurnMessage, weight: usize) {
        self.bytes += weight;
        self.messages.push_back((message, weight));
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inbox {
    /// The next message; `None` when there will be no more. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<TurnMessage> {
        loop {
            if let Some(message) = self.try_next() {
                return Some(message);
            }
            if self.shared.queue().closed {
                // It may have come in between.
                return self.try_next();
            }
            // A message that arrived since has left its permit.
            self.shared.arrived.notified().await;
        }
    }

    /// A message that is there already.
    pub(super) fn try_next(&mut self) -> Option<TurnMessage> {
        let mut queue = self.shared.queue();
        let (message, weight) = queue.messages.pop_front()?;
        queue.bytes -= weight;
        queue.warnings -= usize::from(matches!(message, TurnMessage::Warning(_)));
        queue.taken += 1;
        drop(queue);
        self.shared.taken.notify_one();
        Some(message)
    }

    /// The warnings that are there already, ahead of everything else.
    pub(super) fn take_warnings(&mut self) -> Vec<String> {
        let mut queue = self.shared.queue();
        let mut warnings = Vec::new();
        while let Some((TurnMessage::Warning(_), _)) = queue.messages.front()
            && let Some((TurnMessage::Warning(warning), _)) = queue.messages.pop_front()
        {
            queue.warnings -= 1;
            warnings.push(warning);
        }
        warnings
    }

    /// Whether more came than the consumer took.
    pub(super) fn has_overflowed(&self) -> bool {
        self.shared.overflow.is_cancelled()
    }

    /// Resolves when more came than the consumer took.
    pub(super) async fn overflowed(&self) {
        self.shared.overflow.cancelled().await;
    }
}

impl Sender {
    /// Whether a message of this size has room; one that overflowed has room for what it drops.
    pub(super) fn has_room(&self, weight: usize) -> bool {
        self.shared.overflow.is_cancelled() || self.shared.queue().has_room(weight)
    }

    /// The same inbox, to wait for room in it.
    pub(super) fn room(&self, weight: usize) -> Room {
        Room { shared: self.shared.clone(), weight }
    }

    /// Delivers a warning of the client's own.
    pub(super) fn warn(&self, warning: &str) {
        // What it quotes may be as long as a line. Redacted first: a part of a credential is not recognized as one.
        let warning = head(&redact(warning)).into_owned();
        let mut queue = self.shared.queue();
        if queue.warnings == WARNINGS || self.shared.overflow.is_cancelled() {
            return tracing::warn!(%warning, "a turn's consumer is too far behind for a warning");
        }
        queue.warnings += 1;
        queue.push(TurnMessage::Warning(warning), 0);
        drop(queue);
        self.shared.arrived.notify_one();
    }

    /// Delivers an end that was held back, whether there is room or not: nothing follows it.
    pub(super) fn send_end(&self, message: TurnMessage) {
        self.shared.queue().push(message, 0);
        self.shared.arrived.notify_one();
    }

    /// Delivers a message of the server. Without room the inbox overflows.
    pub(super) fn send(&self, message: TurnMessage, weight: usize) {
        let overflowed = self.shared.overflow.is_cancelled();
        let mut queue = self.shared.queue();
        if overflowed || !queue.has_room(weight) {
            if !overflowed {
                queue.push(TurnMessage::Overflow, 0);
                self.shared.overflow.cancel();
            }
            // A request that is dropped declines itself.
            if message.is_end() {
                queue.push(message, 0);
            }
        } else {
            queue.push(message, weight + MESSAGE_BYTES);
        }
        drop(queue);
        self.shared.arrived.notify_one();
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.shared.queue().closed = true;
        self.shared.arrived.notify_one();
        self.shared.taken.notify_one();
    }
}

/// Waits for room in one inbox.
pub(super) struct Room {
    shared: Arc<Shared>,
    weight: usize,
}

impl Room {
    fn is_there(&self) -> bool {
        let queue = self.shared.queue();
        queue.closed || queue.has_room(self.weight)
    }

    /// Waits for as long as it takes, or until the turn is over.
    pub(super) async fn wait(&self) {
        while !self.is_there() {
            self.shared.taken.notified().await;
        }
    }

    /// Waits while the consumer goes on reading, but not for ever; `false` when it gave up.
    pub(super) async fn wait_a_while(&self) -> bool {
        let begun = Instant::now();
        let (waited, mut taken) = {
            let queue = self.shared.queue();
            (queue.waited, queue.taken)
        };
        let end = begun + SHARED_WAIT.saturating_sub(waited);
        let mut deadline = begun + NO_PROGRESS;
        while !self.is_there() && Instant::now() < end {
            let woken = timeout_at(deadline.min(end), self.shared.taken.notified()).await;
            let now = self.shared.queue().taken;
            if now != taken {
                taken = now;
                deadline = Instant::now() + NO_PROGRESS;
            } else if woken.is_err() {
                break;
            }
        }
        self.shared.queue().waited += begun.elapsed();
        self.is_there()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app_server::logs::logged;

    fn message(method: &str) -> TurnMessage {
        let params = RawValue::NULL.to_owned();
        TurnMessage::Notification(Notification::new(method.to_owned(), params))
    }

    #[tokio::test]
    async fn a_message_over_the_bound_is_taken_when_the_inbox_is_empty() {
        let (sender, mut inbox) = inbox(None);
        assert!(sender.has_room(2 * INBOX_BYTES));
        sender.send(message("large"), 2 * INBOX_BYTES);
        assert!(!sender.has_room(1));
        assert!(matches!(inbox.next().await, Some(TurnMessage::Notification(_))));
        assert!(sender.has_room(1));
        drop(sender);
        assert!(inbox.next().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_consumer_that_reads_is_waited_for_and_one_that_does_not_is_not() {
        let (sender, mut inbox) = inbox(None);
        sender.send(message("first"), INBOX_BYTES / 2);
        sender.send(message("second"), INBOX_BYTES / 2 - 2 * MESSAGE_BYTES);
        let room = sender.room(INBOX_BYTES);
        let reads = async {
            for _ in 0..2 {
                tokio::time::sleep(NO_PROGRESS * 3 / 4).await;
                inbox.try_next();
            }
        };
        assert!(tokio::join!(room.wait_a_while(), reads).0);
        sender.send(message("third"), INBOX_BYTES);
        assert!(!room.wait_a_while().await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_consumer_that_reads_slowly_is_waited_for_a_limited_time_in_all() {
        let (sender, mut inbox) = inbox(None);
        for _ in 0..100 {
            sender.send(message("small"), 1);
        }
        let room = sender.room(INBOX_BYTES);
        let mut waits = Vec::new();
        let waiting = async {
            for _ in 0..2 {
                let begun = Instant::now();
                assert!(!room.wait_a_while().await);
                waits.push(begun.elapsed());
            }
        };
        let reads = async {
            loop {
                tokio::time::sleep(NO_PROGRESS / 2).await;
                assert!(inbox.try_next().is_some());
            }
        };
        tokio::select! {
            () = waiting => {}
            () = reads => {}
        }
        let limit = SHARED_WAIT..SHARED_WAIT + NO_PROGRESS;
        assert!(limit.contains(&waits[0]) && waits[1] < NO_PROGRESS, "{waits:?}");
    }

    #[tokio::test]
    async fn behind_an_overflow_only_the_end_is_kept() {
        let (sender, mut inbox) = inbox(None);
        sender.send(message("first"), INBOX_BYTES);
        sender.send(message("second"), 1);
        sender.warn("third");
        sender.send(message("turn/completed"), 1);
        inbox.overflowed().await;
        assert!(matches!(inbox.next().await, Some(TurnMessage::Notification(_))));
        assert!(matches!(inbox.next().await, Some(TurnMessage::Overflow)));
        assert!(matches!(inbox.next().await, Some(message) if message.is_end()));
        assert!(inbox.try_next().is_none());
    }

    #[tokio::test]
    async fn what_the_client_reports_itself_overflows_nothing() {
        let (sender, mut inbox) = inbox(None);
        sender.send(message("large"), 2 * INBOX_BYTES);
        for n in 0..2 * WARNINGS {
            sender.warn(&n.to_string());
        }
        sender.send_end(TurnMessage::EndTooLong);
        assert!(!sender.shared.overflow.is_cancelled());
        assert!(matches!(inbox.try_next(), Some(TurnMessage::Notification(_))));
        let warnings = inbox.take_warnings();
        assert_eq!(warnings.len(), WARNINGS, "they are bounded");
        assert_eq!(warnings[1], "1");
        let (long, mut other) = super::inbox(None);
        long.warn(&"Bearer sk-SECRET-123 ".repeat(10_000));
        let warnings = other.take_warnings();
        assert!(
            warnings[0].len() <= takopi_core::model::OUTPUT_TAIL_BYTES
                && !warnings[0].contains("SECRET")
        );
        assert!(matches!(inbox.try_next(), Some(TurnMessage::EndTooLong)));
        sender.warn("there is room again");
        assert_eq!(inbox.take_warnings().len(), 1);
    }

    #[test]
    fn a_warning_that_has_no_room_is_logged_without_credentials() {
        let logged = logged(|| {
            let (sender, _inbox) = inbox(None);
            for _ in 0..=WARNINGS {
                sender.warn("not JSON: Bearer sk-SECRET-123");
            }
        });
        assert!(logged.contains("not JSON: Bearer [redacted]"), "{logged}");
        assert!(!logged.contains("SECRET"), "{logged}");
    }
}
