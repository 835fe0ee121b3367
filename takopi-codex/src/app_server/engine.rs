//! The engine: runs turns on app-servers.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use takopi_core::locks::{SessionKey, SessionLease};
use takopi_core::model::Reason;
use takopi_core::runner::{Engine, EngineRun, Refusal, ResumeCodec, Stopped};
use takopi_core::{EngineId, RunRequest};

use super::approvals::Patches;
use super::client::{Client, ServerLaunch};
use super::error::ClientError;
use super::talk::{End, Talk};
use super::thread::{Thread, ThreadOptions};
use super::translator::TurnTranslator;
use super::warm::{Session, Warm};
use crate::exec::{check_files, directory_of, working_directory};
use crate::failure::Fault;
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
}

impl CodexAppServer {
    /// Runs this codex, and keeps sessions warm for a minute.
    pub fn new(codex: Codex) -> Self {
        Self { codex, keep_warm: KEEP_WARM, warm: Warm::default() }
    }

    /// Keeps sessions warm for this long after a run; not at all if it is zero.
    pub fn keep_warm(mut self, time: Duration) -> Self {
        self.keep_warm = time;
        self
    }

    async fn turn(&self, run: &EngineRun) -> Result<(), Ended> {
        let directory = working_directory(&run.request)?;
        let launch = self.codex.server_launch(&run.request);
        let (session, fresh) = self.open(run, launch, &directory).await?;
        let usage = session.client.routes().usage(session.thread.id());
        let mut talk = Talk {
            run,
            session: &session,
            directory: directory.clone(),
            translator: TurnTranslator::new(
                self.codex.title(),
                directory_of(&directory),
                usage.as_deref(),
                fresh,
            ),
            patches: Patches::default(),
            events: Vec::new(),
        };
        let spoken = talk.speak().await;
        let end = talk.end(spoken).await;
        match end {
            End::Whole(completed) => {
                // Before the end is said: whoever shuts down behind it must find the session.
                self.keep(session, run.keep_lease());
                run.emit(completed).await?;
            }
            End::Retired(completed) => {
                session.client.kill().await;
                run.emit(completed).await?;
            }
        }
        Ok(())
    }

    /// The session's server with its thread loaded: warm, or started now.
    async fn open(
        &self,
        run: &EngineRun,
        launch: ServerLaunch,
        directory: &Path,
    ) -> Result<(Session, bool), Ended> {
        let key = run.resume.as_ref().map(SessionKey::new);
        if let Some(kept) = key.as_ref().and_then(|key| self.warm.take(key)) {
            if kept.launch == launch && !kept.client.is_closed() {
                return Ok((kept, false));
            }
            // Its server holds the session's writer: it must be gone before another can have it.
            kept.client.close().await;
        }
        let client = unless_stopped(run, Client::start(run.host(), &launch)).await?;
        let options = ThreadOptions {
            cwd: Some(directory.to_owned()),
            model: run.request.model.clone(),
            sandbox: run.request.sandbox.clone(),
            ..ThreadOptions::default()
        };
        let thread = match self.open_thread(run, &client, &options).await {
            Ok(thread) => thread,
            Err(ended) => {
                client.close().await;
                return Err(ended);
            }
        };
        let fresh = run.resume.is_none();
        Ok((Session { client, launch, thread }, fresh))
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

    /// Keeps the session warm, or lets its server end behind the run.
    fn keep(&self, session: Session, lease: Option<SessionLease>) {
        let Some(token) = resume_codec().token(session.thread.id()) else { return };
        let time = if session.client.is_closed() { Duration::ZERO } else { self.keep_warm };
        self.warm.keep(SessionKey::new(&token), session, lease, time);
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

    fn run(self: Arc<Self>, run: EngineRun) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let refusal = match self.turn(&run).await {
                Ok(()) | Err(Ended::Stopped) => return,
                Err(Ended::Refused(refusal)) => refusal,
                Err(Ended::Fault(error)) => refusal_of(&error),
            };
            run.refuse(refusal).await;
        })
    }

    fn take_lease(&self, key: &SessionKey) -> Option<SessionLease> {
        self.warm.take_lease(key)
    }

    fn shutdown(&self) -> BoxFuture<'static, ()> {
        let warm = self.warm.clone();
        Box::pin(async move { warm.close_all().await })
    }
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
        ClientError::Closed { .. } => Reason::ProcessDied,
        ClientError::Stalled { .. } => Reason::ConsumerStalled,
        ClientError::Refused { message, .. } => Fault::new(message.as_str()).reason(),
        _ => Reason::Protocol,
    };
    let text = error.to_string();
    Refusal::new(reason.clone(), crate::failure::advised(&reason, text))
}
