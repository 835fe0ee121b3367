//! Presenters: the state of a run as text for people.
//!
//! Deterministic, without I/O: state, elapsed time and size in, text out. For any text of an agent
//! or a model, no control character gets through, nothing is longer than the limit, and no
//! character is split.
//!
//! - [`terminal`]: lines with a maximum width in columns;
//! - [`chat`]: Markdown messages with a maximum length;
//! - [`markup`]: Markdown as plain text, HTML, Telegram's entities or Slack's mrkdwn.

mod action;
pub mod chat;
mod layout;
mod limit;
mod line;
pub mod markup;
mod question;
pub mod terminal;
mod text;

pub use action::{describe, reconnected};
pub use chat::{Chat, Moment};
pub use limit::Limit;
pub use line::{Line, Span, Style};
pub use text::{clean, cut, elapsed, one_line, width, wrap};
