//! A fake of Telegram's Bot API on loopback.
//!
//! It behaves as the documented service does: updates are delivered by long polling until an offset confirms
//! them, and their numbers may begin anew anywhere; a text has at most 4,096 UTF-16 units, and its entities must lie within it; button data has at
//! most 64 bytes; an edit that changes nothing, or of a message that does not exist, is an error; two pollers
//! are a conflict; another token is unauthorized. Every call is recorded. [`FakeTelegram::fail`] makes calls
//! fail: before the service acts, or behind it, when only the response is lost.
//!
//! The server lives on a thread of its own until the value is dropped.

mod api;
mod check;
mod state;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::routing::any;
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};

use state::State;
pub use state::{Call, Shown};

/// The token of the fake's bot.
pub const TOKEN: &str = "4242:fake-token-AAF_do-not-print-me";
/// The id of the bot.
pub const BOT: i64 = 4242;
/// The name of the bot, without `@`.
pub const BOT_NAME: &str = "takopi_test_bot";

/// How long a test waits for something to happen, however slow the machine.
const PATIENCE: Duration = crate::model::PATIENCE;

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// 429 with this `retry_after`, in seconds.
    TooManyRequests(u64),
    /// 502, with a page that is not JSON.
    BadGateway,
    /// The service acts, and responds with 500 in JSON.
    ErrorBehind,
    /// 401: the token is not valid any more.
    Unauthorized,
    /// 302 to a path of the same server that repeats the one of the call, token and all.
    Moved,
    /// The connection is closed before the service acts.
    Reset,
    /// The service acts, and the connection is closed before the response.
    ResetBehind,
    /// The service acts, and never responds.
    HangBehind,
    /// The service neither acts nor responds.
    Hang,
    /// The service refuses with this code and this description.
    Refused(u16, &'static str),
}

type Faults = Box<dyn FnMut(&Call) -> Option<Fault> + Send>;

pub(crate) struct Shared {
    state: Mutex<State>,
    faults: Mutex<Faults>,
    changes: watch::Sender<u64>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

/// A running fake. See the [module](self).
pub struct FakeTelegram {
    address: SocketAddr,
    shared: Arc<Shared>,
    _stop: oneshot::Sender<()>,
}

/// A chat, and the topic in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Room {
    /// The id; that of a group is negative.
    pub chat: i64,
    /// The topic.
    pub topic: Option<i64>,
}

impl Room {
    /// The private chat of a user, or a group.
    pub fn chat(chat: i64) -> Self {
        Self { chat, topic: None }
    }

    /// A topic of a group.
    pub fn topic(chat: i64, topic: i64) -> Self {
        Self { chat, topic: Some(topic) }
    }
}

impl FakeTelegram {
    /// Starts the server.
    pub fn start() -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            faults: Mutex::new(Box::new(|_| None)),
            changes: watch::Sender::default(),
        });
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let served = shared.clone();
        std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            runtime.enable_all().build().unwrap().block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let service =
                    axum::Router::new().route("/{*path}", any(api::handle)).with_state(served);
                let serving = axum::serve(listener, service);
                tokio::select! { _ = async { serving.await } => {}, _ = stopped => {} }
            });
        });
        Self { address, shared, _stop: stop }
    }

    /// The address of the API.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Decides which calls fail.
    pub fn fail(&self, faults: impl FnMut(&Call) -> Option<Fault> + Send + 'static) {
        *self.shared.faults.lock().unwrap() = Box::new(faults);
    }

    /// Sets what the bot is in a chat, as `getChatMember` reports it; null for a chat that it cannot see.
    pub fn member(&self, chat: i64, member: Value) {
        self.shared.state().members.insert(chat, member);
    }

    /// A user writes a message; returns its id.
    pub fn write(&self, room: Room, user: i64, text: &str) -> i64 {
        self.receive(room, user, json!({ "text": text }))
    }

    /// A user replies to a message.
    pub fn reply(&self, room: Room, user: i64, to: i64, text: &str) -> i64 {
        let replied = self.shared.state().message_json(room.chat, to);
        self.receive(room, user, json!({ "text": text, "reply_to_message": replied }))
    }

    /// A user sends a file.
    pub fn send_file(&self, room: Room, user: i64, name: &str, bytes: &[u8], caption: &str) -> i64 {
        let id = self.add_file(name, bytes);
        let document = json!({ "file_id": id, "file_name": name, "file_size": bytes.len() });
        self.receive(room, user, json!({ "caption": caption, "document": document }))
    }

    /// A file that messages of users can carry; returns its id.
    pub fn add_file(&self, name: &str, bytes: &[u8]) -> String {
        self.shared.state().add_file(name, bytes)
    }

    /// A message of a user with these fields.
    pub fn receive(&self, room: Room, user: i64, fields: Value) -> i64 {
        let id = self.shared.state().receive(room, user, fields);
        self.shared.changed();
        id
    }

    /// A user presses the button with this label.
    ///
    /// # Panics
    /// If the message has no such button.
    pub fn press(&self, chat: i64, message: i64, label: &str, user: i64) {
        let data = self.shared.state().button(chat, message, label);
        let data = data.unwrap_or_else(|| panic!("no button {label:?} on message {message}"));
        self.press_data(chat, message, &data, user);
    }

    /// A press with any data, as a forged client may send it.
    pub fn press_data(&self, chat: i64, message: i64, data: &str, user: i64) {
        self.shared.state().press(chat, message, data, user);
        self.shared.changed();
    }

    /// The messages of a chat that are there now, by id.
    pub fn messages(&self, chat: i64) -> Vec<Shown> {
        self.shared.state().shown(chat)
    }

    /// All calls so far.
    pub fn calls(&self) -> Vec<Call> {
        self.shared.state().calls.clone()
    }

    /// The next update gets this number, as the service chooses one after a week without updates.
    pub fn renumber(&self, next: i64) {
        self.shared.state().renumber(next);
    }

    /// Another program has set a webhook: nobody can poll before it is deleted.
    pub fn set_webhook(&self) {
        self.shared.state().webhook = true;
    }

    /// How many updates are not confirmed.
    pub fn pending(&self) -> usize {
        self.shared.state().pending()
    }

    /// The refusals so far: what a correct client never causes.
    pub fn refusals(&self) -> Vec<String> {
        self.shared.state().refusals.clone()
    }

    /// Waits until the fake is in a state.
    ///
    /// # Panics
    /// If that does not happen in a minute.
    pub async fn until<R>(&self, what: &str, mut look: impl FnMut(&Self) -> Option<R>) -> R {
        let mut changes = self.shared.changes.subscribe();
        let found = tokio::time::timeout(PATIENCE, async {
            loop {
                changes.borrow_and_update();
                if let Some(found) = look(self) {
                    return found;
                }
                changes.changed().await.unwrap();
            }
        });
        found.await.unwrap_or_else(|_| {
            let state = self.shared.state();
            panic!("{what} did not happen; messages: {:#?}", state.all())
        })
    }

    /// Waits for a message of the bot that contains a text.
    pub async fn shows(&self, room: Room, text: &str) -> Shown {
        self.until(&format!("a message with {text:?}"), |fake| {
            let fits = |it: &Shown| it.by_bot && it.topic == room.topic && it.text.contains(text);
            fake.messages(room.chat).into_iter().find(fits)
        })
        .await
    }

    /// Waits for a message with this button.
    pub async fn offers(&self, room: Room, label: &str) -> Shown {
        self.until(&format!("a button {label:?}"), |fake| {
            let fits =
                |it: &Shown| it.topic == room.topic && it.buttons.iter().any(|it| it == label);
            fake.messages(room.chat).into_iter().find(fits)
        })
        .await
    }
}
