//! takopi runs coding agents for other programs.
//!
//! A program hands a [`Runner`] a prompt and, to go on with an earlier conversation, a
//! [`ResumeToken`]. It gets back one ordered stream of [`TakopiEvent`]s: [`Started`] when the engine
//! confirms the session, [`ActionEvent`]s for what the agent does, and [`Completed`], exactly once
//! and last, whatever happens. Two prompts for one session wait their turn, across tasks and
//! processes; a run that is cancelled leaves no process behind.
//!
//! ```
//! use futures::StreamExt;
//! use takopi_core::demo::Demo;
//! use takopi_core::{Runner, RunRequest, TakopiEvent};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let runner = Demo::new().runner();
//! let mut events = runner.run(RunRequest::new("say hello"));
//! while let Some(event) = events.next().await {
//!     match event {
//!         TakopiEvent::Started(started) => println!("session {}", started.resume.value),
//!         TakopiEvent::Action(event) => println!("{:?} {}", event.phase, event.action.title),
//!         TakopiEvent::Completed(end) => println!("{}", end.answer),
//!         _ => {}
//!     }
//! }
//! runner.shutdown().await;
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Layers
//!
//! From the bottom up. A module uses only modules above it in this table; a test holds that.
//!
//! | module | what it does |
//! |---|---|
//! | `sys` | descriptor limits, kernel locks on files, the machine's name |
//! | [`tolerant`] | reads JSON that may not be what it should be |
//! | [`model`] | the events: what a consumer receives, bounded in size |
//! | [`paths`] | paths as a person in the run's directory writes them |
//! | [`failure`] | what statuses and phrases of a failure mean |
//! | [`settings`] | the options of a run, shared by requests, batches and configuration files |
//! | [`mcp`] | MCP servers that a host gives its agents |
//! | [`tools`] | functions of the host that agents can call |
//! | [`redact`] | removes credentials from texts and events |
//! | [`locks`] | one run at a time on a session, first come, first served; lock services plug in here |
//! | [`worktree`] | keeps the git worktree of a run from being removed |
//! | [`process`] | starts, feeds, reads and ends processes, and leaves none behind |
//! | [`host`] | the supervisor thread, the state directory and the locks that runs share |
//! | [`version`] | releases of an engine's program, which is asked for its own |
//! | [`peer`] | a process that is talked to in JSON lines, both ways |
//! | [`runner`] | request in, events out: contract, limits, approvals of one run |
//! | [`images`] | images that go with a prompt |
//! | [`approvals`] | ready-made approval handlers |
//! | [`keeper`] | processes that stay between runs, and the sessions they have loaded |
//! | [`jsonl`] | engines that are programs printing JSON lines |
//! | [`rpc`] | JSON-RPC with a process, both ways |
//! | [`catalog`] | what an engine tells programs that offer many engines |
//! | [`demo`] | a scripted engine for examples and tests |
//!
//! A prompt goes from [`RunRequest`] to [`EngineRunner`], which takes the session's lock and calls
//! [`Engine::run`]; the engine starts a process and emits events; each event is checked, bounded,
//! redacted, and buffered for the consumer.
//!
//! The run is a task on takopi's own supervisor thread; the consumer holds only the end of a bounded
//! buffer. Dropping the stream cancels the run, and the session stays locked until nothing of the
//! run can write any more.
//!
//! # Writing an engine
//!
//! An engine that is a program printing JSON lines needs a [`jsonl::LineEngine`], which describes what
//! to start, and a [`jsonl::Translator`], a pure state machine from lines to events. Locking, ordering,
//! the terminal event and the process's end come from here. `examples/third_party_engine.rs` is a
//! complete one around an ordinary program. A [`catalog::EngineEntry`] offers it to programs with many
//! engines, such as the `takopi` command.

#[cfg(not(unix))]
compile_error!("takopi runs on Linux and macOS; Windows is not supported yet");

pub mod approvals;
pub mod catalog;
pub mod demo;
pub mod failure;
pub mod host;
pub mod images;
pub mod jsonl;
pub mod keeper;
#[cfg(test)]
mod layers;
pub mod locks;
pub mod mcp;
pub mod model;
pub mod paths;
pub mod peer;
pub mod process;
pub mod redact;
pub mod rpc;
pub mod runner;
pub mod settings;
mod sys;
pub mod tolerant;
pub mod tools;
pub mod version;
pub mod worktree;

/// The types of other crates that appear in the signatures of this one, in the matching version.
///
/// ```
/// use takopi_core::RunRequest;
/// use takopi_core::external::CancellationToken;
///
/// let cancel = CancellationToken::new();
/// let request = RunRequest::new("hello").cancel(cancel.clone());
/// cancel.cancel();
/// assert!(request.cancel.is_cancelled());
/// ```
pub mod external {
    pub use futures::Stream;
    pub use futures::future::BoxFuture;
    pub use schemars::Schema;
    pub use serde_json::{Map, Value};
    pub use tokio::runtime::Handle;
    pub use tokio::sync::mpsc;
    pub use tokio_util::sync::CancellationToken;
}

pub use host::Host;
pub use model::{
    Action, ActionEvent, ActionKind, Completed, EngineId, Level, Phase, RateLimitWindow,
    RateLimits, Reason, ResumeToken, Started, TakopiEvent, Usage, UsageScope,
};
pub use runner::{
    ApprovalHandler, ApprovalRequest, Decision, Engine, EngineRun, EngineRunner, EventStream,
    RunError, RunRequest, Runner,
};
pub use settings::RunSettings;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
