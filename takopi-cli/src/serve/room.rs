//! The conversations, as browsers see them: the web's [`Transport`].
//!
//! - Whoever watches gets everything there is, and then every change in order. A browser that falls
//!   behind is dropped; it comes back by itself and gets everything again.
//! - Bounded: so many conversations, so many messages and bytes in each. The oldest go first, and
//!   none that something is still going on in.
//! - The resume line at the end of a message is the conversation's, and told with it.

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
/// How many changes a browser may be behind.
const BEHIND: usize = 256;
/// The letters of a conversation's title.
const TITLE: usize = 80;

/// A conversation.
#[derive(Debug, Serialize)]
pub(super) struct Chat {
    id: String,
    title: String,
    /// The line to go on with it elsewhere.
    resume: Option<String>,
    messages: Vec<Message>,
}

/// A message of the user, which has a text, or of the agent, which has HTML.
#[derive(Debug, Default, Serialize)]
pub(super) struct Message {
    id: String,
    kind: &'static str,
    text: String,
    html: String,
    buttons: Vec<Button>,
    /// The number of the job it belongs to.
    job: Option<u64>,
    /// When it was last written, in milliseconds; not known of what was said in an earlier session.
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

/// All conversations, and those who watch them.
#[derive(Debug)]
pub(super) struct Room {
    state: Mutex<State>,
    news: broadcast::Sender<Arc<str>>,
}

impl Default for Room {
    fn default() -> Self {
        Self { state: Mutex::default(), news: broadcast::Sender::new(BEHIND) }
    }
}

impl Room {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All there is, and what comes next.
    pub(super) fn watch(&self) -> (Arc<str>, broadcast::Receiver<Arc<str>>) {
        let state = self.state();
        let all = json!({ "type": "snapshot", "chats": state.chats });
        (all.to_string().into(), self.news.subscribe())
    }

    /// How many watch.
    pub(super) fn watchers(&self) -> usize {
        self.news.receiver_count()
    }

    /// Begins a conversation, or opens that of an earlier session, once; returns its id.
    pub(super) fn open(&self, title: &str, line: Option<&str>, said: Vec<Message>) -> String {
        let mut state = self.state();
        let resume = line.map(str::to_owned);
        let is_open = |chat: &&Chat| resume.is_some() && chat.resume == resume;
        if let Some(open) = state.chats.iter().find(is_open) {
            return open.id.clone();
        }
        let title = one_line(title, TITLE);
        // Of its own: a page that was open before the server was must not take it for another.
        let id = Uuid::new_v4().simple().to_string();
        let chat = Chat { id: id.clone(), title, resume, messages: Vec::new() };
        self.tell_chat(&chat);
        state.chats.push(chat);
        for message in said {
            self.add(&mut state, &id, message);
        }
        if state.chats.len() > MOST_CHATS
            && let Some(idle) = state.chats.iter().position(Chat::is_idle)
        {
            let closed = state.chats.remove(idle);
            self.tell(&json!({ "type": "closed", "chat": closed.id }));
        }
        id
    }

    /// Adds what a user said; returns the message, and the line to go on with the conversation if
    /// that is known. `None` if there is no such conversation.
    pub(super) fn heard(&self, chat: &str, text: &str) -> Option<(MessageId, Option<String>)> {
        let mut state = self.state();
        let message = Message { at: Some(now()), ..Message::of_user(text) };
        let message = self.add(&mut state, chat, message)?;
        Some((message.into(), state.chat(chat)?.resume.clone()))
    }

    fn add(&self, state: &mut State, chat: &str, mut message: Message) -> Option<String> {
        let id = state.number().to_string();
        message.id.clone_from(&id);
        let chat = state.chat(chat)?;
        self.tell(&json!({ "type": "message", "chat": chat.id, "message": message }));
        chat.messages.push(message);
        while chat.messages.len() > MOST_MESSAGES || chat.bytes() > MOST_BYTES {
            let last = chat.messages.len() - 1;
            let over = chat.messages[..last].iter().position(|it| it.buttons.is_empty());
            let Some(over) = over else { break };
            let gone = chat.messages.remove(over);
            self.tell(&json!({ "type": "gone", "chat": chat.id, "message": gone.id }));
        }
        Some(id)
    }

    /// The resume line of a conversation may be new.
    fn learn(&self, chat: &mut Chat, content: &Content) {
        let line = content.resume_line.as_ref().map(|line| line.trim_matches('`').to_owned());
        if line.is_some() && line != chat.resume {
            chat.resume = line;
            self.tell_chat(chat);
        }
    }

    fn tell_chat(&self, chat: &Chat) {
        let Chat { id, title, resume, .. } = chat;
        self.tell(&json!({ "type": "chat", "id": id, "title": title, "resume": resume }));
    }

    fn tell(&self, news: &serde_json::Value) {
        // Nobody may be watching.
        let _ = self.news.send(news.to_string().into());
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
    /// What a user says, or said.
    pub(super) fn of_user(text: &str) -> Self {
        Self { kind: "user", text: text.to_owned(), ..Self::default() }
    }

    /// What the kit has to say, without the resume line.
    fn of_kit(content: &Content) -> Self {
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

    /// What an agent said in an earlier session.
    pub(super) fn of_agent(text: &str) -> Self {
        Self { kind: "said", html: html(text), ..Self::default() }
    }
}

fn now() -> i64 {
    Timestamp::now().as_millisecond()
}

impl Transport for Room {
    async fn send(&self, message: Outgoing) -> Result<MessageId, TransportError> {
        let Outgoing { place, content, .. } = message;
        let mut state = self.state();
        let id = self.add(&mut state, &place.chat, Message::of_kit(&content));
        if let Some(chat) = state.chat(&place.chat) {
            self.learn(chat, &content);
        }
        id.map(MessageId::from).ok_or_else(|| TransportError::failed("the conversation was closed"))
    }

    async fn edit(&self, place: MessageRef, content: Content) -> Result<(), TransportError> {
        let mut state = self.state();
        let chat = state.chat(&place.chat).ok_or(TransportError::Gone)?;
        self.learn(chat, &content);
        let shown = chat.messages.iter_mut().find(|it| it.id == place.message.as_str());
        let shown = shown.ok_or(TransportError::Gone)?;
        *shown = Message { id: std::mem::take(&mut shown.id), ..Message::of_kit(&content) };
        self.tell(&json!({ "type": "message", "chat": place.chat, "message": shown }));
        Ok(())
    }

    async fn delete(&self, place: MessageRef) -> Result<(), TransportError> {
        let mut state = self.state();
        if let Some(chat) = state.chat(&place.chat) {
            chat.messages.retain(|it| it.id != place.message.as_str());
            self.tell(&json!({
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

    fn read(news: &str) -> Value {
        serde_json::from_str(news).unwrap()
    }

    fn snapshot(room: &Room) -> Value {
        read(&room.watch().0)
    }

    #[tokio::test]
    async fn whoever_watches_gets_all_there_is_and_then_every_change_in_order() {
        let room = Room::default();
        let chat = room.open("say hi\nplease", None, Vec::new());
        room.heard(&chat, "say hi\nplease").unwrap();
        let (all, mut news) = room.watch();
        let all = read(&all);
        assert_eq!(all["chats"][0]["title"], "say hi please");
        assert_eq!(all["chats"][0]["messages"][0]["text"], "say hi\nplease");

        let message = send(&room, &chat, "working", true).await;
        room.edit(message.clone(), content("**hi**", false)).await.unwrap();
        room.delete(message.clone()).await.unwrap();
        let kinds = ["message", "message", "gone"].map(|kind| {
            let told = read(&news.try_recv().unwrap());
            assert_eq!((&told["type"], &told["chat"]), (&kind.into(), &chat.clone().into()));
            told["message"]["html"].as_str().unwrap_or_default().to_owned()
        });
        assert_eq!(kinds, ["<p>working</p>\n", "<p><strong>hi</strong></p>\n", ""]);
        assert!(matches!(
            room.edit(message, content("late", false)).await,
            Err(TransportError::Gone)
        ));
        assert_eq!(news.try_recv(), Err(TryRecvError::Empty));
    }

    #[tokio::test]
    async fn the_resume_line_is_the_conversations_and_not_the_messages() {
        let room = Room::default();
        let chat = room.open("hello", None, Vec::new());
        let line = "`codex resume 0199`";
        let mut said = content(&format!("done\n\n{line}"), false);
        said.resume_line = Some(line.to_owned());
        room.send(Outgoing::new(Place::new(&chat), said)).await.unwrap();
        let all = snapshot(&room);
        let shown = &all["chats"][0];
        assert_eq!(shown["resume"], "codex resume 0199");
        assert_eq!(shown["messages"][0]["html"], "<p>done</p>\n");
        assert_eq!(room.heard(&chat, "go on").unwrap().1.as_deref(), Some("codex resume 0199"));
        // And the session's conversation is open already.
        assert_eq!(room.open("again", Some("codex resume 0199"), Vec::new()), chat);
        assert_ne!(room.open("another", Some("codex resume 0200"), Vec::new()), chat);
    }

    #[tokio::test]
    async fn a_watcher_that_is_too_far_behind_is_told_so_and_others_are_not_held_up() {
        let room = Room::default();
        let chat = room.open("hello", None, Vec::new());
        let (_, mut slow) = room.watch();
        for _ in 0..=BEHIND {
            send(&room, &chat, "working", true).await;
        }
        assert!(matches!(slow.try_recv(), Err(TryRecvError::Lagged(_))));
    }

    #[tokio::test]
    async fn the_oldest_messages_go_first_but_none_that_goes_on() {
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
    async fn the_oldest_conversation_closes_but_none_that_something_goes_on_in() {
        let room = Room::default();
        let busy = room.open("busy", None, Vec::new());
        send(&room, &busy, "running", true).await;
        let idle = room.open("idle", None, Vec::new());
        for _ in 2..=MOST_CHATS {
            room.open("more", None, Vec::new());
        }
        assert!(room.heard(&busy, "hello?").is_some());
        assert!(room.heard(&idle, "hello?").is_none());
    }
}
