//! What the board tells about workers, queues and jobs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Figures of the fleet.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Status {
    /// The workers.
    pub workers: Vec<WorkerLine>,
    /// What waits, by what it needs.
    pub lines: Vec<Line>,
    /// Jobs that wait.
    pub queued: u64,
    /// Jobs that run.
    pub running: u64,
    /// Sessions.
    pub sessions: u64,
    /// Sessions with work that cannot leave a machine which is gone.
    pub stranded: u64,
    /// Jobs that ended in the last minute.
    pub done_last_minute: u64,
    /// Those of them that failed.
    pub failed_last_minute: u64,
    /// The board's clock, in seconds since 1970.
    pub now: f64,
}

/// One worker in the figures.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WorkerLine {
    /// Its id.
    pub id: String,
    /// Its machine.
    pub machine: String,
    /// How many jobs it runs at once.
    pub slots: u32,
    /// How many it said it runs.
    pub busy: u32,
    /// How many sessions it holds.
    pub held: u64,
    /// Whether it takes no more.
    pub draining: bool,
    /// Whether its lease holds.
    pub alive: bool,
    /// What it offers.
    pub offers: Vec<String>,
    /// The versions of its engines.
    pub versions: BTreeMap<String, u64>,
    /// How long it has been there.
    pub up_seconds: u64,
}

/// What waits for the same needs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Line {
    /// The needs.
    pub needs: Vec<String>,
    /// How many sessions wait for a worker.
    pub sessions_ready: u64,
    /// How long the first of them has waited.
    pub oldest_seconds: u64,
    /// Whether a worker that lives offers all of it.
    pub offered: bool,
}

/// One job in a list.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct JobLine {
    /// Its key.
    pub id: String,
    /// `queued`, `running` or `done`.
    pub state: String,
    /// The engine.
    pub engine: String,
    /// The engine's id of the session.
    pub session: Option<String>,
    /// The worker that has it, or had it last.
    pub worker: Option<String>,
    /// How often it was tried.
    pub attempts: u32,
    /// Whether it succeeded.
    pub ok: Option<bool>,
    /// Why it did not.
    pub reason: Option<String>,
    /// How long ago it was enqueued.
    pub age_seconds: u64,
}
