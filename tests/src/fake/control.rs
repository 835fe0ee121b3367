//! The test's end of the fakes it started: opens gates, sees what they report.
//!
//! - Plain threads stand behind it; it works on any runtime and with a paused clock. While a test
//!   awaits something here, a paused clock of its single-threaded runtime does not advance by itself.
//! - Everything reported stays known: what came before it was asked for counts.
//! - What a fake did is known here before anything that follows from it can be seen elsewhere.
//! - Nothing is awaited for longer than a minute of real time: then the test fails and reports what it saw.
//! - Dropping it ends every fake that waits or sleeps, and every grandchild.

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use serde::Serialize;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::board::{Board, Mark, Sent, Shared, Started};
use super::report::{Mode, SOCKET, stdin_file};
use super::{CONTROL, script};

/// The control of all fakes that were started with its environment.
#[derive(Debug)]
pub struct Control {
    directory: TempDir,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

impl Control {
    /// Listens in a directory of its own, which is removed with the control.
    pub fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("takopi-fake-").tempdir();
        let directory = directory.expect("a temporary directory");
        let socket = directory.path().join(SOCKET);
        let listener = UnixListener::bind(&socket).expect("a socket in the control directory");
        let shared = Arc::new(Shared::default());
        let serving = Arc::clone(&shared);
        let accepting = Some(std::thread::spawn(move || serving.accept(&listener)));
        Self { directory, shared, accepting }
    }

    /// The environment that a fake with this script and this control needs.
    pub fn env(&self, script: &impl Serialize) -> Vec<(String, String)> {
        let directory = self.directory.path().to_str().expect("a temporary directory in UTF-8");
        let mut env = script::env_in(script, self.directory.path());
        env.push((CONTROL.to_owned(), directory.to_owned()));
        env
    }

    /// Opens a gate for every waiting fake and for those that come later.
    pub fn open(&self, gate: &str) {
        self.shared.lock().open(gate);
    }

    /// Waits until a point is reached, or a grandchild is ready, for the first time.
    pub async fn reached(&self, name: &str) -> Mark {
        self.nth_reached(name, 0).await
    }

    /// Waits until a point is reached for the `n`th time, from 0.
    pub async fn nth_reached(&self, name: &str, n: usize) -> Mark {
        let point = name.to_owned();
        let look = move |board: &Board| board.marked(&point).nth(n).cloned();
        self.wait(format!("point {name:?} to be reached ({n} times before)"), look).await
    }

    /// The times a point was reached so far.
    pub fn marks(&self, name: &str) -> Vec<Mark> {
        self.shared.lock().marked(name).cloned().collect()
    }

    /// Waits for the `n`th start of a session, from 0.
    pub async fn started(&self, n: usize) -> Started {
        let look = move |board: &Board| board.starts.get(n).cloned();
        self.wait(format!("start {n}"), look).await
    }

    /// The processes of sessions started so far, in order.
    pub fn starts(&self) -> Vec<Started> {
        self.shared.lock().starts.clone()
    }

    /// The arguments of the `n`th start.
    pub fn args(&self, n: usize) -> Vec<String> {
        self.shared.lock().starts[n].args.clone()
    }

    /// What the `n`th start has read from stdin. It is complete when the step that read it is over.
    pub fn stdin(&self, n: usize) -> Vec<u8> {
        std::fs::read(self.directory.path().join(stdin_file(n))).unwrap_or_default()
    }

    /// How often `--version` was asked.
    pub fn version_calls(&self) -> usize {
        let board = self.shared.lock();
        board.asides.iter().filter(|aside| aside.mode == Mode::Version).count()
    }

    /// All messages of the client to the `n`th start so far.
    pub fn sent(&self, n: usize) -> Vec<Value> {
        let board = self.shared.lock();
        let sent = board.sent.iter().filter(|sent| sent.start == n);
        sent.map(|sent| sent.message.clone()).collect()
    }

    /// Waits for the first call of the client with this name, at any start: a method of an app-server, or for Claude Code the
    /// subtype of a control request or `user`.
    pub async fn call(&self, method: &str) -> Sent {
        self.nth_call(method, 0).await
    }

    /// Waits for the `n`th call with this name, from 0.
    pub async fn nth_call(&self, method: &str, n: usize) -> Sent {
        let wanted = method.to_owned();
        let look = move |board: &Board| board.called(&wanted).nth(n).cloned();
        self.wait(format!("call of {method:?} ({n} before)"), look).await
    }

    /// The calls with this name so far.
    pub fn calls(&self, method: &str) -> Vec<Sent> {
        self.shared.lock().called(method).cloned().collect()
    }

    /// Waits for the client's answer to an [`Ask`](super::Ask): its whole message.
    pub async fn answer(&self, ask: &str) -> Value {
        let wanted = ask.to_owned();
        let look = move |board: &Board| {
            let answer = board.answers.iter().find(|(name, _)| *name == wanted);
            answer.map(|(_, message)| message.clone())
        };
        self.wait(format!("answer to {ask:?}"), look).await
    }

    /// Every answer to asks of this name so far.
    pub fn answers(&self, ask: &str) -> Vec<Value> {
        let board = self.shared.lock();
        let answers = board.answers.iter().filter(|(name, _)| name == ask);
        answers.map(|(_, message)| message.clone()).collect()
    }

    /// Sessions that two processes had open at once so far: what takopi must never let happen.
    pub fn overlaps(&self) -> Vec<String> {
        self.shared.lock().overlaps.clone()
    }

    /// Every process seen so far, grandchildren included.
    pub fn pids(&self) -> Vec<u32> {
        self.shared.lock().pids.clone()
    }

    /// The processes that live, grandchildren included.
    pub fn alive(&self) -> Vec<u32> {
        let board = self.shared.lock();
        let mut pids: Vec<u32> = board.links.values().map(|link| link.pid).collect();
        // The control may not have read the end of a process that was reaped.
        pids.retain(|pid| exists(*pid));
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// Waits until a process that was seen is dead, reaped or not.
    pub async fn gone(&self, pid: u32) {
        assert!(self.pids().contains(&pid), "process {pid} was never seen");
        let look =
            move |board: &Board| board.links.values().all(|link| link.pid != pid).then_some(());
        self.wait(format!("process {pid} to be gone"), look).await;
    }

    /// Waits until every process that was seen is dead and the control holds no descriptor of one.
    pub async fn all_gone(&self) {
        let look = |board: &Board| board.links.is_empty().then_some(());
        self.wait("all processes to be gone".to_owned(), look).await;
    }

    /// The directory of the control.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    async fn wait<T, F>(&self, what: String, mut look: F) -> T
    where
        T: Send + 'static,
        F: FnMut(&Board) -> Option<T> + Send + 'static,
    {
        if let Some(seen) = look(&self.shared.lock()) {
            return seen;
        }
        let given_up = GiveUp(Arc::clone(&self.shared), Arc::default());
        let (shared, abandoned) = (Arc::clone(&given_up.0), Arc::clone(&given_up.1));
        let (seen, wait) = oneshot::channel();
        let job = move || drop(seen.send(shared.block_until(&what, &abandoned, look)));
        // A blocking task, where there is a runtime, keeps its paused clock from running away.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(job)),
            Err(_) => drop(std::thread::spawn(job)),
        }
        match wait.await.expect("a waiter answers") {
            Ok(seen) => seen,
            Err(complaint) => panic!("{complaint}"),
        }
    }
}

impl Default for Control {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.shared.lock().close();
        self.shared.ring();
        // A connection wakes the thread that accepts, which then sees that it is over.
        let woken = UnixStream::connect(self.directory.path().join(SOCKET)).is_ok();
        if let Some(accepting) = self.accepting.take_if(|_| woken) {
            let _ = accepting.join();
        }
    }
}

/// Ends the thread of a waiter whose future was dropped.
struct GiveUp(Arc<Shared>, Arc<AtomicBool>);

impl Drop for GiveUp {
    fn drop(&mut self) {
        let _board = self.0.lock();
        self.1.store(true, Ordering::Relaxed);
        self.0.ring();
    }
}

fn exists(pid: u32) -> bool {
    let pid = i32::try_from(pid).expect("a pid fits");
    kill(Pid::from_raw(pid), None) != Err(Errno::ESRCH)
}
