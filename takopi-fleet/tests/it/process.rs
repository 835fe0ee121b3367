//! Workers as processes of their own, which can be killed and suspended.
//!
//! A worker process is this test binary again, which runs one ignored test and is told by a variable what to serve. It ends when
//! its input does, and so with the process that started it.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use takopi_claude::Claude;
use takopi_codex::Codex;
use takopi_codex::app_server::CodexAppServer;
use takopi_core::catalog::PortableSessions;
use takopi_core::{EngineRunner, Host};
use takopi_fleet::PgBoard;
use takopi_fleet::files::number_of;
use takopi_fleet::work::{Ceiling, Served, Travels, Worker, WorkerOptions};
use tokio_util::sync::CancellationToken;

use crate::ledger::Ledger;

const PLAN: &str = "TAKOPI_TEST_WORKER";
const LOOK: Duration = Duration::from_millis(50);

/// What a worker process serves.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) url: String,
    pub(crate) machine: String,
    pub(crate) state: PathBuf,
    pub(crate) slots: u32,
    pub(crate) lease: Duration,
    pub(crate) engine: Engine,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Engine {
    /// The real one, with the home of the process's environment.
    Codex(PathBuf),
    /// Likewise.
    Claude(PathBuf),
    /// The one that checks the fleet from inside.
    Ledger { home: PathBuf, shared: PathBuf, work: Duration },
}

impl Plan {
    fn worker(self, board: PgBoard) -> Worker {
        let mut options = WorkerOptions::new(self.machine.clone(), self.state.join("fleet"));
        options.offers = vec![format!("label:{}", self.machine)];
        (options.slots, options.lease) = (self.slots, self.lease);
        options.grace = Duration::from_secs(1);
        options.ceiling = Ceiling::open();
        let host = Host::builder().state_directory(self.state).build().unwrap();
        let served = match self.engine {
            Engine::Codex(program) => codex(program, host),
            Engine::Claude(program) => {
                let claude = Claude::new().binary(program).keep_warm(Duration::from_mins(10));
                let sessions = claude.portable_sessions().unwrap();
                let runner = Arc::new(claude.runner().on(host));
                Served { runner, version: version(&*sessions), travels: Travels::Files(sessions) }
            }
            Engine::Ledger { home, shared, work } => {
                let ledger = Ledger { home, shared, work };
                Served {
                    runner: Arc::new(EngineRunner::new(ledger.clone()).on(host)),
                    version: 0,
                    travels: Travels::Files(Arc::new(ledger)),
                }
            }
        };
        Worker::new(Arc::new(board), options).engine(served)
    }
}

fn codex(program: PathBuf, host: Host) -> Served {
    let codex = Codex::new().binary(program);
    let sessions = codex.portable_sessions().unwrap();
    let engine = CodexAppServer::new(codex).keep_warm(Duration::from_mins(10));
    Served {
        runner: Arc::new(EngineRunner::new(engine).on(host)),
        version: version(&*sessions),
        travels: Travels::Files(sessions),
    }
}

fn version(sessions: &dyn PortableSessions) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // On a busy machine the program may not answer in time.
    let version = || runtime.block_on(sessions.version());
    number_of(std::iter::repeat_with(version).flatten().next().unwrap())
}

/// A worker process.
pub(crate) struct WorkerProcess(Child);

impl WorkerProcess {
    pub(crate) fn start(plan: &Plan, env: Vec<(String, String)>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "process::serves_until_its_input_ends"]);
        command.envs(env).env(PLAN, serde_json::to_string(plan).unwrap());
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        Self(command.spawn().unwrap())
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.0.id()).unwrap()), signal).unwrap();
    }

    /// SIGKILL.
    pub(crate) fn kill(mut self) {
        self.signal(Signal::SIGKILL);
        self.0.wait().unwrap();
    }

    pub(crate) fn pause(&self) {
        self.signal(Signal::SIGSTOP);
    }

    pub(crate) fn go_on(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Lets it end what it runs.
    pub(crate) fn stop(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "a worker, not a test: it is started by others"]
fn serves_until_its_input_ends() {
    let Ok(plan) = std::env::var(PLAN) else { return };
    let plan: Plan = serde_json::from_str(&plan).unwrap();
    let stop = CancellationToken::new();
    let ended = stop.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        ended.cancel();
    });
    let url: takopi_fleet::board::pg::Url = plan.url.parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let board = runtime.block_on(async {
        loop {
            match PgBoard::connect(url.clone()).await {
                Ok(board) => return board,
                // The database may be away just now.
                Err(error) if error.is_passing() => tokio::time::sleep(LOOK).await,
                Err(error) => panic!("{error}"),
            }
        }
    });
    let worker = plan.worker(board);
    runtime.block_on(worker.serve(stop)).unwrap();
}
