//! A worker: serves the queue with runners of this machine.
//!
//! - It holds one lease, renewed on time by a beat. When the last good beat is too old by its own clock (which counts time
//!   asleep), it stops its runs by itself, whatever it waits for, before others may begin, and goes on as a new worker.
//! - Everything it writes carries the token of the claim. What it does not hold any more it cuts.
//! - It claims only as much as it has slots for.
//! - A job gets what the worker's configuration allows ([`Ceiling`]), and is refused if it asks for more.
//! - A session's files are stored with the result of each turn, in one commit, and placed before a turn that runs elsewhere.
//! - What a session has here is removed when it was not used here for a month.
//! - Told to stop it drains: no claims, running turns may end within the grace time, the rest is handed back.

mod ask;
mod beat;
mod ceiling;
mod copy;
pub(crate) mod git;
mod kept;
mod lease;
mod rest;
mod rows;
mod serving;
mod steering;
mod travel;
mod turn;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use takopi_core::catalog::PortableSessions;
use takopi_core::{Host, Runner};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub use self::ceiling::{Allowed, Ceiling};
use self::git::GitPlace;
use self::kept::Kept;
use self::lease::Lease;
use self::serving::{Over, Serving};
use crate::board::{Board, BoardError, Retention, WorkerInfo};
use crate::files::number_of;

/// How often a worker looks for work by itself: a bell may be lost.
const LOOK: Duration = Duration::from_secs(1);

/// An engine that a worker serves.
#[derive(Clone)]
pub struct Served {
    /// Runs it.
    pub runner: Arc<dyn Runner>,
    /// Its version, as [`version_number`](crate::files::version_number) makes it; 0 if every version may open every session. With
    /// [`Travels::Files`] it is asked for its version instead, and this is what counts if it does not say.
    pub version: u64,
    /// Whether its sessions can leave this machine.
    pub travels: Travels,
}

impl Served {
    /// Its version as it is now.
    async fn version_now(&self) -> u64 {
        let asked = match &self.travels {
            Travels::Files(sessions) => sessions.version().await,
            _ => None,
        };
        asked.map_or(self.version, number_of)
    }
}

/// Whether the sessions of an engine can leave their machine.
#[derive(Clone)]
#[non_exhaustive]
pub enum Travels {
    /// They are nowhere but in the conversation's id: nothing has to be moved.
    Freely,
    /// They are files, which are stored with each result and placed where the session is resumed.
    Files(Arc<dyn PortableSessions>),
    /// They stay where they are: only this machine resumes them.
    No,
}

impl fmt::Debug for Travels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Freely => "Freely",
            Self::Files(_) => "Files",
            Self::No => "No",
        })
    }
}

/// How a worker serves.
#[derive(Clone)]
#[non_exhaustive]
pub struct WorkerOptions {
    /// The machine's name: the same over restarts, and no other worker's.
    pub machine: String,
    /// How many jobs run at once.
    pub slots: u32,
    /// What it offers beside its engines and places, e.g. `label:gpu`.
    pub offers: Vec<String>,
    /// The directories that jobs may name, by their names.
    pub places: BTreeMap<String, PathBuf>,
    /// Those of [`Self::places`] whose content is on this machine only: sessions that work there stay here.
    pub own_places: BTreeSet<String>,
    /// The repositories that jobs may name as `git:URL@REF`: `HOST/OWNER`, or `file` for those of this machine.
    pub git: BTreeSet<String>,
    /// What jobs may ask for.
    pub ceiling: Ceiling,
    /// A session whose stored files have more bytes than this stays on its machine.
    pub max_session: u64,
    /// Where it keeps directories of sessions without a place, and records of the session files that are here.
    pub state: PathBuf,
    /// What a session has here is removed when it was not used here for so long: longer than the fleet keeps sessions.
    pub keep_unused: Duration,
    /// How long its lease is.
    pub lease: Duration,
    /// How long running turns may take to end once it is told to stop.
    pub grace: Duration,
    /// The host of its runners, if all that runs there is the worker's: what does not stop before the lease ends is killed.
    pub host: Option<Host>,
}

impl WorkerOptions {
    /// A worker of this name that keeps its files there.
    pub fn new(machine: impl Into<String>, state: impl Into<PathBuf>) -> Self {
        Self {
            machine: machine.into(),
            slots: 4,
            offers: Vec::new(),
            places: BTreeMap::new(),
            own_places: BTreeSet::new(),
            git: BTreeSet::new(),
            ceiling: Ceiling::default(),
            max_session: 64 << 20,
            state: state.into(),
            keep_unused: Retention::default().sessions + Duration::from_hours(24),
            lease: Duration::from_secs(30),
            grace: Duration::from_mins(10),
            host: None,
        }
    }
}

impl WorkerOptions {
    /// Whether jobs may name a repository.
    fn serves(&self, place: &GitPlace) -> bool {
        place.need().is_some_and(|need| self.git.iter().any(|scope| need == format!("git:{scope}")))
    }
}

/// Serves the queue.
pub struct Worker {
    board: Arc<dyn Board>,
    engines: HashMap<String, Served>,
    options: WorkerOptions,
    kept: Arc<Kept>,
}

impl Worker {
    /// A worker without engines.
    pub fn new(board: Arc<dyn Board>, options: WorkerOptions) -> Self {
        let kept = Kept::new(options.state.clone());
        Self { board, engines: HashMap::new(), options, kept }
    }

    /// Adds an engine.
    pub fn engine(mut self, served: Served) -> Self {
        self.engines.insert(served.runner.engine().to_string(), served);
        self
    }

    /// The versions of the engines as they are now: a program may be updated, or replaced by an older one, at any time.
    async fn versions(&self) -> BTreeMap<String, u64> {
        let mut versions = BTreeMap::new();
        for (engine, served) in &self.engines {
            versions.insert(engine.clone(), served.version_now().await);
        }
        versions
    }

    /// What tells this installation from others, kept with its other files. One that cannot be kept is new at every start: then a
    /// restart waits until the lease of the worker before is over.
    fn instance(&self) -> Uuid {
        let file = self.options.state.join("instance");
        let kept = std::fs::read_to_string(&file).ok();
        if let Some(kept) = kept.and_then(|kept| kept.trim().parse().ok()) {
            return kept;
        }
        let instance = Uuid::new_v4();
        let saved = std::fs::create_dir_all(&self.options.state)
            .and_then(|()| std::fs::write(&file, instance.to_string()));
        if let Err(error) = saved {
            tracing::warn!("cannot write {}: {error}", file.display());
        }
        instance
    }

    fn info(&self, id: &str, instance: Uuid, versions: BTreeMap<String, u64>) -> WorkerInfo {
        let engines = self.engines.keys().map(|engine| format!("engine:{engine}"));
        let places = self.options.places.keys().map(|place| format!("place:{place}"));
        let git = self.options.git.iter().map(|scope| format!("git:{scope}"));
        let offers = self.options.offers.iter().cloned().chain(engines).chain(places).chain(git);
        WorkerInfo {
            id: id.to_owned(),
            machine: self.options.machine.clone(),
            instance,
            offers: offers.collect(),
            versions,
            slots: self.options.slots,
        }
    }

    /// Serves until `stop` fires and everything has ended. A database that is away is waited for. Refused while another worker of
    /// this name lives.
    pub async fn serve(self, stop: CancellationToken) -> Result<(), BoardError> {
        let shared = Arc::new(self);
        let instance = shared.instance();
        // The same until it is answered: a registration that was given up may arrive later, and would end every other worker of this
        // machine.
        let mut unanswered = None;
        loop {
            let new = || {
                format!("{}/{}", shared.options.machine, &Uuid::new_v4().simple().to_string()[..8])
            };
            let id = unanswered.get_or_insert_with(new).clone();
            let versions = shared.versions().await;
            let sent = Lease::now();
            let info = shared.info(&id, instance, versions.clone());
            let registered = shared.board.register(info, shared.options.lease);
            match tokio::select! { () = stop.cancelled() => return Ok(()), registered = registered => registered }
            {
                Ok(()) => unanswered = None,
                Err(error) if error.is_passing() => {
                    tracing::warn!("{error}; trying again");
                    tokio::select! { () = stop.cancelled() => return Ok(()), () = sleep(LOOK) => continue }
                }
                Err(error) => return Err(error),
            }
            tracing::info!("worker {id} serves {} slots", shared.options.slots);
            let lease = Arc::new(Lease::new(shared.options.lease, sent));
            match Serving::new(shared.clone(), id, lease, versions).run(&stop).await {
                Over::Stopped => return Ok(()),
                Over::Changed => tracing::info!("an engine has another version now: serving again"),
                Over::Lost => tracing::warn!(
                    "the lease was lost: every run was stopped; serving again under a new name"
                ),
            }
        }
    }
}
