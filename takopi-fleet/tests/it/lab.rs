//! Boards to test, and jobs for them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::json;
use takopi_fleet::board::{
    Board, Claimed, Completion, Held, NewJob, OnGone, OnLoss, SessionRef, WorkerInfo,
};
use takopi_fleet::{MemoryBoard, PgBoard};
use takopi_tests::postgres::{self, Postgres};
use uuid::Uuid;

pub(crate) const LEASE: Duration = Duration::from_mins(10);

/// Runs these functions over each board. In memory on a paused clock, which is tokio's: nothing waits longer than a test wants it to. `runs:`
/// are on a clock that goes: they have parts on other threads.
macro_rules! over_every_board {
    (runs: $($name:ident,)*) => { over_every_board!(#[tokio::test] $($name,)*); };
    (#[$memory:meta] $($name:ident,)*) => {
        mod memory {
            $(#[$memory]
            async fn $name() {
                super::$name(&crate::lab::Lab::memory()).await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                if let Some(lab) = crate::lab::Lab::pg().await { super::$name(&lab).await; }
            })*
        }
    };
    ($($name:ident,)*) => { over_every_board!(#[tokio::test(start_paused = true)] $($name,)*); };
}
pub(crate) use over_every_board;

/// A board, and what only a test may do to it.
pub(crate) enum Lab {
    Memory(MemoryBoard),
    Pg { board: Arc<PgBoard>, url: String },
}

impl Lab {
    pub(crate) fn memory() -> Self {
        Self::Memory(MemoryBoard::new())
    }

    pub(crate) async fn pg() -> Option<Self> {
        let server = postgres::shared_or_skip()?;
        let url = database(server).await;
        let parsed = url.parse().unwrap();
        PgBoard::init(&parsed).await.unwrap();
        let board = Arc::new(PgBoard::connect(parsed).await.unwrap());
        Some(Self::Pg { board, url })
    }

    pub(crate) fn board(&self) -> Arc<dyn Board> {
        match self {
            Self::Memory(board) => Arc::new(board.clone()),
            Self::Pg { board, .. } => board.clone(),
        }
    }

    /// The lease of a worker is over, as if its time had passed.
    pub(crate) async fn expire(&self, worker: &str) {
        match self {
            Self::Memory(board) => board.expire(worker),
            Self::Pg { .. } => {
                let sql = format!(
                    "update takopi.worker set lease_until = clock_timestamp() - interval '1 ms' where id = '{worker}'"
                );
                self.sql(&sql).await;
            }
        }
    }

    /// So much time passes, in which nobody does anything.
    pub(crate) async fn pass(&self, time: Duration) {
        match self {
            Self::Memory(_) => tokio::time::advance(time).await,
            Self::Pg { .. } => {
                let earlier =
                    |name: &str| format!("{name} = {name} - interval '{} s'", time.as_secs());
                let worker = ["lease_until", "beaten", "steady"].map(earlier).join(", ");
                let submitter = earlier("lease_until");
                let sql = format!(
                    "update takopi.worker set {worker}; update takopi.submitter set {submitter}"
                );
                self.sql(&sql).await;
            }
        }
    }

    /// All jobs and sessions are forgotten, as by a database that is restored from before they came.
    pub(crate) async fn forget(&self) {
        if let Self::Memory(board) = self {
            board.forget();
        }
        self.sql("truncate takopi.job, takopi.session, takopi.name, takopi.event, takopi.control, takopi.file").await;
    }

    /// No job has waited yet, however long the machine took over it: in memory time passes only if a test lets it.
    pub(crate) async fn have_just_come(&self) {
        let sql = "update takopi.session set ready_at = clock_timestamp() + interval '1 h' where head is not null";
        self.sql(sql).await;
    }

    /// Runs SQL as the superuser; nothing in memory.
    pub(crate) async fn sql(&self, sql: &str) -> String {
        match self {
            Self::Memory(_) => String::new(),
            Self::Pg { url, .. } => execute(url, sql).await,
        }
    }
}

/// Makes an empty database and returns its address.
pub(crate) async fn database(server: &Postgres) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed));
    execute(&server.url("takopi", "postgres"), &format!("create database {name}")).await;
    server.url("takopi", &name)
}

/// Runs SQL and returns the first value of its answer.
pub(crate) async fn execute(url: &str, sql: &str) -> String {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    let driver = tokio::spawn(connection);
    let rows = client.simple_query(sql).await.unwrap();
    drop(client);
    driver.await.unwrap().unwrap();
    let value = rows.iter().find_map(|row| match row {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    value.unwrap_or_default()
}

pub(crate) fn job(id: &str, session: SessionRef) -> NewJob {
    NewJob {
        id: id.to_owned(),
        submitter: "s1".to_owned(),
        engine: "demo".to_owned(),
        session,
        needs: vec!["engine:demo".to_owned()],
        place: None,
        spec: json!({ "prompt": id }),
        blobs: Vec::new(),
        on_loss: OnLoss::Retry,
        on_gone: OnGone::Continue,
    }
}

/// The session of a number.
pub(crate) fn session(number: u64) -> SessionRef {
    SessionRef::New(Uuid::from_u64_pair(0, number))
}

pub(crate) fn worker(id: &str) -> WorkerInfo {
    let machine = id.split('/').next().unwrap_or(id).to_owned();
    WorkerInfo {
        id: id.to_owned(),
        machine,
        instance: Uuid::nil(),
        offers: vec!["engine:demo".to_owned()],
        versions: BTreeMap::new(),
        slots: 4,
    }
}

pub(crate) fn completion(held: Held, home: &str) -> Completion {
    let result = json!({ "type": "completed", "engine": "demo", "ok": true, "answer": held.job });
    let home = Some(home.to_owned());
    Completion { held, result, home, version: 0, stays: None, files: Vec::new() }
}

pub(crate) fn ids(claimed: &[Claimed]) -> Vec<&str> {
    claimed.iter().map(|claimed| claimed.held.job.as_str()).collect()
}
