//! Approvals through the chat.
//!
//! What an agent asks approval for becomes a message with choices, which shows all that a yes grants.
//! A diff that does not fit into it goes into messages before it. Promises:
//! - the first answer counts, and the message is edited to say what became of the question and by
//!   whom;
//! - a question that nobody answers in time is declined; one that the agent takes back, or whose run
//!   ends first, is withdrawn; both are said in its message;
//! - a question of the agent that wants words is answered by replying to its message;
//! - a question that cannot be shown is declined; one that cannot be shown whole can be declined
//!   only;
//! - dropping the future of [`Approvals::serve`] declines what is open.
//!
//! The questions come from [`takopi_core::approvals::channel`], so its handlers go in front: rules
//! that answer what need not be asked.
//!
//! ```
//! use std::time::Duration;
//! use takopi_bridge::Place;
//! use takopi_bridge::approvals::Approvals;
//! use takopi_bridge::handler::{Handler, Look, Spot};
//! use takopi_bridge::testing::Room;
//! use takopi_core::approvals::channel;
//! use takopi_core::runner::{Question, Reply};
//! use takopi_core::{ApprovalHandler, ApprovalRequest, Decision};
//! use tokio_util::sync::CancellationToken;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let room = Room::new();
//! let handler = Handler::new(room.clone(), Look::default());
//! let approvals = Approvals::new(&handler, Duration::from_secs(60));
//! let (ask, questions) = channel(4);
//! let (spot, over) = (Spot::new(Place::new("general")), CancellationToken::new());
//!
//! let agent = async {
//!     let what = ApprovalRequest::new("lab".into(), Question::command("ls"), "/srv".into());
//!     let reply = ask.reply(what).await;
//!     over.cancel();
//!     reply
//! };
//! let people = async {
//!     let question = room.question().await;
//!     approvals.choose(&question, Reply::from(Decision::Accept).by("alice"))
//! };
//! let serve = approvals.serve(questions, &spot, &over, |_message| {});
//! let (reply, chosen, ()) = tokio::join!(agent, people, serve);
//! assert!(chosen.is_ok());
//! assert_eq!(reply.to_string(), "accepted by alice");
//! assert!(room.last_text().ends_with("accepted by alice"));
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use takopi_core::approvals::PendingApproval;
use takopi_core::runner::{Question, Reply};
use takopi_core::{ApprovalRequest, Decision};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::handler::{Handler, Spot};
use crate::outbox::{Outbox, Rank, Turn};
use crate::present::{Chat, elapsed};
use crate::transport::{Content, Kind, MessageRef, Outgoing, Press, Transport, TransportError};

/// Why a question was not decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NoQuestion {
    /// The message asks nothing, or nothing any more.
    #[error("there is nothing to decide here any more")]
    Over,
    /// The question does not offer this: it wants words, or it is too long to be shown whole and
    /// can only be declined.
    #[error("this cannot be chosen here")]
    NotOffered,
}

/// A question that waits for its answer.
#[derive(Debug)]
struct Waiting {
    reply: oneshot::Sender<Reply>,
    /// The decisions that can be chosen.
    offered: Vec<Decision>,
    /// The id of what is to be answered in words, if it is that kind of question.
    words_for: Option<String>,
}

/// Asks people in a chat. Clones are the same.
#[derive(Debug)]
pub struct Approvals<T> {
    outbox: Outbox<T>,
    chat: Chat,
    patience: Duration,
    open: Arc<Mutex<HashMap<MessageRef, Waiting>>>,
}

impl<T> Clone for Approvals<T> {
    fn clone(&self) -> Self {
        Self {
            outbox: self.outbox.clone(),
            chat: self.chat.clone(),
            patience: self.patience,
            open: self.open.clone(),
        }
    }
}

impl<T: Transport> Approvals<T> {
    /// Asks in the chat of this handler, for so long.
    pub fn new(handler: &Handler<T>, patience: Duration) -> Self {
        let (outbox, chat) = (handler.outbox.clone(), handler.look.chat.clone());
        Self { outbox, chat, patience, open: Arc::default() }
    }

    /// Answers the question that this message asks. The first answer counts.
    pub fn choose(&self, message: &MessageRef, reply: impl Into<Reply>) -> Result<(), NoQuestion> {
        let reply = reply.into();
        let mut open = self.open();
        let waiting = open.get(message).ok_or(NoQuestion::Over)?;
        let in_words = waiting.words_for.is_some() && !reply.content.is_empty();
        let answers = in_words && reply.decision.is_yes();
        if !answers && !waiting.offered.contains(&reply.decision) {
            return Err(NoQuestion::NotOffered);
        }
        let waiting = open.remove(message).ok_or(NoQuestion::Over)?;
        waiting.reply.send(reply).map_err(|_| NoQuestion::Over)
    }

    /// Answers the question that this message asks with words. `Err` if it wants none.
    pub fn answer(&self, message: &MessageRef, words: &str, by: &str) -> Result<(), NoQuestion> {
        let wanted = self.open().get(message).map(|waiting| waiting.words_for.clone());
        let wanted = wanted.ok_or(NoQuestion::Over)?.ok_or(NoQuestion::NotOffered)?;
        self.choose(message, Reply::from(Decision::Accept).with(wanted, words).by(by))
    }

    fn open(&self) -> MutexGuard<'_, HashMap<MessageRef, Waiting>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks what comes through the channel until `over` fires or nothing more can come, and returns
    /// when every question is settled. `asked` is told of every message that asks.
    pub async fn serve(
        &self,
        mut questions: mpsc::Receiver<PendingApproval>,
        spot: &Spot,
        over: &CancellationToken,
        asked: impl Fn(MessageRef),
    ) {
        let mut asking = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                () = over.cancelled() => break,
                pending = questions.recv() => match pending {
                    Some(pending) => asking.push(self.ask(pending, spot, over, &asked)),
                    None => break,
                },
                Some(()) = asking.next(), if !asking.is_empty() => {}
            }
        }
        drop(questions);
        while asking.next().await.is_some() {}
    }

    async fn ask(
        &self,
        mut pending: PendingApproval,
        spot: &Spot,
        over: &CancellationToken,
        asked: &impl Fn(MessageRef),
    ) {
        let request = pending.request.clone();
        let words = wants_words(&request);
        let hint = words.as_ref().map(|(_, hint)| hint.as_str());
        let shown = self.chat.ask(&request, hint);
        // Nobody agrees to what they cannot read, or without the words that are wanted.
        let may_accept = shown.is_whole && words.is_none();
        let mut offered = Decision::ALL.to_vec();
        offered.retain(|it| request.offers(*it) && (may_accept || !it.is_yes()));
        let choices: Vec<Press> = offered.iter().copied().map(Press::Choose).collect();
        let mut content = Content::new(Kind::Question, shown.text).buttons(choices).job(spot.job);
        let outgoing = |content: Content| {
            Outgoing::new(spot.place.clone(), content).reply_to(spot.reply_to.clone())
        };
        let show = async {
            for text in shown.before {
                self.outbox.say(outgoing(Content::new(Kind::Question, text).job(spot.job))).await?;
            }
            self.outbox.say(outgoing(content.clone())).await
        };
        let chat = &spot.place.chat;
        let message = tokio::select! {
            biased;
            sent = show => match sent {
                Ok(message) => message.at(chat),
                Err(error) => {
                    let why = format!("the question could not be shown: {error}");
                    pending.answer(Reply::from(Decision::Decline).because(why));
                    return;
                }
            },
            // Whether it was shown is not known, and nobody needs to know any more.
            () = withdrawn(&mut pending, over) => return,
        };
        let (reply, answer) = oneshot::channel();
        let waiting = Waiting { reply, offered, words_for: words.map(|(id, _)| id) };
        self.open().insert(message.clone(), waiting);
        let listed = Listed { approvals: self, message: &message };
        asked(message.clone());
        let outcome = tokio::select! {
            biased;
            Ok(reply) = answer => answered(pending, reply),
            () = withdrawn(&mut pending, over) => "withdrawn: an answer is not waited for any more".to_owned(),
            () = sleep(self.patience) => {
                let why = format!("nobody answered within {}", elapsed(self.patience));
                answered(pending, Reply::from(Decision::Decline).because(why))
            }
        };
        drop(listed);
        content.text = self.chat.question(&request, Some(&outcome));
        content.buttons.clear();
        let edit = |turn: &Turn| self.outbox.edit(turn, message.clone(), content.clone());
        match self.outbox.insist(chat, Rank::First, edit).await {
            Ok(()) | Err(TransportError::Gone) => {}
            Err(error) => tracing::warn!(%error, "what became of a question was not shown"),
        }
    }
}

/// A question can be answered for as long as this lives.
struct Listed<'a, T: Transport> {
    approvals: &'a Approvals<T>,
    message: &'a MessageRef,
}

impl<T: Transport> Drop for Listed<'_, T> {
    fn drop(&mut self) {
        self.approvals.open().remove(self.message);
    }
}

async fn withdrawn(pending: &mut PendingApproval, over: &CancellationToken) {
    tokio::select! {
        () = pending.withdrawn() => {}
        () = over.cancelled() => {}
    }
}

fn answered(pending: PendingApproval, reply: Reply) -> String {
    let said = reply.to_string();
    if pending.answer(reply) { said } else { format!("{said}, but too late") }
}

/// The id of the one question that an agent wants answered in words, and how to do it.
fn wants_words(request: &ApprovalRequest) -> Option<(String, String)> {
    let Question::Questions(questions) = &request.question else { return None };
    let [question] = questions.as_slice() else { return None };
    let options: Vec<&str> = question.options.iter().map(|it| it.label.as_str()).collect();
    let hint = match options.as_slice() {
        [] => "reply to this message with the answer".to_owned(),
        options => format!("reply to this message: {}, or your own words", options.join(", ")),
    };
    Some((question.id.clone(), hint))
}
