//! The board on PostgreSQL: every verb is one call of one function of the database (`migrations/`).
//!
//! Connections are made when they are needed and made again after they broke; a call never waits longer than
//! [`CALL_LIMIT`]. Beats have a connection of their own, so that no large commit delays them. Calls are sent without
//! prepared statements, so a transaction pooler may stand in between; then bells are not heard and callers poll.

mod admin;
mod bells;
mod link;
mod migrate;
mod passfile;

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

pub use self::admin::{AdminJob, LeaseLine, Overview};
use self::bells::Ringer;
use self::link::Link;
pub use self::link::{ConnectError, Url};
pub use self::migrate::MigrateError;
use super::{
    Answer, Bell, Board, BoardError, Claimed, Completion, ControlKind, ControlRequest,
    ControlState, Enqueued, HOME_PATIENCE, Held, Import, JobLine, JobRow, Listener, MAX_ATTEMPTS,
    NewJob, Opened, PendingControl, Piece, Reaped, Removed, Retention, Rings, STEADY,
    SUBMITTER_LEASE, SessionRef, Status, Waiting, WorkerInfo,
};

/// How long a call may take before its connection is given up.
pub const CALL_LIMIT: Duration = Duration::from_secs(30);
/// How long a beat may take.
const BEAT_LIMIT: Duration = Duration::from_secs(4);
/// The version of the protocol that this code speaks.
const PROTOCOL: i32 = 1;
/// How many jobs of one user may wait, unless the board is told otherwise.
const MAX_QUEUED: i32 = 100_000;

/// The board on PostgreSQL.
pub struct PgBoard {
    url: Url,
    calls: Vec<Link>,
    next: std::sync::atomic::AtomicUsize,
    beats: Link,
    ringer: Ringer,
    max_queued: i32,
}

type Params<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

impl PgBoard {
    /// Connects, and checks that the database has a queue of this version.
    pub async fn connect(url: Url) -> Result<Self, BoardError> {
        let board = Self {
            calls: (0..4).map(|_| Link::new(url.clone(), CALL_LIMIT)).collect(),
            next: std::sync::atomic::AtomicUsize::new(0),
            beats: Link::new(url.clone(), BEAT_LIMIT),
            ringer: Ringer::start(Link::new(url.clone(), BEAT_LIMIT)),
            max_queued: MAX_QUEUED,
            url,
        };
        let rows = board.query("select takopi.protocol()", &[]).await.map_err(|error| match error {
            BoardError::Refused(detail) if detail.contains("takopi") => BoardError::Schema(
                "the database has no queue of takopi, or this user may not use it: create it with `takopi fleet init` (`PgBoard::init`)".to_owned(),
            ),
            other => other,
        })?;
        let version: i32 = rows.first().map_or(0, |row| row.get(0));
        if version != PROTOCOL {
            return Err(BoardError::Schema(format!(
                "the queue in the database speaks version {version} of the protocol, this takopi version {PROTOCOL}: use the same takopi everywhere"
            )));
        }
        Ok(board)
    }

    /// How many jobs of one user may wait, about.
    pub fn max_queued(mut self, max: u32) -> Self {
        self.max_queued = i32::try_from(max).unwrap_or(i32::MAX);
        self
    }

    /// Creates the queue in the database, or brings it to this version. Returns the versions that were applied.
    pub async fn init(url: &Url) -> Result<Vec<i32>, MigrateError> {
        migrate::run(url).await
    }

    async fn query(&self, sql: &str, params: Params<'_>) -> Result<Vec<Row>, BoardError> {
        let turn = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.calls[turn % self.calls.len()].query(sql, params).await
    }

    /// Calls a function that returns one JSON value.
    async fn json<T: DeserializeOwned>(
        &self,
        sql: &str,
        params: Params<'_>,
    ) -> Result<Option<T>, BoardError> {
        let rows = self.query(sql, params).await?;
        let value: Option<Value> = rows.first().and_then(|row| row.get(0));
        value.map(read).transpose()
    }

    async fn truth(&self, sql: &str, params: Params<'_>) -> Result<bool, BoardError> {
        let rows = self.query(sql, params).await?;
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }
}

fn read<T: DeserializeOwned>(value: Value) -> Result<T, BoardError> {
    serde_json::from_value(value)
        .map_err(|error| BoardError::Schema(format!("unexpected answer of the database: {error}")))
}

fn unexpected(what: &str) -> BoardError {
    BoardError::Schema(format!("unexpected answer of the database: {what}"))
}

/// A length of time as PostgreSQL reads it.
fn interval(length: Duration) -> String {
    format!("{} milliseconds", length.as_millis())
}

fn job_json(job: &NewJob) -> Value {
    use base64::Engine as _;
    let encode = |blob: &Vec<u8>| base64::engine::general_purpose::STANDARD.encode(blob);
    let mut value = json!({
        "id": job.id, "submitter": job.submitter, "engine": job.engine, "needs": job.needs,
        "place": job.place, "spec": job.spec, "on_loss": job.on_loss.as_str(),
        "on_gone": job.on_gone.as_str(), "blobs": job.blobs.iter().map(encode).collect::<Vec<_>>(),
    });
    match &job.session {
        SessionRef::New(sid) => value["sid"] = json!(sid),
        SessionRef::Reported(sid, id) => {
            value["sid"] = json!(sid);
            value["name"] = json!(id);
        }
        SessionRef::Known(id) => value["resume"] = json!(id),
    }
    value
}

impl Board for PgBoard {
    fn enqueue(&self, jobs: Vec<NewJob>) -> Answer<'_, Vec<Enqueued>> {
        Box::pin(async move {
            let jobs = Value::from(jobs.iter().map(job_json).collect::<Vec<_>>());
            let sql = "select outcome from takopi.enqueue($1, $2)";
            let rows =
                self.query(sql, &[(&jobs, Type::JSONB), (&self.max_queued, Type::INT4)]).await?;
            rows.iter()
                .map(|row| match row.get(0) {
                    "new" => Ok(Enqueued::New),
                    "known" => Ok(Enqueued::Known),
                    "foreign" => Ok(Enqueued::Foreign),
                    "no_session" => Ok(Enqueued::NoSession),
                    "queue_full" => Ok(Enqueued::QueueFull),
                    other => Err(unexpected(other)),
                })
                .collect()
        })
    }

    fn follow(&self, cursors: Vec<(String, i64)>, max: u32) -> Answer<'_, Vec<JobRow>> {
        Box::pin(async move {
            let (jobs, after): (Vec<_>, Vec<_>) = cursors.into_iter().unzip();
            let max = i32::try_from(max).unwrap_or(i32::MAX);
            let params: Params<'_> =
                &[(&jobs, Type::TEXT_ARRAY), (&after, Type::INT8_ARRAY), (&max, Type::INT4)];
            let rows =
                self.query("select job, seq, body from takopi.follow($1, $2, $3)", params).await?;
            let row = |row: &Row| JobRow { job: row.get(0), seq: row.get(1), body: row.get(2) };
            Ok(rows.iter().map(row).collect())
        })
    }

    fn waiting(&self, job: &str) -> Answer<'_, Option<Waiting>> {
        let job = job.to_owned();
        Box::pin(async move { self.json("select takopi.waiting($1)", &[(&job, Type::TEXT)]).await })
    }

    fn control(&self, request: ControlRequest) -> Answer<'_, ControlState> {
        Box::pin(async move {
            let ControlRequest { id, job, kind, body } = request;
            let kind = kind.as_str();
            let params: Params<'_> =
                &[(&id, Type::TEXT), (&job, Type::TEXT), (&kind, Type::TEXT), (&body, Type::JSONB)];
            let sql = "select state, worker from takopi.control($1, $2, $3, $4)";
            let rows = self.query(sql, params).await?;
            let row = rows.first().ok_or_else(|| unexpected("no row"))?;
            if let Some(worker) = row.get(1) {
                self.ring(Bell::Worker(worker));
            }
            match row.get(0) {
                "unknown" => Ok(ControlState::Unknown),
                "refused" => Ok(ControlState::Refused),
                "taken" => Ok(ControlState::Taken),
                _ => Ok(ControlState::Waiting),
            }
        })
    }

    fn submitter_beat(&self, submitter: &str, lease: Duration) -> Answer<'_, ()> {
        let (submitter, lease) = (submitter.to_owned(), interval(lease));
        Box::pin(async move {
            let params: Params<'_> = &[(&submitter, Type::TEXT), (&lease, Type::TEXT)];
            self.beats
                .query("select takopi.submitter_beat($1, $2::interval)", params)
                .await
                .map(drop)
        })
    }

    fn register(&self, worker: WorkerInfo, lease: Duration) -> Answer<'_, ()> {
        Box::pin(async move {
            let slots = i32::try_from(worker.slots).unwrap_or(i32::MAX);
            let (versions, lease) = (json!(worker.versions), interval(lease));
            let params: Params<'_> = &[
                (&worker.id, Type::TEXT),
                (&worker.machine, Type::TEXT),
                (&worker.instance, Type::UUID),
                (&worker.offers, Type::TEXT_ARRAY),
                (&versions, Type::JSONB),
                (&slots, Type::INT4),
                (&lease, Type::TEXT),
            ];
            let sql = "select takopi.register($1, $2, $3, $4, $5, $6, $7::interval)";
            self.query(sql, params).await.map(drop)
        })
    }

    fn claim(&self, worker: &str, claim: &str, max: u32) -> Answer<'_, Vec<Claimed>> {
        let (worker, claim) = (worker.to_owned(), claim.to_owned());
        Box::pin(async move {
            let max = i32::try_from(max).unwrap_or(i32::MAX);
            let patience = interval(HOME_PATIENCE);
            let params: Params<'_> = &[
                (&worker, Type::TEXT),
                (&claim, Type::TEXT),
                (&max, Type::INT4),
                (&patience, Type::TEXT),
            ];
            let sql = "select job, token, sid, attempts, submitter, engine, value, place, home, gen, lost, spec, blobs from takopi.claim($1, $2, $3, $4::interval)";
            let rows = self.query(sql, params).await?;
            let claimed = |row: &Row| Claimed {
                held: Held { job: row.get(0), token: row.get(1) },
                sid: row.get(2),
                attempt: u32::try_from(row.get::<_, i32>(3)).unwrap_or(1),
                submitter: row.get(4),
                engine: row.get(5),
                value: row.get(6),
                place: row.get(7),
                home: row.get(8),
                generation: row.get(9),
                lost: row.get(10),
                spec: row.get(11),
                blobs: row.get::<_, Option<_>>(12).unwrap_or_default(),
            };
            Ok(rows.iter().map(claimed).collect())
        })
    }

    fn beat(
        &self,
        worker: &str,
        lease: Duration,
        busy: u32,
        draining: bool,
    ) -> Answer<'_, Option<Vec<Held>>> {
        let (worker, lease) = (worker.to_owned(), interval(lease));
        Box::pin(async move {
            let busy = i32::try_from(busy).unwrap_or(i32::MAX);
            let steady = interval(STEADY);
            let params: Params<'_> = &[
                (&worker, Type::TEXT),
                (&lease, Type::TEXT),
                (&busy, Type::INT4),
                (&draining, Type::BOOL),
                (&steady, Type::TEXT),
            ];
            let sql = "select takopi.beat($1, $2::interval, $3, $4, $5::interval)";
            let rows = self.beats.query(sql, params).await?;
            let held: Option<Value> = rows.first().and_then(|row| row.get(0));
            held.map(read).transpose()
        })
    }

    fn opened(&self, worker: &str, held: Held, value: &str) -> Answer<'_, Opened> {
        let (worker, value) = (worker.to_owned(), value.to_owned());
        Box::pin(async move {
            let params: Params<'_> = &[
                (&worker, Type::TEXT),
                (&held.job, Type::TEXT),
                (&held.token, Type::INT8),
                (&value, Type::TEXT),
            ];
            let rows = self.query("select takopi.opened($1, $2, $3, $4)", params).await?;
            match rows.first().map(|row| row.get::<_, &str>(0)) {
                Some("ok") => Ok(Opened::Ok),
                Some("taken") => Ok(Opened::Taken),
                _ => Ok(Opened::Fenced),
            }
        })
    }

    fn events(&self, worker: &str, held: Vec<Held>, rows: Vec<JobRow>) -> Answer<'_, Vec<String>> {
        let worker = worker.to_owned();
        Box::pin(async move {
            let (jobs, tokens): (Vec<_>, Vec<_>) =
                held.into_iter().map(|held| (held.job, held.token)).unzip();
            let event_jobs: Vec<_> = rows.iter().map(|row| row.job.as_str()).collect();
            let seqs: Vec<_> = rows.iter().map(|row| row.seq).collect();
            let bodies: Vec<_> = rows.iter().map(|row| &row.body).collect();
            let params: Params<'_> = &[
                (&worker, Type::TEXT),
                (&jobs, Type::TEXT_ARRAY),
                (&tokens, Type::INT8_ARRAY),
                (&event_jobs, Type::TEXT_ARRAY),
                (&seqs, Type::INT8_ARRAY),
                (&bodies, Type::JSONB_ARRAY),
            ];
            let rows = self
                .query("select f from takopi.events($1, $2, $3, $4, $5, $6) as f", params)
                .await?;
            Ok(rows.iter().map(|row| row.get(0)).collect())
        })
    }

    fn complete(&self, worker: &str, completion: Completion) -> Answer<'_, bool> {
        let worker = worker.to_owned();
        Box::pin(async move {
            let Completion { held, result, home, version, stays, files } = completion;
            let version = i64::try_from(version).unwrap_or(i64::MAX);
            let paths: Vec<_> = files.iter().map(|piece| piece.path.as_str()).collect();
            let starts: Vec<_> = files.iter().map(|piece| piece.start).collect();
            let data: Vec<_> = files.iter().map(|piece| piece.data.as_slice()).collect();
            let params: Params<'_> = &[
                (&worker, Type::TEXT),
                (&held.job, Type::TEXT),
                (&held.token, Type::INT8),
                (&result, Type::JSONB),
                (&home, Type::TEXT),
                (&version, Type::INT8),
                (&stays, Type::TEXT),
                (&paths, Type::TEXT_ARRAY),
                (&starts, Type::INT8_ARRAY),
                (&data, Type::BYTEA_ARRAY),
            ];
            let sql = "select takopi.complete($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
            self.truth(sql, params).await
        })
    }

    fn hand_back(&self, worker: &str, held: Held, begun: bool) -> Answer<'_, bool> {
        let worker = worker.to_owned();
        Box::pin(async move {
            let max = i32::try_from(MAX_ATTEMPTS).unwrap_or(i32::MAX);
            let params: Params<'_> = &[
                (&worker, Type::TEXT),
                (&held.job, Type::TEXT),
                (&held.token, Type::INT8),
                (&begun, Type::BOOL),
                (&max, Type::INT4),
            ];
            self.truth("select takopi.hand_back($1, $2, $3, $4, $5)", params).await
        })
    }

    fn controls(&self, worker: &str) -> Answer<'_, Vec<PendingControl>> {
        let worker = worker.to_owned();
        Box::pin(async move {
            let sql = "select id, job, token, kind, body from takopi.controls($1)";
            let rows = self.query(sql, &[(&worker, Type::TEXT)]).await?;
            let pending = |row: &Row| {
                Some(PendingControl {
                    id: row.get(0),
                    held: Held { job: row.get(1), token: row.get(2) },
                    kind: ControlKind::parse(row.get(3))?,
                    body: row.get(4),
                })
            };
            Ok(rows.iter().filter_map(pending).collect())
        })
    }

    fn settle(&self, worker: &str, held: Held, control: &str, taken: bool) -> Answer<'_, ()> {
        let (worker, control) = (worker.to_owned(), control.to_owned());
        Box::pin(async move {
            let params: Params<'_> = &[
                (&worker, Type::TEXT),
                (&held.job, Type::TEXT),
                (&held.token, Type::INT8),
                (&control, Type::TEXT),
                (&taken, Type::BOOL),
            ];
            self.query("select takopi.settle($1, $2, $3, $4, $5)", params).await.map(drop)
        })
    }

    fn is_abandoned(&self, worker: &str, job: &str) -> Answer<'_, bool> {
        let (worker, job) = (worker.to_owned(), job.to_owned());
        Box::pin(async move {
            let (steady, grace) = (interval(STEADY), interval(SUBMITTER_LEASE));
            let params: Params<'_> = &[
                (&worker, Type::TEXT),
                (&job, Type::TEXT),
                (&steady, Type::TEXT),
                (&grace, Type::TEXT),
            ];
            let sql = "select takopi.is_abandoned($1, $2, $3::interval, $4::interval)";
            self.truth(sql, params).await
        })
    }

    fn files(&self, worker: &str, session: Uuid) -> Answer<'_, Vec<Piece>> {
        let worker = worker.to_owned();
        Box::pin(async move {
            let sql = "select path, start, data from takopi.files($1, $2)";
            let rows = self.query(sql, &[(&worker, Type::TEXT), (&session, Type::UUID)]).await?;
            let piece = |row: &Row| Piece { path: row.get(0), start: row.get(1), data: row.get(2) };
            Ok(rows.iter().map(piece).collect())
        })
    }

    fn reap(&self) -> Answer<'_, Reaped> {
        Box::pin(async move {
            let max = i32::try_from(MAX_ATTEMPTS).unwrap_or(i32::MAX);
            let (steady, grace) = (interval(STEADY), interval(SUBMITTER_LEASE));
            let params: Params<'_> =
                &[(&max, Type::INT4), (&steady, Type::TEXT), (&grace, Type::TEXT)];
            let sql = "select takopi.reap($1, $2::interval, $3::interval)";
            let reaped: Option<Reaped> = self.json(sql, params).await?;
            let reaped = reaped.unwrap_or_default();
            for ended in &reaped.ended {
                let (id, job) = (ended.submitter.clone(), ended.job.clone());
                self.ring(Bell::Submitter { id, job });
            }
            if reaped.again > 0 || !reaped.ended.is_empty() {
                self.ring(Bell::Work);
            }
            Ok(reaped)
        })
    }

    fn import(&self, session: Import) -> Answer<'_, bool> {
        Box::pin(async move {
            let version = i64::try_from(session.version).unwrap_or(i64::MAX);
            let paths: Vec<_> = session.files.iter().map(|piece| piece.path.as_str()).collect();
            let data: Vec<_> = session.files.iter().map(|piece| piece.data.as_slice()).collect();
            let params: Params<'_> = &[
                (&session.sid, Type::UUID),
                (&session.engine, Type::TEXT),
                (&session.value, Type::TEXT),
                (&session.place, Type::TEXT),
                (&session.machine, Type::TEXT),
                (&version, Type::INT8),
                (&session.stays, Type::TEXT),
                (&paths, Type::TEXT_ARRAY),
                (&data, Type::BYTEA_ARRAY),
            ];
            self.truth("select takopi.import($1, $2, $3, $4, $5, $6, $7, $8, $9)", params).await
        })
    }

    fn release(&self, engine: &str, value: &str) -> Answer<'_, bool> {
        let (engine, value) = (engine.to_owned(), value.to_owned());
        Box::pin(async move {
            let params: Params<'_> = &[(&engine, Type::TEXT), (&value, Type::TEXT)];
            self.truth("select takopi.release($1, $2)", params).await
        })
    }

    fn gc(&self, retention: Retention, dry: bool) -> Answer<'_, Removed> {
        Box::pin(async move {
            let [events, results, sessions] =
                [retention.events, retention.results, retention.sessions].map(interval);
            let params: Params<'_> = &[
                (&events, Type::TEXT),
                (&results, Type::TEXT),
                (&sessions, Type::TEXT),
                (&dry, Type::BOOL),
            ];
            let sql = "select takopi.gc($1::interval, $2::interval, $3::interval, $4)";
            Ok(self.json(sql, params).await?.unwrap_or_default())
        })
    }

    fn status(&self) -> Answer<'_, Status> {
        Box::pin(
            async move { Ok(self.json("select takopi.status()", &[]).await?.unwrap_or_default()) },
        )
    }

    fn jobs(&self, max: u32) -> Answer<'_, Vec<JobLine>> {
        Box::pin(async move {
            let max = i32::try_from(max).unwrap_or(i32::MAX);
            let params: Params<'_> = &[(&max, Type::INT4)];
            Ok(self.json("select takopi.jobs($1)", params).await?.unwrap_or_default())
        })
    }

    fn ring(&self, bell: Bell) {
        self.ringer.ring(bell);
    }

    fn listen(&self, listener: Listener) -> Rings {
        bells::listen(self.url.clone(), listener)
    }
}
