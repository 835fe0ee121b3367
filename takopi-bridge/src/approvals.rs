//! Approvals through the chat.
//!
//! An approval request becomes a message with buttons that shows everything an approval grants. A diff
//! that does not fit into it goes into messages before it. Promises:
//! - the first answer counts, also one that comes before the chat has confirmed the message, and the message is edited
//!   to show the decision and who made it;
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
}

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
        }
    }
}

impl<T: Transport> Approvals<T> {
    /// Asks in the chat of this handler, and waits this long for an answer. In places that are one
    /// conversation each, any message answers a question.
    pub(crate) fn new(handler: &Handler<T>, patience: Duration, continuity: Continuity) -> Self {
        let (outbox, chat) = (handler.outbox.clone(), handler.options.chat.clone());
        Self { outbox, chat, patience, continuity, open: Arc::default() }
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
mod tests {
    use std::future::poll_fn;

    use takopi_core::approvals::channel;
    use takopi_core::runner::Question;
    use takopi_core::{ApprovalHandler as _, ApprovalRequest};

    use super::*;
    use crate::handler::HandlerOptions;
    use crate::testing::{Room, RoomFault};
    use crate::transport::MessageId;

    #[tokio::test(start_paused = true)]
    async fn what_happened_before_a_request_is_shown_before_it() {
        let room = Room::new();
        let handler = Handler::new(room.clone(), HandlerOptions::default());
        let approvals = Approvals::new(&handler, Duration::from_secs(90), Continuity::Reply);
        let (people, requests) = channel(4);
        let request = ApprovalRequest::new("lab".into(), Question::command("ls"), "/srv".into());
        let (target, over) = (ReplyTarget::new(Place::new("general")), CancellationToken::new());
        let asking = async { people.reply(request).await };
        tokio::pin!(asking);
        let (mut arrived, mut shown_after) = (false, None);
        // A run that emits an event and asks right after its events were looked at.
        let run = poll_fn(|context| {
            if arrived && shown_after.is_none() {
                shown_after = Some(room.calls().len());
            }
            arrived = true;
            asking.as_mut().poll(context).map(drop)
        });
        let serve = async {
            let asked = |message: MessageRef| {
                approvals.choose(&message, Reply::from(Decision::Decline)).unwrap();
            };
            approvals.serve(requests, &target, &over, asked).await;
        };
        let ends = async {
            run.await;
            over.cancel();
        };
        tokio::join!(biased; ends, serve);
        assert_eq!(shown_after, Some(0), "the event was seen before anything was sent");
        assert!(!room.calls().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_withdrawn_while_it_is_sent_keeps_no_buttons() {
        let room = Room::new();
        room.set_faults(|call| {
            (call.number == 1).then_some(RoomFault::RateLimit(Duration::from_secs(1)))
        });
        let handler = Handler::new(room.clone(), HandlerOptions::default());
        let approvals = Approvals::new(&handler, Duration::from_secs(90), Continuity::Reply);
        let (people, requests) = channel(4);
        let request = ApprovalRequest::new("lab".into(), Question::command("ls"), "/srv".into());
        let (target, over) = (ReplyTarget::new(Place::new("general")), CancellationToken::new());
        let ends = async {
            while room.calls().is_empty() {
                yield_now().await;
            }
            over.cancel();
        };
        let serve = approvals.serve(requests, &target, &over, |_| {});
        tokio::join!(serve, ends, async { drop(people.reply(request).await) });
        let message = room.messages().remove(0);
        assert!(message.text().ends_with(WITHDRAWN), "{message:?}");
        assert!(message.sent.content.buttons.is_empty(), "{message:?}");
    }

    #[test]
    fn an_answer_that_comes_before_the_message_is_confirmed_counts() {
        let handler = Handler::new(Room::new(), HandlerOptions::default());
        let approvals = Approvals::new(&handler, Duration::from_secs(90), Continuity::Reply);
        let message = |id: &str| MessageId::from(id.to_owned()).at("general");
        let waiting = |reply| Waiting {
            reply,
            offered: vec![Decision::Accept],
            questions: Vec::new(),
            place: Place::new("general"),
            since: Instant::now(),
        };
        let early = |id: &str, decision: Decision| {
            approvals.choose_early(&message(id), Reply::from(decision))
        };
        assert_eq!(early("1", Decision::Accept), Err(AnswerError::NotPending), "nothing is sent");
        let sending = Sending::new(&approvals);
        assert_eq!(early("1", Decision::Accept), Ok(()));
        assert_eq!(early("1", Decision::Decline), Ok(()));
        let known = approvals.choose(&message("0"), Decision::Accept);
        assert_eq!(known, Err(AnswerError::NotPending), "a known message is not on its way");
        let (reply, mut answer) = oneshot::channel();
        approvals.open().insert(&message("1"), waiting(reply));
        assert_eq!(answer.try_recv().unwrap().decision, Decision::Accept, "the first counts");
        let (reply, mut answer) = oneshot::channel();
        approvals.open().insert(&message("2"), waiting(reply));
        assert!(answer.try_recv().is_err(), "it was for another message");
        drop(sending);
        assert!(approvals.open().early.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_declined_and_forgotten_when_serve_is_dropped() {
        let room = Room::new();
        let handler = Handler::new(room.clone(), HandlerOptions::default());
        let approvals = Approvals::new(&handler, Duration::from_secs(90), Continuity::Reply);
        let (people, requests) = channel(4);
        let request = ApprovalRequest::new("lab".into(), Question::command("ls"), "/srv".into());
        let asked = tokio::spawn(async move { people.reply(request).await });
        let served = approvals.clone();
        let serve = tokio::spawn(async move {
            let target = ReplyTarget::new(Place::new("general"));
            served.serve(requests, &target, &CancellationToken::new(), |_| {}).await;
        });
        let question = room.question().await;
        serve.abort();
        assert!(!asked.await.unwrap().decision.is_yes());
        assert!(approvals.open().waiting.is_empty(), "no entry is left");
        let chosen = approvals.choose(&question, Reply::from(Decision::Accept));
        assert_eq!(chosen, Err(AnswerError::NotPending));
    }
}
