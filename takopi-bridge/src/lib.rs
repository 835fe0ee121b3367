//! The bridge kit: what a chat bridge or a terminal needs on top of takopi, but the chat.
//!
//! A bridge's author implements [`Transport`], the three calls of a chat's API, and hands on what
//! comes in to a [`Bridge`]. In the order a message travels:
//!
//! - [`router`] finds the engine and the session it is for;
//! - [`scheduler`] keeps it in the line of its session;
//! - [`handler`] runs it and shows the run through the [`transport`];
//! - [`approvals`] asks the chat what the agent asks leave for;
//! - [`bridge`] ties them together, and [`testing`] is a chat to test with.
//!
//! Under the handler, events go in at one end and text comes out at the other, in two steps that
//! know nothing of time, networks or screens:
//!
//! - [`progress`] folds the events of a run into state: what the agent did, what it is doing, how
//!   it ended;
//! - [`present`] turns that state into lines for a terminal or Markdown messages for a chat.
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
//! let screen = terminal::Frame { elapsed: Duration::from_secs(9), width: 60, height: 10 };
//! let screen: Vec<String> =
//!     terminal::live(&progress, screen).iter().map(|line| line.plain()).collect();
//! assert_eq!(screen, ["▸ cargo test · 8s", "⠋ Codex · 9s · step 1"]);
//!
//! let moment = Moment::at(Duration::from_secs(9)).resume_line("`codex resume 0199…`");
//! let message = Chat::new(Limit::Utf16(4096)).progress(&progress, &moment);
//! assert_eq!(
//!     message,
//!     "working · Codex · 9s · step 1\n\n▸ `cargo test`\n\n`codex resume 0199…`"
//! );
//! ```

pub mod approvals;
pub mod bridge;
pub mod handler;
mod outbox;
mod post;
pub mod present;
pub mod progress;
pub mod router;
pub mod scheduler;
pub mod testing;
pub mod transport;

pub use approvals::NoQuestion;
pub use bridge::{
    Bridge, Continuity, End, FollowUp, Incoming, Job, Listed, NotTaken, Pressed, Report, Settings,
    Target,
};
pub use handler::{FinalBy, Pace, Unsaid};
pub use router::Router;
pub use scheduler::{JobId, Limits};
pub use transport::{
    Content, Kind, MessageId, MessageRef, Outgoing, Place, Press, Transport, TransportError,
};
