//! A scripted runner, and a directory for the files.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::Value;
use takopi_batch::{Batch, BatchError, BatchEvent, JobResult, Journal, Outcome, Source};
use takopi_core::demo::Demo;
use takopi_core::runner::ResumeCodec;
use takopi_core::{
    Completed, EngineId, EventStream, RateLimits, Reason, ResumeToken, RunRequest, Runner, Started,
    TakopiEvent, Usage,
};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What a run does.
#[derive(Clone)]
pub(crate) enum Play {
    /// It answers.
    Say(&'static str),
    /// It fails.
    Fail(Reason, &'static str),
    /// Fails with this error, and reports the limits of the account.
    Limited(RateLimits, Reason, &'static str),
    /// It fails after these events.
    FailAfter(Vec<TakopiEvent>, Reason, &'static str),
    /// It takes this long, and answers.
    Take(Duration),
    /// It goes on until it is cancelled.
    Hang,
    /// It does so before it has a conversation.
    HangUnopened,
}

/// One run, as the runner saw it.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) prompt: String,
    pub(crate) resume: Option<String>,
    pub(crate) key: String,
    pub(crate) at: Instant,
}

#[derive(Default)]
struct Inner {
    plays: HashMap<String, Vec<Play>>,
    calls: Vec<Call>,
    open: HashMap<String, usize>,
    running: usize,
    most: usize,
    sessions: usize,
}

/// A runner that plays scripts by prompt; what has none answers `fine`.
#[derive(Clone)]
pub(crate) struct Scripted {
    inner: Arc<Mutex<Inner>>,
    started: Arc<watch::Sender<usize>>,
}

impl Scripted {
    pub(crate) fn new() -> Self {
        Self { inner: Arc::default(), started: Arc::new(watch::channel(0).0) }
    }

    /// The runs of a prompt play these, one each; the last one again and again.
    pub(crate) fn when(&self, prompt: &str, plays: impl IntoIterator<Item = Play>) -> &Self {
        let plays = plays.into_iter().collect();
        self.inner.lock().unwrap().plays.insert(prompt.to_owned(), plays);
        self
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.inner.lock().unwrap().calls.clone()
    }

    pub(crate) fn prompts(&self) -> Vec<String> {
        self.calls().into_iter().map(|call| call.prompt).collect()
    }

    /// How many ran at once, at the most.
    pub(crate) fn most(&self) -> usize {
        self.inner.lock().unwrap().most
    }

    /// Waits until so many runs were begun.
    pub(crate) async fn begun(&self, count: usize) {
        self.started.subscribe().wait_for(|begun| *begun >= count).await.unwrap();
    }

    fn begin(&self, request: &RunRequest) -> (Play, ResumeToken) {
        let mut inner = self.inner.lock().unwrap();
        let prompt = request.prompt.clone();
        inner.sessions += usize::from(request.resume.is_none());
        let fresh = format!("demo-{}", inner.sessions);
        let session = request.resume.as_ref().map_or(fresh, |token| token.value.clone());
        let before = inner.calls.iter().filter(|call| call.prompt == prompt).count();
        let play = inner
            .plays
            .get(&prompt)
            .map_or(Play::Say("fine"), |plays| plays[before.min(plays.len() - 1)].clone());
        let resume = request.resume.as_ref().map(|token| token.value.clone());
        let key = request.key.clone().unwrap_or_default();
        inner.calls.push(Call { prompt, resume, key, at: Instant::now() });
        inner.running += 1;
        inner.most = inner.most.max(inner.running);
        let open = inner.open.entry(session.clone()).or_default();
        *open += 1;
        assert_eq!(*open, 1, "two runs on {session} at once");
        let begun = inner.calls.len();
        drop(inner);
        self.started.send_replace(begun);
        (play, ResumeToken::new("demo", session))
    }

    fn end(&self, token: &ResumeToken) {
        let mut inner = self.inner.lock().unwrap();
        inner.running -= 1;
        *inner.open.get_mut(&token.value).unwrap() -= 1;
    }
}

/// Ends the run however its stream ends.
struct Running(Scripted, ResumeToken);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.end(&self.1);
    }
}

impl Runner for Scripted {
    fn engine(&self) -> EngineId {
        EngineId::from_static("demo")
    }

    fn run(&self, request: RunRequest) -> EventStream {
        let (play, token) = self.begin(&request);
        let running = Running(self.clone(), token.clone());
        // A session that is none is found out before it is opened.
        let found = !matches!(
            play,
            Play::Fail(Reason::SessionNotFound | Reason::EngineMissing, _) | Play::HangUnopened
        );
        let events = async_stream::stream! {
            if found {
                yield Started::new(token.clone()).into();
            }
            let completed = |ok: Completed| vec![ok.resume(Some(token.clone())).into()];
            let fail = |reason, error| completed(Completed::failure("demo", reason, error));
            let mut usage = Usage::default();
            (usage.input_tokens, usage.output_tokens) = (10, 2);
            let say = move |answer: &str| {
                completed(Completed::success("demo", answer).usage(Some(usage.clone())))
            };
            let interrupted = || fail(Reason::Interrupted, "interrupted");
            let events: Vec<TakopiEvent> = match play {
                Play::Say(answer) => {
                    // Others get their turn.
                    tokio::task::yield_now().await;
                    say(answer)
                }
                Play::Fail(reason, error) => fail(reason, error),
                Play::FailAfter(mut events, reason, error) => {
                    events.extend(fail(reason, error));
                    events
                }
                Play::Limited(limits, reason, error) => {
                    completed(Completed::failure("demo", reason, error).rate_limits(Some(limits)))
                }
                Play::Take(time) => tokio::select! {
                    () = request.cancel.cancelled() => interrupted(),
                    () = tokio::time::sleep(time) => say("fine"),
                },
                Play::Hang | Play::HangUnopened => {
                    request.cancel.cancelled().await;
                    interrupted()
                }
            };
            drop(running);
            for event in events {
                yield event;
            }
        };
        EventStream::new(self.engine(), events)
    }

    fn resume_codec(&self) -> ResumeCodec {
        Demo::new().runner().resume_codec()
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        futures::future::ready(()).boxed()
    }
}

/// A runner and a place for the files.
pub(crate) struct Lab {
    directory: tempfile::TempDir,
    pub(crate) runner: Scripted,
}

/// What came of a batch.
pub(crate) struct Ran {
    pub(crate) outcome: Result<Outcome, BatchError>,
    pub(crate) events: Vec<BatchEvent>,
}

impl Lab {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), runner: Scripted::new() }
    }

    pub(crate) fn out(&self) -> PathBuf {
        self.directory.path().join("out.jsonl")
    }

    pub(crate) fn batch(&self) -> Batch {
        Batch::new(Arc::new(self.runner.clone())).jobs(4)
    }

    /// Runs a batch into the file.
    pub(crate) async fn run(&self, batch: Batch, input: &str) -> Ran {
        run(batch, Source::new(std::io::Cursor::new(input.to_owned())), self.journal()).await
    }

    pub(crate) fn journal(&self) -> Journal {
        Journal::open(self.out()).unwrap()
    }

    pub(crate) fn results(&self) -> Vec<JobResult> {
        let text = std::fs::read_to_string(self.out()).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'), "every line is whole: {text:?}");
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The ids of the results, with their attempts and reasons.
    pub(crate) fn outline(&self) -> Vec<String> {
        let mut outline: Vec<String> = self
            .results()
            .iter()
            .map(|result| {
                let reason = result.reason.as_ref().map_or("ok", Reason::as_str);
                format!("{} {reason} {}", result.id, result.attempts)
            })
            .collect();
        outline.sort();
        outline
    }

    /// Runs a batch, and stops it in good order when so many runs were begun.
    pub(crate) async fn stop(&self, batch: Batch, input: &str, begun: usize) {
        let begun = self.runner.calls().len() + begun;
        let stop = CancellationToken::new();
        let stopping = async {
            self.runner.begun(begun).await;
            stop.cancel();
        };
        let batch = batch.stop(stop.clone()).grace(Duration::ZERO);
        tokio::join!(self.run(batch, input), stopping);
    }

    /// Has a batch in flight, and lets it die when so many runs were begun.
    pub(crate) async fn crash(&self, batch: Batch, input: &str, begun: usize) {
        let begun = self.runner.calls().len() + begun;
        let running = self.run(batch, input);
        tokio::select! {
            _ = running => panic!("the batch was over before it was killed"),
            () = self.runner.begun(begun) => {}
        }
        // The kernel closes a dead process's files at once; the thread here takes a moment.
        while Journal::open(self.out()).is_err() {
            tokio::task::yield_now().await;
        }
    }
}

/// Runs a batch and collects its events.
pub(crate) async fn run(batch: Batch, source: Source, journal: Journal) -> Ran {
    let (events, mut told) = mpsc::channel(16);
    let read = AtomicBool::new(false);
    let gather = async {
        let mut events = Vec::new();
        while let Some(event) = told.recv().await {
            let over = matches!(event, BatchEvent::Read { over: true, .. });
            read.fetch_or(over, Ordering::SeqCst);
            events.push(event);
        }
        read.store(true, Ordering::SeqCst);
        events
    };
    // A paused clock jumps ahead when there is nothing to do, though the thread that reads the input
    // has something to do. So there is something to do until all is read.
    let hold_the_clock = async {
        while !read.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
    };
    let (outcome, events, ()) =
        tokio::join!(batch.run(source, journal, events), gather, hold_the_clock);
    Ran { outcome, events }
}

impl Ran {
    pub(crate) fn outcome(&self) -> &Outcome {
        self.outcome.as_ref().unwrap()
    }

    /// The types of the events, without those of single jobs that went well.
    pub(crate) fn told(&self, kind: &str) -> Vec<Value> {
        let events = self.events.iter().map(|event| serde_json::to_value(event).unwrap());
        events.filter(|event| event["type"] == kind).collect()
    }
}

/// One JSON line a job: id, prompt, session.
pub(crate) fn jobs(jobs: &[(&str, &str, &str)]) -> String {
    let line = |(id, prompt, session): &(&str, &str, &str)| {
        let mut job = serde_json::json!({ "id": id, "prompt": prompt });
        if !session.is_empty() {
            job["session"] = (*session).into();
        }
        format!("{job}\n")
    };
    jobs.iter().map(line).collect()
}
