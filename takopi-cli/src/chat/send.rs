//! Messages on their way to the bridge.
//!
//! One that names a project may wait for git, which has to write the files of a branch. Promises:
//! - nothing else waits meanwhile, but the later messages of its conversation;
//! - it can be cancelled: git works on, since half a worktree is of no use, but nothing is sent;
//! - if it cannot begin its conversation, the messages behind it are not sent either: they would run elsewhere.

use std::collections::{BTreeMap, VecDeque};

use takopi_bridge::present::{Line, Style, one_line};
use takopi_bridge::{Incoming, Place, RunContext};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{Chat, Ended, Outcome, TITLE};
use crate::projects;

/// A message of the user.
#[derive(Debug)]
pub(super) struct Message {
    conversation: usize,
    number: u64,
    text: String,
}

/// The text for the bridge, and where it runs.
type Found = Result<Option<(String, RunContext)>, String>;

/// The messages that wait for git.
#[derive(Debug, Default)]
pub(super) struct Placing {
    git: JoinSet<(Message, Found)>,
    waiting: BTreeMap<usize, Waiting>,
}

/// What waits in a conversation.
#[derive(Debug, Default)]
struct Waiting {
    /// What git works for, unless that was cancelled.
    first: Option<String>,
    behind: VecDeque<Message>,
}

impl Placing {
    /// The next message that need not wait any more. Never resolves while none waits. Cancel-safe.
    pub(super) async fn next(&mut self) -> (Message, Found) {
        loop {
            match self.git.join_next().await {
                Some(Ok(placed)) => return placed,
                // Its panic is on standard error.
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// The messages that wait, with their conversations.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (usize, String)> {
        self.waiting.iter().flat_map(|(&conversation, waiting)| {
            let behind = waiting.behind.iter().map(|message| message.text.as_str());
            let texts = waiting.first.as_deref().into_iter().chain(behind);
            texts.map(move |text| (conversation, one_line(text, TITLE)))
        })
    }

    /// How many messages wait; one that was cancelled does so until git is done.
    fn count(&self) -> usize {
        self.waiting.values().map(|waiting| 1 + waiting.behind.len()).sum()
    }
}

impl Chat {
    /// How many messages have no answer yet.
    pub(super) fn unanswered(&self) -> usize {
        self.prompts.len() + self.placing.count()
    }

    /// Handles a message.
    pub(super) fn message(&mut self, text: &str, ended: &mpsc::Sender<Ended>) {
        let conversation = self.current;
        if conversation > self.titles.len() {
            self.titles.push(one_line(text, TITLE));
        }
        let prompt = Line::new()
            .with(Style::Good, format!("[{conversation}] › "))
            .with(Style::Strong, one_line(text, 1000));
        if self.view.is_drawn() {
            self.view.print_lines(&[prompt]);
        }
        self.messages += 1;
        let message = Message { conversation, number: self.messages, text: text.to_owned() };
        match self.placing.waiting.get_mut(&conversation) {
            Some(waiting) => waiting.behind.push_back(message),
            None => self.place_message(message, ended),
        }
    }

    /// Sends a message, at once or when git has made the place it names.
    fn place_message(&mut self, message: Message, ended: &mpsc::Sender<Ended>) {
        // With a space it is a message whatever it begins with. Without projects names can only be those of engines.
        let named = if message.text.starts_with(' ') || self.projects.is_empty() {
            Ok(false)
        } else {
            projects::names_project(&message.text, &self.projects)
        };
        if named != Ok(true) {
            self.send(&message, named.map(|_| None), ended);
            return;
        }
        let waiting = Waiting { first: Some(message.text.clone()), ..Waiting::default() };
        self.placing.waiting.insert(message.conversation, waiting);
        let (text, projects) = (message.text.clone(), self.projects.clone());
        self.placing.git.spawn(async move {
            let placed = tokio::task::spawn_blocking(move || projects::place(&text, &projects));
            (message, placed.await.unwrap_or_else(|error| Err(error.to_string())))
        });
    }

    /// Sends a message that waited for git, and those behind it.
    pub(super) fn placed(
        &mut self,
        (message, found): (Message, Found),
        ended: &mpsc::Sender<Ended>,
    ) {
        let conversation = message.conversation;
        let Some(mut waiting) = self.placing.waiting.remove(&conversation) else { return };
        let place = Place::new(conversation.to_string());
        if waiting.first.is_some()
            && !self.send(&message, found, ended)
            && self.bridge.context_in(&place).is_none()
        {
            for Message { text, .. } in waiting.behind {
                let text = one_line(&text, TITLE);
                self.error(&format!("not sent, as the message before it was not: {text}"));
            }
            return;
        }
        while let Some(next) = waiting.behind.pop_front() {
            self.place_message(next, ended);
            if let Some(again) = self.placing.waiting.get_mut(&conversation) {
                again.behind = waiting.behind;
                return;
            }
        }
    }

    /// Cancels all messages that wait for git: the chat is to exit.
    pub(super) fn cancel_all_placing(&mut self) {
        let conversations: Vec<usize> = self.placing.waiting.keys().copied().collect();
        for conversation in &conversations {
            self.cancel_placing(*conversation);
        }
        if !conversations.is_empty() {
            self.note("git still works; Ctrl-C exits at once");
        }
    }

    /// Cancels the messages of a conversation that wait for git, and reports them; whether there were any.
    pub(super) fn cancel_placing(&mut self, conversation: usize) -> bool {
        let Some(waiting) = self.placing.waiting.get_mut(&conversation) else { return false };
        let behind = waiting.behind.drain(..).map(|message| message.text);
        let cancelled: Vec<String> = waiting.first.take().into_iter().chain(behind).collect();
        for text in &cancelled {
            self.note(&format!("cancelled while it waited for git: {}", one_line(text, TITLE)));
        }
        if !cancelled.is_empty() {
            self.result = Outcome::Failed;
        }
        !cancelled.is_empty()
    }

    /// Whether the bridge took it; else it is reported why not.
    fn send(&mut self, message: &Message, found: Found, ended: &mpsc::Sender<Ended>) -> bool {
        let Message { conversation, number, text } = message;
        let (conversation, place) = (*conversation, Place::new(conversation.to_string()));
        let (text, context) = match found {
            Ok(Some((text, context))) => (text, Some(context)),
            Ok(None) => (text.clone(), None),
            Err(error) => {
                self.result = Outcome::Failed;
                self.error(&error);
                return false;
            }
        };
        let title = one_line(&text, TITLE);
        let mut incoming = Incoming::new(place, number.to_string(), text).by("you");
        // It would be the answer to any question of the conversation, and only one is shown.
        if let Some((shown, _)) = self.view.requests.of(&incoming.place.chat) {
            incoming = incoming.may_answer(shown.message.clone());
        }
        incoming.context = context;
        // The bridge reports why it refuses a message.
        let Ok(job) = self.bridge.receive(incoming) else {
            self.result = Outcome::Failed;
            return false;
        };
        // An answer to a question belongs to the job that asked.
        self.prompts.entry(job.id).or_insert((conversation, title));
        let ended = ended.clone();
        tokio::spawn(async move {
            let report = job.report().await;
            ended.send(Ended { conversation, report }).await
        });
        true
    }
}
