//! The bridge kit, one module a part of it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests: what fails here fails the test"
)]

mod answers;
mod approvals;
mod bridge;
mod bridge_properties;
mod busy_chat;
mod chat;
mod guide;
mod markup;
mod sessions;
mod split;
mod streaming;
mod support;
mod terminal;
