//! Accepts connections, within bounds.
//!
//! Promises:
//! - at most [`Bounds::most`] connections are open; further ones wait to be accepted;
//! - a client has [`Bounds::head`] for the head of a request and [`REQUEST`] for its body, so one that sends nothing does
//!   not keep a connection. Most answers have the [same time](in_time); streams of events last for as long as their
//!   browser reads, and a message is taken however long git writes its files;
//! - a connection whose client reads nothing of what is sent for [`UNREAD`] is closed;
//! - a handler can close the [`Connection`] of its request at once, whatever waits to be sent;
//! - when `closing` fires, nothing more is accepted and open requests have [`DRAINING`] to end.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Extension;
use axum::extract::{ConnectInfo, Request};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{Sleep, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The bounds on connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// The most connections.
    most: usize,
    /// How long the head of a request may take.
    head: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { most: 256, head: Duration::from_secs(10) }
    }
}

/// How long the rest of a request may take.
pub(crate) const REQUEST: Duration = Duration::from_secs(30);
/// The response to one that takes longer.
pub(crate) const LATE: (StatusCode, &str) =
    (StatusCode::REQUEST_TIMEOUT, "the request took too long; try again");
/// How long a client may read nothing of what is sent.
const UNREAD: Duration = Duration::from_mins(1);
const DRAINING: Duration = Duration::from_secs(1);
/// The pause after a connection could not be accepted: there may be too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// The connection of a request, as an extension of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Connection {
    /// Closes it at once.
    pub(crate) closing: CancellationToken,
}

/// Serves until `closing` fires.
pub(crate) async fn serve(
    listener: TcpListener,
    service: axum::Router,
    bounds: Bounds,
    closing: &CancellationToken,
) {
    let room = Arc::new(Semaphore::new(bounds.most));
    let connections = TaskTracker::new();
    loop {
        let accepted = async {
            let permit = room.clone().acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            () = closing.cancelled() => break,
            accepted = accepted => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection");
                sleep(PAUSE).await;
                continue;
            }
        };
        // Pieces of an answer are small, and are not to wait for more.
        let _ = stream.set_nodelay(true);
        let connection = connection(stream, peer, service.clone(), bounds.head, closing.clone());
        connections.spawn(async move {
            connection.await;
            drop(permit);
        });
    }
    connections.close();
    // A client that sends half a request, or does not read, must not delay the end.
    let _ = timeout(DRAINING, connections.wait()).await;
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    peer: SocketAddr,
    service: axum::Router,
    head: Duration,
    closing: CancellationToken,
) {
    let own = Connection::default();
    let service = service.layer(Extension(ConnectInfo(peer))).layer(Extension(own.clone()));
    let service = TowerToHyperService::new(service);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(head);
    let stream = ReadInTime { stream, late: None };
    let serving = http.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = own.closing.cancelled() => return,
        () = closing.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}

/// A stream whose writes fail when its client reads nothing for [`UNREAD`].
#[derive(Debug)]
struct ReadInTime<S> {
    stream: S,
    /// Set while nothing can be written.
    late: Option<Pin<Box<Sleep>>>,
}

impl<S> ReadInTime<S> {
    fn in_time(
        &mut self,
        written: Poll<io::Result<usize>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.late = None;
            return written;
        }
        let late = self.late.get_or_insert_with(|| Box::pin(sleep(UNREAD)));
        ready!(late.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReadInTime<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReadInTime<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.in_time(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.in_time(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Ends a request that takes too long.
pub(crate) async fn in_time(request: Request, next: Next) -> Response {
    timeout(REQUEST, next.run(request)).await.unwrap_or_else(|_| LATE.into_response())
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, Bytes};
    use axum::routing::get;
    use futures::stream;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::net::TcpStream;
    use tokio::sync::mpsc;
    use tokio::time::Instant;

    use super::*;

    const HEAD: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

    /// A body without an end.
    fn endless() -> Body {
        Body::from_stream(stream::repeat_with(|| {
            Ok::<_, std::io::Error>(Bytes::from_static(&[0; 1024]))
        }))
    }

    /// Serves one connection whose client sends a request and reads nothing.
    async fn serve_unread(service: axum::Router) {
        let (mut client, server) = duplex(1024);
        client.write_all(HEAD).await.unwrap();
        let peer = "127.0.0.1:1".parse().unwrap();
        connection(server, peer, service, Bounds::default().head, CancellationToken::new()).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_handler_closes_its_connection_though_the_client_does_not_read() {
        let (sender, mut opened) = mpsc::channel(1);
        let handler = move |Extension(connection): Extension<Connection>| async move {
            sender.send(connection).await.unwrap();
            endless()
        };
        let service = axum::Router::new().route("/", get(handler));
        let begun = Instant::now();
        tokio::join!(serve_unread(service), async {
            opened.recv().await.unwrap().closing.cancel();
        });
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_disconnected() {
        let service = axum::Router::new().route("/", get(async || endless()));
        let begun = Instant::now();
        let served = timeout(10 * UNREAD, serve_unread(service)).await;
        assert!(served.is_ok() && begun.elapsed() >= UNREAD, "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_slowly_stays_connected() {
        let service = axum::Router::new().route("/", get(async || vec![0; 16 << 10]));
        let (mut client, server) = duplex(1024);
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        let peer = "127.0.0.1:1".parse().unwrap();
        let closing = CancellationToken::new();
        let reading = async {
            let (mut all, mut piece) = (0, [0; 512]);
            loop {
                sleep(UNREAD / 2).await;
                match client.read(&mut piece).await.unwrap() {
                    0 => return all,
                    count => all += count,
                }
            }
        };
        let serving = connection(server, peer, service, Bounds::default().head, closing);
        let ((), read) = tokio::join!(serving, reading);
        assert!(read > 16 << 10, "{read}");
    }

    #[tokio::test]
    async fn a_client_that_sends_nothing_makes_room_for_another() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = axum::Router::new().route("/", get(async || "hello"));
        let closing = CancellationToken::new();
        let bounds = Bounds { most: 2, head: Duration::from_millis(100) };
        let serving = serve(listener, service, bounds, &closing);
        let visiting = async {
            let mut slow = TcpStream::connect(address).await.unwrap();
            slow.write_all(b"GET / HTTP/1.1\r\nHos").await.unwrap();
            let mut silent = TcpStream::connect(address).await.unwrap();
            // There is no room until one of them is gone.
            let mut third = TcpStream::connect(address).await.unwrap();
            third
                .write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                .await
                .unwrap();
            let mut answer = String::new();
            third.read_to_string(&mut answer).await.unwrap();
            assert!(answer.ends_with("hello"), "{answer}");
            for stream in [&mut slow, &mut silent] {
                let mut rest = Vec::new();
                let _ = stream.read_to_end(&mut rest).await;
            }
            closing.cancel();
        };
        tokio::join!(serving, visiting);
    }
}
