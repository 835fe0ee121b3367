//! The faults that a prototype of the protocol had, each with its interleaving forced: other transactions are held open while
//! the board is called.

use std::time::Duration;

use takopi_core::{RunRequest, Runner as _};
use takopi_fleet::board::{ControlKind, ControlRequest, ControlState, Enqueued, NewJob, Retention};
use takopi_tests::model::{PATIENCE, within};
use takopi_tests::postgres;
use takopi_tests::runs::finish;
use tokio_postgres::{Client, NoTls};
use tokio_util::sync::CancellationToken;

use crate::contract::fleet_runner;
use crate::lab::{LEASE, Lab, completion, ids, job, session, worker};
use crate::ledger::{LEDGER, Ledger};
use crate::process::{Engine, Plan, WorkerProcess};
use crate::proxy::Proxy;

/// A connection whose transactions a test holds open.
async fn client(lab: &Lab) -> Client {
    let Lab::Pg { url, .. } = lab else { panic!("only PostgreSQL has transactions") };
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Waits until a call of the board waits for a lock.
async fn until_blocked(lab: &Lab) {
    for _ in 0..2000 {
        let waiting = lab
            .sql("select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'")
            .await;
        if waiting != "0" {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("nothing waits for a lock");
}

const ENQUEUE: &str = "select takopi.enqueue('[{\"id\":\"2\",\"sid\":\"00000000-0000-0000-0000-000000000001\",\"engine\":\"demo\",\"needs\":[\"engine:demo\"],\"submitter\":\"s\",\"spec\":{},\"blobs\":[],\"on_loss\":\"retry\",\"on_gone\":\"continue\"}]', 100)";

/// Fault 2: a job that is enqueued while its session is being claimed is not lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_enqueued_while_its_session_completes_becomes_its_head() {
    let Some(lab) = Lab::pg().await else { return };
    let board = lab.board();
    board.register(worker("a/1"), LEASE).await.unwrap();
    board.enqueue(vec![job("1", session(1))]).await.unwrap();
    let held = board.claim("a/1", "c1", 1).await.unwrap().remove(0).held;
    let other = client(&lab).await;
    other.batch_execute("begin").await.unwrap();
    other.batch_execute(ENQUEUE).await.unwrap();
    // The enqueue holds the session's row and is not committed: the completion waits and then sees it.
    let completing = {
        let board = board.clone();
        tokio::spawn(async move { board.complete("a/1", completion(held, "a")).await })
    };
    until_blocked(&lab).await;
    other.batch_execute("commit").await.unwrap();
    assert!(completing.await.unwrap().unwrap());
    assert_eq!(ids(&board.claim("a/1", "c2", 9).await.unwrap()), ["2"]);
}

/// Fault 2, the other way round: the completion is first, and the enqueue waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_enqueued_behind_a_completion_becomes_the_head() {
    let Some(lab) = Lab::pg().await else { return };
    let board = lab.board();
    board.register(worker("a/1"), LEASE).await.unwrap();
    board.enqueue(vec![job("1", session(1))]).await.unwrap();
    board.claim("a/1", "c1", 1).await.unwrap();
    let other = client(&lab).await;
    other.batch_execute("begin").await.unwrap();
    other.batch_execute("select takopi.complete('a/1', '1', 1, '{\"ok\": true}', 'a', 0, null, '{}', '{}', '{}')").await.unwrap();
    let enqueuing = {
        let board = board.clone();
        tokio::spawn(async move { board.enqueue(vec![job("2", session(1))]).await })
    };
    until_blocked(&lab).await;
    other.batch_execute("commit").await.unwrap();
    assert_eq!(enqueuing.await.unwrap().unwrap(), [Enqueued::New]);
    assert_eq!(ids(&board.claim("a/1", "c2", 9).await.unwrap()), ["2"]);
}

/// Fault 3: a claim that began while its worker lived commits before the worker can be buried.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_is_not_buried_in_the_middle_of_its_claim() {
    let Some(lab) = Lab::pg().await else { return };
    let board = lab.board();
    board.register(worker("a/1"), LEASE).await.unwrap();
    board.enqueue(vec![job("1", session(1))]).await.unwrap();
    let other = client(&lab).await;
    other.batch_execute("begin; select takopi.claim('a/1', 'c1', 1, '2 s')").await.unwrap();
    let burying = {
        let board = board.clone();
        tokio::spawn(async move { board.register(worker("a/2"), LEASE).await })
    };
    until_blocked(&lab).await;
    other.batch_execute("commit").await.unwrap();
    burying.await.unwrap().unwrap();
    assert_eq!(board.reap().await.unwrap().again, 1, "what the claim took is found");
    assert_eq!(ids(&board.claim("a/2", "c1", 1).await.unwrap()), ["1"]);
}

/// A beat that began in time is not committed yet when the lease is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_not_ended_by_its_cancel_while_its_worker_renews_the_lease() {
    let Some(lab) = Lab::pg().await else { return };
    let board = lab.board();
    board.register(worker("a/1"), LEASE).await.unwrap();
    board.enqueue(vec![job("1", session(1))]).await.unwrap();
    let held = board.claim("a/1", "c1", 1).await.unwrap().remove(0).held;
    lab.expire("a/1").await;
    let beat = client(&lab).await;
    beat.batch_execute(
        "begin; update takopi.worker set lease_until = clock_timestamp() + interval '10 min'",
    )
    .await
    .unwrap();
    let (id, body) = ("x".to_owned(), serde_json::json!({}));
    let cancel = ControlRequest { id, job: "1".to_owned(), kind: ControlKind::Cancel, body };
    assert_eq!(board.control(cancel).await.unwrap(), ControlState::Waiting);
    beat.batch_execute("commit").await.unwrap();
    assert!(board.complete("a/1", completion(held, "a")).await.unwrap());
}

/// A reaper whose view is older than a worker does not take a session from that worker.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reaper_with_an_old_view_does_not_free_the_session_of_a_new_worker() {
    let Some(lab) = Lab::pg().await else { return };
    let board = lab.board();
    board.register(worker("a/1"), LEASE).await.unwrap();
    for number in 1..=12 {
        board.enqueue(vec![job(&number.to_string(), session(number))]).await.unwrap();
    }
    assert_eq!(board.claim("a/1", "c1", 12).await.unwrap().len(), 12);
    lab.sql("delete from takopi.worker").await;
    // The reaper reads the dead worker's sessions ten at a time, and is stopped at the first of them.
    lab.sql("create function takopi.slow() returns trigger language plpgsql as $$ begin perform pg_advisory_xact_lock(99); return new; end $$; create trigger slow before update on takopi.job for each row when (old.id = '1' and new.state = 'queued') execute function takopi.slow()").await;
    let gate = client(&lab).await;
    gate.batch_execute("select pg_advisory_lock(99)").await.unwrap();
    let reaping = {
        let board = board.clone();
        tokio::spawn(async move { board.reap().await })
    };
    until_blocked(&lab).await;
    assert_eq!(
        board.reap().await.unwrap().again,
        2,
        "another one frees those that it has not read yet"
    );
    board.register(worker("b/1"), LEASE).await.unwrap();
    let claimed = board.claim("b/1", "c1", 9).await.unwrap();
    assert_eq!(ids(&claimed), ["11", "12"]);
    gate.batch_execute("select pg_advisory_unlock(99)").await.unwrap();
    assert_eq!(reaping.await.unwrap().unwrap().again, 10);
    for claimed in claimed {
        assert!(
            board.complete("b/1", completion(claimed.held, "b")).await.unwrap(),
            "they are still its own"
        );
    }
}

/// Fault 4: the answer to a claim or a completion is lost with its connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_lost_with_their_connection_are_given_again() {
    let Some(lab) = Lab::pg().await else { return };
    let board = lab.board();
    board.register(worker("a/1"), LEASE).await.unwrap();
    board.enqueue(vec![job("1", session(1))]).await.unwrap();
    // Committed, and nobody heard of it.
    lab.sql("select takopi.claim('a/1', 'c1', 1, '2 s')").await;
    let claimed = board.claim("a/1", "c1", 1).await.unwrap();
    assert_eq!(ids(&claimed), ["1"]);
    lab.sql(
        "select takopi.complete('a/1', '1', 1, '{\"ok\": true}', 'a', 0, null, '{}', '{}', '{}')",
    )
    .await;
    assert!(board.complete("a/1", completion(claimed[0].held.clone(), "a")).await.unwrap());
    // The board's own connections are cut: the next calls make new ones.
    lab.sql("select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()").await;
    let mut outcome = board.enqueue(vec![job("2", session(1))]).await;
    while outcome.as_ref().is_err_and(takopi_fleet::board::BoardError::is_passing) {
        outcome = board.enqueue(vec![job("2", session(1))]).await;
    }
    assert!(matches!(outcome.unwrap()[..], [Enqueued::New | Enqueued::Known]));
}

/// The connection of a claim is cut before it is committed, and the claim is asked again meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_asked_again_while_it_is_under_way_takes_nothing_more() {
    let Some(lab) = Lab::pg().await else { return };
    let board = lab.board();
    board.register(worker("a/1"), LEASE).await.unwrap();
    board.enqueue(vec![job("1", session(1)), job("2", session(2))]).await.unwrap();
    let other = client(&lab).await;
    other.batch_execute("begin; select takopi.claim('a/1', 'c1', 1, '2 s')").await.unwrap();
    let again = {
        let board = board.clone();
        tokio::spawn(async move { board.claim("a/1", "c1", 1).await })
    };
    until_blocked(&lab).await;
    other.batch_execute("commit").await.unwrap();
    assert_eq!(ids(&again.await.unwrap().unwrap()), ["1"]);
    assert_eq!(board.status().await.unwrap().queued, 1);
}

/// Fault 6: a worker that is free takes what waits longest, also if it has the files of another session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_waits_long_is_claimed_before_one_at_home() {
    let Some(lab) = Lab::pg().await else { return };
    let board = lab.board();
    board.register(worker("a/1"), LEASE).await.unwrap();
    board.enqueue(vec![job("1", session(1))]).await.unwrap();
    let held = board.claim("a/1", "c1", 1).await.unwrap().remove(0).held;
    board.enqueue(vec![job("long", session(2)), job("home", session(1))]).await.unwrap();
    board.complete("a/1", completion(held, "a")).await.unwrap();
    lab.sql("update takopi.session set ready_at = ready_at - interval '3 s' where home is null")
        .await;
    assert_eq!(ids(&board.claim("a/1", "c2", 1).await.unwrap()), ["long"]);
}

/// Fault 1: no function of the protocol notifies, which would make all commits wait for each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_commit_of_the_protocol_notifies() {
    let Some(lab) = Lab::pg().await else { return };
    let notifying = "select count(*) from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = 'takopi' and p.prosrc ~* '(pg_notify|notify )'";
    assert_eq!(lab.sql(notifying).await, "0");
}

/// Fault 2 in full: between a claim's look at a session and its lock on it, the session gets another head, which is newer than
/// what the statement can see.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_takes_the_job_that_became_the_head_while_it_looked() {
    let Some(lab) = Lab::pg().await else { return };
    let board = lab.board();
    board.register(worker("a/1"), LEASE).await.unwrap();
    board.enqueue(vec![job("1", session(1))]).await.unwrap();
    // The claim as it is, with a gate between the scan and the lock of the row.
    lab.sql("create function takopi.gate() returns boolean language plpgsql volatile as $$ begin perform pg_advisory_lock_shared(99); perform pg_advisory_unlock_shared(99); return true; end $$").await;
    lab.sql("do $$ begin execute replace(pg_get_functiondef('takopi.claim'::regproc), 's.min_version <= p.version', 's.min_version <= p.version and takopi.gate()'); end $$").await;
    let gate = client(&lab).await;
    gate.batch_execute("select pg_advisory_lock(99)").await.unwrap();
    let claiming = {
        let board = board.clone();
        tokio::spawn(async move { board.claim("a/1", "c1", 1).await })
    };
    until_blocked(&lab).await;
    let cancel = ControlRequest {
        id: "cancel".to_owned(),
        job: "1".to_owned(),
        kind: ControlKind::Cancel,
        body: serde_json::json!({}),
    };
    board.control(cancel).await.unwrap();
    board.enqueue(vec![job("2", session(1))]).await.unwrap();
    gate.batch_execute("select pg_advisory_unlock(99)").await.unwrap();
    assert_eq!(ids(&claiming.await.unwrap().unwrap()), ["2"]);
}

/// Fault 5: the answer to a claim arrives when the lease is over, and another worker is in the session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_claim_is_answered_after_its_lease_does_not_enter() {
    with_a_lease_that_holds(async |lab, lease| {
        let fleet = Ledgers::new(lab, Duration::from_secs(4));
        is_answered_after_its_lease(lab, &fleet, lease).await
    })
    .await;
}

async fn is_answered_after_its_lease(
    lab: &Lab,
    fleet: &Ledgers,
    lease: Duration,
) -> Result<(), String> {
    let proxy = Proxy::start(fleet.dir.path(), postgres::shared_or_skip().unwrap().socket());
    let url = proxy.url(&lab.sql("select current_database()").await);
    let slow = fleet.start("slow", &url, lease);
    fleet.until(lab, "select count(*) from takopi.worker").await;
    // Its next claim is the one that finds the job, and is committed without an answer.
    slow.pause();
    // A claim that was under way has found nothing.
    fleet.until(lab, "select (count(*) = 0)::int from pg_stat_activity where datname = current_database() and state = 'active' and pid <> pg_backend_pid()").await;
    lab.board().enqueue(vec![ledger_job("s1:0")]).await.unwrap();
    proxy.hold_from("takopi.claim(");
    slow.go_on();
    let held = "select count(*) from takopi.session where worker like 'slow/%'";
    let lost = "select count(*) = 0 from takopi.worker where machine = 'slow' and lease_until > clock_timestamp()";
    fleet.until(lab, &format!("select ({held}) + ({lost})::int")).await;
    if lab.sql(held).await == "0" {
        return Err("it lost its lease before its claim".to_owned());
    }
    let other = fleet.start("other", &fleet.url, LEASE);
    fleet.until(lab, "select count(*) from takopi.session where worker like 'other/%'").await;
    proxy.let_pass();
    fleet.until(lab, "select count(*) from takopi.job where state = 'done'").await;
    // It has a new name since, and has seen that it lost the old one.
    fleet.until(lab, "select count(*) from takopi.worker where machine = 'slow'").await;
    assert_eq!(fleet.wrong(), "");
    assert!(!fleet.begun("slow", "s1"), "its engine never began");
    assert_eq!(lab.sql("select attempts from takopi.job").await, "2");
    slow.stop();
    other.stop();
    Ok(())
}

/// A call whose caller has given up is not done when what it waited for is free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_was_given_up_does_not_go_on_at_the_server() {
    let Some(lab) = Lab::pg().await else { return };
    let board = lab.board();
    board.submitter_beat("s1", LEASE).await.unwrap();
    let before = lab.sql("select lease_until from takopi.submitter").await;
    let other = client(&lab).await;
    other.batch_execute("begin; select 1 from takopi.submitter for update").await.unwrap();
    let answer = board.submitter_beat("s1", LEASE).await;
    assert!(answer.is_err_and(|error| error.is_passing()));
    let waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    let gone = async {
        while lab.sql(waiting).await != "0" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(PATIENCE, "the end of the call at the server", gone).await;
    other.batch_execute("commit").await.unwrap();
    assert_eq!(lab.sql("select lease_until from takopi.submitter").await, before);
}

/// However much is over, all of it is removed, and what has been removed is not looked for again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_removed_in_rounds_to_the_last_one() {
    let Some(lab) = Lab::pg().await else { return };
    let board = lab.board();
    board.register(worker("a/1"), LEASE).await.unwrap();
    // The oldest have no events at all.
    lab.sql("insert into takopi.job (id, sid, pool, submitter, spec, on_loss, on_gone, state, done, result_seq) select 'old' || n, gen_random_uuid(), 1, 's', '{}', 'retry', 'cancel', 'done', now() - interval '2 h', 1 from generate_series(1, 1500) n").await;
    board.enqueue(vec![job("1", session(1))]).await.unwrap();
    let held = board.claim("a/1", "c1", 1).await.unwrap().remove(0).held;
    board.complete("a/1", completion(held, "a")).await.unwrap();
    lab.sql("update takopi.job set done = now() - interval '90 min' where id = '1'; insert into takopi.event select '1', n, '{}' from generate_series(1, 25000) n").await;
    let mut removed = board.gc(Retention::default(), false).await.unwrap();
    let mut events = removed.events;
    while removed.more {
        removed = board.gc(Retention::default(), false).await.unwrap();
        events += removed.events;
    }
    assert_eq!(events, 25_000);
    assert_eq!(lab.sql("select count(*) from takopi.event").await, "0");
    assert_eq!(lab.sql("select count(*) from takopi.job where not swept").await, "0");
}

/// A run is cancelled while its job is being enqueued.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_whose_run_is_cancelled_while_it_is_enqueued_does_not_wait_for_a_worker() {
    let Some(lab) = Lab::pg().await else { return };
    let dir = tempfile::tempdir().unwrap();
    let host = takopi_core::Host::builder().state_directory(dir.path()).build().unwrap();
    let other = client(&lab).await;
    other.batch_execute("begin; lock table takopi.pool in share mode").await.unwrap();
    let cancel = CancellationToken::new();
    let runner = fleet_runner(&lab.board(), &host);
    let stream = runner.run(RunRequest::new("hello").cancel(cancel.clone()));
    let ending = tokio::spawn(finish(stream, Vec::new()));
    until_blocked(&lab).await;
    cancel.cancel();
    assert_eq!(lab.sql("select count(*) from takopi.job").await, "0", "it is on its way");
    other.batch_execute("commit").await.unwrap();
    ending.await.unwrap().failed("interrupted");
    let found = "select string_agg(state || ' ' || (result->>'reason'), ',') from takopi.job";
    assert_eq!(lab.sql(found).await, "done interrupted");
}

/// The network falls silent while a worker waits for a call that is not a beat.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_network_falls_silent_leaves_the_session_before_another_enters() {
    with_a_lease_that_holds(async |lab, lease| {
        let fleet = Ledgers::new(lab, Duration::from_hours(1));
        leaves_before_another_enters(lab, fleet, lease).await
    })
    .await;
}

async fn leaves_before_another_enters(
    lab: &Lab,
    mut fleet: Ledgers,
    lease: Duration,
) -> Result<(), String> {
    let proxy = Proxy::start(fleet.dir.path(), postgres::shared_or_skip().unwrap().socket());
    let url = proxy.url(&lab.sql("select current_database()").await);
    let silent = fleet.start("silent", &url, lease);
    lab.board().enqueue(vec![ledger_job("s1:0")]).await.unwrap();
    fleet.until_begun("s1:0").await;
    proxy.hold_from("takopi.reap(");
    fleet.work = Duration::from_millis(10);
    let other = fleet.start("other", &fleet.url, LEASE);
    fleet.until(lab, "select count(*) from takopi.job where state = 'done'").await;
    // The engine looked around when it entered.
    let went = (fleet.wrong(), lab.sql("select attempts from takopi.job").await);
    proxy.let_pass();
    silent.stop();
    other.stop();
    let (wrong, attempts) = went;
    if wrong.is_empty() && attempts == "2" { Ok(()) } else { Err(format!("{attempts}: {wrong}")) }
}

/// Fault 7: a worker that lives holds a session that it does not know of.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_gives_back_what_it_holds_without_knowing() {
    let Some(lab) = Lab::pg().await else { return };
    let fleet = Ledgers::new(&lab, Duration::from_millis(10));
    // It finds it with its next beat, and keeps its lease until then.
    let worker = fleet.start("m1", &fleet.url, Duration::from_mins(1));
    fleet.until(&lab, "select count(*) from takopi.worker").await;
    // Claimed in its name, and nobody told it. All at once, so that it does not claim the job itself.
    let spec = r#"{"prompt": "s1:0"}"#;
    let enqueue =
        ENQUEUE.replace("demo", LEDGER).replace("\"spec\":{}", &format!("\"spec\":{spec}"));
    let claim = "select takopi.claim(id, 'unheard', 1, '2 s') from takopi.worker";
    lab.sql(&format!("begin; {enqueue}; {claim}; commit")).await;
    fleet
        .until(&lab, "select count(*) from takopi.job where state = 'done' and attempts = 1")
        .await;
    assert_eq!(fleet.wrong(), "");
    worker.stop();
}

/// For a worker that loses its lease, and not before its time: on a busy machine the first lease may be too short.
async fn with_a_lease_that_holds(attempt: impl AsyncFn(&Lab, Duration) -> Result<(), String>) {
    let mut went = Ok(());
    for lease in [Duration::from_secs(3), Duration::from_secs(30)] {
        let Some(lab) = Lab::pg().await else { return };
        went = attempt(&lab, lease).await;
        if went.is_ok() {
            return;
        }
    }
    went.unwrap();
}

/// Workers with the engine that checks from inside.
struct Ledgers {
    dir: tempfile::TempDir,
    url: String,
    work: Duration,
}

impl Ledgers {
    fn new(lab: &Lab, work: Duration) -> Self {
        let Lab::Pg { url, .. } = lab else { panic!("on PostgreSQL") };
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("shared")).unwrap();
        Self { dir, url: url.clone(), work }
    }

    fn start(&self, machine: &str, url: &str, lease: Duration) -> WorkerProcess {
        let state = self.dir.path().join(machine);
        let (home, shared) = (state.join("home"), self.dir.path().join("shared"));
        std::fs::create_dir_all(&home).unwrap();
        let engine = Engine::Ledger { home, shared, work: self.work };
        let (url, machine) = (url.to_owned(), machine.to_owned());
        let plan = Plan { url, machine, state, slots: 1, lease, engine };
        WorkerProcess::start(&plan, Vec::new())
    }

    /// Waits until a count is not zero. Finds lost workers meanwhile, as workers with short leases do.
    async fn until(&self, lab: &Lab, count: &str) {
        let look = async {
            while lab.sql(count).await == "0" {
                lab.board().reap().await.unwrap();
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        within(PATIENCE, count, look).await;
    }

    /// Waits until a turn was begun.
    async fn until_begun(&self, prompt: &str) {
        let file = self.dir.path().join("shared/begun");
        let look = async {
            while !std::fs::read_to_string(&file).unwrap_or_default().contains(prompt) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        within(PATIENCE, prompt, look).await;
    }

    fn wrong(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("shared/wrong")).unwrap_or_default()
    }

    fn begun(&self, machine: &str, session: &str) -> bool {
        Ledger::file(&self.dir.path().join(machine).join("home"), session).exists()
    }
}

fn ledger_job(prompt: &str) -> NewJob {
    let needs = vec![format!("engine:{LEDGER}")];
    let spec = serde_json::json!({ "prompt": prompt });
    NewJob { engine: LEDGER.to_owned(), needs, spec, ..job(prompt, session(1)) }
}
