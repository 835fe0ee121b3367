//! The conversations, as browsers see them: the web's [`Transport`].
//!
//! - A browser gets a snapshot, and then every change in order. One that falls behind is disconnected; it
//!   reconnects by itself and gets a new snapshot.
//! - The number of conversations, and the messages and bytes of each, are bounded. The oldest are removed
//!   first, but never one that is still running.
//! - The resume line at the end of a message belongs to the conversation and is sent with it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;
use takopi_bridge::JobId;
use takopi_bridge::present::one_line;
use takopi_bridge::transport::{
    Content, MessageId, MessageRef, Outgoing, Press, Transport, TransportError,
};
use tokio::sync::broadcast;
use uuid::Uuid;

use super::markdown::html;

const MOST_CHATS: usize = 50;
const MOST_MESSAGES: usize = 200;
const MOST_BYTES: usize = 1 << 20;
/// The most changes that a browser may be behind.
const BEHIND: usize = 256;
/// The most characters of a title.
const TITLE: usize = 80;

/// A conversation.
#[derive(Debug, Serialize)]
pub(super) struct Chat {
    id: String,
    title: String,
    /// The line that resumes its session elsewhere.
    resume: Option<String>,
    messages: Vec<Message>,
}

/// A message of the user, with text, or of the agent, with HTML.
#[derive(Debug, Default, Serialize)]
pub(super) struct Message {
    id: String,
    kind: &'static str,
    text: String,
    html: String,
    buttons: Vec<Button>,
    /// The number of the job it belongs to.
    job: Option<u64>,
    /// When it was last written, in milliseconds; not known for messages of a stored session.
    at: Option<i64>,
}

#[derive(Debug, Serialize)]
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

/// All conversations, and the browsers that watch them.
#[derive(Debug)]
pub(super) struct Room {
    state: Mutex<State>,
    changes: broadcast::Sender<Arc<str>>,
}

/// What a browser receives.
#[derive(Debug)]
pub(super) struct Watch {
    /// Everything there is.
    pub(super) snapshot: Arc<str>,
    /// Every change after it.
    pub(super) changes: broadcast::Receiver<Arc<str>>,
}

/// A message of a user that was added to a conversation.
#[derive(Debug)]
pub(super) struct Added {
    pub(super) id: MessageId,
    /// The line that resumes the session of the conversation, if it is known.
    pub(super) resume_line: Option<String>,
}

impl Default for Room {
    fn default() -> Self {
        Self { state: Mutex::default(), changes: broadcast::Sender::new(BEHIND) }
    }
}

impl Room {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything there is, and what changes from now on.
    pub(super) fn watch(&self) -> Watch {
        let state = self.state();
        let snapshot = json!({ "type": "snapshot", "chats": state.chats });
        Watch { snapshot: snapshot.to_string().into(), changes: self.changes.subscribe() }
    }

    /// The number of browsers.
    pub(super) fn watchers(&self) -> usize {
        self.changes.receiver_count()
    }

    /// Starts a conversation, or opens that of a stored session unless it is open; returns its id.
    pub(super) fn open(&self, title: &str, line: Option<&str>, messages: Vec<Message>) -> String {
        let mut state = self.state();
        let resume = line.map(str::to_owned);
        let is_open = |chat: &&Chat| resume.is_some() && chat.resume == resume;
        if let Some(open) = state.chats.iter().find(is_open) {
            return open.id.clone();
        }
        let title = one_line(title, TITLE);
        // Unique: a page that outlived an earlier server must not confuse it with another.
        let id = Uuid::new_v4().simple().to_string();
        let chat = Chat { id: id.clone(), title, resume, messages: Vec::new() };
        self.publish_chat(&chat);
        state.chats.push(chat);
        for message in messages {
            self.add(&mut state, &id, message);
        }
        if state.chats.len() > MOST_CHATS
            && let Some(idle) = state.chats.iter().position(Chat::is_idle)
        {
            let closed = state.chats.remove(idle);
            self.publish(&json!({ "type": "closed", "chat": closed.id }));
        }
        id
    }

    /// Adds a message of a user; `None` if there is no such conversation.
    pub(super) fn add_user_message(&self, chat: &str, text: &str) -> Option<Added> {
        let mut state = self.state();
        let message = Message { at: Some(now()), ..Message::of_user(text) };
        let message = self.add(&mut state, chat, message)?;
        Some(Added { id: message.into(), resume_line: state.chat(chat)?.resume.clone() })
    }

    fn add(&self, state: &mut State, chat: &str, mut message: Message) -> Option<String> {
        let id = state.number().to_string();
        message.id.clone_from(&id);
        let chat = state.chat(chat)?;
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

    /// Updates the resume line of a conversation.
    fn update_resume(&self, chat: &mut Chat, content: &Content) {
        let line = content.resume_line.as_ref().map(|line| line.trim_matches('`').to_owned());
        if line.is_some() && line != chat.resume {
            chat.resume = line;
            self.publish_chat(chat);
        }
    }

    fn publish_chat(&self, chat: &Chat) {
        let Chat { id, title, resume, .. } = chat;
        self.publish(&json!({ "type": "chat", "id": id, "title": title, "resume": resume }));
    }

    fn publish(&self, change: &serde_json::Value) {
        // Fails if no browser is connected.
        let _ = self.changes.send(change.to_string().into());
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
    fn is_idle(&self) -> bool {
        self.messages.iter().all(|message| message.buttons.is_empty())
    }

    fn bytes(&self) -> usize {
        self.messages.iter().map(|message| message.text.len() + message.html.len()).sum()
    }
}

impl Message {
    /// A message of the user.
    pub(super) fn of_user(text: &str) -> Self {
        Self { kind: "user", text: text.to_owned(), ..Self::default() }
    }

    /// A message of the bridge, without the resume line.
    fn of_bridge(content: &Content) -> Self {
        let line = content.resume_line.as_deref().unwrap_or_default();
        let text = content.text.strip_suffix(line).unwrap_or(&content.text);
        let button = |press: &Press| Button { press: press.to_string(), label: press.label() };
        Self {
            kind: content.kind.as_str(),
            html: html(text),
            buttons: content.buttons.iter().map(button).collect(),
            job: content.job.map(JobId::number),
            at: Some(now()),
            ..Self::default()
        }
    }

    /// A message of the agent in a stored session.
    pub(super) fn of_agent(text: &str) -> Self {
        Self { kind: "agent", html: html(text), ..Self::default() }
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
        id.map(MessageId::from).ok_or_else(|| TransportError::failed("the conversation was closed"))
    }

    async fn edit(&self, place: MessageRef, content: Content) -> Result<(), TransportError> {
        let mut state = self.state();
        let chat = state.chat(&place.chat).ok_or(TransportError::Gone)?;
        self.update_resume(chat, &content);
        let shown = chat.messages.iter_mut().find(|it| it.id == place.message.as_str());
        let shown = shown.ok_or(TransportError::Gone)?;
        *shown = Message { id: std::mem::take(&mut shown.id), ..Message::of_bridge(&content) };
        self.publish(&json!({ "type": "message", "chat": place.chat, "message": shown }));
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
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use takopi_bridge::Place;
    use takopi_bridge::transport::Kind;
    use tokio::sync::broadcast::error::TryRecvError;

    use super::*;

    fn content(text: &str, live: bool) -> Content {
        let content = Content::new(if live { Kind::Progress } else { Kind::Final }, text);
        if live { content.buttons([Press::Cancel]) } else { content }
    }

    async fn send(room: &Room, chat: &str, text: &str, live: bool) -> MessageRef {
        let message = Outgoing::new(Place::new(chat), content(text, live));
        room.send(message).await.unwrap().at(chat)
    }

    fn read(change: &str) -> Value {
        serde_json::from_str(change).unwrap()
    }

    fn snapshot(room: &Room) -> Value {
        read(&room.watch().snapshot)
    }

    #[tokio::test]
    async fn a_browser_gets_a_snapshot_and_then_every_change_in_order() {
        let room = Room::default();
        let chat = room.open("say hi\nplease", None, Vec::new());
        room.add_user_message(&chat, "say hi\nplease").unwrap();
        let Watch { snapshot, mut changes } = room.watch();
        let all = read(&snapshot);
        assert_eq!(all["chats"][0]["title"], "say hi please");
        assert_eq!(all["chats"][0]["messages"][0]["text"], "say hi\nplease");

        let message = send(&room, &chat, "working", true).await;
        room.edit(message.clone(), content("**hi**", false)).await.unwrap();
        room.delete(message.clone()).await.unwrap();
        let kinds = ["message", "message", "gone"].map(|kind| {
            let change = read(&changes.try_recv().unwrap());
            assert_eq!((&change["type"], &change["chat"]), (&kind.into(), &chat.clone().into()));
            change["message"]["html"].as_str().unwrap_or_default().to_owned()
        });
        assert_eq!(kinds, ["<p>working</p>\n", "<p><strong>hi</strong></p>\n", ""]);
        assert!(matches!(
            room.edit(message, content("late", false)).await,
            Err(TransportError::Gone)
        ));
        assert_eq!(changes.try_recv(), Err(TryRecvError::Empty));
    }

    #[tokio::test]
    async fn the_resume_line_is_shown_with_the_conversation_and_not_in_the_message() {
        let room = Room::default();
        let chat = room.open("hello", None, Vec::new());
        let line = "`codex resume 0199`";
        let mut last = content(&format!("done\n\n{line}"), false);
        last.resume_line = Some(line.to_owned());
        room.send(Outgoing::new(Place::new(&chat), last)).await.unwrap();
        let all = snapshot(&room);
        let shown = &all["chats"][0];
        assert_eq!(shown["resume"], "codex resume 0199");
        assert_eq!(shown["messages"][0]["html"], "<p>done</p>\n");
        assert_eq!(
            room.add_user_message(&chat, "go on").unwrap().resume_line.as_deref(),
            Some("codex resume 0199")
        );
        // The conversation of that session is open already.
        assert_eq!(room.open("again", Some("codex resume 0199"), Vec::new()), chat);
        assert_ne!(room.open("another", Some("codex resume 0200"), Vec::new()), chat);
    }

    #[tokio::test]
    async fn a_browser_that_is_too_far_behind_is_disconnected_and_delays_no_other() {
        let room = Room::default();
        let chat = room.open("hello", None, Vec::new());
        let mut slow = room.watch().changes;
        for _ in 0..=BEHIND {
            send(&room, &chat, "working", true).await;
        }
        assert!(matches!(slow.try_recv(), Err(TryRecvError::Lagged(_))));
    }

    #[tokio::test]
    async fn the_oldest_messages_are_removed_first_but_none_that_is_running() {
        let room = Room::default();
        let chat = room.open("hello", None, Vec::new());
        let running = send(&room, &chat, "running", true).await;
        for number in 0..MOST_MESSAGES {
            send(&room, &chat, &format!("done {number}"), false).await;
        }
        let all = snapshot(&room);
        let shown = all["chats"][0]["messages"].as_array().unwrap();
        assert_eq!(shown.len(), MOST_MESSAGES);
        assert_eq!(shown[0]["id"], running.message.as_str());
        assert_eq!(shown[1]["html"], "<p>done 1</p>\n");

        let long = "x".repeat(MOST_BYTES);
        send(&room, &chat, &long, false).await;
        let all = snapshot(&room);
        assert_eq!(all["chats"][0]["messages"].as_array().unwrap().len(), 2);
    }

    #[tokio::test]
    async fn the_oldest_idle_conversation_is_closed_first() {
        let room = Room::default();
        let busy = room.open("busy", None, Vec::new());
        send(&room, &busy, "running", true).await;
        let idle = room.open("idle", None, Vec::new());
        for _ in 2..=MOST_CHATS {
            room.open("more", None, Vec::new());
        }
        assert!(room.add_user_message(&busy, "hello?").is_some());
        assert!(room.add_user_message(&idle, "hello?").is_none());
    }
}
