//! The HTTP side of the model server: finds the script, sends its next answer, keeps the record.

use std::collections::{HashMap, VecDeque};
use std::future;
use std::io;
use std::marker::PhantomData;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures::stream;
use serde_json::Value;
use tokio::sync::{oneshot, watch};

use super::api::{Api, Prompt, Serve};
use super::beat::{Beat, Serial};
use super::record::{Outcome, Recorded};
use super::script::Script;

/// What the server's thread and the test's [`Server`](super::Server) share.
#[derive(Debug)]
pub(super) struct Shared<A: Api> {
    state: Mutex<Record<A>>,
    /// Bumped after every change of the record.
    changes: watch::Sender<u64>,
}

#[derive(Debug)]
struct Record<A: Api> {
    scripts: Vec<Queue<A::Answer>>,
    requests: Vec<Recorded<A>>,
    unexpected: Vec<String>,
}

impl<A: Api> Default for Shared<A> {
    fn default() -> Self {
        let record = Record { scripts: Vec::new(), requests: Vec::new(), unexpected: Vec::new() };
        Self { state: Mutex::new(record), changes: watch::Sender::default() }
    }
}

/// A script, and how often each of its answers was sent.
#[derive(Debug)]
struct Queue<T> {
    needle: Option<String>,
    answers: Vec<(T, usize)>,
    repeats: bool,
    /// How often a request of this place and identity came.
    attempts: HashMap<(usize, String), usize>,
}

impl<T: Clone> Queue<T> {
    fn name(&self) -> String {
        match &self.needle {
            Some(needle) => format!("the script for {needle:?}"),
            None => "the script for other prompts".into(),
        }
    }

    /// The place of the answer to a request of this step.
    fn place(&self, step: Option<usize>) -> Option<usize> {
        let last = self.answers.len().checked_sub(1)?;
        let unused = || self.answers.iter().position(|(_, served)| *served == 0);
        match step.or_else(unused) {
            Some(place) if place <= last => Some(place),
            _ => self.repeats.then_some(last),
        }
    }

    /// Takes the answer at a place, with the number of times that this very request came before.
    fn take(&mut self, place: usize, identity: String) -> (T, usize) {
        let (answer, served) = &mut self.answers[place];
        *served += 1;
        let attempts = self.attempts.entry((place, identity)).or_default();
        *attempts += 1;
        (answer.clone(), *attempts - 1)
    }

    fn left(&self) -> usize {
        self.answers.iter().filter(|(_, served)| *served == 0).count()
    }
}

impl<A: Api> Shared<A> {
    fn lock(&self) -> MutexGuard<'_, Record<A>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, needle: Option<&str>, script: Script<A::Answer>) {
        let mut record = self.lock();
        let known = record.scripts.iter().position(|queue| queue.needle.as_deref() == needle);
        let index = known.unwrap_or(record.scripts.len());
        if known.is_none() {
            record.scripts.push(Queue {
                needle: needle.map(str::to_owned),
                answers: Vec::new(),
                repeats: false,
                attempts: HashMap::new(),
            });
        }
        let queue = &mut record.scripts[index];
        assert!(!queue.repeats, "{} repeats and cannot be added to", queue.name());
        queue.answers.extend(script.answers.into_iter().map(|answer| (answer, 0)));
        queue.repeats = script.repeats;
    }

    pub(super) fn requests(&self) -> Vec<Recorded<A>> {
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

    pub(super) async fn until(&self, done: impl Fn(&[Recorded<A>]) -> bool) {
        let mut changes = self.changes.subscribe();
        while !done(&self.lock().requests) {
            // The sender lives in `self`, so this ends only by a change.
            let _ = changes.changed().await;
        }
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    fn refuse(&self, text: String) -> Response {
        self.lock().unexpected.push(text.clone());
        self.changed();
        (StatusCode::BAD_REQUEST, text).into_response()
    }
}

impl<A: Api> Record<A> {
    /// The script whose needle is in the latest prompt that has one, or else the one for other prompts, with that prompt.
    fn choose<'a>(&self, prompts: &'a [Prompt]) -> (Option<usize>, Option<&'a Prompt>) {
        let longest = |prompt: &Prompt| {
            let scripts = self.scripts.iter().enumerate();
            scripts
                .filter_map(|(index, queue)| Some((index, queue.needle.as_ref()?)))
                .filter(|(_, needle)| prompt.text.contains(needle.as_str()))
                .max_by_key(|(_, needle)| needle.len())
                .map(|(index, _)| index)
        };
        let named = prompts.iter().find_map(|prompt| Some((longest(prompt)?, prompt)));
        match named {
            Some((index, prompt)) => (Some(index), Some(prompt)),
            None => (self.scripts.iter().position(|queue| queue.needle.is_none()), prompts.first()),
        }
    }
}

impl<A: Serve> Shared<A> {
    /// Records a request and takes its answer.
    fn admit(self: &Arc<Self>, headers: &HeaderMap, body: Value) -> (Ticket<A>, A::Answer, Serial) {
        let prompts = A::prompts(&body);
        let mut record = self.lock();
        let (chosen, prompt) = record.choose(&prompts);
        let request = record.requests.len();
        let mut serial =
            Serial { script: chosen.unwrap_or(record.scripts.len()), answer: 0, request };
        let (answer, needle, complaint) = match chosen {
            None => (None, None, "no script matches".to_owned()),
            Some(index) => {
                let queue = &mut record.scripts[index];
                let complaint = format!("{} is used up", queue.name());
                let place = queue.place(prompt.and_then(|prompt| prompt.step));
                serial.answer = place.unwrap_or_default();
                let taken = place.map(|place| queue.take(place, A::identity(&body)));
                (taken.map(|(answer, n)| A::attempt(answer, n)), queue.needle.clone(), complaint)
            }
        };
        let answer = answer.unwrap_or_else(|| {
            let prompt = prompt.map(|prompt| prompt.text.as_str()).unwrap_or_default();
            let text = format!("model server: {complaint}: request {request}, prompt {prompt:?}");
            record.unexpected.push(text.clone());
            A::refusal(text)
        });
        record.requests.push(Recorded {
            index: request,
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
            api: PhantomData,
        });
        drop(record);
        self.changed();
        let ticket = Ticket { shared: Arc::clone(self), index: Some(request) };
        (ticket, answer, serial)
    }
}

/// Stands for a request that is being answered. Dropped without [`Ticket::answered`], it records that the agent hung up: the
/// HTTP server drops the answer when the connection ends.
struct Ticket<A: Api> {
    shared: Arc<Shared<A>>,
    /// The request in the record, if it is there.
    index: Option<usize>,
}

impl<A: Api> Ticket<A> {
    fn answered(&self) {
        self.close(Outcome::Answered);
    }

    fn close(&self, outcome: Outcome) {
        let Some(index) = self.index else { return };
        {
            let request = &mut self.shared.lock().requests[index];
            if request.ended.is_some() {
                return;
            }
            request.ended = Some(Instant::now());
            request.outcome = outcome;
        }
        self.shared.changed();
    }
}

impl<A: Api> Drop for Ticket<A> {
    fn drop(&mut self) {
        self.close(Outcome::HungUp);
    }
}

/// Serves until `stopped` fires or its sender is gone. Runs on a thread of its own.
pub(super) fn run<A: Serve>(
    listener: TcpListener,
    shared: Arc<Shared<A>>,
    stopped: oneshot::Receiver<()>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("build the model server's runtime");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).expect("take over the listener");
        let app = A::beside(Router::new())
            .route(A::PATH, post(answer::<A>))
            .fallback(unknown::<A>)
            .layer(DefaultBodyLimit::disable())
            .with_state(shared);
        tokio::select! {
            served = axum::serve(listener, app) => served.expect("serve"),
            _ = stopped => {}
        }
    });
    // Dropping the runtime drops its connections, whatever they were waiting for.
}

async fn unknown<A: Api>(
    State(shared): State<Arc<Shared<A>>>,
    method: Method,
    uri: Uri,
) -> Response {
    shared.refuse(format!("model server: nothing is at {method} {uri}"))
}

async fn answer<A: Serve>(
    State(shared): State<Arc<Shared<A>>>,
    address: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let body: Value = match serde_json::from_slice(&body) {
        Ok(body) => A::request(&address, body),
        Err(error) => return shared.refuse(format!("model server: the body is no JSON: {error}")),
    };
    let (ticket, answer, serial) = if let Some(answer) = A::aside(&body) {
        let serial = Serial { script: 0, answer: 0, request: usize::MAX };
        (Ticket { shared, index: None }, answer, serial)
    } else {
        shared.admit(&headers, body.clone())
    };
    let (head, mut beats) = A::beats(answer, serial, &body);
    drop(body);
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
            Some(Beat::Drop) => {
                ticket.answered();
                // Unwinding ends the task of the connection, and so the connection. The panic hook is not called.
                std::panic::resume_unwind(Box::new("dropped by the script"));
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

fn event_stream<A: Api>(
    head: &[(String, String)],
    beats: VecDeque<Beat>,
    ticket: Ticket<A>,
) -> Response {
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
                Beat::Short | Beat::Drop | Beat::Reply { .. } => {
                    ticket.answered();
                    return None;
                }
            }
        }
    });
    let kind = ("content-type".to_owned(), "text/event-stream".to_owned());
    reply(200, &[head, &[kind]].concat(), Body::from_stream(body))
}
