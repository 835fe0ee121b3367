//! Messages into a turn on a worker.

use std::sync::Arc;

use futures::future::{BoxFuture, join};
use takopi_core::demo::{DEMO, Demo};
use takopi_core::model::{Completed, EngineId, ResumeToken, Started};
use takopi_core::runner::{Engine, EngineRun, ResumeCodec, SessionScope, steer_channel};
use takopi_core::{EngineRunner, Host, RunRequest, Runner as _};
use takopi_fleet::board::Board;
use takopi_fleet::work::{Served, Travels, Worker, WorkerOptions};
use takopi_tests::runs::{finish, is_started, until};
use tokio_util::sync::CancellationToken;

use crate::contract::fleet_runner;
use crate::lab::Lab;

/// Takes a message, and ends at once.
struct TakesOne;

impl Engine for TakesOne {
    fn id(&self) -> EngineId {
        DEMO
    }

    fn resume_codec(&self) -> ResumeCodec {
        Demo::new().runner().resume_codec()
    }

    fn session_scope(&self) -> SessionScope {
        SessionScope::Process
    }

    fn is_steerable(&self) -> bool {
        true
    }

    fn run(self: Arc<Self>, run: EngineRun) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let mut messages = run.steer_messages();
            let _ = run.emit(Started::new(ResumeToken::new(DEMO, "demo-1"))).await;
            messages.next().await.taken();
            let _ = run.emit(Completed::success(DEMO, "done")).await;
        })
    }
}

#[tokio::test]
async fn a_message_that_a_run_takes_just_before_its_end_is_not_handed_back() {
    let board: Arc<dyn Board> = Lab::memory().board();
    let dir = tempfile::tempdir().unwrap();
    let host = |name| Host::builder().state_directory(dir.path().join(name)).build().unwrap();
    let runner = Arc::new(EngineRunner::new(TakesOne).on(host("worker")));
    let served = Served { runner, version: 0, travels: Travels::Freely };
    let options = WorkerOptions::new("m1", dir.path().join("m1"));
    let stop = CancellationToken::new();
    let worker = Worker::new(board.clone(), options).engine(served);
    let serving = tokio::spawn(worker.serve(stop.clone()));
    let (steer, steering) = steer_channel();
    let runner = fleet_runner(&board, &host("submitter"));
    let mut stream = runner.run(RunRequest::new("hello").steering(steering));
    let seen = until(&mut stream, "Started", is_started).await;
    let (sent, seen) = join(steer.send("and be quick"), finish(stream, seen)).await;
    seen.ok();
    assert_eq!(sent, Ok(()));
    stop.cancel();
    serving.await.unwrap().unwrap();
}
