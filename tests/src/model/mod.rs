//! Scripted models on loopback: what real agents talk to in tests.
//!
//! - The server runs on a thread and a runtime of its own. It works from sync and async tests and with a paused clock,
//!   and stops, with every connection cut, when [`Server`] is dropped.
//! - Each request is answered by the script whose needle is in the latest prompt, so any number of conversations
//!   can go on at once. When several needles match, the longest wins (`prompt 10` is not taken by `prompt 1`),
//!   and of two as long the one added last.
//! - A request that has no script, or whose script is used up, gets a status 400 with this reason.
//!   [`Server::assert_finished`] finds both these and answers that were never requested.
//! - Every request is recorded before it is answered.
//!
//! [`ModelServer`] is OpenAI's Responses API, for codex: a script's answers are used up one per request, in order.
//! [`messages`] is Anthropic's Messages API, for Claude Code: the conversation tells which answer it is.
//! [`chat`] is the Chat Completions API, for pi and for agents behind ACP: as [`messages`].
//! [`gemini`] is Google's Gemini API, for gemini: as [`chat`].
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
mod api;
mod beat;
pub mod chat;
mod deadline;
mod gate;
pub mod gemini;
pub mod messages;
mod record;
mod responses;
mod script;
mod serve;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use serde_json::Value;
use tokio::sync::oneshot;

pub use self::api::Api;
use self::api::Serve;
pub use self::deadline::{PATIENCE, within};
pub use self::gate::Gate;
pub use self::record::{Outcome, Recorded, ToolOutput};
pub use self::responses::{Answer, ModelServer, Phase, RecordedRequest, Script, Usage};
use self::serve::Shared;

/// A running model server.
#[derive(Debug)]
pub struct Server<A: Api> {
    address: SocketAddr,
    shared: Arc<Shared<A>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[expect(private_bounds, reason = "an API is served only if it is one of those here")]
impl<A: Serve> Server<A> {
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

    /// What an agent is given for a base URL.
    pub fn base_url(&self) -> String {
        format!("http://{}{}", self.address, A::BASE)
    }

    /// Where the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers prompts that contain `needle` with this script. A needle that already has one gets these answers after
    /// those.
    pub fn when(&self, needle: &str, script: impl Into<script::Script<A::Answer>>) {
        self.shared.add(Some(needle), script.into());
    }

    /// Answers prompts in which no needle is found. Calls add up as those of [`Server::when`] do.
    pub fn otherwise(&self, script: impl Into<script::Script<A::Answer>>) {
        self.shared.add(None, script.into());
    }

    /// The requests that are about a prompt with `needle` in it: of all prompts of a request the latest.
    pub fn requests_about(&self, needle: &str) -> Vec<Recorded<A>> {
        let mut requests = self.requests();
        let about =
            |body: &Value| A::prompts(body).first().is_some_and(|it| it.text.contains(needle));
        requests.retain(|request| about(&request.body));
        requests
    }

    /// Waits until `count` requests have come in all, and returns all that have.
    ///
    /// Panics after [`PATIENCE`] of real time.
    pub async fn wait_for_requests(&self, count: usize) -> Vec<Recorded<A>> {
        let what = format!("{count} request(s) at the model server");
        within(PATIENCE, &what, self.shared.until(|requests| requests.len() >= count)).await;
        self.requests()
    }

    /// Waits until no request is being answered, that is, until every answer was sent or the agent hung up.
    ///
    /// Panics after [`PATIENCE`] of real time.
    pub async fn wait_until_idle(&self) {
        let idle = |requests: &[Recorded<A>]| requests.iter().all(|r| r.ended.is_some());
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

impl<A: Api> Server<A> {
    /// All requests so far, in the order of arrival.
    pub fn requests(&self) -> Vec<Recorded<A>> {
        self.shared.requests()
    }
}

impl<A: Api> Drop for Server<A> {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
