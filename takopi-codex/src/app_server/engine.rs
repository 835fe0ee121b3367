//! The engine: runs turns on app-servers.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use takopi_core::keeper::Keeper;
use takopi_core::locks::{SessionKey, SessionLease};
use takopi_core::model::{Completed, Reason};
use takopi_core::runner::{Engine, EngineRun, ResumeCodec, RunError, STOP_LIMIT};
use takopi_core::tools::{HostTool, HostTools};
use takopi_core::{EngineId, RunRequest};

use super::approvals::RequestHandler;
use super::conversation::Record;
use super::driver::{ServerHealth, ServerUse, TurnDriver};
use super::error::ClientError;
use super::limits::TurnLimits;
use super::servers::{AppServer, PoolLimits, keeper};
use super::session::{OpenError, OpenSession, Origin};
use super::thread::RESUME;
use super::translator::TurnTranslator;
use crate::exec::{check_request, directory_of};
use crate::failure::{advised, reason_of_refusal, reason_on_stderr};
use crate::{CODEX, Codex, rates, resume_codec};

/// How long a session is kept warm by default.
const KEEP_WARM: Duration = Duration::from_mins(1);
/// How long a shared server may take at most to begin and end a turn that was cancelled. What comes behind it, the turns of
/// sub-agents (10 s), background terminals (10 s) and a sweep (6 s), must also be over within [`STOP_LIMIT`]: then the run is
/// dropped as it is.
const LONGEST_RESPONSE: Duration = Duration::from_secs(30);
const _: () = assert!(LONGEST_RESPONSE.as_secs() + 30 <= STOP_LIMIT.as_secs());

/// Codex over `codex app-server`, as an engine. Made into a runner by
/// [`Codex::app_server`](crate::Codex::app_server).
pub struct CodexAppServer {
    codex: Codex,
    keep_warm: Duration,
    /// How sessions share servers, if they do.
    pub(super) pool: Option<PoolLimits>,
    pub(super) keeper: Keeper<AppServer>,
    pub(super) tools: Arc<HostTools>,
    limits: TurnLimits,
}

impl CodexAppServer {
    /// Runs this codex, and keeps sessions warm for a minute.
    pub fn new(codex: Codex) -> Self {
        Self {
            codex,
            keep_warm: KEEP_WARM,
            pool: None,
            keeper: keeper(None, KEEP_WARM),
            tools: Arc::default(),
            limits: TurnLimits::default(),
        }
    }

    /// Keeps sessions warm for this long after a run; not at all if it is zero. In shared mode it is
    /// the time for which idle processes are kept.
    pub fn keep_warm(mut self, time: Duration) -> Self {
        self.keep_warm = time;
        self.keeper = keeper(self.pool, time);
        self
    }

    /// Puts many sessions on few processes, for batches. A session whose consumer stops reading is
    /// then ended (`consumer_stalled`), because its neighbours cannot wait.
    pub fn shared(mut self, limits: PoolLimits) -> Self {
        self.pool = Some(limits);
        self.keeper = keeper(self.pool, self.keep_warm);
        self
    }

    /// Offers a tool of the host to the sessions that are begun; sessions keep the tools they were
    /// begun with. One of the same name is replaced.
    pub fn tool(mut self, tool: HostTool) -> Self {
        Arc::make_mut(&mut self.tools).add(tool);
        self
    }

    /// Ends a turn in which codex is silent for this long after a tool (`timeout_idle`), a sign of a
    /// process that hangs. Off unless set.
    pub fn post_tool_quiet(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.limits.post_tool_quiet = limit.into();
        self
    }

    /// Ends a turn that takes longer than this (`timeout_wall`), whatever happens in it. Off unless
    /// set.
    pub fn turn_limit(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.limits.turn = limit.into();
        self
    }

    async fn turn(&self, run: &EngineRun, record: Option<&Record>) -> Result<(), OpenError> {
        let directory = run.request.working_directory()?;
        let mut launch = self.codex.server_launch(&run.request);
        launch.patient = self.pool.is_none();
        let opened = self.open(run, launch, &directory).await;
        if let (Some(record), Err(_)) = (record, &opened) {
            record.ended(true);
        }
        let session = opened?;
        let fresh = run.resume.is_none();
        let server_use = match self.pool {
            Some(limits) => ServerUse::Shared {
                patience: limits.patience,
                response: limits.response.min(LONGEST_RESPONSE),
            },
            None => ServerUse::Own,
        };
        let driver = TurnDriver {
            run,
            client: session.client(),
            thread: &session.loaded.thread,
            moved: session.loaded.moved,
            directory: directory.clone(),
            translator: TurnTranslator::new(self.codex.title(), directory_of(&directory), fresh)
                .deltas(run.request.deltas),
            requests: RequestHandler::new(
                run.clone(),
                self.tools.clone(),
                session.loaded.thread.id(),
                directory,
            ),
            limits: self.limits,
            server_use,
            record,
            events: Vec::new(),
            stalled: false,
            give_up_at: None,
            late: None,
        };
        let end = driver.run().await;
        if session.origin == Origin::Kept && end.never_began {
            return self.replace(run, session, record).await;
        }
        if let Some(record) = record {
            record.ended(match end.server {
                ServerHealth::Usable => false,
                ServerHealth::Interrupted => server_use == ServerUse::Own,
                ServerHealth::Broken => true,
            });
        }
        // Before the end is emitted: a shutdown behind it must find the session, and a consumer that
        // sees the end of a run that was cut short knows that nothing is left of it.
        self.release(run, session, end.server, end.late).await;
        // Of a run that was stopped the end is still taken, for its answer.
        let _ = run.emit_all(end.last_events).await;
        run.emit(end.completed).await?;
        Ok(())
    }

    /// Runs the turn on another server: the one that kept the session had died, and never began the
    /// turn. Only once, because the session is then opened anew.
    async fn replace(
        &self,
        run: &EngineRun,
        session: OpenSession,
        record: Option<&Record>,
    ) -> Result<(), OpenError> {
        if self.pool.is_none() {
            session.client().kill_sparing(session.before).await;
        }
        session.seat.abandon(None);
        Box::pin(self.turn(run, record)).await
    }

    /// Runs a turn, and records it if it is one of a conversation.
    pub(super) async fn run_recorded(&self, run: EngineRun, record: Option<&Record>) {
        let refusal = match self.turn(&run, record).await {
            Ok(()) | Err(OpenError::Stopped) => return,
            Err(OpenError::Refused(refusal)) => refusal,
            Err(OpenError::Failed(error)) => refusal_of(&error),
        };
        refuse(&run, refusal).await;
    }
}

/// Ends a run that failed before its turn.
async fn refuse(run: &EngineRun, refusal: RunError) {
    if let Some(warning) = run.stderr_warning(&refusal)
        && run.emit(warning).await.is_err()
    {
        return;
    }
    let completed = Completed::failure(CODEX, refusal.reason, refusal.message);
    let rate_limits = rates::at_end(&completed, None);
    let _ = run.emit(completed.rate_limits(rate_limits)).await;
}

impl Engine for CodexAppServer {
    fn id(&self) -> EngineId {
        CODEX
    }

    fn resume_codec(&self) -> ResumeCodec {
        resume_codec()
    }

    fn check(&self, request: &RunRequest) -> Result<(), RunError> {
        check_request(request)
    }

    fn can_be_ephemeral(&self) -> bool {
        true
    }

    fn is_steerable(&self) -> bool {
        true
    }

    fn run(self: Arc<Self>, run: EngineRun) -> BoxFuture<'static, ()> {
        Box::pin(async move { self.run_recorded(run, None).await })
    }

    fn take_lease(&self, key: &SessionKey) -> Option<SessionLease> {
        self.keeper.take_lease(key)
    }

    fn shutdown(&self) -> BoxFuture<'static, ()> {
        let keeper = self.keeper.clone();
        Box::pin(async move { keeper.shutdown().await })
    }
}

/// A fault of the server as the end of a run.
pub(super) fn refusal_of(error: &ClientError) -> RunError {
    let reason = match error {
        ClientError::Spawn(error) => error.reason(),
        ClientError::TooOld { .. } => Reason::EngineTooOld,
        // The stderr of a dying process counts last, and only if it is unambiguous.
        ClientError::Closed { method, stderr_tail } => {
            reason_on_stderr(stderr_tail, method == RESUME).unwrap_or(Reason::ProcessDied)
        }
        ClientError::Stalled { .. } => Reason::ConsumerStalled,
        ClientError::Refused { message, data, .. } => reason_of_refusal(message, data.as_deref()),
        _ => Reason::Protocol,
    };
    let refusal = RunError::new(reason.clone(), advised(&reason, error.to_string()));
    match error {
        ClientError::Closed { stderr_tail, .. } => refusal.stderr_tail(stderr_tail),
        _ => refusal,
    }
}
