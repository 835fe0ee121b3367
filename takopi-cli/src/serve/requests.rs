//! What the page asks of the server.
//!
//! A request that cannot be done is answered with a status and one line for the person who made it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::JsonRejection;
use axum::extract::{ConnectInfo, FromRequest, Request, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::{Extension, Json};
use futures::{Stream, StreamExt as _, stream};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use takopi_bridge::transport::MessageId;
use takopi_bridge::{Bridge, Incoming, Place, RunContext};
use takopi_core::Runner;
use takopi_core::catalog::{Role, TranscriptEntry};
use takopi_projects::Projects;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::choice::Choice;
use super::listen::{self, Connection};
use super::room::{Message, Room, Stored, Watch};
use crate::{projects, resume, sessions};

/// The most bytes of one request.
pub(super) const BODY: usize = 1 << 20;
/// The number of stored sessions that the page lists.
const STORED: usize = 30;
/// How long the messages of stored sessions are searched, the newest first.
const SEARCH: Duration = Duration::from_secs(3);
/// How many searches run at once; each keeps a core busy.
pub(super) const SEARCHES: usize = 2;
/// The most browsers that may be connected at once.
const WATCHERS: usize = 64;
/// How often a browser without news is sent an empty line.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// What the request handlers share.
pub(super) struct Served {
    pub(super) room: Room,
    pub(super) bridge: Bridge<Room>,
    pub(super) runners: Vec<Arc<dyn Runner>>,
    /// What can be chosen for a new conversation.
    pub(super) offered: Value,
    /// The projects that a message can name.
    pub(super) projects: Projects,
    pub(super) searches: Semaphore,
    /// Ends the event streams, for which the server would wait for ever.
    pub(super) closing: CancellationToken,
}

pub(super) type Shared = State<Arc<Served>>;
type Refusal = (StatusCode, String);
type Reply = Result<Json<Value>, Refusal>;

/// The body of a request. It comes in time, or the request is refused.
pub(super) struct Body<T>(T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        match timeout(listen::REQUEST, Json::<T>::from_request(request, state)).await {
            Ok(Ok(Json(body))) => Ok(Self(body)),
            Ok(Err(error)) => Err(refused_body(&error)),
            Err(_) => Err((listen::LATE.0, listen::LATE.1.to_owned())),
        }
    }
}

fn refused_body(error: &JsonRejection) -> Refusal {
    let message = match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            "the message is longer than 1 MiB; save it to a file and name the file instead"
                .to_owned()
        }
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "the request is not JSON".to_owned(),
        _ => format!("the request is invalid: {}", error.body_text()),
    };
    (error.status(), message)
}

fn bad(message: impl Into<String>) -> Refusal {
    (StatusCode::BAD_REQUEST, message.into())
}

fn closed() -> Refusal {
    (StatusCode::NOT_FOUND, "this conversation was closed; start a new one".to_owned())
}

fn too_many() -> Refusal {
    let message = "too many conversations are running; wait for one to end, or cancel one";
    (StatusCode::SERVICE_UNAVAILABLE, message.to_owned())
}

/// A snapshot of everything, then every change. The connection of a browser that falls behind is closed; browsers
/// reconnect by themselves.
pub(super) async fn events(
    State(served): Shared,
    Extension(connection): Extension<Connection>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refusal> {
    if served.room.watchers() >= WATCHERS {
        let message = format!("{WATCHERS} pages are open already; close one");
        return Err((StatusCode::SERVICE_UNAVAILABLE, message));
    }
    let Watch { snapshot, changes } = served.room.watch(connection.closing);
    let changes = stream::unfold(changes, async |mut changes| {
        changes.next().await.map(|change| (change, changes))
    });
    let events = stream::once(async { snapshot })
        .chain(changes)
        .map(|data| Ok(Event::default().data(&*data)));
    let events = events.take_until(served.closing.clone().cancelled_owned());
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

/// What can be chosen for a new conversation.
pub(super) async fn options(State(served): Shared) -> Json<Value> {
    Json(served.offered.clone())
}

#[derive(Deserialize)]
pub(super) struct Sent {
    chat: Option<String>,
    text: String,
    /// For a new conversation.
    #[serde(default)]
    choice: Choice,
}

/// A message to a conversation, or the first one of a new conversation.
pub(super) async fn send(
    State(served): Shared,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Body(sent): Body<Sent>,
) -> Reply {
    // A page that is reloaded or closed drops its request, and has no message any more that it could send again.
    let taken = tokio::spawn(take(served, peer, sent)).await;
    taken.unwrap_or_else(|error| Err((StatusCode::INTERNAL_SERVER_ERROR, error.to_string())))
}

async fn take(served: Arc<Served>, peer: SocketAddr, sent: Sent) -> Reply {
    if sent.text.trim().is_empty() {
        return Err(bad("the message is empty"));
    }
    let choice = match &sent.chat {
        Some(_) => Choice::default(),
        None => sent.choice.checked().map_err(bad)?,
    };
    let (text, projects) = (choice.directives() + &sent.text, served.projects.clone());
    // Git may have to write the files of a branch.
    let placed = tokio::task::spawn_blocking(move || projects::place(&text, &projects)).await;
    let placed = placed.map_err(|error| bad(error.to_string()))?.map_err(bad)?;
    let (text, context) =
        placed.map_or((sent.text.clone(), None), |(text, context)| (text, Some(context)));
    if let (Some(project), None) = (&choice.project, &context) {
        return Err(bad(format!("there is no project {project}")));
    }
    let (choice, context) = choice.placed(context);
    if let Some(chat) = &sent.chat {
        stays(&served.room, chat, context.as_ref()).map_err(bad)?;
    }
    let room = &served.room;
    let chat = match sent.chat {
        Some(chat) => chat,
        None => room.start(&sent.text, choice).ok_or_else(too_many)?,
    };
    let added = room.add_user_message(&chat, &sent.text).ok_or_else(closed)?;
    let mut incoming = Incoming::new(Place::new(&chat), added.id.clone(), text).by(user(peer));
    incoming.context = context;
    if let Some(line) = added.resume_line {
        incoming = incoming.replying_to_text(added.id, line);
    }
    if let Some(engine) = room.choice(&chat).engine() {
        incoming = incoming.engine(engine);
    }
    // The bridge reports a message that it refuses in the conversation.
    if let Ok(job) = served.bridge.receive(incoming) {
        let pending = added.pending;
        tokio::spawn(async move {
            job.report().await;
            drop(pending);
        });
    }
    Ok(Json(json!({ "chat": chat })))
}

/// Refuses a message that names another place than the one its conversation runs in: its session is resumed
/// from a line, so the bridge does not compare them.
fn stays(room: &Room, chat: &str, named: Option<&RunContext>) -> Result<(), String> {
    let Some(named) = named else { return Ok(()) };
    let begun = room.choice(chat).settings().cwd;
    if begun == named.settings.cwd {
        return Ok(());
    }
    let shown = |path: Option<PathBuf>| path.map(|path| path.display().to_string());
    let begun = shown(begun).unwrap_or_else(|| "the directory of the server".to_owned());
    let line = named.line.as_deref().unwrap_or_default();
    Err(format!("this conversation runs in {begun}; begin a new conversation for {line}"))
}

#[derive(Deserialize)]
pub(super) struct Opened {
    /// An id, or text with a resume line.
    session: String,
}

/// Opens the conversation of a stored session.
pub(super) async fn open(State(served): Shared, Body(opened): Body<Opened>) -> Reply {
    let runners = served.runners.clone();
    let read = tokio::task::spawn_blocking(move || {
        let (runner, session) = resume::session(&runners, &opened.session)
            .ok_or_else(|| bad("not a session: paste a resume line, or the id of a session"))?;
        let missing = |error: anyhow::Error| {
            let value = &session.value;
            (StatusCode::NOT_FOUND, format!("the session {value} cannot be opened: {error}"))
        };
        let entries = sessions::transcript(&session).map_err(missing)?;
        let line = runner.format_resume(&session).trim_matches('`').to_owned();
        Ok((line, entries, sessions::directory(&session)))
    });
    let failed =
        |error: tokio::task::JoinError| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
    let (line, entries, directory) = read.await.map_err(failed)??;
    let first = entries.iter().find(|entry| entry.role == Role::User);
    let stored = Stored {
        title: first.map_or(line.as_str(), |entry| &entry.text).to_owned(),
        messages: stored_messages(&entries),
        resume_line: line,
    };
    let cwd = directory.filter(|it| it.is_dir()).map(|it| it.to_string_lossy().into_owned());
    let choice = Choice { cwd, ..Choice::default() };
    let chat = served.room.open(stored, choice).ok_or_else(too_many)?;
    Ok(Json(json!({ "chat": chat })))
}

/// The last messages of a stored session: those of the user, and the turns between them.
fn stored_messages(entries: &[TranscriptEntry]) -> Vec<Message> {
    let is_user = |entry: &TranscriptEntry| entry.role == Role::User;
    let parts = entries.chunk_by(|one, other| !is_user(one) && !is_user(other));
    let message = |part: &[TranscriptEntry]| match part {
        [said] if is_user(said) => Message::of_user(&said.text),
        turn => Message::of_agent(turn),
    };
    Message::kept(parts.rev().map(message))
}

#[derive(Deserialize)]
pub(super) struct Search {
    words: String,
}

/// The newest stored sessions of the engines that can resume them here.
pub(super) async fn stored(State(served): Shared) -> Reply {
    find(served, String::new()).await
}

/// The stored sessions with these words.
pub(super) async fn search(State(served): Shared, Body(search): Body<Search>) -> Reply {
    find(served, search.words).await
}

async fn find(served: Arc<Served>, words: String) -> Reply {
    let failed = |error: String| (StatusCode::INTERNAL_SERVER_ERROR, error);
    let runners = served.runners.clone();
    let permit = served.searches.acquire().await;
    let _permit = permit.map_err(|error| failed(error.to_string()))?;
    let find = move || sessions::newest(&runners, &words, STORED, SEARCH);
    let found = tokio::task::spawn_blocking(find).await;
    let found = found.map_err(|error| failed(error.to_string()))?;
    Ok(Json(json!(found.map_err(|error| failed(error.to_string()))?)))
}

#[derive(Deserialize)]
pub(super) struct Renamed {
    chat: String,
    title: String,
}

/// Gives a conversation another title.
pub(super) async fn rename(State(served): Shared, Body(renamed): Body<Renamed>) -> Reply {
    if renamed.title.trim().is_empty() {
        return Err(bad("the title is empty"));
    }
    let found = served.room.rename(&renamed.chat, &renamed.title);
    found.then(|| Json(json!({}))).ok_or_else(closed)
}

#[derive(Deserialize)]
pub(super) struct Closed {
    chat: String,
}

/// Closes a conversation and cancels what runs in it. Its session stays stored.
pub(super) async fn close(
    State(served): Shared,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Body(closed): Body<Closed>,
) -> Reply {
    let place = Place::new(&closed.chat);
    served.room.close(&closed.chat);
    let cancelled = served.bridge.cancel(place.clone(), Some(&user(peer)));
    served.bridge.forget(&place);
    Ok(Json(json!({ "cancelled": cancelled.len() })))
}

#[derive(Deserialize)]
pub(super) struct Pressed {
    chat: String,
    message: String,
    press: String,
}

/// Handles a pressed button.
pub(super) async fn press(
    State(served): Shared,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Body(pressed): Body<Pressed>,
) -> Reply {
    let press = pressed.press.parse();
    let press = press.map_err(|error| bad(format!("{error}")))?;
    let message = MessageId::from(pressed.message).at(pressed.chat);
    let done = served.bridge.press(&message, press, &user(peer));
    Ok(Json(json!({ "done": done.to_string() })))
}

/// The name of a user, as far as it is known.
fn user(peer: SocketAddr) -> String {
    if peer.ip().is_loopback() { "browser".to_owned() } else { peer.ip().to_string() }
}

#[cfg(test)]
mod tests {
    use serde_json::to_value;

    use super::*;

    /// The texts of the messages that a session with these is opened with.
    fn opened(texts: impl Iterator<Item = String>) -> Vec<String> {
        let entries: Vec<_> = texts.map(|text| TranscriptEntry::new(Role::User, text)).collect();
        let messages = stored_messages(&entries).into_iter();
        let text = |message| to_value(message).unwrap()["text"].as_str().unwrap().to_owned();
        messages.map(|message: Message| text(message)).collect()
    }

    #[test]
    fn of_a_long_session_only_the_last_messages_are_rendered() {
        let numbers = |range: std::ops::Range<usize>| range.map(|number| number.to_string());
        assert_eq!(opened(numbers(0..1000)), numbers(800..1000).collect::<Vec<_>>());
        let long = ["a", "b", "c"].map(|letter| letter.repeat(2 << 20));
        assert_eq!(opened(long.clone().into_iter()), long[1..]);
        let longest = ["a", "b"].map(|letter| letter.repeat(5 << 20));
        assert_eq!(opened(longest.clone().into_iter()), longest[1..]);
    }
}
