//! Reads the lines of the server and routes each of them.

use std::sync::Arc;

use serde_json::value::RawValue;
use takopi_core::peer::Wire;
use takopi_core::process::{Frame, Output};
use takopi_core::rpc::{ErrorBody, Incoming, MessageHead, RequestId, ResponseError, read_line};

use super::notification::Notification;
use super::requests::ServerRequest;
use super::routes::{Routed, Routes};

/// Reads everything the server sends, until it is gone.
pub(super) async fn read(mut output: Output, routes: Arc<Routes>, wire: Wire, patient: bool) {
    while output.fill().await {
        while let Some(frame) = output.pop() {
            let routed = match frame {
                Frame::Line(line) => route(line, &routes, &wire),
                Frame::Skipped { head, bytes } => {
                    skip(head, bytes, &routes, &wire);
                    None
                }
                _ => None,
            };
            if let Some(routed) = routed {
                deliver(routed, &routes, patient).await;
            }
        }
    }
    routes.close();
}

/// Delivers a message once its inboxes have room for it.
async fn deliver(routed: Routed, routes: &Routes, patient: bool) {
    while let Some(room) = routes.full(&routed) {
        if patient {
            room.wait().await;
        } else if !room.wait_a_while().await {
            break;
        }
    }
    routes.deliver(routed);
}

/// Reads one line; what is to be delivered, if it is neither a response nor unreadable.
fn route(line: &[u8], routes: &Routes, wire: &Wire) -> Option<Routed> {
    if line.iter().all(u8::is_ascii_whitespace) {
        return None;
    }
    let routed = read_line(line, |incoming| route_message(incoming, routes, wire));
    routed.unwrap_or_else(|| {
        routes.not_json(line);
        None
    })
}

fn route_message(incoming: Incoming<'_>, routes: &Routes, wire: &Wire) -> Option<Routed> {
    if incoming.method.is_none() {
        let answered = routes.answered(&incoming);
        let response = match incoming.error {
            Some(error) => Err(ResponseError::Refused(ErrorBody::read(error))),
            None => Ok(incoming.result.unwrap_or(RawValue::NULL).to_owned()),
        };
        match (answered, response) {
            (Some(id), response) => routes.respond(id, response),
            (None, Err(ResponseError::Refused(error))) => routes.refused(&error),
            (None, _) => {}
        }
        return None;
    }
    let Incoming { id, method, params, .. } = incoming;
    let method = method?;
    let (method, params) = (method.into_owned(), params.unwrap_or(RawValue::NULL).to_owned());
    Some(match id {
        None => routes.route_notification(Notification::new(method, params)),
        Some(id) => {
            let id = RequestId::new(id);
            routes.route_request(ServerRequest::new(id, method, params, wire.clone()))
        }
    })
}

/// A line that was too long to be read, by how it begins.
fn skip(head: &[u8], bytes: u64, routes: &Routes, wire: &Wire) {
    match MessageHead::read(head, "threadId") {
        MessageHead::Response(id) => routes.respond(id, Err(ResponseError::TooLong)),
        MessageHead::Notification { method, place: Some(thread) }
            if method == "turn/completed" && routes.end_too_long(&thread, turn_of_end(head)) => {}
        MessageHead::Request { id, method, .. } => {
            routes.too_long(bytes);
            let params = RawValue::NULL.to_owned();
            ServerRequest::new(id, method, params, wire.clone()).decline();
        }
        _ => routes.too_long(bytes),
    }
}

/// The turn that the head of its end names. Only if the id comes first in the turn, as codex writes it:
/// behind that may be ids of items.
fn turn_of_end(head: &[u8]) -> Option<String> {
    let head = String::from_utf8_lossy(head);
    let id = head.split_once(r#""turn":{"id":""#)?.1;
    let end = id.find('"')?;
    Some(id[..end].to_owned())
}

#[cfg(test)]
mod tests {
    use takopi_core::Host;
    use takopi_core::peer::Peer;
    use takopi_core::process::{Launch, StdinPlan};
    use tokio::task::yield_now;

    use super::super::inbox::TurnMessage;
    use super::*;

    /// More than the inbox holds, in lines of which one read brings several.
    #[tokio::test]
    async fn a_full_inbox_stops_the_reader_at_the_very_next_message() {
        const LINES: usize = 60_000;
        let line = format!(r#"{{"method":"x","params":["{}"]}}"#, "x".repeat(1000));
        let print = format!("yes '{line}' | head -n {LINES}");
        let home = tempfile::tempdir().unwrap();
        let host = Host::builder().state_directory(home.path()).build().unwrap();
        let launch = Launch::new("sh").args(["-c", &print]).stdin(StdinPlan::Open);
        let (peer, output) = Peer::start(&host, launch).await.unwrap();
        let routes = Arc::new(Routes::default());
        let mut inbox = routes.open_turn("thread").unwrap();
        let probe = route(line.as_bytes(), &routes, &peer.wire()).unwrap();
        let reader = read(output, routes.clone(), peer.wire(), true);
        let reader = tokio::spawn(reader);

        let (mut received, mut times_full) = (0, 0);
        let mut over = false;
        while !over {
            // Nothing is taken before the inbox is full.
            while routes.full(&probe).is_none() && !reader.is_finished() {
                yield_now().await;
            }
            over = reader.is_finished();
            times_full += usize::from(!over);
            while let Some(message) = inbox.try_next() {
                assert!(matches!(message, TurnMessage::Notification(_)), "{message:?}");
                received += 1;
            }
        }
        assert_eq!(received, LINES);
        assert!(times_full > 1, "{times_full}");
        peer.close().await;
    }
}
