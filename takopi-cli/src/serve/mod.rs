//! `takopi serve`: a chat with the agent in a browser.
//!
//! One static page; changes reach it as server-sent events, and what the user does comes back as requests.
//! The [`Room`] is the chat transport, takopi-bridge does the rest. The server listens on loopback by default;
//! the [`Guard`] decides which requests are accepted. At its end it cancels what runs, whatever the clients
//! do, and waits until no process is left. Its conversations end with it; the sessions remain and can be opened
//! again.

mod guard;
mod markdown;
mod room;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use axum::extract::{ConnectInfo, DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, middleware};
use futures::{Stream, StreamExt as _, stream};
use serde::Deserialize;
use serde_json::{Value, json};
use takopi_bridge::present::{Chat, Limit, Line, Style};
use takopi_bridge::transport::MessageId;
use takopi_bridge::{Bridge, Incoming, Place};
use takopi_core::catalog::Role;
use takopi_core::{Host, Runner};
use tokio::net::TcpListener;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::args::{Approve, ServeArgs};
use crate::terminal::Terminal;
use crate::{conversation, exit, resume, run, sessions, signals};
use guard::Guard;
use room::{Message, Room, Watch};

const PAGE: &str = include_str!("page.html");
/// How often a message is updated.
const INTERVAL: Duration = Duration::from_millis(200);
/// The most characters of one message; longer answers are split.
const LIMIT: Limit = Limit::Chars(50_000);
/// The most bytes of one request.
const BODY: usize = 1 << 20;
/// The number of stored sessions that the page lists.
const STORED: usize = 30;
/// The most browsers that may be connected at once.
const WATCHERS: usize = 64;
/// How long open requests may take when the server ends.
const DRAINING: Duration = Duration::from_secs(1);

/// What the request handlers share.
struct Served {
    room: Arc<Room>,
    bridge: Bridge<Arc<Room>>,
    runners: Vec<Arc<dyn Runner>>,
    /// Ends the event streams, for which the server would wait for ever.
    closing: CancellationToken,
}

type Shared = State<Arc<Served>>;
type Reply = Result<Json<Value>, (StatusCode, String)>;

pub(crate) fn main(args: ServeArgs, terminal: Terminal) -> anyhow::Result<u8> {
    let router = conversation::router(&args.options, args.keep_warm)?;
    let runners = router.runners().cloned().collect();
    let settings =
        conversation::settings(&args.options, Approve::Ask, INTERVAL).chat(Chat::new(LIMIT));
    run::runtime()?.block_on(async {
        let listener = TcpListener::bind(args.listen).await;
        let listener = listener.map_err(|error| {
            let address = args.listen;
            anyhow!("cannot listen on {address}: {error}; choose another address with --listen")
        })?;
        let address = listener.local_addr()?;
        let token = args.token.or_else(|| needed_token(address));
        let closing = CancellationToken::new();
        let _received = signals::watch(closing.clone())?;
        let room = Arc::new(Room::default());
        let bridge = Bridge::new(room.clone(), router, settings);
        let served = Arc::new(Served { room, bridge, runners, closing: closing.clone() });
        print_address(terminal, address, token.as_deref());
        let service = service(served.clone(), Guard::new(address, token));
        let service = service.into_make_service_with_connect_info::<SocketAddr>();
        let serving = axum::serve(listener, service);
        let serving = serving.with_graceful_shutdown(closing.clone().cancelled_owned());
        // A client that sends half a request, or does not read, must not delay the end.
        let drained = async {
            closing.cancelled().await;
            tokio::time::sleep(DRAINING).await;
        };
        let serving = async {
            let ended = tokio::select! {
                ended = serving.into_future() => ended,
                () = drained => Ok(()),
            };
            closing.cancel();
            ended
        };
        // A second signal exits at once.
        let cancelling = async {
            closing.cancelled().await;
            served.bridge.shutdown().await
        };
        let (ended, cancelled) = tokio::join!(serving, cancelling);
        for cancelled in cancelled {
            terminal.note(&cancelled.to_string());
        }
        if let Ok(host) = Host::global() {
            host.settle().await;
        }
        ended?;
        Ok(exit::OK)
    })
}

/// A random token, if other machines can reach the server.
fn needed_token(address: SocketAddr) -> Option<String> {
    let random = || format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
    (!address.ip().is_loopback()).then(random)
}

fn print_address(terminal: Terminal, address: SocketAddr, token: Option<&str>) {
    let query = token.map(|token| format!("?token={token}")).unwrap_or_default();
    let everywhere = address.ip().is_unspecified();
    let host =
        if everywhere { format!("localhost:{}", address.port()) } else { address.to_string() };
    let page = format!("http://{host}/{query}");
    terminal.line(&Line::new().with(Style::Plain, "listening on ").with(Style::Strong, page));
    if everywhere {
        terminal.note(
            "from other machines, use the name or address of this machine instead of localhost",
        );
    }
}

fn service(served: Arc<Served>, guard: Guard) -> axum::Router {
    axum::Router::new()
        .route("/", get(page))
        .route("/events", get(events))
        .route("/sessions", get(stored))
        .route("/send", post(send))
        .route("/open", post(open))
        .route("/press", post(press))
        .layer(DefaultBodyLimit::max(BODY))
        .layer(middleware::from_fn_with_state(guard, guard::check))
        .with_state(served)
}

/// The page. Its policy allows its own script and requests to this server, and nothing else.
async fn page() -> Response {
    let nonce = Uuid::new_v4().simple().to_string();
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let headers = [
        (CONTENT_SECURITY_POLICY, policy),
        (CACHE_CONTROL, "no-store".to_owned()),
        (HeaderName::from_static("referrer-policy"), "no-referrer".to_owned()),
    ];
    (headers, Html(PAGE.replace("NONCE", &nonce))).into_response()
}

/// A snapshot of everything, then every change. The stream of a browser that falls behind ends; browsers
/// reconnect by themselves.
async fn events(
    State(served): Shared,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, StatusCode> {
    if served.room.watchers() >= WATCHERS {
        return Err(StatusCode::SERVICE_UNAVAILABLE);
    }
    let Watch { snapshot, changes } = served.room.watch();
    let changes = stream::unfold(changes, async |mut changes| match changes.recv().await {
        Ok(change) => Some((change, changes)),
        Err(RecvError::Lagged(_) | RecvError::Closed) => None,
    });
    let events = stream::once(async { snapshot })
        .chain(changes)
        .map(|data| Ok(Event::default().data(&*data)));
    let events = events.take_until(served.closing.clone().cancelled_owned());
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

#[derive(Deserialize)]
struct Sent {
    chat: Option<String>,
    text: String,
}

/// A message to a conversation, or the first one of a new conversation.
async fn send(
    State(served): Shared,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Json(sent): Json<Sent>,
) -> Reply {
    if sent.text.trim().is_empty() {
        return Err((StatusCode::BAD_REQUEST, "the message is empty".to_owned()));
    }
    let room = &served.room;
    let chat = sent.chat.unwrap_or_else(|| room.open(&sent.text, None, Vec::new()));
    let closed =
        || (StatusCode::NOT_FOUND, "this conversation was closed; start a new one".to_owned());
    let added = room.add_user_message(&chat, &sent.text).ok_or_else(closed)?;
    let mut incoming = Incoming::new(Place::new(&chat), added.id.clone(), sent.text).by(user(peer));
    if let Some(line) = added.resume_line {
        incoming = incoming.replying_to_text(added.id, line);
    }
    // The bridge reports a message that it refuses in the conversation.
    let _ = served.bridge.receive(incoming);
    Ok(Json(json!({ "chat": chat })))
}

#[derive(Deserialize)]
struct Opened {
    /// An id, or text with a resume line.
    session: String,
}

/// Opens the conversation of a stored session.
async fn open(State(served): Shared, Json(opened): Json<Opened>) -> Reply {
    let runners = served.runners.clone();
    let read = tokio::task::spawn_blocking(move || {
        let (runner, session) = resume::session(&runners, &opened.session)?;
        let line = runner.format_resume(&session).trim_matches('`').to_owned();
        Some((line, sessions::messages(&session).unwrap_or_default()))
    });
    let (line, entries) = read.await.ok().flatten().ok_or_else(|| {
        let message = "not a session: paste a resume line, or the id of a session";
        (StatusCode::BAD_REQUEST, message.to_owned())
    })?;
    let first = entries.iter().find(|entry| entry.role == Role::User);
    let title = first.map_or(line.as_str(), |entry| &entry.text);
    let messages = entries.iter().map(|entry| match entry.role {
        Role::User => Message::of_user(&entry.text),
        _ => Message::of_agent(&entry.text),
    });
    let chat = served.room.open(title, Some(&line), messages.collect());
    Ok(Json(json!({ "chat": chat })))
}

/// The stored sessions of the engines that can resume them here.
async fn stored(State(served): Shared) -> Reply {
    let failed = |error: String| (StatusCode::INTERNAL_SERVER_ERROR, error);
    let runners = served.runners.clone();
    let found = tokio::task::spawn_blocking(move || sessions::newest(&runners, STORED)).await;
    let found = found.map_err(|error| failed(error.to_string()))?;
    Ok(Json(json!(found.map_err(|error| failed(error.to_string()))?)))
}

#[derive(Deserialize)]
struct Pressed {
    chat: String,
    message: String,
    press: String,
}

/// Handles a pressed button.
async fn press(
    State(served): Shared,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Json(pressed): Json<Pressed>,
) -> Reply {
    let press = pressed.press.parse();
    let press = press.map_err(|error| (StatusCode::BAD_REQUEST, format!("{error}")))?;
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
    use super::*;

    #[test]
    fn a_token_is_generated_if_other_machines_can_reach_the_server() {
        let needed = |address: &str| needed_token(address.parse().unwrap());
        for alone in ["127.0.0.1:8730", "127.1.2.3:8730", "[::1]:8730"] {
            assert_eq!(needed(alone), None, "{alone}");
        }
        for reachable in ["0.0.0.0:8730", "192.168.1.7:8730", "[::]:8730", "[2001:db8::1]:8730"] {
            let (one, other) = (needed(reachable).unwrap(), needed(reachable).unwrap());
            assert!(one.len() == 64 && one != other, "{reachable}: {one}");
        }
    }
}
