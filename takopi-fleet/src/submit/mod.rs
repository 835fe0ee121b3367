//! A runner whose runs happen elsewhere.
//!
//! [`FleetRunner`] is an `EngineRunner` like any other: contract, buffer, approvals and steering come from takopi-core. Its
//! engine enqueues the request, follows its rows and passes them on. The prompt is durable before anything else happens.
//!
//! - A database that is away for a while delays a run, and changes nothing else: calls are repeated under their names. One that lost the
//!   job (it was restored, or failed over) gets it again, unless it may run only once: it may have begun.
//! - Dropping the stream, or cancelling, cancels the job; `Completed` comes when the worker has ended it.
//! - A wait is reported: how many are before it, or what no worker offers. `wait` bounds it. A run whose worker was lost waits again.
//! - Runs that one process gives to a session are enqueued in the order they began, and again in that order.
//! - A session keeps the id under which it was first reported, also if a first turn had to be run again.

mod follow;
mod lines;

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use futures::future::BoxFuture;
use takopi_core::RunRequest;
use takopi_core::model::{EngineId, Reason};
use takopi_core::runner::{Engine, EngineRun, EngineRunner, ResumeCodec, RunError, SessionScope};
use tokio::sync::Notify;
use tokio::time::Instant;
use uuid::Uuid;

use self::follow::Follow;
use self::lines::Lines;
use crate::board::{Board, Listener, NewJob, OnGone, OnLoss, Ring, SUBMITTER_LEASE, SessionRef};
use crate::spec::JobSpec;
use crate::work::git::need_of;

/// A runner whose runs happen on workers of a fleet.
pub type FleetRunner = EngineRunner<FleetEngine>;

/// How a fleet is used.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct FleetOptions {
    /// What a worker must offer beside the engine, e.g. `label:gpu`.
    pub needs: Vec<String>,
    /// The directories here that are places of the workers: a path, and the place's name, or `git:URL@REF`.
    pub places: Vec<(PathBuf, String)>,
    /// The variables for the engine that may leave this machine, by their names. They are in clear in the database, and a worker
    /// takes only those that it allows.
    pub env: Vec<String>,
    /// What happens when a worker is lost.
    pub on_loss: OnLoss,
    /// What happens when this process is gone.
    pub on_gone: OnGone,
}

/// Runs an engine on the workers of a fleet.
pub struct FleetEngine {
    id: EngineId,
    codec: ResumeCodec,
    board: Arc<dyn Board>,
    options: FleetOptions,
    submitter: String,
    bells: OnceLock<Arc<Bells>>,
    lines: Lines,
}

/// Wakes the runs whose bells rang.
#[derive(Default)]
struct Bells {
    runs: Mutex<HashMap<String, Arc<Notify>>>,
}

impl Bells {
    fn of(&self, job: &str) -> Arc<Notify> {
        self.lock().entry(job.to_owned()).or_default().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Notify>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self, ring: &Ring) {
        let runs = self.lock();
        match ring {
            Ring::Jobs(jobs) => {
                jobs.iter().filter_map(|job| runs.get(job)).for_each(|run| run.notify_one());
            }
            _ => runs.values().for_each(|run| run.notify_one()),
        }
    }
}

/// Forgets a run's bell.
struct RunBell {
    bells: Arc<Bells>,
    job: String,
    rung: Arc<Notify>,
}

impl Drop for RunBell {
    fn drop(&mut self) {
        self.bells.lock().remove(&self.job);
    }
}

impl FleetEngine {
    /// An engine of this name, whose session ids and resume lines are written so.
    pub fn new(board: Arc<dyn Board>, id: EngineId, codec: ResumeCodec) -> Self {
        let submitter = Uuid::new_v4().simple().to_string();
        Self {
            id,
            codec,
            board,
            options: FleetOptions::default(),
            submitter,
            bells: OnceLock::new(),
            lines: Lines::default(),
        }
    }

    /// Sets the options.
    pub fn options(mut self, options: FleetOptions) -> Self {
        self.options = options;
        self
    }

    /// A runner for it, on the global host.
    pub fn runner(self) -> FleetRunner {
        EngineRunner::new(self)
    }

    /// The place of a directory, and the directory below it.
    fn place(&self, request: &RunRequest) -> Result<(Option<String>, Option<PathBuf>), RunError> {
        let Some(cwd) = &request.settings.cwd else { return Ok((None, None)) };
        let cwd = std::path::absolute(cwd).unwrap_or_else(|_| cwd.clone());
        let inside = self.options.places.iter().filter_map(|(path, place)| {
            Some((path.as_os_str().len(), place, cwd.strip_prefix(path).ok()?))
        });
        let Some((_, place, below)) = inside.max_by_key(|(length, _, _)| *length) else {
            let error = format!(
                "the directory {} is in no place of the fleet: name one in [fleet.places], or leave the directory out",
                cwd.display()
            );
            return Err(RunError::new(Reason::InvalidRequest, error));
        };
        let below = (!below.as_os_str().is_empty()).then(|| below.to_owned());
        Ok((Some(place.clone()), below))
    }

    /// Refuses variables that may not leave this machine.
    fn check_env(&self, request: &RunRequest) -> Result<(), RunError> {
        let kept = |name: &OsString| !self.options.env.iter().any(|allowed| **name == **allowed);
        let Some(name) = request.env.iter().map(|(name, _)| name).find(|name| kept(name)) else {
            return Ok(());
        };
        let error = format!(
            "the variable {} does not travel to workers of a fleet: set it there, or allow it by its name",
            name.to_string_lossy()
        );
        Err(RunError::new(Reason::InvalidRequest, error))
    }

    fn job(&self, run: &EngineRun) -> Result<NewJob, RunError> {
        let (place, dir) = self.place(&run.request)?;
        let (spec, blobs) = JobSpec::of(&run.request, dir)?;
        let mut needs = self.options.needs.clone();
        needs.push(format!("engine:{}", self.id));
        needs.extend(place.as_deref().map(need_of));
        needs.sort();
        needs.dedup();
        let spec = serde_json::to_value(spec)
            .map_err(|error| RunError::new(Reason::InvalidRequest, error.to_string()))?;
        Ok(NewJob {
            id: run.request.key.clone().unwrap_or_else(|| Uuid::new_v4().to_string()),
            submitter: self.submitter.clone(),
            engine: self.id.to_string(),
            session: match &run.resume {
                Some(token) => SessionRef::Known(token.value.clone()),
                None => SessionRef::New(Uuid::new_v4()),
            },
            needs,
            place,
            spec,
            blobs,
            on_loss: self.options.on_loss,
            on_gone: self.options.on_gone,
        })
    }

    /// The bells of this submitter; the first call begins to listen and to show that the submitter lives.
    fn bells(&self) -> Arc<Bells> {
        let bells = self.bells.get_or_init(|| {
            let bells = Arc::new(Bells::default());
            let (mut rings, heard) = (self.board.listen(Listener::Submitter(self.submitter.clone())), Arc::downgrade(&bells));
            let (board, submitter) = (self.board.clone(), self.submitter.clone());
            tokio::spawn(async move {
                let mut beat = tokio::time::interval(SUBMITTER_LEASE / 6);
                loop {
                    let ring = tokio::select! {
                        ring = rings.recv() => ring,
                        _ = beat.tick() => {
                            if let Err(error) = board.submitter_beat(&submitter, SUBMITTER_LEASE).await {
                                tracing::debug!("the submitter's beat failed: {error}");
                            }
                            Some(Ring::Jobs(Vec::new()))
                        }
                    };
                    let (Some(ring), Some(bells)) = (ring, heard.upgrade()) else { return };
                    bells.ring(&ring);
                }
            });
            bells
        });
        bells.clone()
    }
}

impl Engine for FleetEngine {
    fn id(&self) -> EngineId {
        self.id.clone()
    }

    fn resume_codec(&self) -> ResumeCodec {
        self.codec.clone()
    }

    fn session_scope(&self) -> SessionScope {
        SessionScope::Elsewhere
    }

    fn check(&self, request: &RunRequest) -> Result<(), RunError> {
        self.check_env(request)?;
        self.place(request).map(drop)
    }

    /// The directory is that of a worker.
    fn directory<'a>(&self, _: &'a RunRequest) -> Option<&'a Path> {
        None
    }

    fn is_steerable(&self) -> bool {
        true
    }

    fn run(self: Arc<Self>, run: EngineRun) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let job = match self.job(&run) {
                Ok(job) => job,
                Err(error) => return run.fail(error).await,
            };
            let session = run.resume.as_ref().map(|token| token.value.clone());
            let line = match &session {
                Some(session) => tokio::select! {
                    biased;
                    () = run.stop().cancelled() => return,
                    place = self.lines.join(session) => Some(place),
                },
                None => None,
            };
            let bells = self.bells();
            let bell = RunBell { rung: bells.of(&job.id), bells, job: job.id.clone() };
            let follow = Follow {
                board: self.board.clone(),
                job: Arc::new(job),
                lines: &self.lines,
                member: None,
                told: run.resume.clone(),
                cursor: 0,
                steers: HashMap::new(),
                asked: HashMap::new(),
                begun: false,
                heard: Instant::now(),
                waits_since: Instant::now(),
                run,
            };
            follow.until_the_end(line, &bell.rung).await;
        })
    }
}
