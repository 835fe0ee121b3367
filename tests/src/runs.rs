//! Runs of a [`Runner`], gathered so that a test can ask what happened.

use std::path::{Path, PathBuf};

use futures::StreamExt;
use takopi_core::{
    ActionEvent, ActionKind, Completed, EventStream, Host, Phase, ResumeToken, RunRequest, Runner,
    Started, TakopiEvent,
};

use crate::codex::home::TestHome;
use crate::fake::Control;
use crate::home::Home;
use crate::model::{PATIENCE, within};

/// A request that runs in the home's workspace with the home's environment.
pub fn request(home: &TestHome, prompt: &str) -> takopi_core::RunRequest {
    request_in(&home.workspace(), home.env(), prompt)
}

/// A request that runs in a directory with these variables.
pub(crate) fn request_in(
    directory: &Path,
    env: Vec<(String, String)>,
    prompt: &str,
) -> takopi_core::RunRequest {
    env.into_iter()
        .fold(RunRequest::new(prompt), |request, (name, value)| request.env(name, value))
        .cwd(directory)
}

/// Waits until every run of a host is over, then looks: no process, no lock, no run record.
pub(crate) async fn assert_nothing_left(host: &Host, home: &Home, control: &Control) {
    host.settle().await;
    assert_eq!(home.processes(), [], "takopi reported the end");
    // The control reads the end of a process a moment later.
    control.all_gone().await;
    let records = std::fs::read_dir(host.state_directory().join("runs"));
    let records = records.into_iter().flatten().flatten().map(|entry| entry.path());
    assert_eq!(records.collect::<Vec<_>>(), Vec::<PathBuf>::new(), "run records are left");
}

/// The events of one run. Making one checks the contract: one `Completed`, last; at most one
/// `Started`.
#[derive(Debug)]
pub struct Seen {
    /// All of them, in order.
    pub events: Vec<TakopiEvent>,
}

/// Runs a request to its end.
pub async fn run(runner: &dyn Runner, request: RunRequest) -> Seen {
    finish(runner.run(request), Vec::new()).await
}

/// Reads a stream to its end, behind events that were read before.
pub async fn finish(stream: EventStream, events: Vec<TakopiEvent>) -> Seen {
    within(PATIENCE, "the end of a run", finish_unbounded(stream, events)).await
}

/// Like [`finish`], for callers with a deadline of their own.
pub async fn finish_unbounded(mut stream: EventStream, mut events: Vec<TakopiEvent>) -> Seen {
    while let Some(event) = stream.next().await {
        events.push(event);
    }
    Seen::new(events)
}

/// Reads a stream up to the first event that is looked for, and returns what was read.
pub async fn until(
    stream: &mut EventStream,
    what: &str,
    mut found: impl FnMut(&TakopiEvent) -> bool,
) -> Vec<TakopiEvent> {
    let mut events = Vec::new();
    let read = async {
        while let Some(event) = stream.next().await {
            let last = found(&event);
            events.push(event);
            if last {
                return;
            }
        }
        panic!("the stream ended before {what}: {events:#?}");
    };
    within(PATIENCE, what, read).await;
    events
}

/// Whether the event is a `Started`.
pub fn is_started(event: &TakopiEvent) -> bool {
    matches!(event, TakopiEvent::Started(_))
}

impl Seen {
    fn new(events: Vec<TakopiEvent>) -> Self {
        let count =
            |found: fn(&TakopiEvent) -> bool| events.iter().filter(|event| found(event)).count();
        assert_eq!(count(|event| matches!(event, TakopiEvent::Completed(_))), 1, "{events:#?}");
        assert!(matches!(events.last(), Some(TakopiEvent::Completed(_))), "{events:#?}");
        assert!(count(is_started) <= 1, "{events:#?}");
        Self { events }
    }

    /// The end.
    pub fn completed(&self) -> &Completed {
        match self.events.last() {
            Some(TakopiEvent::Completed(completed)) => completed,
            other => panic!("not the end: {other:?}"),
        }
    }

    /// The end of a run that went well.
    #[track_caller]
    pub fn ok(&self) -> &Completed {
        assert!(self.completed().ok, "{:#?}", self.events);
        self.completed()
    }

    /// The end of a run that did not go well, with this reason.
    #[track_caller]
    pub fn failed(&self, reason: &str) -> &Completed {
        let completed = self.completed();
        let found = completed.reason.as_ref().map(takopi_core::Reason::as_str);
        assert!(!completed.ok && found == Some(reason), "not {reason}: {:#?}", self.events);
        completed
    }

    /// The start.
    #[track_caller]
    pub fn started(&self) -> &Started {
        let started = self.events.iter().find_map(|event| match event {
            TakopiEvent::Started(started) => Some(started),
            _ => None,
        });
        started.unwrap_or_else(|| panic!("not started: {:#?}", self.events))
    }

    /// The session.
    #[track_caller]
    pub fn session(&self) -> ResumeToken {
        self.started().resume.clone()
    }

    /// The actions of a kind.
    pub fn actions(&self, kind: &ActionKind) -> Vec<&ActionEvent> {
        self.events
            .iter()
            .filter_map(|event| match event {
                TakopiEvent::Action(event) if event.action.kind == *kind => Some(event),
                _ => None,
            })
            .collect()
    }

    /// The completed actions of a kind.
    pub fn done(&self, kind: &ActionKind) -> Vec<&ActionEvent> {
        self.actions(kind).into_iter().filter(|event| event.phase == Phase::Completed).collect()
    }

    /// The texts of the messages that were streamed: the pieces of each, joined.
    pub fn streamed(&self) -> Vec<String> {
        let mut texts: Vec<(&str, String)> = Vec::new();
        for event in self.actions(&ActionKind::Answer) {
            let id = event.action.id.as_str();
            if texts.last().is_none_or(|(last, _)| *last != id) {
                texts.push((id, String::new()));
            }
            if let (Some(piece), Some((_, text))) = (event.answer_piece(), texts.last_mut()) {
                text.push_str(piece);
            }
        }
        texts.into_iter().map(|(_, text)| text).collect()
    }

    /// The events without streamed progress, of which there is more or less as the reader is slow or fast.
    pub fn steady(&self) -> impl Iterator<Item = &TakopiEvent> {
        self.events.iter().filter(|event| match event {
            TakopiEvent::Action(event) => event.phase != Phase::Updated,
            _ => true,
        })
    }

    /// One line an event: what it is, its phase, its title.
    pub fn outline(&self) -> Vec<String> {
        Self::lines(self.events.iter())
    }

    /// The outline of [`Seen::steady`].
    pub fn steady_outline(&self) -> Vec<String> {
        Self::lines(self.steady())
    }

    fn lines<'a>(events: impl Iterator<Item = &'a TakopiEvent>) -> Vec<String> {
        events
            .map(|event| match event {
                TakopiEvent::Started(_) => "started".to_owned(),
                TakopiEvent::Action(event) => {
                    let phase = format!("{:?}", event.phase).to_lowercase();
                    format!("{} {phase}: {}", event.action.kind, event.action.title)
                }
                TakopiEvent::Completed(completed) => format!("completed: {}", completed.answer),
                other => format!("{other:?}"),
            })
            .collect()
    }
}
