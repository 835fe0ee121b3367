//! Presenters: what is known of a run, as text for people.
//!
//! Pure and deterministic: state, elapsed time and room in, text out. Whatever an agent or a model
//! put into the text, no control character gets through, nothing is longer than asked, and no
//! character is cut in two.
//!
//! - [`terminal`]: lines of at most so many columns;
//! - [`chat`]: Markdown messages of at most so many characters.

mod action;
pub mod chat;
mod layout;
mod limit;
mod line;
mod question;
pub mod terminal;
mod text;

pub use chat::{Chat, Moment};
pub use limit::Limit;
pub use line::{Line, Span, Style};
pub use text::{clean, cut, elapsed, one_line, width, wrap};
