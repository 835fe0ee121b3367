//! One message of the chat, kept current.
//!
//! [`Post::keep`] is polled beside whatever changes the state, so neither waits for the other.
//! Promises:
//! - the first message goes out at once, an edit no sooner than [`Pace::interval`](crate::Pace)
//!   behind the call before it, and only the latest state is ever shown;
//! - what is shown already is not shown again; time alone is no change, unless
//!   [`Pace::refresh`](crate::Pace) says so;
//! - a call that failed is repeated later, though nothing changed: the last state is always shown;
//! - a message that is gone is written anew; if what it answers is gone, it answers nothing;
//! - a message that is over can be pressed no more: what is not deleted is edited;
//! - dropping the future of `keep` loses nothing: a call under way goes on at the next one, and so
//!   does the wait for a turn to call. Dropping the post drops both.

use std::time::Duration;

use futures::future::BoxFuture;
use thiserror::Error;
use tokio::time::{Instant, sleep_until};

use crate::handler::FinalBy;
use crate::outbox::{Outbox, Rank, Turn, after, pause_behind};
use crate::transport::{
    Content, MessageId, MessageRef, Outgoing, Place, Transport, TransportError,
};

/// Time is shown in seconds.
const SHORTEST_REFRESH: Duration = Duration::from_secs(1);

/// What a message should say now.
pub(crate) struct Draft {
    pub(crate) content: Content,
    /// What counts as a change. Time that passed alone does not.
    pub(crate) mark: String,
}

/// The last word on a job.
pub(crate) struct LastWord {
    pub(crate) parts: Vec<Content>,
    /// What the progress message says if it cannot be deleted.
    pub(crate) if_said_elsewhere: Content,
    /// What it says if the last word could not be said.
    pub(crate) if_unsaid: Content,
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
    /// The turn to call that is waited for.
    turn: Option<BoxFuture<'static, Turn>>,
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
            turn: None,
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
            let refresh = self.outbox.pace.refresh.map(|refresh| refresh.max(SHORTEST_REFRESH));
            let refresh = refresh.map(|refresh| after(self.looked, refresh));
            match refresh {
                _ if self.changed => {}
                Some(refresh) => sleep_until(refresh).await,
                None => std::future::pending().await,
            }
            sleep_until(self.not_before).await;
            if !self.is_new(&draft(), refresh) {
                // Not to stand in line without being polled: nobody would get past.
                self.turn = None;
                self.rest(refresh);
                continue;
            }
            let waits = || self.outbox.turn(&self.place.chat, Rank::Later);
            let turn = self.turn.get_or_insert_with(waits).await;
            self.turn = None;
            // Only now, so that the latest state is shown.
            let draft = draft();
            let is_new = self.is_new(&draft, refresh);
            self.rest(refresh);
            if is_new {
                self.looked = Instant::now();
                self.call = Some((self.begin(turn, draft.content.clone()), draft));
            }
        }
    }

    /// Whether this is to be shown, given the moment when time alone counts.
    fn is_new(&self, draft: &Draft, refresh: Option<Instant>) -> bool {
        let stale = refresh.is_some_and(|refresh| refresh <= Instant::now());
        self.shown.as_ref().is_none_or(|shown| {
            shown.mark != draft.mark || (stale && shown.content != draft.content)
        })
    }

    /// It was looked at what there is to show.
    fn rest(&mut self, refresh: Option<Instant>) {
        self.changed = false;
        let now = Instant::now();
        if refresh.is_some_and(|refresh| refresh <= now) {
            self.looked = now;
        }
    }

    fn begin(&self, turn: Turn, content: Content) -> Call {
        if let Some(message) = self.at() {
            let edit = self.outbox.edit(&turn, message, content);
            return Box::pin(async move {
                let _turn = turn;
                edit.await.map(|()| None)
            });
        }
        let send = self.outbox.send(&turn, self.outgoing(content, true));
        Box::pin(async move {
            let _turn = turn;
            send.await.map(Some)
        })
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
            Err(TransportError::Gone) if self.message.is_some() => {
                self.message = None;
                self.shown = None;
            }
            Err(TransportError::Gone) if self.reply_to.is_some() => self.reply_to = None,
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

    /// Says the last word, in as many messages as it takes, and gives the messages it is in; `posted`
    /// is told of each as soon as it is there. Waits for no interval, but for a chat that wants to be
    /// left alone.
    pub(crate) async fn finish(
        mut self,
        last: LastWord,
        by: FinalBy,
        mut posted: impl FnMut(&MessageId),
    ) -> (Vec<MessageId>, Option<Unsaid>) {
        self.turn = None;
        if let Some(new) = self.land().await {
            posted(&new);
        }
        let mut said = Vec::new();
        let mut parts = last.parts.into_iter();
        while let Some(part) = parts.next() {
            let first = said.is_empty();
            let result = match self.message.clone() {
                Some(message) if first && by == FinalBy::Edit => {
                    self.replace(message, part.clone()).await
                }
                _ => self.say(part.clone(), !(first && by == FinalBy::NewMessage)).await,
            };
            match result {
                Ok(message) => {
                    posted(&message);
                    said.push(message);
                }
                Err(why) => {
                    let parts = std::iter::once(part).chain(parts).map(|part| part.text).collect();
                    // What was said in the place of the old message ends that one already.
                    if let Some(old) = self.at().filter(|old| !said.contains(&old.message)) {
                        self.end(&old, last.if_unsaid).await;
                    }
                    return (said, Some(Unsaid { parts, why }));
                }
            }
        }
        if let Some(old) = self.at().filter(|old| !said.contains(&old.message)) {
            let delete = |turn: &Turn| self.outbox.delete(turn, old.clone());
            match self.outbox.insist(&old.chat, Rank::Later, delete).await {
                Ok(()) | Err(TransportError::Gone) => {}
                Err(error) => {
                    tracing::warn!(%error, "a progress message was not deleted");
                    self.end(&old, last.if_said_elsewhere).await;
                }
            }
        }
        (said, None)
    }

    /// Has a message say that it is over, without anything to press.
    async fn end(&mut self, message: &MessageRef, content: Content) {
        let edit = |turn: &Turn| self.outbox.edit(turn, message.clone(), content.clone());
        match self.outbox.insist(&message.chat, Rank::Later, edit).await {
            Ok(()) | Err(TransportError::Gone) => {}
            Err(error) => tracing::warn!(%error, "a progress message was not ended"),
        }
    }

    async fn replace(
        &mut self,
        message: MessageId,
        content: Content,
    ) -> Result<MessageId, TransportError> {
        let at = message.clone().at(&self.place.chat);
        let edit = |turn: &Turn| self.outbox.edit(turn, at.clone(), content.clone());
        match self.outbox.insist(&self.place.chat, Rank::First, edit).await {
            Ok(()) => Ok(message),
            Err(TransportError::Gone) => {
                self.message = None;
                self.say(content, true).await
            }
            Err(error) => Err(error),
        }
    }

    async fn say(&mut self, content: Content, silent: bool) -> Result<MessageId, TransportError> {
        self.outbox.say(self.outgoing(content, silent)).await
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

    fn says(mark: &str) -> impl Fn() -> Draft {
        let mark = mark.to_owned();
        move || Draft { content: Content::new(Kind::Progress, &mark), mark: mark.clone() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_whose_state_changes_meanwhile_keeps_its_place_in_the_line_of_calls() {
        let room = Room::new();
        let outbox = Outbox::new(room.clone(), Pace::default());
        let post = || Post::new(outbox.clone(), Place::new("general"), None);
        let (mut first, mut second) = (post(), post());
        let busy = outbox.turn("general", Rank::First).await;
        first.changed();
        second.changed();
        assert!(first.keep(says("first")).now_or_never().is_none());
        assert!(second.keep(says("second")).now_or_never().is_none());
        assert!(first.keep(says("first, later")).now_or_never().is_none());
        drop(busy);
        tokio::join!(second.keep(says("second")), first.keep(says("first, later")));
        assert_eq!(room.texts(), ["first, later", "second"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_with_nothing_new_to_say_leaves_the_line_of_calls() {
        let outbox = Outbox::new(Room::new(), Pace::default());
        let mut post = Post::new(outbox.clone(), Place::new("general"), None);
        post.changed();
        post.keep(says("working")).await;
        sleep(outbox.pace.interval * 2).await;
        let busy = outbox.turn("general", Rank::First).await;
        post.changed();
        assert!(post.keep(says("waiting")).now_or_never().is_none());
        assert!(post.turn.is_some(), "it stands in line");
        assert!(post.keep(says("working")).now_or_never().is_none());
        drop(busy);
        let next = timeout(Duration::from_secs(1), outbox.turn("general", Rank::Later)).await;
        assert!(next.is_ok(), "and holds up nobody");
    }
}
