//! `takopi serve`: a chat with the agent in a browser.
//!
//! One static page; what goes on comes to it as server-sent events, what the user does comes back as
//! requests. The [`Room`] is the chat, takopi-bridge does the rest. Loopback by default; who may talk
//! to the server is decided by the [`Guard`]. When it ends it cancels what runs, whatever the clients
//! do, and waits until nothing is left of it. The conversations of a server end with it; the sessions do not, and can be
//! opened again.

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
use takopi_codex::CODEX;
use takopi_core::{Host, Runner};
use tokio::net::TcpListener;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::args::{Approve, ServeArgs};
use crate::terminal::Terminal;
use crate::{conversation, exit, resume, run, sessions, signals};
use guard::Guard;
use room::{Message, Room};

const PAGE: &str = include_str!("page.html");
/// How often a message is kept current.
const INTERVAL: Duration = Duration::from_millis(200);
/// The letters of one message; longer answers come in parts.
const LIMIT: Limit = Limit::Chars(50_000);
/// The bytes of one request.
const BODY: usize = 1 << 20;
/// The sessions that are offered to be opened.
const EARLIER: usize = 30;
/// The browsers that watch at once.
const WATCHERS: usize = 64;
/// How long requests may take to finish when the server ends.
const DRAINING: Duration = Duration::from_secs(1);

/// What the handlers of requests share.
struct Served {
    room: Arc<Room>,
    bridge: Bridge<Arc<Room>>,
    runners: Vec<Arc<dyn Runner>>,
    /// Ends the streams of events, for which a server would wait for ever.
    closing: CancellationToken,
}

type Shared = State<Arc<Served>>;
type Answer = Result<Json<Value>, (StatusCode, String)>;

pub(crate) fn main(args: ServeArgs, terminal: Terminal) -> anyhow::Result<u8> {
    let router = conversation::router(&args.options, args.keep_warm)?;
    let runners = router.runners().cloned().collect();
    let settings =
        conversation::settings(args.options, Approve::Ask, INTERVAL).chat(Chat::new(LIMIT));
    run::runtime()?.block_on(async {
        let listener = TcpListener::bind(args.listen).await;
        let listener = listener.map_err(|error| {
            let address = args.listen;
            anyhow!("cannot listen on {address}: {error}; choose another with --listen")
        })?;
        let address = listener.local_addr()?;
        let token = args.token.or_else(|| needed_token(address));
        let closing = CancellationToken::new();
        let _received = signals::watch(closing.clone())?;
        let room = Arc::new(Room::default());
        let bridge = Bridge::new(room.clone(), router, settings);
        let served = Arc::new(Served { room, bridge, runners, closing: closing.clone() });
        say_where(terminal, address, token.as_deref());
        let service = service(served.clone(), Guard::new(address, token));
        let service = service.into_make_service_with_connect_info::<SocketAddr>();
        let serving = axum::serve(listener, service);
        let serving = serving.with_graceful_shutdown(closing.clone().cancelled_owned());
        // A client that says half a sentence or does not listen must not keep what runs running.
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
        // One more signal leaves at once.
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

/// A token that nobody can guess, where others can reach the server.
fn needed_token(address: SocketAddr) -> Option<String> {
    let made_up = || format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
    (!address.ip().is_loopback()).then(made_up)
}

fn say_where(terminal: Terminal, address: SocketAddr, token: Option<&str>) {
    let query = token.map(|token| format!("?token={token}")).unwrap_or_default();
    let everywhere = address.ip().is_unspecified();
    let host =
        if everywhere { format!("localhost:{}", address.port()) } else { address.to_string() };
    let page = format!("http://{host}/{query}");
    terminal.say(&Line::new().with(Style::Plain, "takopi is at ").with(Style::Strong, page));
    if everywhere {
        terminal.note("others put the name or address of this machine in place of localhost");
    }
}

fn service(served: Arc<Served>, guard: Guard) -> axum::Router {
    axum::Router::new()
        .route("/", get(page))
        .route("/events", get(events))
        .route("/sessions", get(earlier))
        .route("/say", post(say))
        .route("/open", post(open))
        .route("/press", post(press))
        .layer(DefaultBodyLimit::max(BODY))
        .layer(middleware::from_fn_with_state(guard, guard::check))
        .with_state(served)
}

/// The page. It may run its own script and talk to this server, and nothing else.
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

/// Everything there is, and then every change. The stream of a browser that is behind ends; browsers
/// come back by themselves.
async fn events(
    State(served): Shared,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, StatusCode> {
    if served.room.watchers() >= WATCHERS {
        return Err(StatusCode::SERVICE_UNAVAILABLE);
    }
    let (all, news) = served.room.watch();
    let news = stream::unfold(news, async |mut news| match news.recv().await {
        Ok(change) => Some((change, news)),
        Err(RecvError::Lagged(_) | RecvError::Closed) => None,
    });
    let events =
        stream::once(async { all }).chain(news).map(|data| Ok(Event::default().data(&*data)));
    let events = events.take_until(served.closing.clone().cancelled_owned());
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

#[derive(Deserialize)]
struct Said {
    chat: Option<String>,
    text: String,
}

/// A message, in a conversation or as the beginning of one.
async fn say(
    State(served): Shared,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Json(said): Json<Said>,
) -> Answer {
    if said.text.trim().is_empty() {
        return Err((StatusCode::BAD_REQUEST, "the message is empty".to_owned()));
    }
    let room = &served.room;
    let chat = said.chat.unwrap_or_else(|| room.open(&said.text, None, Vec::new()));
    let closed =
        || (StatusCode::NOT_FOUND, "this conversation was closed; begin a new one".to_owned());
    let (message, line) = room.heard(&chat, &said.text).ok_or_else(closed)?;
    let mut incoming = Incoming::new(Place::new(&chat), message.clone(), said.text).by(who(peer));
    if let Some(line) = line {
        incoming = incoming.replying_to_text(message, line);
    }
    // The conversation is told why a message is not taken.
    let _ = served.bridge.receive(incoming);
    Ok(Json(json!({ "chat": chat })))
}

#[derive(Deserialize)]
struct Opened {
    /// An id, or a text with a resume line.
    session: String,
}

/// Opens the conversation of an earlier session.
async fn open(State(served): Shared, Json(opened): Json<Opened>) -> Answer {
    let refused = |why: String| (StatusCode::BAD_REQUEST, why);
    let named = served.runners.iter().find_map(|runner| {
        let token = resume::token(&**runner, &opened.session).ok()?;
        let line = runner.format_resume(&token);
        runner.is_resume_line(&line).then(|| (line.trim_matches('`').to_owned(), token.value))
    });
    let (line, session) = named.ok_or_else(|| {
        refused("this names no session: paste a resume line, or the id of a session".to_owned())
    })?;
    let read = tokio::task::spawn_blocking(move || sessions::conversation(&session)).await;
    let said = read.ok().and_then(Result::ok).unwrap_or_default();
    let title = said.iter().find(|(user, _)| *user).map_or(line.as_str(), |(_, text)| text);
    let messages = said
        .iter()
        .map(|(user, text)| if *user { Message::of_user(text) } else { Message::of_agent(text) });
    let chat = served.room.open(title, Some(&line), messages.collect());
    Ok(Json(json!({ "chat": chat })))
}

/// The sessions that can be opened: those of codex, if it is there to go on with them.
async fn earlier(State(served): Shared) -> Answer {
    if served.runners.iter().all(|runner| runner.engine() != CODEX) {
        return Ok(Json(json!([])));
    }
    let failed = |why: String| (StatusCode::INTERNAL_SERVER_ERROR, why);
    let found = tokio::task::spawn_blocking(|| sessions::newest(EARLIER)).await;
    let found = found.map_err(|error| failed(error.to_string()))?;
    Ok(Json(json!(found.map_err(|error| failed(error.to_string()))?)))
}

#[derive(Deserialize)]
struct Pressed {
    chat: String,
    message: String,
    press: String,
}

/// A button was pressed.
async fn press(
    State(served): Shared,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Json(pressed): Json<Pressed>,
) -> Answer {
    let press = pressed.press.parse();
    let press = press.map_err(|error| (StatusCode::BAD_REQUEST, format!("{error}")))?;
    let message = MessageId::from(pressed.message).at(pressed.chat);
    let done = served.bridge.press(&message, press, &who(peer));
    Ok(Json(json!({ "done": done.to_string() })))
}

/// Who it is, as far as can be told.
fn who(peer: SocketAddr) -> String {
    if peer.ip().is_loopback() { "browser".to_owned() } else { peer.ip().to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_made_up_where_others_can_reach_the_server() {
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
