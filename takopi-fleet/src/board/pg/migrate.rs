//! Brings the queue in a database to this version. Each migration is one transaction, applied once, one at a time.

use thiserror::Error;

use super::link::{ConnectError, Url};

const MIGRATIONS: &[(i32, &str)] = &[
    (1, include_str!("migrations/0001_tables.sql")),
    (2, include_str!("migrations/0002_functions.sql")),
    (3, include_str!("migrations/0003_roles.sql")),
    (4, include_str!("migrations/0004_admin.sql")),
    (5, include_str!("migrations/0005_abandoned.sql")),
    (6, include_str!("migrations/0006_register_again.sql")),
    (7, include_str!("migrations/0007_lost_workers.sql")),
    (8, include_str!("migrations/0008_waits_again.sql")),
    (9, include_str!("migrations/0009_control_of_a_job.sql")),
    (10, include_str!("migrations/0010_settle_in_a_job.sql")),
    (11, include_str!("migrations/0011_restored.sql")),
];

/// Held while migrations run, so that two of them do not meet.
const LOCK: i64 = 7_251_301;

/// The queue could not be created.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MigrateError {
    /// The database cannot be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A migration failed and changed nothing.
    #[error("migration {version} of the queue failed, and nothing of it was applied: {detail}")]
    Failed {
        /// Its number.
        version: i32,
        /// What the database said.
        detail: String,
    },
    /// The queue was made by a newer takopi.
    #[error("the queue has version {found}, this takopi knows only {known}: update takopi")]
    Newer {
        /// Its version.
        found: i32,
        /// The newest that is known here.
        known: i32,
    },
}

/// The newest migration.
pub(super) fn newest() -> i32 {
    MIGRATIONS.last().map_or(0, |(version, _)| *version)
}

pub(super) async fn run(url: &Url) -> Result<Vec<i32>, MigrateError> {
    let client = url.connect().await?;
    let fail = |version| {
        move |error: tokio_postgres::Error| MigrateError::Failed {
            version,
            detail: super::link::describe(&error),
        }
    };
    let begin = format!(
        "select pg_advisory_lock({LOCK}); create schema if not exists takopi; create table if not exists takopi.migration (version int primary key, applied timestamptz not null default now())"
    );
    client.batch_execute(&begin).await.map_err(fail(0))?;
    let row = client
        .query_one("select coalesce(max(version), 0) from takopi.migration", &[])
        .await
        .map_err(fail(0))?;
    let found: i32 = row.get(0);
    let known = newest();
    if found > known {
        return Err(MigrateError::Newer { found, known });
    }
    let mut applied = Vec::new();
    for (version, sql) in MIGRATIONS.iter().filter(|(version, _)| *version > found) {
        let sql = format!(
            "begin; {sql}; insert into takopi.migration (version) values ({version}); commit"
        );
        client.batch_execute(&sql).await.map_err(fail(*version))?;
        applied.push(*version);
    }
    Ok(applied)
}
