#![doc = include_str!("../README.md")]
//!
//! # How it works
//!
//! In the order a message travels:
//!
//! - [`router`] finds its engine and its session;
//! - a scheduler queues it for its session, within [`Limits`];
//! - a run handler runs it and shows progress and answer through the [`transport`];
//! - approval requests of the agent become messages with buttons;
//! - [`bridge`] connects these parts, and [`testing`] has a chat in memory for tests.
//!
//! Below the run handler, events become text in two steps that do no I/O and read no clock:
//!
//! - [`progress`] folds the events of a run into its state: what the agent did, what it is doing, how
//!   it ended;
//! - [`present`] turns that state into lines for a terminal or Markdown messages for a chat.
//!
//! Types of [`takopi_core`] that appear here are re-exported with the crate.
//!
//! ```
//! use std::time::Duration;
//! use takopi_bridge::present::{Chat, Limit, Moment, terminal};
//! use takopi_bridge::progress::Progress;
//! use takopi_core::{Action, ActionEvent, ActionKind, Phase, ResumeToken, Started, TakopiEvent};
//!
//! let started = Started::new(ResumeToken::new("codex", "0199…")).title("Codex");
//! let action = Action::new("item_1", ActionKind::Command, "cargo test");
//! let events = [
//!     TakopiEvent::from(started),
//!     TakopiEvent::from(ActionEvent::new("codex", action, Phase::Started)),
//! ];
//!
//! let mut progress = Progress::default();
//! for (second, event) in events.iter().enumerate() {
//!     progress.apply(event, Duration::from_secs(second as u64));
//! }
//! let viewport = terminal::Viewport { elapsed: Duration::from_secs(9), width: 60, height: 10 };
//! let screen: Vec<String> =
//!     terminal::live(&progress, viewport).iter().map(|line| line.plain()).collect();
//! assert_eq!(screen, ["▸ cargo test · 8s", "⠋ Codex · 9s · step 1"]);
//!
//! let moment = Moment::at(Duration::from_secs(9)).resume_line("`codex resume 0199…`");
//! let message = Chat::new(Limit::Utf16(4096)).progress(&progress, &moment);
//! assert_eq!(
//!     message,
//!     "working · Codex · 9s · step 1\n\n▸ `cargo test`\n\n`codex resume 0199…`"
//! );
//! ```

pub mod answers;
mod approvals;
pub mod bridge;
mod handler;
mod live_message;
mod outbox;
pub mod present;
pub mod progress;
pub mod router;
mod scheduler;
#[cfg(test)]
#[path = "../tests/it/support/mod.rs"]
mod test_support;
pub mod testing;
pub mod transport;

// The support of the integration tests names the crate.
#[cfg(test)]
extern crate self as takopi_bridge;

pub use takopi_core;

pub use bridge::{
    AnswerError, Bridge, Cancelled, Continuity, DeliveryError, FinalBy, Incoming, JobEnd,
    JobHandle, JobId, JobInfo, JobReport, JobStatus, Limits, Pace, PressOutcome, ReceiveError,
    ReplyTo, RunContext, Settings, Target, WhileBusy,
};
pub use router::{RouteError, Router};
pub use transport::{
    Attachment, Content, Kind, MessageId, MessageRef, Outgoing, ParsePressError, Place, Press,
    Streaming, Transport, TransportError,
};
