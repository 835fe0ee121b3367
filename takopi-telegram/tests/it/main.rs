//! The bot on the fake Bot API.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod access;
mod busy;
mod conversation;
mod faults;
mod files;
mod lab;
mod real;
mod restart;
