//! A conversation for programs that have an agent loop of their own.
//!
//! One thread, begun with the first turn. Each turn is a run like any other, with the session's lock,
//! the limits, the approvals and the tools of its engine, and comes back as a report.
//!
//! Promises:
//! - turns wait in line; every one gets a report, whatever happens to it;
//! - an interrupt is heeded at any moment of a turn, while its process is being started too;
//! - a process that timed out, died or was cut short is retired: the next turn has a fresh one and
//!   the whole history. A turn is never sent twice;
//! - a message that a turn takes is answered: in it, or in another turn of the same run and report;
//! - a thread of its own that codex has not stored, because its first turn was cut short, is begun anew;
//! - dropping the future of a turn interrupts the turn; dropping the conversation closes it.

mod record;
mod report;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt;
use takopi_core::model::{Completed, Reason};
use takopi_core::runner::{Engine, SteerSender, steer_channel};
use takopi_core::{EngineRunner, Host, ResumeToken, RunRequest, Runner, TakopiEvent};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::engine::CodexAppServer;
use super::turn::TurnOptions;
use crate::CODEX;

pub(super) use self::record::Record;
use self::record::Recorded;
pub use self::report::ConversationReport;

/// One conversation with codex. Clones are the same conversation.
///
/// ```no_run
/// use takopi_codex::Codex;
/// use takopi_codex::app_server::{CodexAppServer, Conversation, TurnOptions};
/// use takopi_core::RunRequest;
///
/// # async fn example() {
/// let settings = RunRequest::new("").cwd("/srv/project");
/// let conversation = Conversation::new(CodexAppServer::new(Codex::new()), settings);
/// let turn = conversation.run_turn("what does this project do?", TurnOptions::default()).await;
/// println!("{}", turn.final_text.unwrap_or_default());
/// for message in &turn.messages {
///     println!("{}", serde_json::to_string(message).unwrap_or_default());
/// }
/// conversation.close().await;
/// # }
/// ```
#[derive(Clone)]
pub struct Conversation {
    inner: Arc<Inner>,
}

struct Inner {
    server: Arc<CodexAppServer>,
    host: Option<Host>,
    settings: RunRequest,
    /// One turn at a time.
    line: Semaphore,
    closing: CancellationToken,
    /// The turns that are alive, reported or not.
    running: TaskTracker,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    session: Option<ResumeToken>,
    /// Whether codex has stored the session: the caller resumed it, or a turn of it went well.
    stored: bool,
    turn: Option<Running>,
}

/// The turn at the head of the line.
#[derive(Clone)]
struct Running {
    cancel: CancellationToken,
    steer: SteerSender,
}

impl Conversation {
    /// A conversation on this codex. `settings` has everything but the prompts: directory, limits,
    /// the approval handler, and the session to go on with if it is not a new one.
    pub fn new(server: CodexAppServer, settings: RunRequest) -> Self {
        Self::build(server, settings, None)
    }

    /// The same on a host of one's own.
    pub fn on(host: Host, server: CodexAppServer, settings: RunRequest) -> Self {
        Self::build(server, settings, Some(host))
    }

    fn build(server: CodexAppServer, mut settings: RunRequest, host: Option<Host>) -> Self {
        // Messages come by `steer`; those of another channel are handed back.
        settings.steering = None;
        let running = TaskTracker::new();
        // Which only means that it can be waited for.
        running.close();
        let session = settings.resume.clone();
        let state = State { stored: session.is_some(), session, turn: None };
        Self {
            inner: Arc::new(Inner {
                server: Arc::new(server),
                host,
                settings,
                line: Semaphore::new(1),
                closing: CancellationToken::new(),
                running,
                state: Mutex::new(state),
            }),
        }
    }

    /// The session, once the first turn has begun it.
    pub fn session(&self) -> Option<ResumeToken> {
        self.inner.state().session.clone()
    }

    /// Runs a turn to its end, behind those that were asked for before.
    pub async fn run_turn(
        &self,
        input: impl Into<String>,
        options: TurnOptions,
    ) -> ConversationReport {
        self.watch_turn(input, options, |_| {}).await
    }

    /// Runs a turn to its end, and shows every event of it on the way.
    pub async fn watch_turn(
        &self,
        input: impl Into<String>,
        options: TurnOptions,
        mut watch: impl FnMut(&TakopiEvent),
    ) -> ConversationReport {
        let inner = &*self.inner;
        let permit = tokio::select! {
            biased;
            () = inner.closing.cancelled() => return ConversationReport::closed(),
            permit = inner.line.acquire() => permit,
        };
        let turn = OnStage::enter(inner, options);
        let input = input.into();
        let (mut end, confirmed) = turn.follow(input.clone(), &mut watch).await;
        if !confirmed && inner.forget_unstored(&end) {
            // Nothing was sent yet.
            (end, _) = turn.follow(input, &mut watch).await;
        }
        inner.state().stored |= end.ok;
        watch(&end.clone().into());
        let report = turn.record.report(end);
        drop((turn, permit));
        report
    }

    /// Adds text to the turn that runs or is being started, which answers it. `false` if there is none, or if it did
    /// not take the text.
    pub async fn steer(&self, text: &str) -> bool {
        let running = self.inner.state().turn.clone();
        match running {
            Some(running) => running.steer.send(text).await.is_ok(),
            None => false,
        }
    }

    /// Interrupts the turn that runs or is being started; its report comes as always. `false` if
    /// there is none.
    pub fn interrupt(&self) -> bool {
        let running = self.inner.state().turn.clone();
        running.map(|running| running.cancel.cancel()).is_some()
    }

    /// Ends the conversation: the turn that runs is interrupted, those in line are not begun, and
    /// the process is gone when this returns. The thread stays where codex keeps it.
    pub async fn close(&self) {
        let inner = &*self.inner;
        inner.closing.cancel();
        // First, so that what a turn would keep is not kept any more.
        inner.server.shutdown().await;
        inner.running.wait().await;
        inner.server.shutdown().await;
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Drops the session if a run did not find it, and it is the conversation's own and no turn of it ever went well: codex
    /// may have been ended before it stored the thread. Returns whether it was dropped.
    fn forget_unstored(&self, end: &Completed) -> bool {
        let mut state = self.state();
        let unstored = end.reason == Some(Reason::SessionNotFound) && !state.stored;
        unstored && state.session.take().is_some()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.closing.cancel();
        if let Ok(host) = self.host.clone().map_or_else(Host::global, Ok) {
            host.track(self.server.shutdown());
        }
    }
}

/// The turn whose turn it is, until it is dropped.
struct OnStage<'a> {
    inner: &'a Inner,
    cancel: CancellationToken,
    record: Arc<Record>,
}

impl<'a> OnStage<'a> {
    fn enter(inner: &'a Inner, options: TurnOptions) -> Self {
        let record = Arc::new(Record::new(options));
        Self { inner, cancel: inner.closing.child_token(), record }
    }

    /// Runs the turn, and shows all its events but the end: that is returned, with whether the session was confirmed.
    async fn follow(
        &self,
        input: String,
        watch: &mut impl FnMut(&TakopiEvent),
    ) -> (Completed, bool) {
        let mut events = self.run(input);
        let mut confirmed = false;
        while let Some(event) = events.next().await {
            match event {
                TakopiEvent::Completed(completed) => return (*completed, confirmed),
                event => {
                    watch(&event);
                    if let TakopiEvent::Started(started) = event {
                        self.inner.state().session = Some(started.resume);
                        confirmed = true;
                    }
                }
            }
        }
        let error = "the turn ended without a result";
        (Completed::failure(CODEX, Reason::Protocol, error), confirmed)
    }

    fn run(&self, input: String) -> takopi_core::EventStream {
        let Inner { server, host, settings, running, .. } = self.inner;
        let mut request = settings.clone();
        request.prompt = input;
        request.resume.clone_from(&self.inner.state().session);
        request.cancel = self.cancel.clone();
        let (steer, steering) = steer_channel();
        request.steering = Some(steering);
        self.inner.state().turn = Some(Running { cancel: self.cancel.clone(), steer });
        let engine = Recorded {
            server: server.clone(),
            record: self.record.clone(),
            _running: running.token(),
        };
        let runner = EngineRunner::new(engine);
        // Not kept: what is left of the turn is then with the run alone.
        match host.clone() {
            Some(host) => runner.on(host).run(request),
            None => runner.run(request),
        }
    }
}

impl Drop for OnStage<'_> {
    fn drop(&mut self) {
        self.inner.state().turn = None;
    }
}
