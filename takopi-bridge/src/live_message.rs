//! One message of the chat that is kept up to date.
//!
//! [`LiveMessage::keep`] is polled beside the code that changes the state, so neither waits for the
//! other. Promises:
//! - the first message is sent at once, an edit no sooner than [`Pace::interval`](crate::Pace) after the
//!   call before it, and only the latest state is ever shown;
//! - nothing is shown twice; elapsed time alone is no change, unless [`Pace::refresh`](crate::Pace) is
//!   set;
//! - a call that failed is repeated later, even if nothing changed: the last state is always shown;
//! - a message that is gone is sent again; if the message it replies to is gone, it is sent without a
//!   reply;
//! - a message that is over has no buttons: what cannot be deleted is edited;
//! - dropping the future of `keep` loses nothing: the next one continues a running call, or the wait
//!   for a permit. Dropping the `LiveMessage` drops both.

use std::time::Duration;

use futures::future::BoxFuture;
use thiserror::Error;
use tokio::time::{Instant, sleep_until};

use crate::handler::FinalBy;
use crate::outbox::{CallPermit, Outbox, Priority, after, pause_after};
use crate::transport::{
    Content, MessageId, MessageRef, Outgoing, Place, Transport, TransportError,
};

/// Elapsed time is shown in seconds.
const SHORTEST_REFRESH: Duration = Duration::from_secs(1);

/// What a message should show now.
pub(crate) struct Draft {
    pub(crate) content: Content,
    /// The message changed if this changed. It does not contain the elapsed time.
    pub(crate) mark: String,
}

/// The final message of a job.
pub(crate) struct FinalMessage {
    pub(crate) parts: Vec<Content>,
    /// What the progress message shows if it cannot be deleted.
    pub(crate) if_sent_elsewhere: Content,
    /// What it shows if the final message could not be delivered.
    pub(crate) if_undelivered: Content,
}

/// The messages that a final message became.
#[derive(Debug)]
pub(crate) struct Delivered {
    /// In order.
    pub(crate) messages: Vec<MessageId>,
    /// Set if some parts could not be delivered.
    pub(crate) error: Option<DeliveryError>,
}

/// A final message that was not delivered, or not completely.
#[derive(Debug, Error)]
#[error("{} of the final message could not be delivered: {cause}", count(.parts.len()))]
#[non_exhaustive]
pub struct DeliveryError {
    /// The parts that are not in the chat, as far as is known.
    pub parts: Vec<String>,
    /// Why the first of them is not.
    pub cause: TransportError,
}

fn count(parts: usize) -> String {
    if parts == 1 { "1 part".to_owned() } else { format!("{parts} parts") }
}

/// A running call.
type Call = BoxFuture<'static, Result<Option<MessageId>, TransportError>>;

/// Where the next version of a message is on its way to the chat.
enum Delivery {
    /// Nothing is being sent.
    Idle,
    /// It waits for the permit to call the chat.
    Waiting(BoxFuture<'static, CallPermit>),
    /// It is being sent.
    Calling { call: Call, draft: Box<Draft> },
}

/// A message that follows some state.
pub(crate) struct LiveMessage<T> {
    outbox: Outbox<T>,
    place: Place,
    reply_to: Option<MessageId>,
    message: Option<MessageId>,
    /// What the message shows.
    shown: Option<Draft>,
    delivery: Delivery,
    changed: bool,
    /// When the elapsed time was last checked.
    checked: Instant,
    not_before: Instant,
    failures: u32,
}

impl<T: Transport> LiveMessage<T> {
    pub(crate) fn new(outbox: Outbox<T>, place: Place, reply_to: Option<MessageId>) -> Self {
        Self {
            outbox,
            place,
            reply_to,
            message: None,
            shown: None,
            delivery: Delivery::Idle,
            changed: false,
            checked: Instant::now(),
            not_before: Instant::now(),
            failures: 0,
        }
    }

    /// There may be something new to show.
    pub(crate) fn changed(&mut self) {
        self.changed = true;
    }

    /// Keeps the message up to date for as long as it is polled. Resolves with the id of a new message
    /// as soon as it was sent.
    pub(crate) async fn keep(&mut self, draft: impl Fn() -> Draft) -> MessageId {
        loop {
            if let Some(new) = self.finish_call().await {
                return new;
            }
            let refresh = self.outbox.pace.refresh.map(|refresh| refresh.max(SHORTEST_REFRESH));
            let refresh = refresh.map(|refresh| after(self.checked, refresh));
            match refresh {
                _ if self.changed => {}
                Some(refresh) => sleep_until(refresh).await,
                None => std::future::pending().await,
            }
            sleep_until(self.not_before).await;
            if !self.is_new(&draft(), refresh) {
                // A permit that is granted but not polled would block the calls behind it.
                self.delivery = Delivery::Idle;
                self.mark_checked(refresh);
                continue;
            }
            if matches!(self.delivery, Delivery::Idle) {
                let permit = self.outbox.permit(&self.place.chat, Priority::Low);
                self.delivery = Delivery::Waiting(permit);
            }
            let Delivery::Waiting(permit) = &mut self.delivery else { continue };
            let permit = permit.await;
            self.delivery = Delivery::Idle;
            // Only now, so that the latest state is shown.
            let draft = draft();
            let is_new = self.is_new(&draft, refresh);
            self.mark_checked(refresh);
            if is_new {
                self.checked = Instant::now();
                let call = self.call(permit, draft.content.clone());
                self.delivery = Delivery::Calling { call, draft: Box::new(draft) };
            }
        }
    }

    /// Whether this is to be shown. From `refresh` on, elapsed time alone counts.
    fn is_new(&self, draft: &Draft, refresh: Option<Instant>) -> bool {
        let stale = refresh.is_some_and(|refresh| refresh <= Instant::now());
        self.shown.as_ref().is_none_or(|shown| {
            shown.mark != draft.mark || (stale && shown.content != draft.content)
        })
    }

    /// The current state was compared with what is shown.
    fn mark_checked(&mut self, refresh: Option<Instant>) {
        self.changed = false;
        let now = Instant::now();
        if refresh.is_some_and(|refresh| refresh <= now) {
            self.checked = now;
        }
    }

    fn call(&self, permit: CallPermit, content: Content) -> Call {
        if let Some(message) = self.message_ref() {
            let edit = self.outbox.edit(&permit, message, content);
            return Box::pin(async move {
                let _permit = permit;
                edit.await.map(|()| None)
            });
        }
        let send = self.outbox.send(&permit, self.outgoing(content, true));
        Box::pin(async move {
            let _permit = permit;
            send.await.map(Some)
        })
    }

    fn message_ref(&self) -> Option<MessageRef> {
        self.message.clone().map(|message| message.at(&self.place.chat))
    }

    fn outgoing(&self, content: Content, silent: bool) -> Outgoing {
        Outgoing::new(self.place.clone(), content).reply_to(self.reply_to.clone()).silent(silent)
    }

    /// Waits for the running call, if there is one, and returns the message that it created.
    async fn finish_call(&mut self) -> Option<MessageId> {
        let Delivery::Calling { call, .. } = &mut self.delivery else { return None };
        let result = call.await;
        let delivery = std::mem::replace(&mut self.delivery, Delivery::Idle);
        let Delivery::Calling { draft, .. } = delivery else { return None };
        let pace = self.outbox.pace;
        self.not_before = after(Instant::now(), pace.interval);
        match result {
            Ok(new) => {
                self.failures = 0;
                self.shown = Some(*draft);
                if new.is_some() {
                    self.message.clone_from(&new);
                }
                return new;
            }
            Err(TransportError::Gone) if self.message.is_some() => {
                self.message = None;
                self.shown = None;
            }
            Err(TransportError::Gone) if self.reply_to.is_some() => self.reply_to = None,
            // The outbox waits as long as the chat asked for.
            Err(TransportError::RateLimited { .. }) => {}
            Err(error) => {
                self.failures += 1;
                let pause = pause_after(self.failures).max(pace.interval);
                self.not_before = after(Instant::now(), pause);
                tracing::debug!(%error, "cannot show a progress message");
            }
        }
        self.changed = true;
        None
    }

    /// Delivers the final message, in as many messages as it takes. `posted` gets each of them as soon
    /// as it was sent. Does not wait for the interval between edits, but for rate limits.
    pub(crate) async fn finish(
        mut self,
        last: FinalMessage,
        by: FinalBy,
        mut posted: impl FnMut(&MessageId),
    ) -> Delivered {
        if matches!(self.delivery, Delivery::Waiting(_)) {
            self.delivery = Delivery::Idle;
        }
        if let Some(new) = self.finish_call().await {
            posted(&new);
        }
        let mut messages = Vec::new();
        let mut parts = last.parts.into_iter();
        while let Some(part) = parts.next() {
            let first = messages.is_empty();
            let result = match self.message.clone() {
                Some(message) if first && by == FinalBy::Edit => {
                    self.replace(message, part.clone()).await
                }
                _ => self.deliver(part.clone(), !(first && by == FinalBy::NewMessage)).await,
            };
            match result {
                Ok(message) => {
                    posted(&message);
                    messages.push(message);
                }
                Err(cause) => {
                    let parts = std::iter::once(part).chain(parts).map(|part| part.text).collect();
                    // Unless a part has replaced the progress message already.
                    if let Some(old) =
                        self.message_ref().filter(|old| !messages.contains(&old.message))
                    {
                        self.end(&old, last.if_undelivered).await;
                    }
                    return Delivered { messages, error: Some(DeliveryError { parts, cause }) };
                }
            }
        }
        if let Some(old) = self.message_ref().filter(|old| !messages.contains(&old.message)) {
            let delete = |permit: &CallPermit| self.outbox.delete(permit, old.clone());
            match self.outbox.retry(&old.chat, Priority::Low, delete).await {
                Ok(()) | Err(TransportError::Gone) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot delete a progress message");
                    self.end(&old, last.if_sent_elsewhere).await;
                }
            }
        }
        Delivered { messages, error: None }
    }

    /// Edits a message to show that it is over, without buttons.
    async fn end(&mut self, message: &MessageRef, content: Content) {
        let edit = |permit: &CallPermit| self.outbox.edit(permit, message.clone(), content.clone());
        match self.outbox.retry(&message.chat, Priority::Low, edit).await {
            Ok(()) | Err(TransportError::Gone) => {}
            Err(error) => tracing::warn!(%error, "cannot end a progress message"),
        }
    }

    async fn replace(
        &mut self,
        message: MessageId,
        content: Content,
    ) -> Result<MessageId, TransportError> {
        let at = message.clone().at(&self.place.chat);
        let edit = |permit: &CallPermit| self.outbox.edit(permit, at.clone(), content.clone());
        match self.outbox.retry(&self.place.chat, Priority::High, edit).await {
            Ok(()) => Ok(message),
            Err(TransportError::Gone) => {
                self.message = None;
                self.deliver(content, true).await
            }
            Err(error) => Err(error),
        }
    }

    async fn deliver(
        &mut self,
        content: Content,
        silent: bool,
    ) -> Result<MessageId, TransportError> {
        self.outbox.deliver(self.outgoing(content, silent)).await
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::outbox::Pace;
    use crate::testing::Room;
    use crate::transport::Kind;

    fn shows(mark: &str) -> impl Fn() -> Draft {
        let mark = mark.to_owned();
        move || Draft { content: Content::new(Kind::Progress, &mark), mark: mark.clone() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_whose_state_changes_meanwhile_keeps_its_place_in_the_call_queue() {
        let room = Room::new();
        let outbox = Outbox::new(room.clone(), Pace::default());
        let live = || LiveMessage::new(outbox.clone(), Place::new("general"), None);
        let (mut first, mut second) = (live(), live());
        let busy = outbox.permit("general", Priority::High).await;
        first.changed();
        second.changed();
        assert!(first.keep(shows("first")).now_or_never().is_none());
        assert!(second.keep(shows("second")).now_or_never().is_none());
        assert!(first.keep(shows("first, later")).now_or_never().is_none());
        drop(busy);
        tokio::join!(second.keep(shows("second")), first.keep(shows("first, later")));
        assert_eq!(room.texts(), ["first, later", "second"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_with_nothing_new_to_show_leaves_the_call_queue() {
        let outbox = Outbox::new(Room::new(), Pace::default());
        let mut live = LiveMessage::new(outbox.clone(), Place::new("general"), None);
        live.changed();
        live.keep(shows("working")).await;
        sleep(outbox.pace.interval * 2).await;
        let busy = outbox.permit("general", Priority::High).await;
        live.changed();
        assert!(live.keep(shows("waiting")).now_or_never().is_none());
        assert!(matches!(live.delivery, Delivery::Waiting(_)), "it waits in the queue");
        assert!(live.keep(shows("working")).now_or_never().is_none());
        drop(busy);
        let next = timeout(Duration::from_secs(1), outbox.permit("general", Priority::Low)).await;
        assert!(next.is_ok(), "and blocks no other call");
    }
}
