//! The contract over the fleet: a runner, a queue, and a worker with the demo engine.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use takopi_core::demo::{DEMO, Demo};
use takopi_core::{
    ApprovalHandler, ApprovalRequest, Decision, EngineRunner, Host, RunRequest, Runner,
};
use takopi_fleet::board::Board;
use takopi_fleet::submit::FleetEngine;
use takopi_fleet::work::{Served, Travels, Worker, WorkerOptions};
use takopi_tests::contract::{Prompt, Subject};
use tokio_util::sync::CancellationToken;

use crate::lab::Lab;

/// The demo engine on a worker. It asks for an approval on its way, which is where a test can hold it.
pub(crate) struct FleetSubject {
    board: Arc<dyn Board>,
    host: Host,
    gates: Mutex<HashMap<String, Approval>>,
    stop: CancellationToken,
    _dir: tempfile::TempDir,
}

/// Approves once the test opens it; knows when it was asked.
#[derive(Clone, Default)]
pub(crate) struct Approval {
    pub(crate) asked: CancellationToken,
    pub(crate) open: CancellationToken,
}

impl ApprovalHandler for Approval {
    fn decide(&self, _request: ApprovalRequest) -> BoxFuture<'static, Decision> {
        self.asked.cancel();
        let open = self.open.clone();
        Box::pin(async move {
            open.cancelled().await;
            Decision::Accept
        })
    }
}

/// A worker with the demo engine, on a thread of its own.
pub(crate) fn demo_worker(
    board: Arc<dyn Board>,
    options: WorkerOptions,
    demo: Demo,
    stop: CancellationToken,
) -> std::thread::JoinHandle<()> {
    let host = Host::builder().state_directory(options.state.join("host")).build().unwrap();
    let runner: Arc<dyn Runner> = Arc::new(demo.runner().on(host));
    let served = Served { runner, version: 0, travels: Travels::Freely };
    let worker = Worker::new(board, options).engine(served);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(worker.serve(stop)).unwrap();
    })
}

/// A runner over the board.
pub(crate) fn fleet_runner(board: &Arc<dyn Board>, host: &Host) -> EngineRunner<FleetEngine> {
    let codec = Demo::new().runner().resume_codec();
    FleetEngine::new(board.clone(), DEMO, codec).runner().on(host.clone())
}

impl FleetSubject {
    fn on(lab: &Lab) -> Self {
        let board = lab.board();
        let dir = tempfile::tempdir().unwrap();
        let mut options = WorkerOptions::new("m1", dir.path());
        options.slots = 8;
        let stop = CancellationToken::new();
        demo_worker(board.clone(), options, Demo::new(), stop.clone());
        let host = Host::builder().state_directory(dir.path().join("submitter")).build().unwrap();
        Self { board, host, gates: Mutex::default(), stop, _dir: dir }
    }

    fn memory() -> Self {
        Self::on(&Lab::memory())
    }

    fn postgres() -> Option<Self> {
        // The checks run on a runtime already; the board is made on one of its own.
        let made = std::thread::spawn(|| {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let lab = runtime.block_on(Lab::pg());
            // Its connections live there.
            std::thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
            lab
        });
        made.join().unwrap().map(|lab| Self::on(&lab))
    }

    fn gate(&self, word: &str) -> Approval {
        self.gates.lock().unwrap().entry(word.to_owned()).or_default().clone()
    }
}

impl Drop for FleetSubject {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Subject for FleetSubject {
    fn runner(&self) -> Arc<dyn Runner> {
        Arc::new(fleet_runner(&self.board, &self.host).buffer(4, 4096))
    }

    fn request(&self, prompt: Prompt<'_>) -> RunRequest {
        match prompt {
            Prompt::Answers(word) | Prompt::Works(word) => RunRequest::new(word),
            Prompt::Waits(word) | Prompt::Hangs(word) => {
                RunRequest::new(word).approvals(Arc::new(self.gate(word)))
            }
            Prompt::Fails(word) => RunRequest::new(word).cwd("/nowhere/at/all"),
        }
    }

    fn reached(&self, word: &str) -> BoxFuture<'static, ()> {
        Box::pin(self.gate(word).asked.cancelled_owned())
    }

    fn open(&self, word: &str) {
        self.gate(word).open.cancel();
    }

    fn processes(&self) -> Vec<String> {
        Vec::new()
    }
}

mod memory {
    takopi_tests::contract_tests!(|| Some(super::FleetSubject::memory()));
}

mod postgres {
    takopi_tests::contract_tests!(super::FleetSubject::postgres);
}
