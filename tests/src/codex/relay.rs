//! An app-server whose lines come from the test itself.
//!
//! The client starts the `relay` binary as its codex; that passes lines between the client and a
//! [`Relay`] in the test's process. One relay serves many threads, so thousands of scripted turns cost
//! a few processes. A [`Plan`] holds what a thread and its turn send; it is found by the request's
//! model, which `thread/start` names.

use std::collections::HashMap;
use std::net::Shutdown;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use serde_json::{Value, json};
use takopi_codex::Codex;
use takopi_codex::app_server::{CodexAppServer, PoolLimits};
use takopi_core::{EngineRunner, Host, Runner as _, TakopiEvent};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::codex::home::TestHome;
use crate::model::PATIENCE;
use crate::runs;

/// The variable that names the relay's socket.
const SOCKET: &str = "TAKOPI_TEST_RELAY";

/// What one thread and its turns send. The lines have the placeholders of
/// [`Turn`](crate::codex::recorded::Turn).
#[derive(Debug, Default)]
pub struct Plan {
    /// In response to `thread/start`.
    pub opening: Vec<Vec<u8>>,
    /// In response to `turn/start`.
    pub turn: Vec<Vec<u8>>,
    /// Ahead of which line of the turn it waits for [`Plan::release`].
    pub gate: Option<usize>,
    /// Whether `turn/interrupt` is refused.
    pub refuses_interrupt: bool,
    begun: Notify,
    released: Notify,
}

impl Plan {
    /// A plan of these lines.
    pub fn new(opening: Vec<Vec<u8>>, turn: Vec<Vec<u8>>) -> Self {
        Self { opening, turn, ..Self::default() }
    }

    /// Waits at a line of the turn.
    pub fn gate(mut self, at: usize) -> Self {
        self.gate = Some(at);
        self
    }

    /// Waits until the turn was started.
    pub async fn begun(&self) {
        self.begun.notified().await;
    }

    /// Lets the turn go on behind its gate.
    pub fn release(&self) {
        self.released.notify_one();
    }
}

type Plans = Arc<Mutex<HashMap<String, Arc<Plan>>>>;

/// The test's end of the relays.
#[derive(Debug)]
pub struct Relay {
    directory: TempDir,
    plans: Plans,
    connections: Arc<AtomicU64>,
    serving: JoinHandle<()>,
}

impl Relay {
    /// Listens, on the runtime it is called on.
    pub fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("relay-").tempdir();
        let directory = directory.expect("a temporary directory");
        let listener = UnixListener::bind(directory.path().join("socket")).expect("a socket");
        let plans = Plans::default();
        let connections = Arc::new(AtomicU64::new(0));
        let (known, count) = (plans.clone(), connections.clone());
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(serve(stream, known.clone()));
            }
        });
        Self { directory, plans, connections, serving }
    }

    /// The variable that a relay needs.
    pub fn env(&self) -> (String, String) {
        let socket = self.directory.path().join("socket");
        (SOCKET.to_owned(), socket.to_string_lossy().into_owned())
    }

    /// How many processes were started so far.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Has requests for this model go by this plan.
    pub fn plan(&self, model: &str, plan: Plan) -> Arc<Plan> {
        let plan = Arc::new(plan);
        lock(&self.plans).insert(model.to_owned(), plan.clone());
        plan
    }

    /// Forgets the plan of a model.
    pub fn forget(&self, model: &str) {
        lock(&self.plans).remove(model);
    }
}

impl Default for Relay {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A runner on shared servers that the test plays.
pub struct Lane {
    /// What the servers send.
    pub relay: Relay,
    /// Where they live.
    pub home: TestHome,
    /// The runner.
    pub runner: EngineRunner<CodexAppServer>,
}

impl Lane {
    /// A pool of servers with these limits.
    pub fn new(limits: PoolLimits) -> Self {
        let home = TestHome::without_model();
        let host = Host::builder().state_directory(home.state()).build().expect("a host");
        let engine = CodexAppServer::new(Codex::new().binary(binary()))
            .keep_warm(Duration::from_mins(10))
            .shared(limits);
        Self { relay: Relay::new(), home, runner: EngineRunner::new(engine).on(host) }
    }

    /// The events of a run by the plan of `model`, which is forgotten behind it. `limits` are the
    /// idle and the wall limit. An error if it does not end in time, or if something panicked.
    pub async fn run(
        &self,
        model: &str,
        limits: Option<(Duration, Duration)>,
    ) -> Result<Vec<TakopiEvent>, String> {
        let (name, value) = self.relay.env();
        let mut request = runs::request(&self.home, "hi").env(name, value).model(model);
        if let Some((idle, wall)) = limits {
            request = request.idle_timeout(idle).wall_timeout(wall);
        }
        let mut stream = self.runner.run(request);
        let mut events = Vec::new();
        let read = async {
            while let Some(event) = stream.next().await {
                events.push(event);
            }
        };
        let in_time = tokio::time::timeout(PATIENCE * 2, read).await;
        self.relay.forget(model);
        in_time.map_err(|_| format!("no end of {model} within {:?}: {events:#?}", PATIENCE * 2))?;
        match events.last() {
            Some(TakopiEvent::Completed(end))
                if end.error.as_ref().is_some_and(|error| error.contains("panicked")) =>
            {
                Err(format!("a panic: {events:#?}"))
            }
            _ => Ok(events),
        }
    }
}

/// The `relay` executable that was built beside the running test.
pub fn binary() -> PathBuf {
    crate::codex::fake::binary().with_file_name(format!("relay{}", std::env::consts::EXE_SUFFIX))
}

/// A thread of a connection.
struct Opened {
    plan: Arc<Plan>,
    turn: Option<String>,
}

struct Connection {
    plans: Plans,
    writer: tokio::sync::Mutex<OwnedWriteHalf>,
    threads: Mutex<HashMap<String, Opened>>,
    asks: AtomicU64,
    closed: watch::Sender<bool>,
}

async fn serve(stream: UnixStream, plans: Plans) {
    let (reader, writer) = stream.into_split();
    let connection = Arc::new(Connection {
        plans,
        writer: tokio::sync::Mutex::new(writer),
        threads: Mutex::default(),
        asks: AtomicU64::new(0),
        closed: watch::Sender::new(false),
    });
    let mut lines = BufReader::new(reader).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Ok(message) = serde_json::from_str(&line) {
            connection.clone().receive(&message).await;
        }
    }
    connection.closed.send_replace(true);
}

impl Connection {
    async fn receive(self: Arc<Self>, message: &Value) {
        let Some(method) = message["method"].as_str() else { return };
        if message.get("id").is_none() {
            return;
        }
        let (request, params) = (message["id"].to_string(), &message["params"]);
        match method {
            "initialize" => {
                let agent = "takopi/0.166.0 (Debian 12.0.0; x86_64) xterm (takopi; 0)";
                self.reply(&request, &json!({"userAgent": agent, "codexHome": "/codex-home"}))
                    .await;
            }
            "thread/start" | "thread/resume" => self.open(&request, params).await,
            "turn/start" => {
                let thread = params["threadId"].as_str().unwrap_or_default().to_owned();
                let turn = Uuid::new_v4().to_string();
                let plan = lock(&self.threads).get_mut(&thread).map(|opened| {
                    opened.turn = Some(turn.clone());
                    opened.plan.clone()
                });
                match plan {
                    Some(plan) => drop(tokio::spawn(self.turn(plan, request, thread, turn))),
                    None => self.refuse(&request, &format!("thread not found: {thread}")).await,
                }
            }
            "turn/interrupt" => self.interrupt(&request, params).await,
            _ => self.reply(&request, &json!({})).await,
        }
    }

    async fn open(&self, request: &str, params: &Value) {
        let model = params["model"].as_str().unwrap_or_default();
        let Some(plan) = lock(&self.plans).get(model).cloned() else {
            return self.refuse(request, "no plan for this model").await;
        };
        let asked = params["threadId"].as_str().map(str::to_owned);
        let thread = asked.unwrap_or_else(|| Uuid::new_v4().to_string());
        let opened = Opened { plan: plan.clone(), turn: None };
        lock(&self.threads).insert(thread.clone(), opened);
        for line in &plan.opening {
            self.send(self.fill(line, request, &thread, "")).await;
        }
    }

    async fn turn(self: Arc<Self>, plan: Arc<Plan>, request: String, thread: String, turn: String) {
        plan.begun.notify_one();
        for (n, line) in plan.turn.iter().enumerate() {
            if plan.gate == Some(n) {
                let mut closed = self.closed.subscribe();
                tokio::select! {
                    () = plan.released.notified() => {}
                    _ = closed.wait_for(|closed| *closed) => return,
                }
            }
            self.send(self.fill(line, &request, &thread, &turn)).await;
        }
    }

    async fn interrupt(&self, request: &str, params: &Value) {
        let thread = params["threadId"].as_str().unwrap_or_default();
        let known = lock(&self.threads)
            .get(thread)
            .and_then(|opened| Some((opened.turn.clone()?, opened.plan.refuses_interrupt)));
        let Some((turn, false)) = known else {
            return self.refuse(request, "no active turn to interrupt").await;
        };
        self.reply(request, &json!({})).await;
        let turn = json!({"id": turn, "items": [], "status": "interrupted", "error": null});
        let end = json!({"method": "turn/completed", "params": {"threadId": thread, "turn": turn}});
        self.send(end.to_string().into_bytes()).await;
    }

    async fn reply(&self, request: &str, result: &Value) {
        self.send(format!("{{\"id\":{request},\"result\":{result}}}").into_bytes()).await;
    }

    async fn refuse(&self, request: &str, message: &str) {
        let error = json!({"code": -32600, "message": message});
        self.send(format!("{{\"id\":{request},\"error\":{error}}}").into_bytes()).await;
    }

    async fn send(&self, mut line: Vec<u8>) {
        line.push(b'\n');
        // A client that is gone needs nothing more.
        let _ = self.writer.lock().await.write_all(&line).await;
    }

    fn fill(&self, line: &[u8], request: &str, thread: &str, turn: &str) -> Vec<u8> {
        let mut ask = String::new();
        if line.windows(6).any(|window| window == b"\"$ASK\"") {
            ask = self.asks.fetch_add(1, Ordering::Relaxed).to_string();
        }
        let values =
            [("\"$REQUEST\"", request), ("\"$ASK\"", &ask), ("$THREAD", thread), ("$TURN", turn)];
        let mut filled = Vec::with_capacity(line.len() + 64);
        let mut rest = line;
        'next: while let Some((first, behind)) = rest.split_first() {
            if matches!(first, b'"' | b'$') {
                for (placeholder, value) in values {
                    if let Some(behind) = rest.strip_prefix(placeholder.as_bytes()) {
                        filled.extend_from_slice(value.as_bytes());
                        rest = behind;
                        continue 'next;
                    }
                }
            }
            filled.push(*first);
            rest = behind;
        }
        filled
    }
}

/// What the `relay` binary does.
pub fn main() {
    if std::env::args().any(|arg| arg == "--version") {
        println!("codex-cli 0.166.0");
        return;
    }
    let socket = std::env::var_os(SOCKET).expect("the variable that names the socket");
    let mut socket = std::os::unix::net::UnixStream::connect(socket).expect("the test listens");
    let mut sending = socket.try_clone().expect("a second handle");
    std::thread::spawn(move || {
        pass(&mut std::io::stdin().lock(), &mut sending);
        // The end of the input ends an app-server.
        let _ = sending.shutdown(Shutdown::Both);
        std::process::exit(0);
    });
    pass(&mut socket, &mut std::io::stdout().lock());
}

fn pass(from: &mut impl std::io::Read, to: &mut impl std::io::Write) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..read]).and_then(|()| to.flush()).is_err() {
            return;
        }
    }
}
