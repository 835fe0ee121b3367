//! How a run gets its session on a server, and what becomes of both at its end.
//!
//! A run that is stopped while its thread is being opened ends at once. On a shared server the
//! pending request stays with a task of the host, which has the seat and the lease until the response
//! shows whether the thread is loaded: no other run gets the session before, and no server is closed for it.

mod quiet;

use std::path::Path;
use std::time::Duration;

use futures::future::BoxFuture;
use takopi_core::keeper::{Offer, OfferError, Seat, StartPermit};
use takopi_core::locks::SessionKey;
use takopi_core::model::Reason;
use takopi_core::process::{MarkedProcesses, StartCutoff};
use takopi_core::runner::{EngineRun, RunError, StoppedError};
use uuid::Uuid;

use self::quiet::bring_to_rest;
use super::client::{Client, ServerLaunch};
use super::driver::{LateTurn, ServerHealth};
use super::engine::CodexAppServer;
use super::error::ClientError;
use super::servers::{AppServer, LoadedThread, start_shared};
use super::settings::{SessionSettings, thread_options};
use super::thread::{Thread, ThreadOptions};
use super::tools::specs;
use crate::resume_codec;

/// How soon a session that another codex holds is asked for again, at first and at the latest.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// What holds a session whose server cannot be closed yet.
const DRAINED: &str = "an app-server that ends when its other runs are over";

/// The variable that marks the commands of one session on a shared server.
const THREAD_MARKER: &str = "TAKOPI_THREAD";

/// A session that a run has on a server.
pub(super) struct OpenSession {
    pub(super) seat: Seat<AppServer>,
    pub(super) loaded: LoadedThread,
    /// When the run began: processes that were started before are none of its business.
    pub(super) before: StartCutoff,
    /// Whether the thread was loaded already.
    pub(super) origin: Origin,
}

/// Where a session's thread comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// An earlier run, which left it loaded.
    Kept,
    /// It was opened for this run.
    Opened,
}

impl OpenSession {
    pub(super) fn client(&self) -> &Client {
        &self.seat.server().client
    }
}

/// Why a run ended before its turn did.
pub(super) enum OpenError {
    Stopped,
    Refused(RunError),
    Failed(ClientError),
}

impl From<StoppedError> for OpenError {
    fn from(_: StoppedError) -> Self {
        Self::Stopped
    }
}

impl From<OfferError> for OpenError {
    fn from(error: OfferError) -> Self {
        match error {
            OfferError::Busy(refusal) => Self::Refused(refusal),
            _ => Self::Stopped,
        }
    }
}

impl From<RunError> for OpenError {
    fn from(refusal: RunError) -> Self {
        Self::Refused(refusal)
    }
}

impl From<ClientError> for OpenError {
    fn from(error: ClientError) -> Self {
        Self::Failed(error)
    }
}

/// Why there is no thread.
enum ThreadError {
    Ended(OpenError),
    /// The run was stopped; the reply is still to come.
    Pending(BoxFuture<'static, Result<Thread, ClientError>>),
}

impl CodexAppServer {
    /// The run's session on a server.
    pub(super) async fn open(
        &self,
        run: &EngineRun,
        launch: ServerLaunch,
        directory: &Path,
    ) -> Result<OpenSession, OpenError> {
        let key = run.resume.as_ref().map(SessionKey::new);
        let settings = SessionSettings::of(&run.request);
        let mut seat = self.seat(run, key.as_ref(), launch, &settings).await?;
        if let Some(loaded) = seat.take_session() {
            let loaded = LoadedThread { settings, ..loaded }.in_directory(directory);
            let (before, origin) = (StartCutoff::now(), Origin::Kept);
            return Ok(OpenSession { seat, loaded, before, origin });
        }
        let mut options = thread_options(&run.request, directory, specs(&self.tools));
        let commands = self.pool.is_some().then(|| mark_commands(&mut options));
        match open_thread(run, &seat.server().client, options).await {
            Ok(thread) => {
                if let Some(token) = resume_codec().token(thread.id()) {
                    seat.begun(SessionKey::new(&token));
                }
                let loaded = LoadedThread { thread, settings, moved: false, commands };
                let loaded = loaded.in_directory(directory);
                let (before, origin) = (StartCutoff::default(), Origin::Opened);
                Ok(OpenSession { seat, loaded, before, origin })
            }
            Err(error) if self.pool.is_none() => {
                seat.server().client.close().await;
                seat.abandon(None);
                Err(match error {
                    ThreadError::Ended(error) => error,
                    ThreadError::Pending(_) => OpenError::Stopped,
                })
            }
            Err(ThreadError::Ended(error)) => {
                match &error {
                    OpenError::Failed(ClientError::Refused { .. })
                    | OpenError::Refused(_)
                    | OpenError::Stopped => seat.vacate(),
                    OpenError::Failed(_) => seat.abandon(run.keep_lease()),
                }
                Err(error)
            }
            Err(ThreadError::Pending(reply)) => {
                let (lease, keeper) = (run.keep_lease(), self.keeper.clone());
                self.keeper.track(run.host(), async move {
                    let reply = tokio::select! {
                        biased;
                        reply = reply => Some(reply),
                        // Its server is closed instead.
                        () = keeper.shutdown_begun() => None,
                    };
                    match (reply, key) {
                        (Some(Ok(thread)), Some(key)) => {
                            let loaded = LoadedThread { thread, settings, moved: false, commands };
                            seat.release(key, loaded, lease);
                        }
                        // A new session that nobody can resume: its id was not reported.
                        (Some(Ok(_)), None) => seat.spend(),
                        (Some(Err(ClientError::Refused { .. })), _) => seat.vacate(),
                        (Some(Err(_)) | None, _) => seat.abandon(lease),
                    }
                });
                Err(OpenError::Stopped)
            }
        }
    }

    async fn seat(
        &self,
        run: &EngineRun,
        key: Option<&SessionKey>,
        launch: ServerLaunch,
        settings: &SessionSettings,
    ) -> Result<Seat<AppServer>, OpenError> {
        let fits = |server: &AppServer, loaded: Option<&LoadedThread>| {
            server.fits(loaded, &launch, settings)
        };
        let offer = self.keeper.offer_to(run, key, DRAINED, fits).await?;
        let mut seat = match offer {
            Offer::Seat(seat) => seat,
            Offer::Start(permit) if self.pool.is_some() => {
                unless_stopped(run, start_shared(run.host(), &self.keeper, permit, launch)).await?
            }
            Offer::Start(permit) => start_own(run, permit, launch).await?,
        };
        let run = run.clone();
        seat.lease_from(move || run.keep_lease());
        Ok(seat)
    }

    /// Decides what becomes of the session and its server when the turn is over. Returns when nothing
    /// is left of a turn that did not end by itself.
    pub(super) async fn release(
        &self,
        run: &EngineRun,
        session: OpenSession,
        server: ServerHealth,
        late: Option<LateTurn>,
    ) {
        let OpenSession { seat, loaded, before, .. } = session;
        if self.pool.is_none() && server != ServerHealth::Usable {
            // Ending the process is the surest way to remove everything.
            seat.server().client.kill_sparing(before).await;
            return seat.abandon(None);
        }
        let mut keeps = server == ServerHealth::Usable;
        if !keeps {
            if server == ServerHealth::Interrupted {
                keeps = bring_to_rest(&loaded.thread).await;
            }
            if let Some(commands) = &loaded.commands {
                commands.end(before).await;
            }
        }
        if keeps && run.request.settings.is_ephemeral() {
            return seat.spend();
        }
        if keeps {
            let (opened, session) = (resume_codec().token(loaded.thread.id()), run.session());
            match opened {
                // It was stopped before its session was reported: nobody can resume that.
                _ if session.is_none() => return seat.spend(),
                // Without its lock a session is not kept loaded: others would wait for it in vain.
                Some(opened) if session.as_ref() == Some(&opened) && run.has_lock() => {
                    return seat.release(SessionKey::new(&opened), loaded, run.keep_lease());
                }
                _ => {}
            }
        }
        if let Some(late) = late {
            self.end_late(run, late, loaded, before);
        }
        seat.abandon(run.keep_lease());
    }

    /// Ends a turn that may still begin, and its commands. Its server is given up meanwhile: no other run
    /// gets the session before the server is gone.
    fn end_late(&self, run: &EngineRun, late: LateTurn, loaded: LoadedThread, before: StartCutoff) {
        let keeper = self.keeper.clone();
        self.keeper.track(run.host(), async move {
            tokio::select! {
                biased;
                () = late.end() => {}
                // Its server is closed instead.
                () = keeper.shutdown_begun() => {}
            }
            // Whatever it answers, the processes are ended below.
            let _ = bring_to_rest(&loaded.thread).await;
            if let Some(commands) = &loaded.commands {
                commands.end(before).await;
            }
        });
    }
}

/// Starts a server for this run: it ends with the run if that is stopped meanwhile.
async fn start_own(
    run: &EngineRun,
    permit: StartPermit<AppServer>,
    launch: ServerLaunch,
) -> Result<Seat<AppServer>, OpenError> {
    let client = Client::spawn(run.host(), &launch).await?;
    if let Err(error) = unless_stopped(run, client.initialize()).await {
        // The run ends when nothing of it is left.
        client.kill().await;
        return Err(error);
    }
    Ok(permit.started(run.host(), AppServer { client, launch }))
}

/// Opens the thread, waiting for another codex that holds it.
async fn open_thread(
    run: &EngineRun,
    client: &Client,
    options: ThreadOptions,
) -> Result<Thread, ThreadError> {
    let (mut pause, longest) = ASK_AGAIN;
    loop {
        let (client, options) = (client.clone(), options.clone());
        let session = run.resume.as_ref().map(|token| token.value.clone());
        let resumes = session.is_some();
        let mut reply: BoxFuture<'static, _> = Box::pin(async move {
            match session {
                Some(session) => client.resume_thread(&session, &options).await,
                None => client.start_thread(&options).await,
            }
        });
        let error = tokio::select! {
            biased;
            () = run.stop().cancelled() => return Err(ThreadError::Pending(reply)),
            opened = &mut reply => match opened {
                Ok(thread) => return Ok(thread),
                Err(error) => error,
            },
        };
        if !resumes || !error.is_active_writer() {
            return Err(ThreadError::Ended(error.into()));
        }
        let waited = run.wait_for_session("another codex", pause).await;
        if !waited.map_err(|stopped| ThreadError::Ended(stopped.into()))? {
            let error = "the session is held by another codex";
            let refusal = RunError::new(Reason::SessionBusy, error);
            return Err(ThreadError::Ended(refusal.into()));
        }
        pause = (pause * 2).min(longest);
    }
}

/// Has codex mark the commands of a thread, so that they are distinguished from those of its neighbours. A
/// thread that is loaded keeps the mark it was loaded with.
fn mark_commands(options: &mut ThreadOptions) -> MarkedProcesses {
    let mark = Uuid::new_v4().to_string();
    let commands = MarkedProcesses::new(THREAD_MARKER, &mark);
    options.config.insert(format!("shell_environment_policy.set.{THREAD_MARKER}"), mark.into());
    commands
}

async fn unless_stopped<T>(
    run: &EngineRun,
    work: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, OpenError> {
    tokio::select! {
        biased;
        () = run.stop().cancelled() => Err(OpenError::Stopped),
        result = work => Ok(result?),
    }
}
