//! The web chat: the real codex with a scripted model, and a browser that looks at it.
//!
//! `TAKOPI_UPDATE_PICTURE=1 cargo test -p takopi-cli --test web picture` takes `docs/serve.png` anew.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: what fails here fails the test")]

mod conversations;
mod doors;
#[path = "../real/lab.rs"]
#[allow(dead_code, reason = "each suite uses its part of the lab")]
mod lab;
mod picture;
mod server;
