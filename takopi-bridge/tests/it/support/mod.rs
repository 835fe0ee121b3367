//! An engine whose runs are played by the test, on the test's own clock.

#![allow(dead_code, unreachable_pub, reason = "every test file uses a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use std::sync::{Arc, Mutex};

use futures::StreamExt;
use futures::future::BoxFuture;
use takopi_bridge::{Incoming, Place};
use takopi_core::runner::ResumeCodec;
use takopi_core::{
    Action, ActionEvent, ActionKind, Completed, EngineId, EventStream, Phase, Reason, ResumeToken,
    RunRequest, Runner, Started, TakopiEvent,
};
use tokio::sync::mpsc;

pub const LAB: EngineId = EngineId::from_static("lab");

fn codec(engine: &EngineId) -> ResumeCodec {
    let command = if *engine == LAB { "lab resume" } else { "other resume" };
    ResumeCodec::new(engine.clone(), command, |id| {
        id.bytes().all(|byte| byte.is_ascii_alphanumeric()).then(|| id.to_ascii_lowercase())
    })
}

/// A runner whose runs come out at [`Runs`].
pub struct Lab {
    engine: EngineId,
    runs: mpsc::UnboundedSender<Run>,
}

/// The runs of a [`Lab`], in the order they began.
pub struct Runs(mpsc::UnboundedReceiver<Run>);

impl Runs {
    pub async fn next(&mut self) -> Run {
        self.0.recv().await.unwrap()
    }

    /// Whether no run began that was not looked at.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A run, played by the test. Cancelled, it ends by itself.
pub struct Run {
    pub request: RunRequest,
    engine: EngineId,
    events: mpsc::UnboundedSender<TakopiEvent>,
    said: Arc<Mutex<Option<ResumeToken>>>,
}

pub fn lab() -> (Arc<Lab>, Runs) {
    engine(LAB)
}

pub fn engine(engine: EngineId) -> (Arc<Lab>, Runs) {
    let (runs, receiver) = mpsc::unbounded_channel();
    (Arc::new(Lab { engine, runs }), Runs(receiver))
}

impl Runner for Lab {
    fn engine(&self) -> EngineId {
        self.engine.clone()
    }

    fn run(&self, request: RunRequest) -> EventStream {
        let (events, mut receiver) = mpsc::unbounded_channel();
        let said = Arc::new(Mutex::new(request.resume.clone()));
        let cancel = request.cancel.clone();
        let run = Run { request, engine: self.engine.clone(), events, said: said.clone() };
        let (engine, _) = (self.engine.clone(), self.runs.send(run));
        let events = futures::stream::poll_fn(move |context| receiver.poll_recv(context))
            .take_until(cancel.clone().cancelled_owned())
            .chain(futures::stream::once(async move {
                let token = said.lock().unwrap().clone();
                Completed::failure(engine, Reason::Interrupted, "interrupted").resume(token).into()
            }));
        EventStream::new(self.engine(), events)
    }

    fn resume_codec(&self) -> ResumeCodec {
        codec(&self.engine)
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

impl Run {
    pub fn emit(&self, event: impl Into<TakopiEvent>) {
        // The events of a cancelled run are not read any more.
        let _ = self.events.send(event.into());
    }

    pub fn started(&self, session: &str) {
        let token = ResumeToken::new(self.engine.clone(), session.to_owned());
        *self.said.lock().unwrap() = Some(token.clone());
        self.emit(Started::new(token).title("Lab"));
    }

    pub fn act(&self, id: &str, phase: Phase) {
        let action = Action::new(id, ActionKind::Command, id);
        self.emit(ActionEvent::new(self.engine.clone(), action, phase).ok(true));
    }

    pub fn done(&self, answer: &str) {
        let token = self.said.lock().unwrap().clone();
        self.emit(Completed::success(self.engine.clone(), answer).resume(token));
    }

    pub fn fail(&self, error: &str) {
        let token = self.said.lock().unwrap().clone();
        let end = Completed::failure(self.engine.clone(), Reason::EngineFailed, error);
        self.emit(end.answer("half an answer").resume(token));
    }

    /// Its session, once it is known.
    pub fn session(&self) -> Option<ResumeToken> {
        self.said.lock().unwrap().clone()
    }

    /// Whether its events are not read any more.
    pub fn is_dropped(&self) -> bool {
        self.events.is_closed()
    }

    /// Rejects messages for its running turn.
    pub fn rejects_steering(&mut self) {
        self.request.steering = None;
    }
}

/// A message in the chat `general`.
pub fn message(id: &str, text: &str) -> Incoming {
    Incoming::new(Place::new("general"), id, text).by("alice")
}

pub fn token(id: &str) -> ResumeToken {
    ResumeToken::new(LAB, id.to_owned())
}

/// Lets every task do what it can without time passing.
pub async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}
