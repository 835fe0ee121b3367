//! The pool of shared app-servers at its edges, on the fake codex: consumers that do not read, calls
//! that are refused or never answered, sessions that fit no server that is there.
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::json;
use takopi_codex::app_server::{CodexAppServer, PoolLimits};
use takopi_core::locks::{
    FileLocks, Holder, LeaseHolder, LocalLocks, LockError, SessionGuard, SessionKey, SessionLocks,
};
use takopi_core::runner::EventStream;
use takopi_core::{ActionKind, EngineRunner, Host, Runner};
use takopi_tests::codex::fake::app_server::{Server, not_found};
use takopi_tests::codex::fake::{Step, turn};
use takopi_tests::codex::lab::{Lab, SESSION, session};
use takopi_tests::limits::with_enough_time;
use takopi_tests::runs::{finish, is_started, run, until};
use tokio_util::sync::CancellationToken;

const LONG: Duration = Duration::from_hours(1);

fn shared(lab: &Lab, limits: PoolLimits) -> EngineRunner<CodexAppServer> {
    shared_on(lab, &lab.host, limits)
}

fn shared_on(lab: &Lab, host: &Host, limits: PoolLimits) -> EngineRunner<CodexAppServer> {
    let engine = CodexAppServer::new(lab.codex()).keep_warm(LONG).shared(limits);
    EngineRunner::new(engine).on(host.clone())
}

/// So many items are more than a turn's inbox holds, and not many more: the end of the turn comes behind them, within the
/// limit of an interrupt.
const OVERFLOW: usize = 1750;

/// So many items of 20 KB, each an event of its own.
fn items(lines: usize) -> Step {
    let thought = format!("thought $SEQ {}", "and so on ".repeat(2000));
    let item = json!({"type": "reasoning", "id": "item_$SEQ", "summary": [thought]});
    let params = json!({"threadId": "$THREAD", "turnId": "$TURN", "item": item});
    let line = json!({"method": "item/completed", "params": params}).to_string();
    Step::FloodStdout { line, lines }
}

async fn begun(
    runner: &dyn Runner,
    lab: &Lab,
    prompt: &str,
) -> (EventStream, Vec<takopi_core::TakopiEvent>) {
    let mut stream = runner.run(lab.request(prompt));
    let events = until(&mut stream, "Started", is_started).await;
    (stream, events)
}

/// Returns `false` if the server was replaced: it did not answer an interrupt in time.
async fn stalled_run_beside_a_neighbour() -> bool {
    let lab = Lab::new(
        Server::new()
            .turns_when("chatty", [items(OVERFLOW), Step::SleepForever])
            .turns_when("neighbour", [vec![Step::gate("neighbour")], turn::answer("well")].concat())
            .turns_when("again", turn::answer("going on"))
            .script(),
    );
    let runner = shared(&lab, PoolLimits::new(4, 10, 1).patience(LONG)).buffer(4, 1 << 20);
    let (neighbour, before) = begun(&runner, &lab, "neighbour").await;
    let (chatty, events) = begun(&runner, &lab, "chatty").await;

    // The stream is not read, and yet the turn is ended.
    lab.control.call("turn/interrupt").await;
    lab.control.open("neighbour");
    assert_eq!(finish(neighbour, before).await.ok().answer, "well");

    let seen = finish(chatty, events).await;
    seen.failed("consumer_stalled");
    // The buffer, and on a busy machine a few events of takopi's own.
    assert!(seen.events.len() <= 16, "the buffer is bounded: {}", seen.events.len());
    let again = run(&runner, lab.request("again").resume(seen.session())).await;
    assert_eq!(again.ok().answer, "going on");
    runner.shutdown().await;
    lab.assert_nothing_left().await;
    lab.control.starts().len() == 1
}

#[tokio::test]
async fn on_a_shared_process_a_consumer_that_stops_reading_ends_only_its_own_run() {
    // A busy machine may need longer than the limit of an interrupt to read all that is ahead of its answer.
    for _ in 0..4 {
        if stalled_run_beside_a_neighbour().await {
            return;
        }
    }
    panic!("the server was replaced each time, although it answers");
}

#[tokio::test]
async fn a_consumer_that_takes_nothing_for_too_long_gives_up_its_place() {
    with_enough_time(async |patience| {
        let lab = Lab::new(
            Server::new()
                .turns_when("some words", [items(40), Step::SleepForever])
                .turns_when("next", turn::answer("my turn"))
                .script(),
        );
        let limits = PoolLimits::new(1, 10, 1).patience(patience);
        let runner = shared(&lab, limits).buffer(4, 1 << 20);
        let (unread, events) = begun(&runner, &lab, "some words").await;
        let next = run(&runner, lab.request("next")).await;
        finish(unread, events).await.failed("consumer_stalled");
        runner.shutdown().await;
        if !next.completed().ok {
            // This consumer was too slow as well.
            next.failed("consumer_stalled");
            return false;
        }
        assert_eq!(next.ok().answer, "my turn");
        true
    })
    .await;
}

#[tokio::test]
async fn a_consumer_that_takes_nothing_before_the_reply_to_the_turn_loses_no_event_of_a_good_run() {
    let early =
        [turn::started(), items(40), Step::reached("sent"), Step::gate("reply"), Step::Reply];
    let lab = Lab::new(
        Server::new()
            .when("turn/start", "some words", early.into_iter().chain(turn::answer("done")))
            .turns_when("next", turn::answer("my turn"))
            .script(),
    );
    let limits = PoolLimits::new(2, 10, 1).patience(Duration::ZERO);
    let runner = shared(&lab, limits).buffer(1, 1 << 20);
    let mut unread = runner.run(lab.request("some words").resume(session()));
    let events = until(&mut unread, "Started", is_started).await;
    lab.control.reached("sent").await;
    // It reads what the server sends behind the items: by then these were not taken.
    run(&runner, lab.request("next")).await.completed();
    lab.control.open("reply");
    let seen = finish(unread, events).await;
    if seen.completed().ok {
        assert_eq!(seen.done(&ActionKind::Note).len(), 40);
    } else {
        seen.failed("consumer_stalled");
    }
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_session_whose_id_was_not_reported_counts_as_loaded() {
    let late = |n: usize| {
        let requested = Step::reached(format!("requested {n}"));
        [
            requested,
            Step::gate(format!("reply {n}")),
            Step::Reply,
            Step::reached(format!("replied {n}")),
        ]
    };
    let server = Server::new().once("thread/start", late(0)).once("thread/start", late(1));
    let lab = Lab::new(server.turns(turn::answer("here")).script());
    let runner = shared(&lab, PoolLimits::new(1, 2, 1));
    for n in 0..2 {
        let cancel = CancellationToken::new();
        let cancelled = runner.run(lab.request("cancelled").cancel(cancel.clone()));
        lab.control.reached(&format!("requested {n}")).await;
        cancel.cancel();
        finish(cancelled, Vec::new()).await.failed("interrupted");
        lab.control.open(&format!("reply {n}"));
        lab.control.reached(&format!("replied {n}")).await;
    }
    run(&runner, lab.request("next")).await.ok();
    assert_eq!(lab.control.starts().len(), 2, "the first was full");
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

/// Session locks of which the first fails.
struct FaultyOnce {
    locks: FileLocks,
    failed: AtomicBool,
}

impl SessionLocks for FaultyOnce {
    fn try_lock<'a>(
        &'a self,
        key: &'a SessionKey,
        holder: &'a Holder,
        leases: &'a dyn LeaseHolder,
    ) -> BoxFuture<'a, Result<Option<SessionGuard>, LockError>> {
        if self.failed.swap(true, Ordering::SeqCst) {
            self.locks.try_lock(key, holder, leases)
        } else {
            ready(Err(LockError::service("it is down"))).boxed()
        }
    }

    fn lock(
        &self,
        key: SessionKey,
        holder: Holder,
        leases: Arc<dyn LeaseHolder>,
    ) -> BoxFuture<'static, Result<SessionGuard, LockError>> {
        self.locks.lock(key, holder, leases)
    }

    fn holder<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, Option<Holder>> {
        self.locks.holder(key)
    }
}

#[tokio::test]
async fn a_session_whose_lock_could_not_be_taken_does_not_stay_loaded() {
    let lab = Lab::new(Server::new().turns(turn::answer("here")).script());
    let locks = FileLocks::new(LocalLocks::new(), lab.home.state().join("locks"));
    let locks = FaultyOnce { locks, failed: AtomicBool::new(false) };
    let host = Host::builder().state_directory(lab.home.state()).session_locks(locks);
    let runner = shared_on(&lab, &host.build().unwrap(), PoolLimits::new(4, 10, 1));
    let seen = run(&runner, lab.request("first")).await;
    let session = seen.completed().resume.clone().unwrap();
    assert!(!seen.completed().ok, "{:?}", seen.outline());
    run(&runner, lab.request("again").resume(session)).await.ok();
    assert_eq!(lab.control.calls("thread/resume").len(), 1);
    assert_eq!(lab.control.starts().len(), 2);
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_consumer_that_does_not_take_the_start_gives_up_its_place() {
    with_enough_time(async |patience| {
        let elsewhere =
            json!({"thread": {"id": SESSION, "cwd": "/elsewhere"}, "model": "m", "cwd": "/"});
        let lab = Lab::new(
            Server::new()
                .once("thread/resume", [Step::ReplyWith(elsewhere)])
                .turns(turn::answer("my turn"))
                .script(),
        );
        let limits = PoolLimits::new(1, 10, 1).patience(patience);
        let runner = shared(&lab, limits).buffer(1, 1 << 20);
        // `Started` fills the buffer, and the note about the other directory has no room.
        let unread = runner.run(lab.request("unread").resume(session()));
        lab.control.call("thread/resume").await;
        let next = run(&runner, lab.request("next")).await;
        finish(unread, Vec::new()).await.failed("consumer_stalled");
        runner.shutdown().await;
        if !next.completed().ok {
            // This consumer was too slow as well.
            next.failed("consumer_stalled");
            return false;
        }
        assert_eq!(next.ok().answer, "my turn");
        true
    })
    .await;
}

#[tokio::test]
async fn a_refused_turn_or_session_leaves_the_server_fit_and_its_place_free() {
    let lab = Lab::new(
        Server::new()
            .once("turn/start", [Step::fail(-32600, "not like this")])
            .once("thread/resume", not_found())
            .turns(turn::answer("fine"))
            .script(),
    );
    let runner = shared(&lab, PoolLimits::new(1, 10, 1));
    let refused = run(&runner, lab.request("one")).await;
    assert_eq!(refused.failed("engine_failed").error.as_deref(), Some("not like this"));
    let unknown = run(&runner, lab.request("two").resume(session())).await;
    unknown.failed("session_not_found");
    assert_eq!(run(&runner, lab.request("three")).await.ok().answer, "fine");
    assert_eq!(lab.control.starts().len(), 1);
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn a_session_that_may_be_on_a_server_goes_nowhere_else_before_that_server_is_gone() {
    let lab = Lab::new(
        Server::new()
            .once("thread/resume", [Step::reached("asked"), Step::gate("resumed"), Step::Reply])
            .turns_when("neighbour", [vec![Step::gate("neighbour")], turn::answer("well")].concat())
            .turns(turn::answer("here"))
            .script(),
    );
    let runner = shared(&lab, PoolLimits::new(4, 10, 2));
    let (neighbour, before) = begun(&runner, &lab, "neighbour").await;
    let cancel = CancellationToken::new();
    let opening = lab.request("open").resume(session()).cancel(cancel.clone());
    let opening = runner.run(opening);
    lab.control.reached("asked").await;
    cancel.cancel();
    finish(opening, Vec::new()).await.failed("interrupted");

    let mut again = runner.run(lab.request("again").resume(session()));
    // It waits for the neighbour, whose server may have the session.
    let waiting = until(
        &mut again,
        "the wait",
        |event| matches!(event, takopi_core::TakopiEvent::Action(event) if event.action.id == takopi_core::runner::WAIT_ACTION),
    );
    let waiting = waiting.await;
    assert_eq!(lab.control.starts().len(), 1);
    lab.control.open("neighbour");
    assert_eq!(finish(neighbour, before).await.ok().answer, "well");
    lab.control.open("resumed");
    assert_eq!(finish(again, waiting).await.ok().answer, "here");
    assert_eq!(lab.control.starts().len(), 2);
    assert_eq!(lab.control.overlaps(), Vec::<String>::new());
    runner.shutdown().await;
}

#[tokio::test]
async fn a_shutdown_ends_servers_that_owe_a_response_to_a_run_that_was_cancelled() {
    for (method, server) in [
        (
            "initialize",
            Server::new().always("initialize", [Step::reached("asked"), Step::SleepForever]),
        ),
        ("thread/resume", Server::new().once("thread/resume", [Step::reached("asked")])),
    ] {
        let lab = Lab::new(server.script());
        let runner = shared(&lab, PoolLimits::new(4, 10, 2));
        let cancel = CancellationToken::new();
        let opening = lab.request("open").resume(session()).cancel(cancel.clone());
        let opening = runner.run(opening);
        lab.control.reached("asked").await;
        cancel.cancel();
        finish(opening, Vec::new()).await.failed("interrupted");
        runner.shutdown().await;
        assert_eq!(lab.home.processes(), [], "{method}");
    }
}

#[tokio::test]
async fn a_session_with_other_settings_is_loaded_anew_on_another_server() {
    let lab = Lab::new(Server::new().turns(turn::answer("fine")).script());
    let runner = shared(&lab, PoolLimits::new(4, 10, 1));
    let first = run(&runner, lab.request("one").model("small")).await;
    first.ok();
    let second = run(&runner, lab.request("two").resume(first.session())).await;
    second.ok();
    assert_eq!(lab.control.starts().len(), 2, "the model of the run before was not asked for");
    let third = lab.request("three").option("tools.web_search", "true");
    run(&runner, third).await.ok();
    assert_eq!(lab.control.starts().len(), 3, "another launch is another process");
    assert_eq!(lab.control.alive().len(), 1, "and there may be only one");
    assert_eq!(lab.control.overlaps(), Vec::<String>::new());
    runner.shutdown().await;
    lab.assert_nothing_left().await;
}

/// A session on a server that cannot be closed, because a neighbour runs on it, and that does not fit
/// the next run of the session.
struct Drained {
    lab: Lab,
    runner: EngineRunner<CodexAppServer>,
    session: takopi_core::ResumeToken,
    neighbour: (EventStream, Vec<takopi_core::TakopiEvent>),
}

impl Drained {
    async fn new() -> Self {
        let held = [vec![Step::gate("neighbour")], turn::answer("undisturbed")].concat();
        let server = Server::new().turns_when("neighbour", held).turns(turn::answer("here"));
        let lab = Lab::new(server.script());
        let runner = shared(&lab, PoolLimits::new(4, 10, 2));
        let first = run(&runner, lab.request("first").model("small")).await;
        let neighbour = begun(&runner, &lab, "neighbour").await;
        Self { session: first.session(), lab, runner, neighbour }
    }

    /// The next run of the session, with other settings.
    fn next(&self) -> takopi_core::RunRequest {
        self.lab.request("next").resume(self.session.clone())
    }

    async fn end(self) {
        self.lab.control.open("neighbour");
        let (stream, events) = self.neighbour;
        assert_eq!(finish(stream, events).await.ok().answer, "undisturbed");
        assert_eq!(self.lab.control.overlaps(), Vec::<String>::new());
        self.runner.shutdown().await;
        self.lab.assert_nothing_left().await;
    }
}

fn is_wait(event: &takopi_core::TakopiEvent) -> bool {
    matches!(event, takopi_core::TakopiEvent::Action(event) if event.action.id == takopi_core::runner::WAIT_ACTION)
}

#[tokio::test]
async fn a_wait_for_a_draining_server_is_visible_and_not_counted_by_the_time_limits() {
    let drained = Drained::new().await;
    let next = drained.next().wall_timeout(Duration::from_millis(100));
    let mut next = drained.runner.run(next.idle_timeout(Duration::from_millis(50)));
    // Longer than its limits, which would end it first.
    let waiting = until(&mut next, "the wait", is_wait).await;
    assert!(format!("{waiting:?}").contains("when its other runs are over"), "{waiting:#?}");
    drop(next);
    drained.end().await;
}

#[tokio::test]
async fn a_wait_for_a_draining_server_ends_with_the_session() {
    let drained = Drained::new().await;
    let mut next = drained.runner.run(drained.next());
    let waiting = until(&mut next, "the wait", is_wait).await;
    assert_eq!(drained.lab.control.starts().len(), 1, "another server must not load it yet");
    drained.lab.control.open("neighbour");
    assert_eq!(finish(next, waiting).await.ok().answer, "here");
    drained.end().await;
}

#[tokio::test]
async fn a_wait_for_a_draining_server_is_bounded_by_the_wait_of_the_request() {
    let drained = Drained::new().await;
    for wait in [Duration::ZERO, Duration::from_millis(50)] {
        let seen = run(&drained.runner, drained.next().wait(wait)).await;
        seen.failed("session_busy");
        assert_eq!(seen.completed().resume, Some(drained.session.clone()));
    }
    drained.end().await;
}

#[tokio::test]
async fn a_session_that_is_wanted_elsewhere_is_given_up() {
    let lab = Lab::new(Server::new().thread(SESSION).turns(turn::answer("fine")).script());
    let runner = shared(&lab, PoolLimits::new(4, 10, 1));
    run(&runner, lab.request("one")).await.ok();
    let host = Host::builder().state_directory(lab.home.state()).build().unwrap();
    let elsewhere = shared_on(&lab, &host, PoolLimits::default());
    let seen = run(&elsewhere, lab.request("two").resume(session())).await;
    assert_eq!(seen.ok().answer, "fine");
    assert_eq!(lab.control.overlaps(), Vec::<String>::new());
    runner.shutdown().await;
    elsewhere.shutdown().await;
    lab.assert_nothing_left().await;
}

#[tokio::test]
async fn keep_warm_and_shared_can_be_set_in_either_order() {
    let limits = PoolLimits::default();
    let orders: [fn(CodexAppServer, PoolLimits) -> CodexAppServer; 2] = [
        |engine, limits| engine.keep_warm(LONG).shared(limits).keep_warm(Duration::ZERO),
        |engine, limits| engine.keep_warm(Duration::ZERO).shared(limits),
    ];
    for order in orders {
        let lab = Lab::new(Server::new().turns(turn::answer("fine")).script());
        let engine = order(CodexAppServer::new(lab.codex()), limits);
        let runner = EngineRunner::new(engine).on(lab.host.clone());
        run(&runner, lab.request("one")).await.ok();
        // It is not kept, and needs no shutdown.
        lab.control.all_gone().await;
    }
}
