//! The HTTP side of the model server: finds the script, sends its next answer, keeps the record.

use std::collections::VecDeque;
use std::future;
use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures::stream;
use serde_json::Value;
use tokio::sync::{oneshot, watch};

use super::answer::{Answer, Script};
use super::record::{Outcome, RecordedRequest, user_texts};
use super::wire::{Beat, Serial, beats};

/// What the server's thread and the test's [`ModelServer`](super::ModelServer) share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    state: Mutex<Record>,
    /// Bumped after every change of the record.
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Record {
    scripts: Vec<Queue>,
    requests: Vec<RecordedRequest>,
    unexpected: Vec<String>,
}

/// A script, as far as it is not used up.
#[derive(Debug, Default)]
struct Queue {
    needle: Option<String>,
    answers: VecDeque<Answer>,
    repeats: bool,
    served: usize,
}

impl Queue {
    fn name(&self) -> String {
        match &self.needle {
            Some(needle) => format!("the script for {needle:?}"),
            None => "the script for other prompts".into(),
        }
    }

    fn next(&mut self) -> Option<Answer> {
        let is_last = self.answers.len() == 1;
        let answer = if self.repeats && is_last {
            self.answers.front().cloned()
        } else {
            self.answers.pop_front()
        };
        self.served += usize::from(answer.is_some());
        answer
    }

    fn left(&self) -> usize {
        let kept = usize::from(self.repeats && self.served > 0);
        self.answers.len() - kept
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Record> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, needle: Option<&str>, script: Script) {
        let mut record = self.lock();
        let known = record.scripts.iter().position(|queue| queue.needle.as_deref() == needle);
        let index = known.unwrap_or(record.scripts.len());
        if known.is_none() {
            record.scripts.push(Queue { needle: needle.map(str::to_owned), ..Queue::default() });
        }
        let queue = &mut record.scripts[index];
        assert!(!queue.repeats, "{} repeats and cannot be added to", queue.name());
        queue.answers.extend(script.answers);
        queue.repeats = script.repeats;
    }

    pub(super) fn requests(&self) -> Vec<RecordedRequest> {
        self.lock().requests.clone()
    }

    pub(super) fn unexpected(&self) -> Vec<String> {
        self.lock().unexpected.clone()
    }

    pub(super) fn unused(&self) -> Vec<String> {
        let record = self.lock();
        let unused = record.scripts.iter().filter(|queue| queue.left() > 0);
        unused
            .map(|queue| format!("{} has {} answer(s) left", queue.name(), queue.left()))
            .collect()
    }

    pub(super) async fn until(&self, done: impl Fn(&[RecordedRequest]) -> bool) {
        let mut changes = self.changes.subscribe();
        while !done(&self.lock().requests) {
            // The sender lives in `self`, so this ends only by a change.
            let _ = changes.changed().await;
        }
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Records a request and takes its answer.
    fn admit(self: &Arc<Self>, headers: &HeaderMap, body: Value) -> (Ticket, Answer, Serial) {
        let prompt = user_texts(&body).pop().unwrap_or_default();
        let mut record = self.lock();
        let chosen = record
            .scripts
            .iter()
            .enumerate()
            .filter(|(_, queue)| {
                let needle = queue.needle.as_deref().unwrap_or_default();
                prompt.contains(needle)
            })
            .max_by_key(|(_, queue)| queue.needle.as_ref().map(String::len))
            .map(|(index, _)| index);

        let mut serial = Serial { script: chosen.unwrap_or(record.scripts.len()), answer: 0 };
        let (answer, needle, complaint) = match chosen {
            None => (None, None, "no script matches".to_owned()),
            Some(index) => {
                let queue = &mut record.scripts[index];
                serial.answer = queue.served;
                let complaint = format!("{} is used up", queue.name());
                (queue.next(), queue.needle.clone(), complaint)
            }
        };
        let index = record.requests.len();
        let answer = answer.unwrap_or_else(|| {
            let text = format!("model server: {complaint}: request {index}, prompt {prompt:?}");
            record.unexpected.push(text.clone());
            Answer::status(StatusCode::BAD_REQUEST.as_u16(), text)
        });
        record.requests.push(RecordedRequest {
            index,
            body,
            headers: headers
                .iter()
                .map(|(name, value)| {
                    let value = String::from_utf8_lossy(value.as_bytes());
                    (name.as_str().to_owned(), value.into_owned())
                })
                .collect(),
            needle,
            started: Instant::now(),
            ended: None,
            outcome: Outcome::Open,
        });
        drop(record);
        self.changed();
        let ticket = Ticket { shared: Arc::clone(self), index };
        (ticket, answer, serial)
    }

    fn refuse(&self, text: String) -> Response {
        self.lock().unexpected.push(text.clone());
        self.changed();
        (StatusCode::BAD_REQUEST, text).into_response()
    }
}

/// Stands for a request that is being answered. Dropped without [`Ticket::answered`], it records that codex hung up: the HTTP
/// server drops the answer when the connection ends.
struct Ticket {
    shared: Arc<Shared>,
    index: usize,
}

impl Ticket {
    fn answered(&self) {
        self.close(Outcome::Answered);
    }

    fn close(&self, outcome: Outcome) {
        {
            let request = &mut self.shared.lock().requests[self.index];
            if request.ended.is_some() {
                return;
            }
            request.ended = Some(Instant::now());
            request.outcome = outcome;
        }
        self.shared.changed();
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.close(Outcome::HungUp);
    }
}

/// Serves until `stopped` fires or its sender is gone. Runs on a thread of its own.
pub(super) fn run(listener: TcpListener, shared: Arc<Shared>, stopped: oneshot::Receiver<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("build the model server's runtime");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).expect("take over the listener");
        let app = Router::new()
            .route("/v1/responses", post(responses))
            .route("/v1/models", get(async || r#"{"models":[]}"#))
            .fallback(unknown)
            .layer(DefaultBodyLimit::disable())
            .with_state(shared);
        tokio::select! {
            served = axum::serve(listener, app) => served.expect("serve"),
            _ = stopped => {}
        }
    });
    // Dropping the runtime drops its connections, whatever they were waiting for.
}

async fn unknown(State(shared): State<Arc<Shared>>, method: Method, uri: Uri) -> Response {
    shared.refuse(format!("model server: nothing is at {method} {uri}"))
}

async fn responses(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let body: Value = match serde_json::from_slice(&body) {
        Ok(body) => body,
        Err(error) => return shared.refuse(format!("model server: the body is no JSON: {error}")),
    };
    let (ticket, answer, serial) = shared.admit(&headers, body);
    let head = answer.headers.clone();
    let mut beats = beats(answer, serial);
    // Until something is to be sent, not even the head of the response goes out.
    loop {
        match beats.pop_front() {
            Some(Beat::Wait(gate)) => gate.pass().await,
            Some(Beat::Delay(time)) => tokio::time::sleep(time).await,
            Some(Beat::Hang) => future::pending().await,
            Some(Beat::Reply { status, body }) => {
                ticket.answered();
                return reply(status, &head, Body::from(body));
            }
            Some(first) => {
                beats.push_front(first);
                return event_stream(&head, beats, ticket);
            }
            None => return event_stream(&head, beats, ticket),
        }
    }
}

fn reply(status: u16, head: &[(String, String)], body: Body) -> Response {
    let mut response = Response::builder().status(status);
    for (name, value) in head {
        response = response.header(name, value);
    }
    response.body(body).expect("the script has a valid status and headers")
}

fn event_stream(head: &[(String, String)], beats: VecDeque<Beat>, ticket: Ticket) -> Response {
    let body = stream::unfold((beats, ticket), async |(mut beats, ticket)| {
        loop {
            match beats.pop_front()? {
                Beat::Event(event) => {
                    if beats.is_empty() {
                        ticket.answered();
                    }
                    return Some((Ok(Bytes::from(event)), (beats, ticket)));
                }
                Beat::Wait(gate) => gate.pass().await,
                Beat::Delay(time) => tokio::time::sleep(time).await,
                Beat::Hang => future::pending().await,
                Beat::Cut => {
                    // A body that is pending is flushed: the events before the cut arrive.
                    tokio::task::yield_now().await;
                    ticket.answered();
                    let cut = io::Error::other("cut by the script");
                    return Some((Err(cut), (beats, ticket)));
                }
                Beat::Short | Beat::Reply { .. } => {
                    ticket.answered();
                    return None;
                }
            }
        }
    });
    let kind = ("content-type".to_owned(), "text/event-stream".to_owned());
    reply(200, &[head, &[kind]].concat(), Body::from_stream(body))
}
