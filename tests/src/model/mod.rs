//! A scripted Responses API on loopback: the model that the real codex talks to in tests.
//!
//! - The server runs on a thread and a runtime of its own. It works from sync and async tests and with a paused clock,
//!   and stops, with every connection cut, when [`ModelServer`] is dropped.
//! - Each request is answered by the script whose needle is in the latest user message, so any number of conversations
//!   can go on at once. When several needles match, the longest wins (`prompt 10` is not taken by `prompt 1`),
//!   and of two as long the one added last.
//! - A script's answers are used up one per request, in order. After a tool call codex calls again with the same latest
//!   user message and gets the next one; so does a retry.
//! - A request that has no script, or whose script is used up, gets a status 400 with this reason. Codex does not retry that and
//!   ends the turn with the text. [`ModelServer::assert_finished`] finds both these and answers that were never requested.
//! - Every request is recorded before it is answered.
//!
//! ```no_run
//! # use takopi_tests::model::{Answer, Gate, ModelServer};
//! # async fn example() {
//! let model = ModelServer::start();
//! let gate = Gate::new();
//! model.when("greet", "hello");
//! model.when(
//!     "list the files",
//!     [
//!         Answer::new().commentary("looking").exec("ls"),
//!         Answer::new().wait_for(&gate).final_answer("three files"),
//!     ],
//! );
//! // … start codex on `model.base_url()` …
//! gate.reached().await;
//! assert_eq!(model.requests()[1].tool_outputs().len(), 1);
//! gate.open();
//! # }
//! ```

mod answer;
mod deadline;
mod gate;
mod record;
mod serve;
#[cfg(test)]
mod tests;
mod wire;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tokio::sync::oneshot;

pub use self::answer::{Answer, Phase, Script, Usage};
pub use self::deadline::{PATIENCE, within};
pub use self::gate::Gate;
pub use self::record::{Outcome, RecordedRequest, ToolOutput};
use self::serve::Shared;

/// A running model server.
#[derive(Debug)]
pub struct ModelServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ModelServer {
    /// Starts a server with no scripts on a free port of the loopback interface. It accepts connections at once.
    pub fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind a loopback port");
        listener.set_nonblocking(true).expect("make the listener non-blocking");
        let address = listener.local_addr().expect("the listener has an address");
        let shared = Arc::new(Shared::default());
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("model-server".into())
            .spawn({
                let shared = Arc::clone(&shared);
                move || serve::run(listener, shared, stopped)
            })
            .expect("start the model server's thread");
        Self { address, shared, stop: Some(stop), thread: Some(thread) }
    }

    /// What goes into codex's `base_url`.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Where the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers prompts that contain `needle` with this script. A needle that already has one gets these answers after
    /// those.
    pub fn when(&self, needle: &str, script: impl Into<Script>) {
        self.shared.add(Some(needle), script.into());
    }

    /// Answers prompts in which no needle is found. Calls add up as those of [`ModelServer::when`] do.
    pub fn otherwise(&self, script: impl Into<Script>) {
        self.shared.add(None, script.into());
    }

    /// All requests so far, in the order of arrival.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.shared.requests()
    }

    /// The requests whose latest user message contains `needle`.
    pub fn requests_about(&self, needle: &str) -> Vec<RecordedRequest> {
        let mut requests = self.requests();
        requests.retain(|request| {
            let prompt = request.last_user_text().unwrap_or_default();
            prompt.contains(needle)
        });
        requests
    }

    /// Waits until `count` requests have come in all, and returns all that have.
    ///
    /// Panics after [`PATIENCE`] of real time.
    pub async fn wait_for_requests(&self, count: usize) -> Vec<RecordedRequest> {
        let what = format!("{count} request(s) at the model server");
        within(PATIENCE, &what, self.shared.until(|requests| requests.len() >= count)).await;
        self.requests()
    }

    /// Waits until no request is being answered, that is, until every answer was sent or codex hung up.
    ///
    /// Panics after [`PATIENCE`] of real time.
    pub async fn wait_until_idle(&self) {
        let idle = |requests: &[RecordedRequest]| requests.iter().all(|r| r.ended.is_some());
        within(PATIENCE, "the model server to be idle", self.shared.until(idle)).await;
    }

    /// What came that no script had an answer for, as lines of text.
    pub fn unexpected(&self) -> Vec<String> {
        self.shared.unexpected()
    }

    /// The answers in scripts that were never requested, as lines of text. A repeating script that was never used counts.
    pub fn unused(&self) -> Vec<String> {
        self.shared.unused()
    }

    /// Asserts that every request had its scripted answer and that every scripted answer was asked for.
    pub fn assert_finished(&self) {
        let (unexpected, unused) = (self.unexpected(), self.unused());
        assert!(
            unexpected.is_empty() && unused.is_empty(),
            "requests with no answer: {unexpected:#?}, answers with no request: {unused:#?}"
        );
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
