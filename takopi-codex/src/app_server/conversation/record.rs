//! What is kept of a turn while it runs, for its report.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use takopi_core::locks::{SessionKey, SessionLease};
use takopi_core::model::{Completed, Reason};
use takopi_core::runner::{Engine, EngineRun, ResumeCodec, RunError};
use takopi_core::{EngineId, RunRequest};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::report::ConversationReport;
use crate::app_server::engine::CodexAppServer;
use crate::app_server::notification::{Kind, Notification};
use crate::app_server::transcript::Transcript;
use crate::app_server::turn::{TurnOptions, TurnStream, record_message};
use crate::common::Answer;

/// One turn of a conversation.
pub(in crate::app_server) struct Record {
    options: TurnOptions,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    transcript: Transcript,
    answer: Answer,
    /// The thread and the turn, once it was started.
    turn: Option<(String, String)>,
    retired: bool,
}

impl Record {
    pub(super) fn new(options: TurnOptions) -> Self {
        Self { options, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The turn's own settings over those of its conversation.
    pub(in crate::app_server) fn settings(&self, general: TurnOptions) -> TurnOptions {
        let own = self.options.clone();
        TurnOptions {
            cwd: own.cwd.or(general.cwd),
            model: own.model.or(general.model),
            effort: own.effort.or(general.effort),
            approval_policy: own.approval_policy.or(general.approval_policy),
            sandbox_policy: own.sandbox_policy.or(general.sandbox_policy),
            output_schema: own.output_schema.or(general.output_schema),
            images: if own.images.is_empty() { general.images } else { own.images },
        }
    }

    /// The turn was started, or another one of the same run, whose answer counts then.
    pub(in crate::app_server) fn begun(&self, thread: &str, turn: &TurnStream) {
        let mut state = self.state();
        state.answer = Answer::default();
        state.turn = Some((thread.to_owned(), turn.id().to_owned()));
    }

    /// A notification about the turn.
    pub(in crate::app_server) fn notification(&self, notification: &Notification, kind: &Kind<'_>) {
        let completed = match kind {
            Kind::ItemStarted(_) => false,
            Kind::ItemCompleted(_) => true,
            _ => return,
        };
        // With all its fields: a transcript shows more of an item than its events do.
        let Some(item) = notification.item() else { return };
        let mut state = self.state();
        if completed {
            record_message(&mut state.answer, &item);
            state.transcript.item_completed(&item);
        } else {
            state.transcript.item_started(&item);
        }
    }

    /// The turn is over, and its server goes on or does not.
    pub(in crate::app_server) fn ended(&self, retired: bool) {
        self.state().retired = retired;
    }

    /// The report of the turn.
    pub(super) fn report(&self, completed: Completed) -> ConversationReport {
        let mut state = self.state();
        let (thread, turn_id) = state.turn.clone().unzip();
        ConversationReport {
            final_text: state.answer.take(),
            messages: state.transcript.messages(),
            tool_iterations: state.transcript.tool_calls(),
            interrupted: completed.reason == Some(Reason::Interrupted),
            error: completed.error,
            reason: completed.reason,
            turn_id,
            thread_id: thread.or_else(|| completed.resume.map(|token| token.value)),
            retired: state.retired,
            usage: completed.usage,
        }
    }
}

/// The engine of one turn: the conversation's, with a record of what it does.
pub(super) struct Recorded {
    pub(super) server: Arc<CodexAppServer>,
    pub(super) record: Arc<Record>,
    /// Tells the conversation that something of the turn is alive.
    pub(super) _running: TaskTrackerToken,
}

impl Engine for Recorded {
    fn id(&self) -> EngineId {
        self.server.id()
    }

    fn resume_codec(&self) -> ResumeCodec {
        self.server.resume_codec()
    }

    fn check(&self, request: &RunRequest) -> Result<(), RunError> {
        self.server.check(request)
    }

    fn run(self: Arc<Self>, run: EngineRun) -> BoxFuture<'static, ()> {
        Box::pin(async move { self.server.run_recorded(run, Some(&self.record)).await })
    }

    fn is_steerable(&self) -> bool {
        self.server.is_steerable()
    }

    fn take_lease(&self, key: &SessionKey) -> Option<SessionLease> {
        self.server.take_lease(key)
    }

    fn shutdown(&self) -> BoxFuture<'static, ()> {
        self.server.shutdown()
    }
}
