//! A worker: serves the queue with runners of this machine.
//!
//! - It holds one lease, renewed on time by a beat. When the last good beat is too old by its own clock (which counts time
//!   asleep), it stops its runs by itself, before others may begin, and goes on as a new worker.
//! - Everything it writes carries the token of the claim. What it does not hold any more it cuts.
//! - It claims only as much as it has slots for.
//! - A job gets what the worker's configuration allows ([`Ceiling`]), and is refused if it asks for more.
//! - A session's files are stored with the result of each turn, in one commit, and placed before a turn that runs elsewhere.
//! - Told to stop it drains: no claims, running turns may end within the grace time, the rest is handed back.

mod ask;
mod ceiling;
mod copy;
pub(crate) mod git;
mod lease;
mod rows;
mod travel;
mod turn;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use takopi_core::Runner;
use takopi_core::catalog::PortableSessions;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub use self::ceiling::{Allowed, Ceiling};
use self::git::GitPlace;
use self::lease::Lease;
use self::turn::{Handle, Said, Turn};
use crate::board::{
    Bell, Board, BoardError, Claimed, ControlKind, Held, Listener, PendingControl, Retention, Ring,
    WorkerInfo,
};
use crate::files::number_of;

/// How often a worker looks for work by itself: a bell may be lost.
const LOOK: Duration = Duration::from_secs(1);
const CLEAN: Duration = Duration::from_mins(1);

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
    /// How long its lease is.
    pub lease: Duration,
    /// How long running turns may take to end once it is told to stop.
    pub grace: Duration,
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
            lease: Duration::from_secs(30),
            grace: Duration::from_mins(10),
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
}

/// Why a time of serving ended.
enum Over {
    /// It was told to stop, and has.
    Stopped,
    /// Its lease was lost.
    Lost,
    /// An engine has another version than it said, and nothing runs any more.
    Changed,
}

impl Worker {
    /// A worker without engines.
    pub fn new(board: Arc<dyn Board>, options: WorkerOptions) -> Self {
        Self { board, engines: HashMap::new(), options }
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

    fn info(&self, id: &str, versions: BTreeMap<String, u64>) -> WorkerInfo {
        let engines = self.engines.keys().map(|engine| format!("engine:{engine}"));
        let places = self.options.places.keys().map(|place| format!("place:{place}"));
        let git = self.options.git.iter().map(|scope| format!("git:{scope}"));
        let offers = self.options.offers.iter().cloned().chain(engines).chain(places).chain(git);
        WorkerInfo {
            id: id.to_owned(),
            machine: self.options.machine.clone(),
            offers: offers.collect(),
            versions,
            slots: self.options.slots,
        }
    }

    /// Serves until `stop` fires and everything has ended. A database that is away is waited for.
    pub async fn serve(self, stop: CancellationToken) -> Result<(), BoardError> {
        let shared = Arc::new(self);
        loop {
            let id =
                format!("{}/{}", shared.options.machine, &Uuid::new_v4().simple().to_string()[..8]);
            let versions = shared.versions().await;
            let sent = Lease::now();
            let info = shared.info(&id, versions.clone());
            let registered = shared.board.register(info, shared.options.lease);
            match tokio::select! { () = stop.cancelled() => return Ok(()), registered = registered => registered }
            {
                Ok(()) => {}
                Err(error) if error.is_passing() => {
                    tracing::warn!("{error}; trying again");
                    tokio::select! { () = stop.cancelled() => return Ok(()), () = sleep(LOOK) => continue }
                }
                Err(error) => return Err(error),
            }
            // What this machine's worker before held is free now.
            if let Err(error) = shared.board.reap().await {
                tracing::debug!("cannot reap: {error}");
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

/// One worker's life, from its registration to the end of its lease.
struct Serving {
    worker: Arc<Worker>,
    id: String,
    lease: Arc<Lease>,
    runs: HashMap<Held, Handle>,
    turns: JoinSet<Held>,
    draining: bool,
    /// What it said when it registered.
    versions: Arc<BTreeMap<String, u64>>,
    /// Fires when that is not true any more.
    changed: CancellationToken,
}

impl Serving {
    fn new(
        worker: Arc<Worker>,
        id: String,
        lease: Arc<Lease>,
        versions: BTreeMap<String, u64>,
    ) -> Self {
        Self {
            worker,
            id,
            lease,
            runs: HashMap::new(),
            turns: JoinSet::new(),
            draining: false,
            versions: Arc::new(versions),
            changed: CancellationToken::new(),
        }
    }

    async fn run(mut self, stop: &CancellationToken) -> Over {
        let board = self.worker.board.clone();
        let mut rings = board.listen(Listener::Worker(self.id.clone()));
        let length = self.worker.options.lease;
        let mut beat = interval(length / 6);
        let mut clean = interval(CLEAN);
        clean.reset();
        let (mut claim_name, mut look) = (None, true);
        let mut end_of_grace = None;
        loop {
            if look && !self.draining && !self.changed.is_cancelled() {
                look = self.claim(&mut claim_name).await;
            }
            if self.changed.is_cancelled() && self.runs.is_empty() && !self.draining {
                return Over::Changed;
            }
            if self.draining && self.runs.is_empty() {
                // So that nobody waits for the lease.
                let _ = board.beat(&self.id, Duration::ZERO, 0, true).await;
                return Over::Stopped;
            }
            tokio::select! {
                biased;
                () = self.lease.over() => return self.lost().await,
                () = stop.cancelled(), if !self.draining => {
                    self.draining = true;
                    end_of_grace = Some(Instant::now() + self.worker.options.grace);
                    beat.reset_immediately();
                }
                () = moment(end_of_grace), if end_of_grace.is_some() => {
                    end_of_grace = None;
                    self.runs.values().for_each(Handle::hand_back);
                }
                Some(ended) = self.turns.join_next() => {
                    if let Ok(held) = ended {
                        self.runs.remove(&held);
                    }
                    look = true;
                }
                _ = beat.tick() => {
                    if !self.beat(claim_name.is_none()).await {
                        return self.lost().await;
                    }
                    look = true;
                }
                ring = rings.recv() => match ring {
                    Some(Ring::Control) => self.controls().await,
                    Some(Ring::Everything) => {
                        self.controls().await;
                        look = true;
                    }
                    Some(_) => look = true,
                    None => sleep(LOOK).await,
                },
                _ = clean.tick() => {
                    if let Err(error) = board.gc(Retention::default(), false).await {
                        tracing::debug!("cannot remove what is over: {error}");
                    }
                }
                () = sleep(LOOK) => look = true,
            }
        }
    }

    /// Claims for the free slots; `true` if it must be asked again. The name is kept until the answer is known.
    async fn claim(&mut self, name: &mut Option<String>) -> bool {
        let free = self
            .worker
            .options
            .slots
            .saturating_sub(u32::try_from(self.runs.len()).unwrap_or(u32::MAX));
        if free == 0 {
            return false;
        }
        let claim = name.get_or_insert_with(|| Uuid::new_v4().simple().to_string()).clone();
        match self.worker.board.claim(&self.id, &claim, free).await {
            Ok(claimed) => {
                *name = None;
                for claimed in claimed {
                    self.begin(claimed);
                }
                false
            }
            Err(error) => {
                tracing::debug!("cannot claim: {error}");
                // At the next look, under the same name.
                false
            }
        }
    }

    fn begin(&mut self, claimed: Claimed) {
        let held = claimed.held.clone();
        if self.runs.contains_key(&held) {
            return;
        }
        let said = Said { versions: self.versions.clone(), changed: self.changed.clone() };
        let (turn, handle) =
            Turn::new(self.worker.clone(), self.id.clone(), self.lease.clone(), said, claimed);
        self.runs.insert(held.clone(), handle);
        self.turns.spawn(async move {
            turn.run().await;
            held
        });
    }

    /// Renews the lease, and cuts what the board says is not held; `false` if the lease is over. What the board says is held, and
    /// nothing here runs, is handed back: nobody else would. It is not if the answer to a claim is not `known`.
    async fn beat(&mut self, known: bool) -> bool {
        let sent = Lease::now();
        let busy = u32::try_from(self.runs.len()).unwrap_or(u32::MAX);
        let board = self.worker.board.clone();
        let beat = board.beat(&self.id, self.worker.options.lease, busy, self.draining);
        // The own clock goes on while the board does not answer.
        let answer = tokio::select! {
            biased;
            () = self.lease.over() => return false,
            answer = beat => answer,
        };
        match answer {
            Ok(None) => return false,
            Ok(Some(held)) => {
                self.lease.renewed(sent);
                for (own, handle) in &self.runs {
                    if !held.contains(own) && handle.is_older_than(sent) {
                        handle.cut();
                    }
                }
                for held in held.into_iter().filter(|held| known && !self.runs.contains_key(held)) {
                    tracing::warn!("job {} is held and does not run: handed back", held.job);
                    if let Err(error) = board.hand_back(&self.id, held).await {
                        tracing::debug!("cannot hand back: {error}");
                    }
                    board.ring(Bell::Work);
                }
            }
            Err(error) => tracing::debug!("a beat failed: {error}"),
        }
        if let Err(error) = board.reap().await {
            tracing::debug!("cannot reap: {error}");
        }
        self.controls().await;
        if self.worker.versions().await != *self.versions {
            self.changed.cancel();
        }
        true
    }

    async fn controls(&mut self) {
        match self.worker.board.controls(&self.id).await {
            Ok(pending) => pending.into_iter().for_each(|control| self.pass(control)),
            Err(error) => tracing::debug!("cannot read requests: {error}"),
        }
    }

    fn pass(&self, control: PendingControl) {
        let Some(handle) = self.runs.get(&control.held) else { return };
        match control.kind {
            ControlKind::Cancel => handle.cancel(),
            ControlKind::Answer => handle.answer(control),
            ControlKind::Steer => handle.steer(control),
        }
    }

    /// The lease is over: stops every run and waits until nothing of them is left.
    async fn lost(mut self) -> Over {
        self.runs.values().for_each(Handle::cut);
        let all = async { while self.turns.join_next().await.is_some() {} };
        if timeout(takopi_core::runner::STOP_LIMIT, all).await.is_err() {
            tracing::error!("runs did not stop in time");
        }
        Over::Lost
    }
}

async fn moment(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
