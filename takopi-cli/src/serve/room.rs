//! The conversations, as browsers see them: the web's [`Transport`].
//!
//! - A browser gets a snapshot, and then every change in order. One that falls behind is [disconnected](super::watchers);
//!   it reconnects by itself and gets a new snapshot.
//! - The number of conversations, and the messages and bytes of each, are bounded. The oldest are removed
//!   first, but never one that is running or has just been opened. If all are running, new ones are opened up to
//!   [`MOST_BUSY`].
//! - An answer that is being written is published as it grows: at once, then a few times in a second, and of
//!   each version only what is new.
//! - What is sent to a conversation that was closed is dropped.
//! - The resume line at the end of a message belongs to the conversation and is sent with it.

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;
use takopi_bridge::present::one_line;
use takopi_bridge::transport::{
    Content, Kind, MessageId, MessageRef, Outgoing, Press, Streaming, Transport, TransportError,
};
use takopi_bridge::{JobId, Place};
use takopi_core::TakopiEvent;
use takopi_core::catalog::TranscriptEntry;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::choice::Choice;
use super::markdown::html;
use super::turn::{Change, Turn};
use super::watchers::{Changes, Watchers};

const MOST_CHATS: usize = 50;
/// The most conversations if none of them can be closed.
const MOST_BUSY: usize = 300;
const MOST_MESSAGES: usize = 200;
const MOST_BYTES: usize = 4 << 20;
/// The most characters of a title.
const TITLE: usize = 80;

/// A conversation.
#[derive(Debug, Serialize)]
struct Chat {
    id: String,
    title: String,
    /// The line that resumes its session elsewhere.
    resume: Option<String>,
    choice: Choice,
    messages: Vec<Message>,
    /// Each message of a user has a clone, as long as the bridge is not done with it.
    #[serde(skip)]
    pending: Arc<()>,
    /// Turns whose message was not sent yet.
    #[serde(skip)]
    early: Vec<(u64, Turn)>,
}

/// A message of the user, with text, or of the agent, with HTML or a turn.
#[derive(Debug, Default, Serialize)]
pub(super) struct Message {
    id: String,
    kind: &'static str,
    text: String,
    html: String,
    buttons: Vec<Button>,
    /// The number of the job it belongs to.
    job: Option<u64>,
    /// A note of the bridge, such as who cancelled it.
    note: Option<String>,
    turn: Option<Turn>,
    /// When it was first written, in milliseconds; not known for messages of a stored session.
    at: Option<i64>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Button {
    press: String,
    label: &'static str,
}

#[derive(Debug, Default)]
struct State {
    chats: Vec<Chat>,
    /// The number of the last message.
    last: u64,
}

/// All conversations, and the browsers that watch them. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Room {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    watchers: Watchers,
    directory: Option<PathBuf>,
}

/// What a browser receives.
#[derive(Debug)]
pub(super) struct Watch {
    /// Everything there is.
    pub(super) snapshot: Arc<str>,
    /// Every change after it.
    pub(super) changes: Changes,
}

/// A message of a user that was added to a conversation.
#[derive(Debug)]
pub(super) struct Added {
    pub(super) id: MessageId,
    /// The line that resumes the session of the conversation, if it is known.
    pub(super) resume_line: Option<String>,
    /// To be kept until the bridge is done with the message: the conversation is not closed for another one meanwhile.
    pub(super) pending: Arc<()>,
}

/// A stored session that is opened as a conversation.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) title: String,
    pub(super) resume_line: String,
    pub(super) messages: Vec<Message>,
}

impl Room {
    /// Without conversations; those that choose no directory run in this one.
    pub(super) fn new(directory: Option<PathBuf>) -> Self {
        let (state, watchers) = (Mutex::default(), Watchers::default());
        Self { shared: Arc::new(Shared { state, watchers, directory }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything there is, and what changes from now on. `closing` closes the connection of a browser that falls
    /// behind.
    pub(super) fn watch(&self, closing: CancellationToken) -> Watch {
        let state = self.state();
        let snapshot = json!({ "type": "snapshot", "chats": state.chats });
        Watch {
            snapshot: snapshot.to_string().into(),
            changes: self.shared.watchers.watch(closing),
        }
    }

    /// The number of browsers.
    pub(super) fn watchers(&self) -> usize {
        self.shared.watchers.count()
    }

    /// Starts a conversation and returns its id; `None` if there are too many that are running.
    pub(super) fn start(&self, title: &str, choice: Choice) -> Option<String> {
        self.add_chat(title, choice, None, Vec::new())
    }

    /// Opens the conversation of a stored session, unless it is open; returns its id.
    pub(super) fn open(&self, stored: Stored, choice: Choice) -> Option<String> {
        let Stored { title, resume_line, messages } = stored;
        let open = self
            .state()
            .chats
            .iter()
            .find(|chat| chat.resume.as_ref() == Some(&resume_line))
            .map(|it| it.id.clone());
        open.or_else(|| self.add_chat(&title, choice, Some(resume_line), messages))
    }

    fn add_chat(
        &self,
        title: &str,
        choice: Choice,
        resume: Option<String>,
        messages: Vec<Message>,
    ) -> Option<String> {
        let mut state = self.state();
        if state.chats.len() >= MOST_CHATS {
            match state.chats.iter().position(Chat::is_idle) {
                Some(idle) => {
                    let closed = state.chats.remove(idle);
                    self.publish(&json!({ "type": "closed", "chat": closed.id }));
                }
                None if state.chats.len() >= MOST_BUSY => return None,
                None => {}
            }
        }
        let title = one_line(title, TITLE);
        // Unique: a page that outlived an earlier server must not confuse it with another.
        let id = Uuid::new_v4().simple().to_string();
        let (shown, pending, early) = (Vec::new(), Arc::default(), Vec::new());
        let chat = Chat { id: id.clone(), title, resume, choice, messages: shown, pending, early };
        self.publish_chat(&chat);
        state.chats.push(chat);
        for message in messages {
            self.add(&mut state, &id, message);
        }
        Some(id)
    }

    /// Gives a conversation another title; false if there is no such conversation.
    pub(super) fn rename(&self, chat: &str, title: &str) -> bool {
        let mut state = self.state();
        let Some(chat) = state.chat(chat) else { return false };
        chat.title = one_line(title, TITLE);
        self.publish_chat(chat);
        true
    }

    /// Removes a conversation.
    pub(super) fn close(&self, chat: &str) {
        let mut state = self.state();
        state.chats.retain(|it| it.id != chat);
        self.publish(&json!({ "type": "closed", "chat": chat }));
    }

    /// How the runs of a conversation are to be run.
    pub(super) fn choice(&self, chat: &str) -> Choice {
        self.state().chat(chat).map(|chat| chat.choice.clone()).unwrap_or_default()
    }

    /// Adds a message of a user; `None` if there is no such conversation.
    pub(super) fn add_user_message(&self, chat: &str, text: &str) -> Option<Added> {
        let mut state = self.state();
        let message = Message { at: Some(now()), ..Message::of_user(text) };
        let message = self.add(&mut state, chat, message)?;
        let Chat { resume, pending, .. } = state.chat(chat)?;
        Some(Added { id: message.into(), resume_line: resume.clone(), pending: pending.clone() })
    }

    fn add(&self, state: &mut State, chat: &str, mut message: Message) -> Option<String> {
        let id = state.number().to_string();
        message.id.clone_from(&id);
        let chat = state.chat(chat)?;
        if let (Some(job), Some(turn)) = (message.job, message.turn.as_mut())
            && let Some(early) = chat.early.iter().position(|(early, _)| *early == job)
        {
            *turn = chat.early.swap_remove(early).1;
        }
        self.publish(&json!({ "type": "message", "chat": chat.id, "message": message }));
        chat.messages.push(message);
        while chat.messages.len() > MOST_MESSAGES || chat.bytes() > MOST_BYTES {
            let last = chat.messages.len() - 1;
            let over = chat.messages[..last].iter().position(|it| it.buttons.is_empty());
            let Some(over) = over else { break };
            let gone = chat.messages.remove(over);
            self.publish(&json!({ "type": "gone", "chat": chat.id, "message": gone.id }));
        }
        Some(id)
    }

    /// Updates the resume line of a conversation. Until its engine confirmed a session, that may not exist.
    fn update_resume(&self, chat: &mut Chat, content: &Content) {
        if let (Kind::Queued | Kind::Progress, Some(job)) = (content.kind, content.job)
            && chat.turn_of(job.number()).is_some_and(|turn| !turn.has_started())
        {
            return;
        }
        let line = content.resume_line.as_ref().map(|line| line.trim_matches('`').to_owned());
        if line.is_some() && line != chat.resume {
            chat.resume = line;
            self.publish_chat(chat);
        }
    }

    /// Publishes what was written of the answer of a job.
    fn publish_answer(&self, chat: &str, job: u64) {
        let mut state = self.state();
        let Some(chat) = state.chat(chat) else { return };
        let id = chat.message_of(job).map(|message| message.id.clone());
        let Some(grown) = chat.turn_of(job).and_then(Turn::grown) else { return };
        // Without a message the page gets all of it with the message.
        if let Some(id) = id {
            self.publish(&json!({
                "type": "answer", "chat": chat.id, "message": id, "from": grown.from, "blocks": grown.blocks,
            }));
        }
    }

    fn publish_chat(&self, chat: &Chat) {
        let Chat { id, title, resume, choice, .. } = chat;
        self.publish(&json!({
            "type": "chat", "id": id, "title": title, "resume": resume, "choice": choice,
        }));
    }

    fn publish(&self, change: &serde_json::Value) {
        self.shared.watchers.publish(&change.to_string().into());
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn chat(&mut self, id: &str) -> Option<&mut Chat> {
        self.chats.iter_mut().find(|chat| chat.id == id)
    }
}

impl Chat {
    /// Whether nothing in it runs, nor is about to.
    fn is_idle(&self) -> bool {
        // One without messages was begun just now, and gets its first one.
        let is_done = !self.messages.is_empty() && Arc::strong_count(&self.pending) == 1;
        is_done && self.messages.iter().all(|message| message.buttons.is_empty())
    }

    fn bytes(&self) -> usize {
        self.messages.iter().map(Message::bytes).sum()
    }

    /// The message that shows the turn of a job.
    fn message_of(&mut self, job: u64) -> Option<&mut Message> {
        self.messages
            .iter_mut()
            .rev()
            .find(|message| message.job == Some(job) && message.turn.is_some())
    }

    /// The turn of a job, which may be without a message yet.
    fn turn_of(&mut self, job: u64) -> Option<&mut Turn> {
        if self.message_of(job).is_some() {
            return self.message_of(job).and_then(|message| message.turn.as_mut());
        }
        if !self.early.iter().any(|(early, _)| *early == job) {
            self.early.push((job, Turn::default()));
        }
        self.early.iter_mut().find(|(early, _)| *early == job).map(|(_, turn)| turn)
    }
}

const USER: &str = "user";

impl Message {
    /// A message of the user.
    pub(super) fn of_user(text: &str) -> Self {
        Self { kind: USER, text: text.to_owned(), ..Self::default() }
    }

    /// A message of the bridge: of a job it is a turn, else its text without the resume line.
    fn of_bridge(content: &Content) -> Self {
        let is_turn = matches!(content.kind, Kind::Queued | Kind::Progress | Kind::Final);
        let mut message =
            Self { at: Some(now()), turn: is_turn.then(Turn::default), ..Self::default() };
        message.update(content);
        message
    }

    /// Takes what a content has; returns whether that changed anything.
    fn update(&mut self, content: &Content) -> bool {
        let button = |press: &Press| Button { press: press.to_string(), label: press.label() };
        let buttons: Vec<Button> = content.buttons.iter().map(button).collect();
        let kind = content.kind.as_str();
        let line = content.resume_line.as_deref().unwrap_or_default();
        if matches!(content.kind, Kind::Question | Kind::Notice) {
            self.turn = None;
        }
        let shown = match self.turn {
            Some(_) => String::new(),
            None => html(content.text.strip_suffix(line).unwrap_or(&content.text)),
        };
        // A note that is over does not stay.
        let note = content.note.clone();
        if (self.kind, &self.note, &self.buttons, &self.html) == (kind, &note, &buttons, &shown) {
            return false;
        }
        if content.kind == Kind::Final
            && let Some(turn) = &mut self.turn
        {
            turn.end_without_run();
        }
        let job = content.job.map(JobId::number);
        (self.kind, self.note, self.buttons, self.html, self.job) =
            (kind, note, buttons, shown, job);
        true
    }

    /// As many of the messages of a stored session as a conversation keeps. They are given with the newest first, and
    /// the others are not asked for.
    pub(super) fn kept(newest: impl Iterator<Item = Self>) -> Vec<Self> {
        let mut bytes = 0;
        let mut kept: Vec<Self> = newest
            .take(MOST_MESSAGES)
            .enumerate()
            .take_while(|(at, message)| {
                bytes += message.bytes();
                *at == 0 || bytes <= MOST_BYTES
            })
            .map(|(_, message)| message)
            .collect();
        kept.reverse();
        kept
    }

    /// A turn of the agent in a stored session.
    pub(super) fn of_agent(entries: &[TranscriptEntry]) -> Self {
        Self { kind: "agent", turn: Some(Turn::stored(entries)), ..Self::default() }
    }

    fn bytes(&self) -> usize {
        self.text.len() + self.html.len() + self.turn.as_ref().map_or(0, Turn::bytes)
    }
}

fn now() -> i64 {
    Timestamp::now().as_millisecond()
}

impl Transport for Room {
    async fn send(&self, message: Outgoing) -> Result<MessageId, TransportError> {
        let Outgoing { place, content, .. } = message;
        let mut state = self.state();
        let id = self.add(&mut state, &place.chat, Message::of_bridge(&content));
        if let Some(chat) = state.chat(&place.chat) {
            self.update_resume(chat, &content);
        }
        // A conversation that was closed: nobody reads it.
        Ok(id.unwrap_or_else(|| state.number().to_string()).into())
    }

    async fn edit(&self, place: MessageRef, content: Content) -> Result<(), TransportError> {
        let mut state = self.state();
        let Some(chat) = state.chat(&place.chat) else { return Ok(()) };
        self.update_resume(chat, &content);
        let shown = chat.messages.iter_mut().find(|it| it.id == place.message.as_str());
        let shown = shown.ok_or(TransportError::Gone)?;
        if shown.update(&content) {
            self.publish(&json!({ "type": "message", "chat": place.chat, "message": shown }));
        }
        Ok(())
    }

    async fn delete(&self, place: MessageRef) -> Result<(), TransportError> {
        let mut state = self.state();
        if let Some(chat) = state.chat(&place.chat) {
            chat.messages.retain(|it| it.id != place.message.as_str());
            self.publish(&json!({
                "type": "gone", "chat": place.chat, "message": place.message.as_str(),
            }));
        }
        Ok(())
    }

    fn streaming(&self) -> Streaming {
        Streaming::Events
    }

    fn event(&self, place: &Place, job: JobId, event: &TakopiEvent) {
        let job = job.number();
        let mut state = self.state();
        let Some(chat) = state.chat(&place.chat) else { return };
        let chosen = chat.choice.cwd.clone().map(PathBuf::from);
        let directory = chosen.as_deref().or(self.shared.directory.as_deref());
        let Some(turn) = chat.turn_of(job) else { return };
        let change = turn.apply(event, directory, now());
        let due = if change == Change::Answer { turn.schedule() } else { None };
        match (change, chat.message_of(job)) {
            (Change::Nothing | Change::Answer, _) | (_, None) => {}
            (Change::Step(at), Some(message)) => {
                let Some(turn) = &message.turn else { return };
                self.publish(&json!({
                    "type": "step", "chat": place.chat, "message": message.id,
                    "step": turn.step(at), "omitted": turn.omitted,
                }));
            }
            (Change::Everything, Some(message)) => {
                self.publish(&json!({ "type": "message", "chat": place.chat, "message": message }));
            }
        }
        drop(state);
        match due {
            Some(due) if due > Instant::now() => {
                let (room, chat) = (self.clone(), place.chat.clone());
                tokio::spawn(async move {
                    sleep_until(due).await;
                    room.publish_answer(&chat, job);
                });
            }
            Some(_) => self.publish_answer(&place.chat, job),
            None => {}
        }
    }
}
