//! The engine: one process per live session, which runs one prompt after the other.
//!
//! The agent names a new session, and takopi takes its lock before anything else is sent. The key of the lock names the
//! session store, so that engines which reach the same sessions share it. A process that stays warm is a lease on its
//! session: it does not see what another process adds to it, so it is ended when anybody else wants the session.

use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use takopi_core::keeper::{Keeper, KeeperLimits, Offer, OpenError, Seat, Server};
use takopi_core::locks::{SessionKey, SessionLease};
use takopi_core::model::{Reason, ResumeToken};
use takopi_core::process::StartCutoff;
use takopi_core::runner::{Engine, EngineRun, ResumeCodec, RunError};
use takopi_core::{EngineId, RunRequest};

use crate::approvals::{Allowed, RequestHandler};
use crate::client::Client;
use crate::driver::{ProcessHealth, RunDriver, RunEnd};
use crate::launch::AcpLaunch;
use crate::session::{Opened, Opener};
use crate::translator::{Translator, TurnSetup};
use crate::wire::AgentInfo;
use crate::{Acp, Agent, prompt};

/// What holds a session whose process is being ended.
const DRAINED: &str = "a process that is being ended";

/// An agent that speaks ACP as an engine. Made into a runner by [`Acp::runner`].
pub struct AcpEngine {
    acp: Acp,
    keeper: Keeper<AgentProcess>,
}

/// A process, what it was started with, and what it can do.
struct AgentProcess {
    client: Client,
    launch: AcpLaunch,
    info: AgentInfo,
    /// The session that it serves.
    session: String,
    /// The directory in which that works.
    directory: PathBuf,
    /// The permission mode in which it was opened.
    mode: Option<String>,
    /// What was allowed for the session.
    allowed: Allowed,
}

impl AgentProcess {
    /// Whether the session is in the mode in which it was opened. A person who accepts a plan changes it, and so may the
    /// agent.
    fn keeps_mode(&self) -> bool {
        let (opened, now) = (self.mode.as_ref(), self.client.mode());
        opened.zip(now.as_ref()).is_none_or(|(opened, now)| opened == now)
    }
}

impl Server for AgentProcess {
    type Session = ();

    fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    fn close(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            self.client.close_session(&self.info, &self.session).await;
            self.client.close(self.launch.linger).await;
        })
    }
}

/// A session that a run has on a process.
struct OpenSession {
    seat: Seat<AgentProcess>,
    token: ResumeToken,
    /// Whether the process was there already.
    was_kept: bool,
    /// Processes that were started before are none of the run's business.
    before: StartCutoff,
}

impl AcpEngine {
    pub(crate) fn new(acp: Acp) -> Self {
        let keeper = Keeper::new(KeeperLimits::one_session(acp.keep_warm));
        Self { acp, keeper }
    }

    fn agent(&self) -> &Agent {
        &self.acp.agent
    }

    async fn turn(&self, run: &EngineRun) -> Result<(), OpenError> {
        let launch = AcpLaunch::new(&self.acp, &run.request)?;
        let content = self.content(run).await?;
        let opened = self.open(run, &launch).await?;
        let process = opened.seat.server().clone();
        if !process.info.images && !run.request.settings.images.is_empty() {
            let error = format!("{} takes no images", self.agent().title());
            let refusal = RunError::new(Reason::InvalidRequest, error);
            opened.seat.release(self.session_key(&opened.token), (), run.keep_lease());
            return Err(refusal.into());
        }
        let directory = process.directory.clone();
        let translator = Translator::new(TurnSetup {
            agent: self.agent().clone(),
            directory: directory.clone(),
            uses_ids: self.agent().quirks.message_ids || process.client.uses_ids(),
            deltas: run.request.deltas,
        });
        let (token, allowed) = (opened.token.clone(), process.allowed.clone());
        let agent = self.agent().clone();
        let requests = RequestHandler::new(run.clone(), agent, token, directory, allowed);
        let driver = RunDriver {
            run,
            agent: self.agent(),
            client: &process.client,
            info: &process.info,
            session: &opened.token,
            translator,
            requests,
            strayed: false,
            events: Vec::new(),
        };
        let end = driver.run(content).await;
        if opened.was_kept && end.never_began && !run.stop().is_cancelled() {
            return self.replace(run, opened).await;
        }
        // Before the end is emitted: a shutdown behind it must find the session, and a consumer that sees the end of a
        // run that was cut short knows that nothing is left of it.
        self.release(run, opened, &end).await;
        // Of a run that was stopped the end is still taken, for its answer.
        let _ = run.emit_all(end.last_events).await;
        run.emit(end.completed).await?;
        Ok(())
    }

    /// The prompt. Reads files, on a thread that may block.
    async fn content(&self, run: &EngineRun) -> Result<Vec<serde_json::Value>, OpenError> {
        let (agent, request) = (self.agent().clone(), run.request.clone());
        let content = tokio::task::spawn_blocking(move || prompt::content(&agent, &request));
        let failed = |_| RunError::new(Reason::SpawnFailed, "the prompt could not be prepared");
        Ok(content.await.map_err(failed)??)
    }

    /// The session on a process: the one that has it, or a new one.
    async fn open(&self, run: &EngineRun, launch: &AcpLaunch) -> Result<OpenSession, OpenError> {
        let key = run.resume.as_ref().map(|token| self.session_key(token));
        let fits = |process: &AgentProcess, kept: Option<&()>| {
            kept.is_some() && process.launch == *launch && process.keeps_mode()
        };
        let permit = match self.keeper.offer_to(run, key.as_ref(), DRAINED, fits).await? {
            Offer::Seat(mut seat) => {
                let lease_of = run.clone();
                seat.lease_from(move || lease_of.keep_lease());
                if let (Some(token), Some(())) = (&run.resume, seat.take_session()) {
                    let (token, before) = (token.clone(), StartCutoff::now());
                    return Ok(OpenSession { seat, token, was_kept: true, before });
                }
                // A process without this session is never offered; should it be, it is not used.
                seat.server().client.kill_sparing(StartCutoff::default()).await;
                seat.abandon(None);
                let error = "a process without the session was offered";
                return Err(RunError::new(Reason::SpawnFailed, error).into());
            }
            Offer::Start(permit) => permit,
        };
        let client = Client::start(run.host(), launch.launch()).await?;
        let opener = Opener { run, agent: self.agent(), client: &client, launch };
        let opened = async {
            let info = opener.initialize().await?;
            let opened = opener.open(&info).await?;
            // The lock of a new session, before anything more is done with it.
            run.claim_session(&opened.token).await?;
            Ok::<_, OpenError>((info, opened))
        };
        match opened.await {
            Ok((info, Opened { token, directory, mode })) => {
                let process = AgentProcess {
                    client,
                    launch: launch.clone(),
                    info,
                    session: token.value.clone(),
                    directory,
                    mode,
                    allowed: Allowed::default(),
                };
                let mut seat = permit.started(run.host(), process);
                seat.begun(self.session_key(&token));
                let lease_of = run.clone();
                seat.lease_from(move || lease_of.keep_lease());
                let before = StartCutoff::default();
                Ok(OpenSession { seat, token, was_kept: false, before })
            }
            Err(error) => {
                // The run ends when nothing of it is left.
                client.kill_sparing(StartCutoff::default()).await;
                Err(error)
            }
        }
    }

    /// Runs the prompt on another process: the one that kept the session was gone, and sent nothing. Only once, because the
    /// session is then opened anew.
    async fn replace(&self, run: &EngineRun, opened: OpenSession) -> Result<(), OpenError> {
        opened.seat.server().client.kill_sparing(opened.before).await;
        opened.seat.abandon(None);
        Box::pin(self.turn(run)).await
    }

    /// Decides what becomes of the session and its process. Returns when nothing is left of a turn that did not end by
    /// itself.
    async fn release(&self, run: &EngineRun, opened: OpenSession, end: &RunEnd) {
        let OpenSession { seat, token, before, .. } = opened;
        if end.health == ProcessHealth::Usable {
            if !seat.server().keeps_mode() {
                // No other run may use it.
                return seat.abandon(run.keep_lease());
            }
            return seat.release(self.session_key(&token), (), run.keep_lease());
        }
        // Agents leave commands behind whatever they are asked: ending the process is the surest way.
        seat.server().client.kill_sparing(before).await;
        seat.abandon(None);
    }
}

impl Engine for AcpEngine {
    fn id(&self) -> EngineId {
        self.agent().id().clone()
    }

    fn resume_codec(&self) -> ResumeCodec {
        self.agent().resume_codec()
    }

    fn session_key(&self, token: &ResumeToken) -> SessionKey {
        SessionKey::in_store(self.agent().store(), &token.value)
    }

    fn check(&self, request: &RunRequest) -> Result<(), RunError> {
        let id = self.agent().id();
        let refused = |error: String| Err(RunError::new(Reason::InvalidRequest, error));
        if request.settings.sandbox.is_some() {
            // Ignored, it would allow more than was meant.
            return refused(format!("{id} has no sandbox modes; set `permission_mode` instead"));
        }
        if request.settings.output_schema.is_some() {
            return refused(format!("{id} cannot be given an output schema"));
        }
        request.check_files()
    }

    fn is_steerable(&self) -> bool {
        self.agent().quirks.steering
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
