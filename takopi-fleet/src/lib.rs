//! takopi over many machines.
//!
//! Prompts are submitted from anywhere and run by whichever worker can: one run at a time on a session, first come, first
//! served, with live events back. Nothing is lost and nothing runs twice at once when a worker, the network or the
//! database dies. The queue is a PostgreSQL database.
//!
//! | module | what it does |
//! |---|---|
//! | [`board`] | the queue: jobs, sessions, leases, fences; on PostgreSQL, or in memory |
//! | [`spec`] | what of a request travels to a worker |
//! | [`frame`] | what a worker writes about a run, and what a submitter sends to it |
//! | [`submit`] | [`FleetRunner`](submit::FleetRunner), a `Runner` whose runs happen elsewhere |
//! | [`work`] | [`Worker`](work::Worker), which serves the queue with runners of this machine |
//! | [`private`] | a PostgreSQL of its own, for a demo and for tests |
//! | [`files`] | session files on their way between machines; which version of an engine may open a session |
//!
//! ```
//! use std::sync::Arc;
//! use takopi_core::demo::{DEMO, Demo};
//! use takopi_core::external::CancellationToken;
//! use takopi_core::{RunRequest, Runner};
//! use takopi_fleet::submit::FleetEngine;
//! use takopi_fleet::work::{Served, Travels, Worker, WorkerOptions};
//! use takopi_fleet::{Board, MemoryBoard};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! // In place of the memory: `PgBoard::connect("postgres://db.example/takopi".parse()?).await?`
//! let board: Arc<dyn Board> = Arc::new(MemoryBoard::new());
//!
//! // On every machine:
//! let demo = Arc::new(Demo::new().runner());
//! let state = std::env::temp_dir().join("takopi-fleet-example");
//! let worker = Worker::new(board.clone(), WorkerOptions::new("machine-1", state))
//!     .engine(Served { runner: demo.clone(), version: 0, travels: Travels::Freely });
//! let stop = CancellationToken::new();
//! let serving = tokio::spawn(worker.serve(stop.clone()));
//!
//! // Anywhere:
//! let runner = FleetEngine::new(board, DEMO, demo.resume_codec()).runner();
//! let end = runner.ask(RunRequest::new("hello")).await;
//! assert!(end.answer.contains("hello"));
//!
//! stop.cancel();
//! assert!(serving.await.is_ok());
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! What no fence can undo: the effects outside (a push, a deployment) of a machine that was paused, in the seconds before it
//! notices that its lease is over.

pub mod board;
pub mod files;
pub mod frame;
pub mod private;
pub mod spec;
pub mod submit;
pub mod work;

pub use board::Board;
pub use board::memory::MemoryBoard;
pub use board::pg::PgBoard;
