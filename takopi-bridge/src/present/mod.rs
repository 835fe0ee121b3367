//! Presenters: what is known of a run, as text for people.
//!
//! Pure and deterministic: state, elapsed time and width in, lines out. Whatever an agent or a model
//! put into the text, no control character gets through, no line is wider than asked, and no
//! character is cut in two.

mod action;
mod line;
mod markdown;
pub mod terminal;
mod text;

pub use line::{Line, Span, Style};
pub use text::{clean, cut, elapsed, one_line, width, wrap};
