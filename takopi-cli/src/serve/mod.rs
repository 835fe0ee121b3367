//! `takopi serve`: a chat with the agent in a browser.
//!
//! One static page; changes reach it as server-sent events, and what the user does comes back as requests.
//! The [`Room`] is the chat transport, takopi-bridge does the rest. The server listens on loopback by default;
//! the [`Guard`] decides which requests are accepted. At its end it cancels what runs, whatever the clients
//! do, and waits until no process is left. Its conversations end with it; the sessions remain and can be opened
//! again.

mod choice;
#[cfg(feature = "fleet")]
pub(crate) mod fleet;
mod guard;
mod highlight;
pub(crate) mod listen;
mod markdown;
mod page;
mod requests;
mod room;
mod step;
mod turn;
mod watchers;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum::routing::{get, post};
use takopi_bridge::present::{Chat, Limit, Line, Style};
use takopi_bridge::{Bridge, Settings};
use takopi_core::Host;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::args::{Approve, ServeArgs};
use crate::terminal::Terminal;
use crate::{conversation, exit, run, signals};
#[cfg(feature = "fleet")]
pub(crate) use choice::expanded;
use guard::Guard;
use listen::Bounds;
use requests::{BODY, Served};
use room::Room;

/// How often a message is updated; the answer is streamed beside that.
const INTERVAL: Duration = Duration::from_millis(200);
/// The page shows messages of any length.
const LIMIT: Limit = Limit::Chars(usize::MAX);

pub(crate) fn main(args: ServeArgs, terminal: Terminal) -> anyhow::Result<u8> {
    let router = conversation::router(&args.options, args.keep_warm)?;
    let runners = router.runners().cloned().collect();
    let offered = choice::offered(&args.options);
    let directory = args.options.settings().cwd.or_else(|| std::env::current_dir().ok());
    let room = Room::new(directory);
    let settings = settings(&args, &room);
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
        let bridge = Bridge::new(room.clone(), router, settings);
        let closes = closing.clone();
        let projects = args.options.projects.clone();
        let searches = Semaphore::new(requests::SEARCHES);
        let served = Arc::new(Served {
            room,
            bridge,
            runners,
            offered,
            projects,
            searches,
            closing: closes,
        });
        print_address(terminal, address, token.as_deref());
        let pages = args.options.fleet.pages();
        let service = service(served.clone(), Guard::new(address, token), pages);
        let serving = listen::serve(listener, service, Bounds::default(), &closing);
        // A second signal exits at once.
        let cancelling = async {
            closing.cancelled().await;
            served.bridge.shutdown().await
        };
        let ((), cancelled) = tokio::join!(serving, cancelling);
        for cancelled in cancelled {
            terminal.note(&cancelled.to_string());
        }
        if let Ok(host) = Host::global() {
            host.settle().await;
        }
        Ok(exit::OK)
    })
}

/// The settings of the bridge: each conversation runs as it was chosen.
fn settings(args: &ServeArgs, room: &Room) -> Settings {
    let settings = conversation::settings(&args.options, Approve::Ask, INTERVAL);
    let (default, is_default) =
        (args.options.approve.unwrap_or(Approve::Ask), args.options.approve.is_none());
    let (chosen, approving) = (room.clone(), room.clone());
    settings
        .chat(Chat::new(LIMIT))
        .requests(move |message, request| {
            request.settings(chosen.choice(&message.place.chat).settings())
        })
        .approvals_for(move |message, people| {
            let approve = approving.choice(&message.place.chat).approve;
            conversation::approvals(
                approve.unwrap_or(default),
                is_default && approve.is_none(),
                people,
            )
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

/// `pages` are those of a fleet.
fn service(served: Arc<Served>, guard: Guard, pages: axum::Router) -> axum::Router {
    let requests = axum::Router::new()
        .route("/", get(page::page))
        .route("/options", get(requests::options))
        .route("/sessions", get(requests::stored).post(requests::search))
        .route("/open", post(requests::open))
        .route("/rename", post(requests::rename))
        .route("/close", post(requests::close))
        .route("/press", post(requests::press))
        .with_state(served.clone())
        .merge(pages)
        .layer(middleware::from_fn(listen::in_time));
    // Git may take long for the files of a branch, and goes on whatever is answered.
    let lasting = axum::Router::new()
        .route("/send", post(requests::send))
        .route("/events", get(requests::events))
        .with_state(served);
    requests
        .merge(lasting)
        .layer(DefaultBodyLimit::max(BODY))
        .layer(middleware::from_fn_with_state(guard, guard::check))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::body::{Body, Bytes};
    use axum::extract::ConnectInfo;
    use axum::http::{Request, StatusCode};
    use futures::stream;
    use hyper::service::Service as _;
    use hyper_util::service::TowerToHyperService;
    use takopi_core::demo::Demo;
    use takopi_projects::Projects;
    use tokio::task::{spawn_blocking, yield_now};
    use tokio::time::{advance, timeout};

    use super::*;

    fn served() -> Arc<Served> {
        let room = Room::new(None);
        let router = takopi_bridge::Router::new(Arc::new(Demo::new().runner()));
        Arc::new(Served {
            bridge: Bridge::new(room.clone(), router, Settings::default()),
            room,
            runners: Vec::new(),
            offered: serde_json::Value::Null,
            projects: Projects::default(),
            searches: Semaphore::new(1),
            closing: CancellationToken::new(),
        })
    }

    /// The status of the response to a request.
    async fn post(
        served: Arc<Served>,
        token: Option<&str>,
        path: &str,
        body: impl Into<Body>,
    ) -> StatusCode {
        let address: SocketAddr = "127.0.0.1:8730".parse().unwrap();
        let guard = Guard::new(address, token.map(str::to_owned));
        let service = service(served, guard, axum::Router::new());
        let request = Request::post(path)
            .header("host", address.to_string())
            .header("content-type", "application/json")
            .extension(ConnectInfo(address))
            .body(body.into())
            .unwrap();
        TowerToHyperService::new(service).call(request).await.unwrap().status()
    }

    #[test]
    fn a_message_is_taken_however_long_git_writes_its_files() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).max_blocking_threads(1).build();
        runtime.unwrap().block_on(async {
            // Git waits for the only thread that it could run on.
            let (release, held) = std::sync::mpsc::channel::<()>();
            let thread = spawn_blocking(move || held.recv());
            let message = r#"{"chat":"closed","text":"hello"}"#;
            let mut sent = std::pin::pin!(post(served(), None, "/send", message));
            let later = async {
                advance(2 * listen::REQUEST).await;
                for _ in 0..10 {
                    yield_now().await;
                }
            };
            tokio::select! {
                biased;
                status = &mut sent => panic!("{status}"),
                () = later => {}
            }
            release.send(()).unwrap();
            assert_eq!(sent.await, StatusCode::NOT_FOUND);
            thread.await.unwrap().unwrap();
        });
    }

    #[test]
    fn a_message_is_taken_though_its_page_is_gone_before_git_has_written_its_files() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().max_blocking_threads(1).build();
        runtime.unwrap().block_on(async {
            let (release, held) = std::sync::mpsc::channel::<()>();
            let thread = spawn_blocking(move || held.recv());
            let served = served();
            let mut changes = served.room.watch(CancellationToken::new()).changes;
            let sent = post(served.clone(), None, "/send", r#"{"text":"hello"}"#);
            let read = async {
                for _ in 0..100 {
                    yield_now().await;
                }
            };
            tokio::select! {
                biased;
                status = sent => panic!("{status}"),
                () = read => {}
            }
            release.send(()).unwrap();
            thread.await.unwrap().unwrap();
            // What the server does next comes behind what was waiting for the thread.
            spawn_blocking(|| ()).await.unwrap();
            let change = timeout(listen::REQUEST, changes.next()).await.unwrap().unwrap();
            assert!(change.contains("hello"), "{change}");
        });
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_is_not_waited_for() {
        let token = "0123456789abcdef";
        for (token, path) in [(None, "/send"), (None, "/rename"), (Some(token), "/token")] {
            let never = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
            let status = timeout(2 * listen::REQUEST, post(served(), token, path, never)).await;
            assert_eq!(status, Ok(StatusCode::REQUEST_TIMEOUT), "{path}");
        }
    }

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
