//! One message of the chat, kept current.
//!
//! [`Post::keep`] is polled beside whatever changes the state, so neither waits for the other.
//! Promises:
//! - the first message goes out at once, an edit no sooner than [`Pace::interval`](crate::Pace)
//!   behind the call before it, and only the latest state is ever shown;
//! - what is shown already is not shown again; time alone is no change, unless
//!   [`Pace::refresh`](crate::Pace) says so;
//! - a call that failed is repeated later, though nothing changed: the last state is always shown;
//! - a message that is gone is written anew;
//! - dropping the future of `keep` loses nothing: a call under way goes on at the next one. Dropping
//!   the post drops the call.

use futures::future::BoxFuture;
use thiserror::Error;
use tokio::time::{Instant, sleep_until};

use crate::handler::FinalBy;
use crate::outbox::{Outbox, after, pause_behind};
use crate::transport::{
    Content, MessageId, MessageRef, Outgoing, Place, Transport, TransportError,
};

/// What a message should say now.
pub(crate) struct Draft {
    pub(crate) content: Content,
    /// What counts as a change. Time that passed alone does not.
    pub(crate) mark: String,
}

/// What could not be said, and why.
#[derive(Debug, Error)]
#[error("{} of the final message could not be said", count(.parts.len()))]
#[non_exhaustive]
pub struct Unsaid {
    /// The parts of the final message that are not in the chat, as far as that can be told.
    pub parts: Vec<String>,
    /// Why the first of them is not.
    #[source]
    pub why: TransportError,
}

fn count(parts: usize) -> String {
    if parts == 1 { "1 part".to_owned() } else { format!("{parts} parts") }
}

/// A call under way.
type Call = BoxFuture<'static, Result<Option<MessageId>, TransportError>>;

/// A message that follows some state.
pub(crate) struct Post<T> {
    outbox: Outbox<T>,
    place: Place,
    reply_to: Option<MessageId>,
    message: Option<MessageId>,
    /// What the message says.
    shown: Option<Draft>,
    /// The call under way, and what it will have the message say.
    call: Option<(Call, Draft)>,
    changed: bool,
    /// When time alone was last looked at.
    looked: Instant,
    not_before: Instant,
    failures: u32,
}

impl<T: Transport> Post<T> {
    pub(crate) fn new(outbox: Outbox<T>, place: Place, reply_to: Option<MessageId>) -> Self {
        Self {
            outbox,
            place,
            reply_to,
            message: None,
            shown: None,
            call: None,
            changed: false,
            looked: Instant::now(),
            not_before: Instant::now(),
            failures: 0,
        }
    }

    /// There may be something new to show.
    pub(crate) fn changed(&mut self) {
        self.changed = true;
    }

    /// Keeps the message current for as long as it is polled. Resolves when a new message is there,
    /// with its id.
    pub(crate) async fn keep(&mut self, draft: impl Fn() -> Draft) -> MessageId {
        loop {
            if let Some(new) = self.land().await {
                return new;
            }
            let refresh = self.outbox.pace.refresh.map(|refresh| after(self.looked, refresh));
            match refresh {
                _ if self.changed => {}
                Some(refresh) => sleep_until(refresh).await,
                None => std::future::pending().await,
            }
            sleep_until(self.not_before).await;
            self.outbox.open(&self.place.chat).await;
            self.changed = false;
            let now = Instant::now();
            let stale = refresh.is_some_and(|refresh| refresh <= now);
            if stale {
                self.looked = now;
            }
            let draft = draft();
            let is_new = self.shown.as_ref().is_none_or(|shown| {
                shown.mark != draft.mark || (stale && shown.content != draft.content)
            });
            if is_new {
                self.looked = now;
                self.call = Some((self.begin(draft.content.clone()), draft));
            }
        }
    }

    fn begin(&self, content: Content) -> Call {
        if let Some(message) = self.at() {
            let edit = self.outbox.edit(message, content);
            return Box::pin(async move { edit.await.map(|()| None) });
        }
        let send = self.outbox.send(self.outgoing(content, true));
        Box::pin(async move { send.await.map(Some) })
    }

    fn at(&self) -> Option<MessageRef> {
        self.message.clone().map(|message| message.at(&self.place.chat))
    }

    fn outgoing(&self, content: Content, silent: bool) -> Outgoing {
        Outgoing::new(self.place.clone(), content).reply_to(self.reply_to.clone()).silent(silent)
    }

    /// Waits for the call under way, if there is one; gives the message that is new with it.
    async fn land(&mut self) -> Option<MessageId> {
        let (call, _) = self.call.as_mut()?;
        let result = call.await;
        let (_, draft) = self.call.take()?;
        let pace = self.outbox.pace;
        self.not_before = after(Instant::now(), pace.interval);
        match result {
            Ok(new) => {
                self.failures = 0;
                self.shown = Some(draft);
                if new.is_some() {
                    self.message.clone_from(&new);
                }
                return new;
            }
            Err(TransportError::Gone) => {
                self.message = None;
                self.shown = None;
            }
            // The chat said for how long, and the outbox waits.
            Err(TransportError::RateLimited { .. }) => {}
            Err(error) => {
                self.failures += 1;
                let pause = pause_behind(self.failures).max(pace.interval);
                self.not_before = after(Instant::now(), pause);
                tracing::debug!(%error, "a progress message was not shown");
            }
        }
        self.changed = true;
        None
    }

    /// Says the last word, in as many messages as it takes, and gives the messages it is in. Waits
    /// for no interval, but for a chat that wants to be left alone.
    pub(crate) async fn finish(
        mut self,
        parts: Vec<Content>,
        by: FinalBy,
    ) -> (Vec<MessageId>, Option<Unsaid>) {
        self.land().await;
        let mut said = Vec::new();
        let mut parts = parts.into_iter();
        while let Some(part) = parts.next() {
            let first = said.is_empty();
            let result = match self.message.take_if(|_| first && by == FinalBy::Edit) {
                Some(message) => self.replace(message, part.clone()).await,
                None => self.say(part.clone(), !(first && by == FinalBy::NewMessage)).await,
            };
            match result {
                Ok(message) => said.push(message),
                Err(why) => {
                    let parts = std::iter::once(part).chain(parts).map(|part| part.text).collect();
                    return (said, Some(Unsaid { parts, why }));
                }
            }
        }
        if let Some(old) = self.at() {
            let delete = |outbox: &Outbox<T>| outbox.delete(old.clone());
            if let Err(error) = self.outbox.insist(&old.chat, delete).await {
                tracing::warn!(%error, "a progress message was not deleted");
            }
        }
        (said, None)
    }

    async fn replace(
        &mut self,
        message: MessageId,
        content: Content,
    ) -> Result<MessageId, TransportError> {
        let at = message.clone().at(&self.place.chat);
        let edit = |outbox: &Outbox<T>| outbox.edit(at.clone(), content.clone());
        match self.outbox.insist(&self.place.chat, edit).await {
            Ok(()) => Ok(message),
            Err(TransportError::Gone) => self.say(content, true).await,
            Err(error) => Err(error),
        }
    }

    async fn say(&mut self, content: Content, silent: bool) -> Result<MessageId, TransportError> {
        let message = self.outgoing(content, silent);
        self.outbox.insist(&self.place.chat, |outbox| outbox.send(message.clone())).await
    }
}
