//! Approvals through the chat.
//!
//! An approval request becomes a message with buttons that shows everything an approval grants. A diff
//! that does not fit into it goes into messages before it. Promises:
//! - the first answer counts, also one that comes before the chat has confirmed the message, and the message is edited
//!   to show the decision and who made it;
//! - what belongs to a request, as its diffs, is sent right before it: nothing of another request of its place comes between;
//! - a request that is not answered in time is declined; one that the agent takes back, or whose run
//!   ends first, is withdrawn; its message shows both;
//! - a question that takes a text is answered by replying to its message or, where a place is one
//!   conversation, by the next message of that conversation;
//! - a request that cannot be shown is declined; one that cannot be shown completely can only be
//!   declined;
//! - dropping the future of [`Approvals::serve`] declines the open requests.
//!
//! The requests come from [`takopi_core::approvals::channel`], so other handlers can go in front of it:
//! rules that decide without asking.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use takopi_core::Decision;
use takopi_core::approvals::PendingApproval;
use takopi_core::runner::{Reply, UserQuestion};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::answers;
use crate::bridge::Continuity;
use crate::handler::{Handler, ReplyTarget};
use crate::outbox::{CallPermit, Outbox, Priority};
use crate::present::{Chat, elapsed};
use crate::transport::{
    Content, Kind, MessageRef, Outgoing, Place, Press, Transport, TransportError,
};

/// The outcome of a request whose agent does not wait any more.
const WITHDRAWN: &str = "withdrawn: the agent does not wait for an answer any more";

/// How long the message of a request that was withdrawn meanwhile may be on its way.
const LATE: Duration = Duration::from_secs(10);
/// The most answers that are kept for messages on their way.
const EARLY: usize = 16;

/// Why a request was not decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// The message shows no request that waits for an answer (any more).
    #[error("this request is not waiting for an answer any more")]
    NotPending,
    /// The request does not offer this choice: it takes a text, or it is too long to be shown
    /// completely and can only be declined.
    #[error("this choice is not offered here")]
    NotOffered,
}

/// A request that waits for its answer.
#[derive(Debug)]
struct Waiting {
    reply: oneshot::Sender<Reply>,
    /// The decisions that can be chosen.
    offered: Vec<Decision>,
    /// The questions, if the request is answered with a text.
    questions: Vec<UserQuestion>,
    /// Where and when it was shown.
    place: Place,
    since: Instant,
}

/// Asks people in a chat. Clones share the open requests.
#[derive(Debug)]
pub(crate) struct Approvals<T> {
    outbox: Outbox<T>,
    chat: Chat,
    patience: Duration,
    continuity: Continuity,
    open: Arc<Mutex<Open>>,
    /// Who sends a request to a place.
    turns: Arc<Mutex<HashMap<Place, Turn>>>,
}

/// Held while a request is sent.
type Turn = Arc<tokio::sync::Mutex<()>>;

/// What waits for an answer.
#[derive(Debug, Default)]
struct Open {
    waiting: HashMap<MessageRef, Waiting>,
    /// The requests whose message is on its way.
    sending: usize,
    /// Answers to messages that are not known yet, while requests are on their way: a chat may show a message before it
    /// returns the id. At most [`EARLY`].
    early: Vec<(MessageRef, Reply)>,
}

impl<T> Clone for Approvals<T> {
    fn clone(&self) -> Self {
        Self {
            outbox: self.outbox.clone(),
            chat: self.chat.clone(),
            patience: self.patience,
            continuity: self.continuity,
            open: self.open.clone(),
            turns: self.turns.clone(),
        }
    }
}

impl<T: Transport> Approvals<T> {
    /// Asks in the chat of this handler, and waits this long for an answer. In places that are one
    /// conversation each, any message answers a question.
    pub(crate) fn new(handler: &Handler<T>, patience: Duration, continuity: Continuity) -> Self {
        let (outbox, chat) = (handler.outbox.clone(), handler.options.chat.clone());
        Self { outbox, chat, patience, continuity, open: Arc::default(), turns: Arc::default() }
    }

    /// Decides the request that this message shows. The first answer counts.
    pub(crate) fn choose(
        &self,
        message: &MessageRef,
        reply: impl Into<Reply>,
    ) -> Result<(), AnswerError> {
        self.open().choose(message, reply.into())
    }

    /// Whether a word that is also a decision answers what this message asks.
    pub(crate) fn is_answer(&self, message: &MessageRef, word: &str, decision: Decision) -> bool {
        self.open().waiting.get(message).is_some_and(|waiting| {
            let unoffered = decision.is_yes() && !waiting.offered.contains(&decision);
            answers::names_option(&waiting.questions, word)
                || unoffered && !waiting.questions.is_empty()
        })
    }

    /// The same, for a message that the bridge does not know (yet): one on its way may be it.
    pub(crate) fn choose_early(
        &self,
        message: &MessageRef,
        reply: Reply,
    ) -> Result<(), AnswerError> {
        let mut open = self.open();
        if open.waiting.contains_key(message) {
            return open.choose(message, reply);
        }
        if open.sending == 0 || open.early.len() >= EARLY {
            return Err(AnswerError::NotPending);
        }
        open.early.push((message.clone(), reply));
        Ok(())
    }

    /// Answers the question that this message shows with a text. `Err` if it takes none.
    pub(crate) fn answer(
        &self,
        message: &MessageRef,
        text: &str,
        by: &str,
    ) -> Result<(), AnswerError> {
        let questions = self.open().waiting.get(message).map(|waiting| waiting.questions.clone());
        let questions = questions.ok_or(AnswerError::NotPending)?;
        let reply = answers::reply(&questions, text).ok_or(AnswerError::NotOffered)?;
        self.choose(message, reply.by(by))
    }

    /// The messages of a place with a question that takes a text, the oldest first.
    pub(crate) fn questions_in(&self, place: &Place) -> Vec<MessageRef> {
        let open = self.open();
        let asks = |waiting: &Waiting| waiting.place == *place && !waiting.questions.is_empty();
        let mut asking: Vec<_> = open.waiting.iter().filter(|it| asks(it.1)).collect();
        asking.sort_by_key(|(_, waiting)| waiting.since);
        asking.into_iter().map(|(message, _)| message.clone()).collect()
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self, place: &Place) -> Turn {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        turns.entry(place.clone()).or_default().clone()
    }

    /// Shows the requests of the channel until `over` fires or the channel is closed, and returns when
    /// every request is settled. `asked` gets every message that shows one; what it returns is dropped
    /// when the request is settled.
    ///
    /// Whoever polls this polls the run first: then its steps are shown before what is asked after them.
    pub(crate) async fn serve<G>(
        &self,
        mut requests: mpsc::Receiver<PendingApproval>,
        target: &ReplyTarget,
        over: &CancellationToken,
        asked: impl Fn(MessageRef) -> G,
    ) {
        let mut asking = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                () = over.cancelled() => break,
                pending = requests.recv() => match pending {
                    Some(pending) => {
                        // The events before the request may have arrived since the run was last looked at.
                        yield_now().await;
                        asking.push(self.ask(pending, target, over, &asked));
                    }
                    None => break,
                },
                Some(()) = asking.next(), if !asking.is_empty() => {}
            }
        }
        drop(requests);
        while asking.next().await.is_some() {}
    }

    async fn ask<G>(
        &self,
        mut pending: PendingApproval,
        target: &ReplyTarget,
        over: &CancellationToken,
        asked: &impl Fn(MessageRef) -> G,
    ) {
        let request = pending.request.clone();
        let mut questions = answers::questions(&request).to_vec();
        let how = match self.continuity {
            Continuity::Reply => "reply to this message",
            Continuity::Place => "answer with your next message",
        };
        let mut shown = self.chat.ask(&request, answers::hint(&questions, how).as_deref());
        if !shown.is_whole {
            // The hint may have taken the room.
            shown = self.chat.ask(&request, None);
        }
        // What is not shown completely cannot be accepted, nor can a question without its text.
        let may_accept = shown.is_whole && questions.is_empty();
        if !shown.is_whole {
            questions.clear();
        }
        let mut offered = Decision::ALL.to_vec();
        offered.retain(|it| request.offers(*it) && (may_accept || !it.is_yes()));
        let choices: Vec<Press> = offered.iter().copied().map(Press::Choose).collect();
        let mut content = Content::new(Kind::Question, shown.text).buttons(choices).job(target.job);
        let outgoing = |content: Content| {
            Outgoing::new(target.place.clone(), content).reply_to(target.reply_to.clone())
        };
        let show = async {
            for text in shown.before {
                let content = Content::new(Kind::Question, text).job(target.job);
                self.outbox.deliver(outgoing(content)).await?;
            }
            self.outbox.deliver(outgoing(content.clone())).await
        };
        let chat = &target.place.chat;
        let turn = self.turn(&target.place);
        let turn = tokio::select! {
            biased;
            turn = turn.lock() => turn,
            // Nothing of it is in the chat.
            () = withdrawn(&mut pending, over) => return,
        };
        let sending = Sending::new(self);
        let sent = {
            tokio::pin!(show);
            tokio::select! {
                biased;
                sent = &mut show => Some(sent),
                // It may be in the chat by now: its buttons have to go again.
                () = withdrawn(&mut pending, over) => timeout(LATE, show).await.ok(),
            }
        };
        drop(turn);
        let message = match sent {
            Some(Ok(message)) => message.at(chat),
            Some(Err(error)) => {
                let why = format!("the request could not be shown: {error}");
                pending.answer(Reply::from(Decision::Decline).because(why));
                return;
            }
            None => return,
        };
        let (reply, answer) = oneshot::channel();
        let waiting = Waiting {
            reply,
            offered,
            questions,
            place: target.place.clone(),
            since: Instant::now(),
        };
        self.open().insert(&message, waiting);
        drop(sending);
        let open = OpenRequest { approvals: self, message: &message };
        let asking = asked(message.clone());
        let outcome = tokio::select! {
            biased;
            Ok(reply) = answer => answered(pending, reply),
            () = withdrawn(&mut pending, over) => WITHDRAWN.to_owned(),
            () = sleep(self.patience) => {
                let why = format!("no answer within {}", elapsed(self.patience));
                answered(pending, Reply::from(Decision::Decline).because(why))
            }
        };
        drop((open, asking));
        content.text = self.chat.question(&request, Some(&outcome));
        content.buttons.clear();
        let edit = |permit: &CallPermit| self.outbox.edit(permit, message.clone(), content.clone());
        match self.outbox.retry(chat, Priority::High, edit).await {
            Ok(()) | Err(TransportError::Gone) => {}
            Err(error) => tracing::warn!(%error, "cannot show the outcome of an approval request"),
        }
    }
}

impl Open {
    fn choose(&mut self, message: &MessageRef, reply: Reply) -> Result<(), AnswerError> {
        let waiting = self.waiting.get(message).ok_or(AnswerError::NotPending)?;
        let has_text = !waiting.questions.is_empty() && !reply.content.is_empty();
        let is_answer = has_text && reply.decision.is_yes();
        if !is_answer && !waiting.offered.contains(&reply.decision) {
            return Err(AnswerError::NotOffered);
        }
        let waiting = self.waiting.remove(message).ok_or(AnswerError::NotPending)?;
        waiting.reply.send(reply).map_err(|_| AnswerError::NotPending)
    }

    /// Adds a request, and gives it the answer that came before it.
    fn insert(&mut self, message: &MessageRef, waiting: Waiting) {
        self.waiting.insert(message.clone(), waiting);
        if let Some(at) = self.early.iter().position(|(early, _)| early == message) {
            let (_, reply) = self.early.remove(at);
            // One that is not offered leaves the request open.
            let _ = self.choose(message, reply);
        }
    }
}

/// The message of a request is on its way for as long as this lives.
struct Sending<'a, T: Transport>(&'a Approvals<T>);

impl<'a, T: Transport> Sending<'a, T> {
    fn new(approvals: &'a Approvals<T>) -> Self {
        approvals.open().sending += 1;
        Self(approvals)
    }
}

impl<T: Transport> Drop for Sending<'_, T> {
    fn drop(&mut self) {
        let mut open = self.0.open();
        open.sending -= 1;
        if open.sending == 0 {
            open.early.clear();
        }
    }
}

/// A request can be answered for as long as this lives.
struct OpenRequest<'a, T: Transport> {
    approvals: &'a Approvals<T>,
    message: &'a MessageRef,
}

impl<T: Transport> Drop for OpenRequest<'_, T> {
    fn drop(&mut self) {
        self.approvals.open().waiting.remove(self.message);
    }
}

async fn withdrawn(pending: &mut PendingApproval, over: &CancellationToken) {
    tokio::select! {
        () = pending.withdrawn() => {}
        () = over.cancelled() => {}
    }
}

fn answered(pending: PendingApproval, reply: Reply) -> String {
    let outcome = reply.to_string();
    if pending.answer(reply) { outcome } else { format!("{outcome}, but too late") }
}

#[cfg(test)]
mod tests;
