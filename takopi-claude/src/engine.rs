//! The engine: one process per live session, which runs one message after the other.
//!
//! takopi chooses the id of a new session, so that its lock is held before the process starts. A process
//! that stays warm is a lease on its session: it never sees what another process adds to it, so it is
//! ended when anybody else wants the session.

use std::sync::Arc;

use futures::future::BoxFuture;
use takopi_core::keeper::{Keeper, KeeperLimits, Offer, OpenError, Seat, Server};
use takopi_core::locks::{SessionKey, SessionLease};
use takopi_core::model::{Completed, Reason, ResumeToken};
use takopi_core::process::StartCutoff;
use takopi_core::runner::{Engine, EngineRun, ResumeCodec, RunError, StoppedError};
use takopi_core::tools::HostTools;
use takopi_core::version::{Version, version_on_path};
use takopi_core::{EngineId, RunRequest};
use uuid::Uuid;

use crate::approvals::RequestHandler;
use crate::client::Client;
use crate::driver::{ProcessHealth, RunDriver, RunEnd};
use crate::launch::{ClaudeLaunch, SessionArg};
use crate::options::Options;
use crate::permission_mode::permission_mode;
use crate::prompt::UserMessage;
use crate::translator::{Translator, TurnSetup};
use crate::{CLAUDE, Claude, MINIMUM_VERSION, TITLE, resume_codec};

/// What holds a session whose process is being ended.
const DRAINED: &str = "a process that is being ended";

/// Claude Code as an engine. Made into a runner by [`Claude::runner`].
pub struct ClaudeEngine {
    claude: Claude,
    tools: Arc<HostTools>,
    keeper: Keeper<ClaudeProcess>,
}

/// A process and what it was started with.
struct ClaudeProcess {
    client: Client,
    launch: ClaudeLaunch,
}

/// What is kept of a session between two runs.
#[derive(Debug, Clone, Copy, Default)]
struct Kept {
    /// What the session has cost so far, if the process reported it.
    total_cost: Option<f64>,
}

impl Server for ClaudeProcess {
    type Session = Kept;

    fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    fn close(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move { self.client.close().await })
    }
}

/// A session that a run has on a process.
struct OpenSession {
    seat: Seat<ClaudeProcess>,
    /// What an earlier run left, if the process was there already.
    kept: Option<Kept>,
    /// Processes that were started before are none of the run's business.
    before: StartCutoff,
}

impl ClaudeEngine {
    pub(crate) fn new(claude: Claude) -> Self {
        let tools = Arc::new(claude.tools.clone());
        let keeper = Keeper::new(KeeperLimits::one_session(claude.keep_warm));
        Self { claude, tools, keeper }
    }

    async fn turn(&self, run: &EngineRun) -> Result<(), OpenError> {
        let version = tokio::select! {
            biased;
            () = run.stop().cancelled() => return Err(StoppedError.into()),
            version = version_on_path(run.host(), &self.claude.binary, &self.claude.env_policy, &run.request.env) => version,
        };
        if let Some(found) = version.filter(|version| *version < MINIMUM_VERSION) {
            let error = format!(
                "this is Claude Code {found}, and takopi needs {MINIMUM_VERSION} or newer; update it, \
                 for example with `npm install -g @anthropic-ai/claude-code@latest`"
            );
            return Err(RunError::new(Reason::EngineTooOld, error).into());
        }
        let (launch, message) = self.prepare(run, version).await?;
        let session = match &run.resume {
            Some(session) => session.clone(),
            None => ResumeToken::new(CLAUDE, Uuid::new_v4().to_string()),
        };
        run.claim_session(&session).await?;
        let opened = self.open(run, &session, &launch).await?;
        let process = opened.seat.server().clone();
        let end = self.drive(run, &session, &process, opened.kept, message).await?;
        if opened.kept.is_some() && end.never_began {
            return self.replace(run, opened).await;
        }
        // Before the end is emitted: a shutdown behind it must find the session, and a consumer that
        // sees the end of a run that was cut short knows that nothing is left of it.
        self.release(run, &session, opened, &end).await;
        // Of a run that was stopped the end is still taken, for its answer.
        let _ = run.emit_all(end.last_events).await;
        run.emit(end.completed).await?;
        Ok(())
    }

    async fn drive(
        &self,
        run: &EngineRun,
        session: &ResumeToken,
        process: &ClaudeProcess,
        kept: Option<Kept>,
        message: UserMessage,
    ) -> Result<RunEnd, OpenError> {
        let directory = run.request.working_directory()?;
        let mut translator = Translator::new(TurnSetup {
            title: TITLE.to_owned(),
            session: session.value.clone(),
            directory: directory.clone(),
            message_id: message.uuid.clone(),
            fresh: run.resume.is_none(),
            deltas: run.request.deltas,
        });
        if let Some(total) = kept.and_then(|kept| kept.total_cost) {
            translator.cost_before(total);
        }
        let session = session.value.clone();
        let requests = RequestHandler::new(run.clone(), self.tools.clone(), session, directory);
        let inert = process.launch.inert_prompts;
        let driver = RunDriver::new(run, &process.client, translator, requests, inert);
        Ok(driver.run(message).await)
    }

    /// What to start, and what to send. Reads files, on a thread that may block.
    async fn prepare(
        &self,
        run: &EngineRun,
        version: Option<Version>,
    ) -> Result<(ClaudeLaunch, UserMessage), OpenError> {
        let (claude, request) = (self.claude.clone(), run.request.clone());
        let prepared = tokio::task::spawn_blocking(move || {
            let launch = ClaudeLaunch::new(&claude, &request, version)?;
            let message = UserMessage::of(&request, launch.inert_prompts)?;
            Ok::<_, RunError>((launch, message))
        });
        let failed = |_| RunError::new(Reason::SpawnFailed, "the prompt could not be prepared");
        Ok(prepared.await.map_err(failed)??)
    }

    /// The session on a process: the one that has it, or a new one.
    async fn open(
        &self,
        run: &EngineRun,
        session: &ResumeToken,
        launch: &ClaudeLaunch,
    ) -> Result<OpenSession, OpenError> {
        let key = SessionKey::new(session);
        let fits = |process: &ClaudeProcess, kept: Option<&Kept>| {
            kept.is_some() && process.launch == *launch && !process.client.mode_changed()
        };
        let mut seat = match self.keeper.offer_to(run, Some(&key), DRAINED, fits).await? {
            Offer::Seat(seat) => seat,
            Offer::Start(permit) => {
                let arg = match &run.resume {
                    Some(session) => SessionArg::Resume(&session.value),
                    None => SessionArg::New(&session.value),
                };
                let tools = (*self.tools).clone();
                let client = Client::start(run.host(), launch, arg, tools).await?;
                permit.started(run.host(), ClaudeProcess { client, launch: launch.clone() })
            }
        };
        let lease_of = run.clone();
        seat.lease_from(move || lease_of.keep_lease());
        let kept = seat.take_session();
        let before = if kept.is_some() { StartCutoff::now() } else { StartCutoff::default() };
        Ok(OpenSession { seat, kept, before })
    }

    /// Runs the message on another process: the one that kept the session had died, and never began. Only
    /// once, because the session is then opened anew.
    async fn replace(&self, run: &EngineRun, opened: OpenSession) -> Result<(), OpenError> {
        opened.seat.server().client.kill_sparing(opened.before).await;
        opened.seat.abandon(None);
        Box::pin(self.turn(run)).await
    }

    /// Decides what becomes of the session and its process. Returns when nothing is left of a run that
    /// did not end by itself.
    async fn release(
        &self,
        run: &EngineRun,
        session: &ResumeToken,
        opened: OpenSession,
        end: &RunEnd,
    ) {
        let OpenSession { seat, before, .. } = opened;
        let client = seat.server().client.clone();
        if end.health == ProcessHealth::Usable {
            if client.mode_changed() {
                // No other run may use it.
                return seat.abandon(run.keep_lease());
            }
            let kept = Kept { total_cost: end.total_cost };
            return seat.release(SessionKey::new(session), kept, run.keep_lease());
        }
        // Ending the process is the surest way to remove everything.
        if end.health == ProcessHealth::Interrupted {
            client.end_session().await;
        }
        client.kill_sparing(before).await;
        seat.abandon(None);
    }
}

impl Engine for ClaudeEngine {
    fn id(&self) -> EngineId {
        CLAUDE
    }

    fn resume_codec(&self) -> ResumeCodec {
        resume_codec()
    }

    fn check(&self, request: &RunRequest) -> Result<(), RunError> {
        let refused = |error: String| RunError::new(Reason::InvalidRequest, error);
        if request.settings.sandbox.is_some() {
            // Ignored, it would allow more than was meant.
            let error = "claude has no sandbox modes; set `permission_mode` instead";
            return Err(refused(error.to_owned()));
        }
        let mode = request.settings.permission_mode.as_deref().map(permission_mode);
        mode.transpose().map_err(refused)?;
        Options::parse(self.claude.options.iter().chain(&request.settings.options))?;
        request.check_files()
    }

    fn is_steerable(&self) -> bool {
        true
    }

    fn run(self: Arc<Self>, run: EngineRun) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if let Err(error) = self.turn(&run).await {
                error.end(&run).await;
            }
        })
    }

    fn take_lease(&self, key: &SessionKey) -> Option<SessionLease> {
        self.keeper.take_lease(key)
    }

    fn shutdown(&self) -> BoxFuture<'static, ()> {
        let keeper = self.keeper.clone();
        Box::pin(async move { keeper.shutdown().await })
    }
}

/// What a run that was stopped ends with.
pub(crate) fn interrupted() -> Completed {
    Completed::failure(CLAUDE, Reason::Interrupted, "interrupted")
}
