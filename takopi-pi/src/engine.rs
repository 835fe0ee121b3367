//! The engine: one process per live session, which runs one prompt after the other.
//!
//! takopi chooses the id of a new session, so that its lock is held before the process starts. A session
//! that is resumed is looked up by takopi, and named by its file; the process then says which session it
//! has opened, and gets no prompt if that is another one. A process that stays warm is a lease on its
//! session: it never sees what another process adds to it, so it is ended when anybody else wants the
//! session.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;
use takopi_core::keeper::{Keeper, KeeperLimits, Offer, OpenError, Seat, Server};
use takopi_core::locks::{SessionKey, SessionLease};
use takopi_core::model::{Completed, Reason, ResumeToken};
use takopi_core::process::StartCutoff;
use takopi_core::runner::{Engine, EngineRun, ResumeCodec, RunError, StoppedError};
use takopi_core::tools::HostTools;
use takopi_core::version::version_on_path;
use takopi_core::{EngineId, RunRequest};
use uuid::Uuid;

use crate::approvals::RequestHandler;
use crate::client::{Client, CommandError};
use crate::driver::{self, ProcessHealth, RunDriver, RunEnd};
use crate::launch::{self, PiLaunch, SessionArg};
use crate::options::Options;
use crate::permission_mode::PermissionMode;
use crate::sessions::{self, SessionFile};
use crate::translator::{Translator, TurnSetup};
use crate::{MINIMUM_VERSION, PI, Pi, prompt, resume_codec};

/// What holds a session whose process is being ended.
const DRAINED: &str = "a process that is being ended";
/// How long pi may take to start and to open the session.
const OPEN_LIMIT: Duration = Duration::from_mins(1);

/// pi as an engine. Made into a runner by [`Pi::runner`].
pub struct PiEngine {
    pi: Pi,
    tools: Arc<HostTools>,
    keeper: Keeper<PiProcess>,
}

/// A process and what it was started with.
struct PiProcess {
    client: Client,
    launch: PiLaunch,
}

/// What is kept of a session between two runs: that it is loaded.
struct Kept;

impl Server for PiProcess {
    type Session = Kept;

    fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    fn close(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move { self.client.close().await })
    }
}

/// What is known before anything is started.
struct Prepared {
    launch: PiLaunch,
    prompt: Value,
    /// The file of the session, if it is resumed.
    file: Option<SessionFile>,
}

impl Prepared {
    /// Where the agent works: a session stays in the directory where it began.
    fn directory(&self) -> PathBuf {
        let recorded = self.file.as_ref().and_then(|file| file.cwd.clone());
        recorded.unwrap_or_else(|| self.launch.directory().to_owned())
    }
}

/// A session that a run has on a process.
struct OpenSession {
    seat: Seat<PiProcess>,
    /// Whether the process had the session already.
    is_warm: bool,
    /// Processes that were started before are none of the run's business.
    before: StartCutoff,
}

impl PiEngine {
    pub(crate) fn new(pi: Pi) -> Self {
        let tools = Arc::new(pi.tools.clone());
        let keeper = Keeper::new(KeeperLimits::one_session(pi.keep_warm));
        Self { pi, tools, keeper }
    }

    async fn turn(&self, run: &EngineRun) -> Result<(), OpenError> {
        tokio::select! {
            biased;
            () = run.stop().cancelled() => return Err(StoppedError.into()),
            checked = self.check_version(run) => checked?,
        }
        let prepared = self.prepare(run).await?;
        let session = match &run.resume {
            Some(session) => session.clone(),
            None => ResumeToken::new(PI, Uuid::new_v4().to_string()),
        };
        run.claim_session(&session).await?;
        let directory = prepared.directory();
        if directory != prepared.launch.directory() {
            run.note(format!("the session belongs to {}: pi works there", directory.display()))
                .await?;
        }
        let opened = self.open(run, &session, &prepared).await?;
        let process = opened.seat.server().clone();
        let translator = Translator::new(TurnSetup {
            session: session.value.clone(),
            directory: directory.clone(),
            deltas: run.request.deltas,
            images: run.request.settings.images.len(),
        });
        let tools = self.tools.clone();
        let requests = RequestHandler::new(run.clone(), tools, session.value.clone(), directory);
        let driver = RunDriver::new(run, &process.client, translator, requests);
        let end = driver.run(prepared.prompt).await;
        if opened.is_warm && end.never_began && !run.stop().is_cancelled() {
            return self.replace(run, opened).await;
        }
        // Before the end is emitted: a shutdown behind it must find the session, and a consumer that
        // sees the end of a run that was cut short knows that nothing is left of it.
        release(run, &session, opened, &end).await;
        // Of a run that was stopped the end is still taken, for its answer.
        let _ = run.emit_all(end.last_events).await;
        run.emit(end.completed).await?;
        Ok(())
    }

    async fn check_version(&self, run: &EngineRun) -> Result<(), RunError> {
        let version =
            version_on_path(run.host(), &self.pi.binary, &self.pi.env_policy, &run.request.env)
                .await;
        match version.filter(|version| *version < MINIMUM_VERSION) {
            None => Ok(()),
            Some(found) => {
                let error = format!(
                    "this is pi {found}, and takopi needs {MINIMUM_VERSION} or newer; update it, for \
                     example with `npm install -g @earendil-works/pi-coding-agent@latest`"
                );
                Err(RunError::new(Reason::EngineTooOld, error))
            }
        }
    }

    /// What to start, what to send, and what is resumed. Reads files, on a thread that may block.
    async fn prepare(&self, run: &EngineRun) -> Result<Prepared, OpenError> {
        let (pi, request, resume) = (self.pi.clone(), run.request.clone(), run.resume.clone());
        let state = run.host().state_directory().to_owned();
        let prepared = tokio::task::spawn_blocking(move || {
            let launch = PiLaunch::new(&pi, &request, &state)?;
            let prompt = prompt::prompt(&request)?;
            let directory =
                sessions::Directory::of(&|name| launch.variable(name), launch.directory());
            let file = match (&resume, directory) {
                (Some(session), Some(directory)) => Some(directory.file(&session.value)?),
                (Some(_), None) => {
                    let error = "pi's sessions cannot be found: neither PI_CODING_AGENT_DIR nor HOME is set";
                    return Err(RunError::new(Reason::InvalidRequest, error));
                }
                (None, _) => None,
            };
            Ok::<_, RunError>(Prepared { launch, prompt, file })
        });
        let failed = |_| RunError::new(Reason::SpawnFailed, "the prompt could not be prepared");
        Ok(prepared.await.map_err(failed)??)
    }

    /// The session on a process: the one that has it, or a new one.
    async fn open(
        &self,
        run: &EngineRun,
        session: &ResumeToken,
        prepared: &Prepared,
    ) -> Result<OpenSession, OpenError> {
        let key = SessionKey::new(session);
        let launch = &prepared.launch;
        let fits =
            |process: &PiProcess, kept: Option<&Kept>| kept.is_some() && process.launch == *launch;
        let (mut seat, is_new) = match self.keeper.offer_to(run, Some(&key), DRAINED, fits).await? {
            Offer::Seat(seat) => (seat, false),
            Offer::Start(permit) => {
                let arg = match &prepared.file {
                    Some(file) => SessionArg::Resume(&file.path),
                    None => SessionArg::New(&session.value),
                };
                let client = Client::start(run.host(), launch, arg).await?;
                let process = PiProcess { client, launch: launch.clone() };
                (permit.started(run.host(), process), true)
            }
        };
        let lease_of = run.clone();
        seat.lease_from(move || lease_of.keep_lease());
        let is_warm = seat.take_session().is_some();
        if is_new {
            let client = seat.server().client.clone();
            let greeted = tokio::select! {
                biased;
                () = run.stop().cancelled() => Err(StoppedError.into()),
                greeted = greet(&client, session) => greeted.map_err(OpenError::from),
            };
            if let Err(error) = greeted {
                client.kill_sparing(StartCutoff::default()).await;
                seat.abandon(None);
                return Err(error);
            }
        }
        let before = if is_warm { StartCutoff::now() } else { StartCutoff::default() };
        Ok(OpenSession { seat, is_warm, before })
    }

    /// Runs the prompt on another process: the one that kept the session had died, and never began. Only
    /// once, because the session is then opened anew.
    async fn replace(&self, run: &EngineRun, opened: OpenSession) -> Result<(), OpenError> {
        opened.seat.server().client.kill_sparing(opened.before).await;
        opened.seat.abandon(None);
        Box::pin(self.turn(run)).await
    }
}

/// Makes sure that a new process has the session that was asked for, and that it asks before it acts.
async fn greet(client: &Client, session: &ResumeToken) -> Result<(), RunError> {
    let state = match client.command("get_state", OPEN_LIMIT).await {
        Ok(state) => state,
        Err(CommandError::Gone) => return Err(driver::died(client).await),
        Err(error) => {
            let error = RunError::new(Reason::Protocol, error.to_string());
            return Err(error.stderr_tail(client.stderr_tail().await));
        }
    };
    if state["sessionId"] != session.value.as_str() {
        let error = format!("pi has no session {}: it opened another one", session.value);
        return Err(RunError::new(Reason::SessionNotFound, error));
    }
    if !client.is_guarded() {
        let error =
            "pi did not load takopi's extension, so that nobody would be asked for approval";
        let error = RunError::new(Reason::Protocol, error);
        return Err(error.stderr_tail(client.stderr_tail().await));
    }
    Ok(())
}

/// Decides what becomes of the session and its process. Returns when nothing is left of a run that did
/// not end by itself.
async fn release(run: &EngineRun, session: &ResumeToken, opened: OpenSession, end: &RunEnd) {
    let OpenSession { seat, before, .. } = opened;
    if end.health == ProcessHealth::Usable {
        return seat.release(SessionKey::new(session), Kept, run.keep_lease());
    }
    // Ending the process is the surest way to remove everything.
    let client = seat.server().client.clone();
    client.kill_sparing(before).await;
    seat.abandon(None);
}

impl Engine for PiEngine {
    fn id(&self) -> EngineId {
        PI
    }

    fn resume_codec(&self) -> ResumeCodec {
        resume_codec()
    }

    fn check(&self, request: &RunRequest) -> Result<(), RunError> {
        let refused = |error: String| RunError::new(Reason::InvalidRequest, error);
        let settings = &request.settings;
        if settings.sandbox.is_some() {
            // Ignored, it would allow more than was meant.
            let error = "pi has no sandbox modes; set `permission_mode` instead";
            return Err(refused(error.to_owned()));
        }
        if settings.output_schema.is_some() {
            return Err(refused("pi has no output schema".to_owned()));
        }
        let mode = settings.permission_mode.as_deref().map(PermissionMode::parse);
        mode.transpose().map_err(refused)?;
        Options::parse(self.pi.options.iter().chain(&settings.options))?;
        launch::check(request)?;
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
    Completed::failure(PI, Reason::Interrupted, "interrupted")
}
