//! A board that does not answer for a while, as a database that is away.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use takopi_core::demo::{DEMO, Demo, Step};
use takopi_core::model::{Action, ActionEvent, ActionKind, EngineId, Phase};
use takopi_core::runner::ResumeCodec;
use takopi_core::{EngineRunner, EventStream, Host, RunRequest, Runner, TakopiEvent};
use takopi_fleet::MemoryBoard;
use takopi_fleet::board::{
    Answer, Bell, Board, BoardError, Claimed, Completion, ControlRequest, ControlState, Enqueued,
    Held, Import, JobLine, JobRow, Listener, NewJob, Opened, PendingControl, Piece, Reaped,
    Removed, Retention, Rings, Status, Waiting, WorkerInfo,
};
use takopi_fleet::work::{Served, Travels, Worker, WorkerOptions};
use takopi_tests::model::{PATIENCE, within};
use takopi_tests::runs::finish;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::contract::fleet_runner;

/// Does not answer the first registration, nor the first job of this key. Takes no events behind `Started` until the run has ended and it was asked twice more.
struct Silent {
    board: MemoryBoard,
    ended: AtomicBool,
    refusals: AtomicU32,
    /// The workers that registered.
    registered: Mutex<Vec<String>>,
    refused: CancellationToken,
}

/// The key of the job that has to be enqueued twice.
const REFUSED: &str = "refused";

impl Silent {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            board: MemoryBoard::new(),
            ended: AtomicBool::new(false),
            refusals: AtomicU32::new(2),
            registered: Mutex::default(),
            refused: CancellationToken::new(),
        })
    }
}

fn unreachable<T: Send + 'static>() -> Answer<'static, T> {
    Box::pin(std::future::ready(Err(BoardError::Unreachable("as the test wants it".into()))))
}

macro_rules! pass_on {
    ($(fn $name:ident($($given:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(fn $name(&self, $($given: $type),*) -> Answer<'_, $answer> {
            self.board.$name($($given),*)
        })*
    };
}

impl Board for Silent {
    fn events(&self, worker: &str, held: Vec<Held>, rows: Vec<JobRow>) -> Answer<'_, Vec<String>> {
        let left = self.refusals.load(Ordering::Relaxed);
        if left == 0 || rows.iter().any(|row| row.body["event"]["type"] == "started") {
            return self.board.events(worker, held, rows);
        }
        if self.ended.load(Ordering::Relaxed) {
            self.refusals.store(left - 1, Ordering::Relaxed);
        }
        unreachable()
    }

    fn enqueue(&self, jobs: Vec<NewJob>) -> Answer<'_, Vec<Enqueued>> {
        if jobs[0].id == REFUSED && !self.refused.is_cancelled() {
            self.refused.cancel();
            return unreachable();
        }
        self.board.enqueue(jobs)
    }

    fn register(&self, worker: WorkerInfo, lease: Duration) -> Answer<'_, ()> {
        let mut registered = self.registered.lock().unwrap();
        registered.push(worker.id.clone());
        if registered.len() == 1 {
            return unreachable();
        }
        self.board.register(worker, lease)
    }

    fn ring(&self, bell: Bell) {
        self.board.ring(bell);
    }

    fn listen(&self, listener: Listener) -> Rings {
        self.board.listen(listener)
    }

    pass_on! {
        fn follow(cursors: Vec<(String, i64)>, max: u32) -> Vec<JobRow>;
        fn waiting(job: &str) -> Option<Waiting>;
        fn control(request: ControlRequest) -> ControlState;
        fn submitter_beat(submitter: &str, lease: Duration) -> ();
        fn claim(worker: &str, claim: &str, max: u32) -> Vec<Claimed>;
        fn beat(worker: &str, lease: Duration, busy: u32, draining: bool) -> Option<Vec<Held>>;
        fn opened(worker: &str, held: Held, value: &str) -> Opened;
        fn complete(worker: &str, completion: Completion) -> bool;
        fn hand_back(worker: &str, held: Held, begun: bool) -> bool;
        fn controls(worker: &str) -> Vec<PendingControl>;
        fn settle(worker: &str, held: Held, control: &str, taken: bool) -> ();
        fn is_abandoned(worker: &str, job: &str) -> bool;
        fn files(worker: &str, session: Uuid) -> Vec<Piece>;
        fn reap() -> Reaped;
        fn import(session: Import) -> bool;
        fn release(engine: &str, value: &str) -> bool;
        fn gc(retention: Retention, dry: bool) -> Removed;
        fn status() -> Status;
        fn jobs(max: u32) -> Vec<JobLine>;
    }
}

/// A runner whose board is told when a run has ended.
struct Reporting {
    runner: EngineRunner<Demo>,
    board: Arc<Silent>,
}

impl Runner for Reporting {
    fn engine(&self) -> EngineId {
        self.runner.engine()
    }

    fn run(&self, request: RunRequest) -> EventStream {
        let board = self.board.clone();
        let events = self.runner.run(request).inspect(move |event| {
            if matches!(event, TakopiEvent::Completed(_)) {
                board.ended.store(true, Ordering::Relaxed);
            }
        });
        EventStream::new(DEMO, events)
    }

    fn resume_codec(&self) -> ResumeCodec {
        self.runner.resume_codec()
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        self.runner.shutdown()
    }
}

#[tokio::test]
async fn events_of_a_run_that_ends_while_the_database_is_away_are_written_before_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let host = |name| Host::builder().state_directory(dir.path().join(name)).build().unwrap();
    let silent = Silent::new();
    let act = |phase| {
        let action = Action::new("ls", ActionKind::Command, "ls");
        Step::Act(ActionEvent::new("demo", action, phase))
    };
    let script =
        [act(Phase::Started), act(Phase::Completed), Step::Say("one two three".to_owned())];
    let runner = Demo::scripted(script).runner().on(host("worker"));
    let runner = Arc::new(Reporting { runner, board: silent.clone() });
    let served = Served { runner, version: 0, travels: Travels::Freely };
    let board: Arc<dyn Board> = silent;
    let options = WorkerOptions::new("m1", dir.path().join("m1"));
    let stop = CancellationToken::new();
    let worker = Worker::new(board.clone(), options).engine(served);
    let serving = tokio::spawn(worker.serve(stop.clone()));

    let runner = fleet_runner(&board, &host("submitter"));
    let seen = finish(runner.run(RunRequest::new("hello").deltas(true)), Vec::new()).await;
    assert_eq!(seen.ok().answer, "one two three");
    seen.started();
    let actions = || {
        seen.events.iter().filter_map(|event| match event {
            TakopiEvent::Action(action) => Some(action),
            _ => None,
        })
    };
    let pieces: String = actions().filter_map(ActionEvent::answer_piece).collect();
    assert_eq!(pieces, "one two three");
    let phases: Vec<_> = actions().filter(|it| it.action.id == "ls").map(|it| it.phase).collect();
    assert_eq!(phases, [Phase::Started, Phase::Completed]);
    stop.cancel();
    serving.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_registration_is_not_answered_asks_again_under_the_same_name() {
    let dir = tempfile::tempdir().unwrap();
    let silent = Silent::new();
    let (board, stop) = (silent.clone(), CancellationToken::new());
    let worker = Worker::new(board, WorkerOptions::new("m1", dir.path()));
    let serving = tokio::spawn(worker.serve(stop.clone()));
    while silent.board.status().await.unwrap().workers.is_empty() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    stop.cancel();
    serving.await.unwrap().unwrap();
    let registered = silent.registered.lock().unwrap().clone();
    assert_eq!(registered, [registered[0].clone(), registered[0].clone()]);
}

#[tokio::test]
async fn runs_of_a_session_are_enqueued_in_the_order_they_began() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::builder().state_directory(dir.path()).build().unwrap();
    let silent = Silent::new();
    let import = Import {
        sid: Uuid::new_v4(),
        engine: "demo".to_owned(),
        value: "demo-1".to_owned(),
        place: None,
        machine: "m1".to_owned(),
        version: 0,
        stays: None,
        files: Vec::new(),
    };
    assert!(silent.board.import(import).await.unwrap());
    let board: Arc<dyn Board> = silent.clone();
    let runner = fleet_runner(&board, &host);
    let request = |key: &str| {
        RunRequest::new("hello").resume(runner.token("demo-1").unwrap()).key(key.to_owned())
    };
    let first = runner.run(request(REFUSED));
    silent.refused.cancelled().await;
    let second = runner.run(request("second"));
    let jobs = async {
        loop {
            let jobs = silent.board.jobs(9).await.unwrap();
            if jobs.len() == 2 {
                return jobs;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let jobs = within(PATIENCE, "both jobs", jobs).await;
    let newest_first: Vec<_> = jobs.iter().map(|job| job.id.as_str()).collect();
    assert_eq!(newest_first, ["second", REFUSED]);
    drop((first, second));
}
