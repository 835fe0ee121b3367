//! The engine: runs turns on app-servers.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use takopi_core::locks::{SessionKey, SessionLease};
use takopi_core::model::Reason;
use takopi_core::process::{Before, Marked};
use takopi_core::runner::{Engine, EngineRun, Refusal, ResumeCodec, Stopped};
use takopi_core::{EngineId, RunRequest};
use uuid::Uuid;

use super::approvals::Desk;
use super::client::{Client, ServerLaunch};
use super::conversation::Record;
use super::driver::{ServerHealth, ServerUse, TurnDriver};
use super::error::ClientError;
use super::limits::TurnLimits;
use super::pool::{Pool, PoolLimits};
use super::thread::{Thread, ThreadOptions};
use super::tools::{HostTool, Tools};
use super::translator::TurnTranslator;
use super::warm::{Session, Settings, Warm};
use crate::exec::{check_files, directory_of, working_directory};
use crate::failure::{advised, reason_of_refusal, reason_on_stderr};
use crate::{CODEX, Codex, resume_codec};

/// How long a session is kept warm unless told otherwise.
const KEEP_WARM: Duration = Duration::from_mins(1);
/// How soon a session that another codex holds is asked for again, at first and at the latest.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// Codex over `codex app-server`, as an engine. Made into a runner by
/// [`Codex::app_server`](crate::Codex::app_server).
pub struct CodexAppServer {
    codex: Codex,
    keep_warm: Duration,
    warm: Warm,
    /// The shared servers, if sessions share.
    pool: Option<Pool>,
    tools: Arc<Tools>,
    limits: TurnLimits,
}

impl CodexAppServer {
    /// Runs this codex, and keeps sessions warm for a minute.
    pub fn new(codex: Codex) -> Self {
        Self {
            codex,
            keep_warm: KEEP_WARM,
            warm: Warm::default(),
            pool: None,
            tools: Arc::default(),
            limits: TurnLimits::default(),
        }
    }

    /// Keeps sessions warm for this long after a run; not at all if it is zero.
    pub fn keep_warm(mut self, time: Duration) -> Self {
        self.keep_warm = time;
        self
    }

    /// Puts many sessions on few processes, for batches. A session whose consumer stops reading is
    /// then ended (`consumer_stalled`), because its neighbours cannot wait. Processes that nobody
    /// runs on are kept for the time of [`Self::keep_warm`], which must be set before.
    pub fn shared(mut self, limits: PoolLimits) -> Self {
        self.pool = Some(Pool::new(limits, self.keep_warm));
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

    async fn turn(&self, run: &EngineRun, record: Option<&Record>) -> Result<(), Ended> {
        let directory = working_directory(&run.request)?;
        let mut launch = self.codex.server_launch(&run.request);
        launch.patient = self.pool.is_none();
        let opened = self.open(run, launch, &directory).await;
        if let (Some(record), Err(_)) = (record, &opened) {
            record.ended(true);
        }
        let (session, kept) = opened?;
        let fresh = run.resume.is_none();
        let server_use = match &self.pool {
            Some(pool) => ServerUse::Shared { patience: pool.patience() },
            None => ServerUse::Own,
        };
        let driver = TurnDriver {
            run,
            client: &session.client,
            thread: &session.thread,
            directory: directory.clone(),
            translator: TurnTranslator::new(self.codex.title(), directory_of(&directory), fresh),
            desk: Desk::new(run.clone(), self.tools.clone(), directory),
            limits: self.limits,
            server_use,
            record,
            events: Vec::new(),
        };
        let end = driver.run().await;
        if kept && end.never_began {
            // It had died while nobody looked: another one can run the turn. Only once, because that
            // one is new.
            return self.replace(run, session, record).await;
        }
        if let Some(record) = record {
            record.ended(match end.server {
                ServerHealth::Usable => false,
                ServerHealth::Interrupted => server_use == ServerUse::Own,
                ServerHealth::Broken => true,
            });
        }
        // Before the end is said: whoever shuts down behind it must find the session, and whoever
        // sees the end of a run that was cut short knows that nothing is left of it.
        self.leave(run, session, end.server).await;
        // Stopped or not: the end is told, to whoever asks for it.
        let _ = run.emit_all(end.last_events).await;
        run.emit(end.completed).await?;
        Ok(())
    }

    /// Runs the turn on a new server in place of one that is dead. The session stays the run's.
    async fn replace(
        &self,
        run: &EngineRun,
        session: Session,
        record: Option<&Record>,
    ) -> Result<(), Ended> {
        match session.place {
            Some((place, _)) => place.abandon(None),
            None => session.client.kill_sparing(session.before).await,
        }
        Box::pin(self.turn(run, record)).await
    }

    /// Runs a turn, and records it if it is one of a conversation.
    pub(super) async fn run_recorded(&self, run: EngineRun, record: Option<&Record>) {
        let refusal = match self.turn(&run, record).await {
            Ok(()) | Err(Ended::Stopped) => return,
            Err(Ended::Refused(refusal)) => refusal,
            Err(Ended::Fault(error)) => refusal_of(&error),
        };
        run.refuse(refusal).await;
    }

    /// The session's server with its thread loaded, and whether it was: kept from an earlier run, or
    /// started now.
    async fn open(
        &self,
        run: &EngineRun,
        launch: ServerLaunch,
        directory: &Path,
    ) -> Result<(Session, bool), Ended> {
        let key = run.resume.as_ref().map(SessionKey::new);
        let settings = Settings::of(&run.request);
        if let Some(mut kept) = key.as_ref().and_then(|key| self.warm.take(key)) {
            let serves = kept.launch == launch && kept.settings.serve(&settings);
            if serves && !kept.client.is_closed() {
                kept.settings = settings;
                kept.before = Before::now();
                return Ok((kept, true));
            }
            // Its server holds the session's writer: it must be gone before another can have it.
            kept.client.close().await;
        }
        let options = ThreadOptions {
            cwd: Some(directory.to_owned()),
            model: run.request.settings.model.clone(),
            sandbox: run.request.settings.sandbox.clone(),
            dynamic_tools: self.tools.specs(),
            ..ThreadOptions::default()
        };
        let before = Before::default();
        let Some(pool) = &self.pool else {
            let client = Client::spawn(run.host(), &launch).await?;
            if let Err(ended) = unless_stopped(run, client.initialize()).await {
                // The run ends when nothing of it is left.
                client.kill().await;
                return Err(ended);
            }
            return match self.open_thread(run, &client, &options).await {
                Ok(thread) => {
                    Ok((Session { client, launch, thread, settings, before, place: None }, false))
                }
                Err(ended) => {
                    client.close().await;
                    Err(ended)
                }
            };
        };
        let mut place =
            unless_stopped(run, pool.place(run.host(), key.as_ref(), &launch, &settings)).await?;
        let client = place.client.clone();
        if let Some((thread, commands)) = place.thread.take() {
            let before = Before::now();
            let place = Some((place, commands));
            return Ok((Session { client, launch, thread, settings, before, place }, true));
        }
        let (commands, options) = marked(options);
        match self.open_thread(run, &client, &options).await {
            Ok(thread) => {
                let place = Some((place, commands));
                Ok((Session { client, launch, thread, settings, before, place }, false))
            }
            Err(ended) => {
                match &ended {
                    // Nothing of the session came to be on the server.
                    Ended::Fault(ClientError::Refused { .. }) | Ended::Refused(_) => place.vacate(),
                    Ended::Fault(_) | Ended::Stopped => place.abandon(run.keep_lease()),
                }
                Err(ended)
            }
        }
    }

    /// Opens the thread, waiting for whoever outside of takopi holds it.
    async fn open_thread(
        &self,
        run: &EngineRun,
        client: &Client,
        options: &ThreadOptions,
    ) -> Result<Thread, Ended> {
        let Some(token) = &run.resume else {
            return unless_stopped(run, client.start_thread(options)).await;
        };
        let (mut pause, longest) = ASK_AGAIN;
        loop {
            match unless_stopped(run, client.resume_thread(&token.value, options)).await {
                Err(Ended::Fault(error)) if error.is_active_writer() => {
                    if !run.wait_for_session("another codex", pause).await? {
                        let error = "the session is held by another codex";
                        return Err(Refusal::new(Reason::SessionBusy, error).into());
                    }
                    pause = (pause * 2).min(longest);
                }
                other => return other,
            }
        }
    }

    /// Decides what becomes of the session and its server when the turn is over.
    async fn leave(&self, run: &EngineRun, mut session: Session, server: ServerHealth) {
        let lease = run.keep_lease();
        let token = resume_codec().token(session.thread.id());
        let Some(key) = token.as_ref().map(SessionKey::new) else {
            return match session.place {
                Some((place, _)) => place.abandon(lease),
                None => session.client.kill().await,
            };
        };
        match (session.place.take(), server) {
            (None, ServerHealth::Usable) => {
                let gone = session.client.is_closed();
                let time = if gone { Duration::ZERO } else { self.keep_warm };
                self.warm.keep(key, session, lease, time);
            }
            // Ending the process is the surest way to leave nothing behind.
            (None, ServerHealth::Interrupted | ServerHealth::Broken) => {
                session.client.kill_sparing(session.before).await;
            }
            (Some((place, commands)), ServerHealth::Usable) => {
                place.release(key, (session.thread, session.settings), commands, lease);
            }
            (Some((place, commands)), server) => {
                let answers = server == ServerHealth::Interrupted
                    && match session.thread.clean_background_terminals().await {
                        // A refusal is an answer; what the commands started is ended below.
                        Ok(()) | Err(ClientError::Refused { .. }) => true,
                        Err(_) => false,
                    };
                commands.end(session.before).await;
                if answers {
                    place.release(key, (session.thread, session.settings), commands, lease);
                } else {
                    place.abandon(lease);
                }
            }
        }
    }
}

impl Engine for CodexAppServer {
    fn id(&self) -> EngineId {
        CODEX
    }

    fn resume_codec(&self) -> ResumeCodec {
        resume_codec()
    }

    fn check(&self, request: &RunRequest) -> Result<(), Refusal> {
        check_files(request)
    }

    fn is_steerable(&self) -> bool {
        true
    }

    fn run(self: Arc<Self>, run: EngineRun) -> BoxFuture<'static, ()> {
        Box::pin(async move { self.run_recorded(run, None).await })
    }

    fn take_lease(&self, key: &SessionKey) -> Option<SessionLease> {
        match &self.pool {
            Some(pool) => pool.take_lease(key),
            None => self.warm.take_lease(key),
        }
    }

    fn shutdown(&self) -> BoxFuture<'static, ()> {
        let (warm, pool) = (self.warm.clone(), self.pool.clone());
        Box::pin(async move {
            warm.close_all().await;
            if let Some(pool) = pool {
                pool.close_all().await;
            }
        })
    }
}

/// The variable that marks the commands of one session on a shared server.
const THREAD_MARKER: &str = "TAKOPI_THREAD";

/// Has codex mark the commands of a thread, so that they can be told from its neighbours'. A thread
/// that is loaded keeps the mark it was loaded with.
fn marked(mut options: ThreadOptions) -> (Marked, ThreadOptions) {
    let mark = Uuid::new_v4().to_string();
    let commands = Marked::new(THREAD_MARKER, &mark);
    options.config.insert(format!("shell_environment_policy.set.{THREAD_MARKER}"), mark.into());
    (commands, options)
}

/// Why a run ended before its turn did.
pub(super) enum Ended {
    Stopped,
    Refused(Refusal),
    Fault(ClientError),
}

impl From<Stopped> for Ended {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

impl From<Refusal> for Ended {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<ClientError> for Ended {
    fn from(error: ClientError) -> Self {
        Self::Fault(error)
    }
}

pub(super) async fn unless_stopped<T>(
    run: &EngineRun,
    work: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, Ended> {
    tokio::select! {
        biased;
        () = run.stop().cancelled() => Err(Ended::Stopped),
        result = work => Ok(result?),
    }
}

/// A fault of the server as the end of a run.
pub(super) fn refusal_of(error: &ClientError) -> Refusal {
    let reason = match error {
        ClientError::Spawn(error) => error.reason(),
        ClientError::TooOld { .. } => Reason::EngineTooOld,
        // What a dying process says is looked at last, and for little.
        ClientError::Closed { stderr_tail, .. } => {
            reason_on_stderr(stderr_tail).unwrap_or(Reason::ProcessDied)
        }
        ClientError::Stalled { .. } => Reason::ConsumerStalled,
        ClientError::Refused { message, data, .. } => reason_of_refusal(message, data.as_deref()),
        _ => Reason::Protocol,
    };
    let text = error.to_string();
    Refusal::new(reason.clone(), advised(&reason, text))
}
