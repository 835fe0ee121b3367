//! What people who look after the fleet need, beside the verbs of the board: one picture of it, and everybody's jobs.
//!
//! The picture is for every user of the fleet: names and numbers, no prompts and no answers. Everybody's jobs are for the owner
//! of the schema, who may also cancel and release what is not its own.

use serde::{Deserialize, Serialize};
use tokio_postgres::types::Type;

use super::PgBoard;
use crate::board::{BoardError, JobLine, Status};

/// The fleet at one moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Overview {
    /// Its figures.
    pub status: Status,
    /// The leases of the workers.
    pub leases: Vec<LeaseLine>,
    /// How many jobs ended in each ten seconds of the last five minutes, the oldest first.
    pub ended: Vec<u64>,
    /// Submitters that live.
    pub submitters: u64,
    /// What the stored files of sessions take, in bytes.
    pub file_bytes: u64,
    /// What all tables of the fleet take, in bytes.
    pub all_bytes: u64,
}

impl Overview {
    /// How long the lease of a worker still holds, in seconds; below zero since it ended.
    pub fn lease_of(&self, worker: &str) -> Option<f64> {
        self.leases.iter().find(|lease| lease.worker == worker).map(|lease| lease.seconds_left)
    }
}

/// The lease of a worker.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LeaseLine {
    /// The worker.
    pub worker: String,
    /// How long it still holds; below zero since it ended.
    pub seconds_left: f64,
}

/// A job of any user.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AdminJob {
    /// The user of the database that submitted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The rest.
    #[serde(flatten)]
    pub line: JobLine,
}

impl From<JobLine> for AdminJob {
    fn from(line: JobLine) -> Self {
        Self { owner: None, line }
    }
}

impl PgBoard {
    /// The newest migration of the queue in the database.
    pub async fn schema_version(&self) -> Result<i32, BoardError> {
        let rows = self.query("select takopi.schema_version()", &[]).await?;
        Ok(rows.first().map_or(0, |row| row.get(0)))
    }

    /// The newest migration that this takopi knows.
    pub fn newest_schema() -> i32 {
        super::migrate::newest()
    }

    /// The fleet at this moment.
    pub async fn overview(&self) -> Result<Overview, BoardError> {
        Ok(self.json("select takopi.overview()", &[]).await?.unwrap_or_default())
    }

    /// Everybody's newest jobs. Refused for all but the owner of the schema.
    pub async fn jobs_of_all(&self, max: u32) -> Result<Vec<AdminJob>, BoardError> {
        let max = i32::try_from(max).unwrap_or(i32::MAX);
        let jobs = self.json("select takopi.jobs_of_all($1)", &[(&max, Type::INT4)]).await?;
        Ok(jobs.unwrap_or_default())
    }
}
