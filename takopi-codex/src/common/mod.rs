//! What both transports share: reading items, and turning them into events.
//!
//! Data flows from the top of this list to its end:
//!
//! - `labels`, `raw`, `item`, `tail` and `usage` are the wire types, one for both spellings;
//! - `command` makes what was run readable;
//! - `describe` shows an item as an action;
//! - `answer`, `open` and `reconnect` keep what spans items;
//! - `translation` is the state machine that emits the events.
//!
//! All of it is pure: no I/O, no clock.

mod answer;
mod command;
mod describe;
mod item;
mod labels;
mod open;
mod raw;
mod reconnect;
mod tail;
#[cfg(test)]
mod tests;
mod translation;
mod usage;

pub(crate) use answer::Answer;
pub(crate) use command::without_shell;
pub(crate) use describe::head;
pub(crate) use item::{Body, Item, Step};
pub(crate) use labels::{MessagePhase, snake_case};
pub(crate) use translation::Translation;
pub(crate) use usage::Figures;

pub(crate) use takopi_core::tolerant::{Read, Tolerant, first, next_key, skip};
