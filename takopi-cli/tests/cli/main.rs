//! The command as people and scripts meet it: the binary is run, and what it prints is compared.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: what fails here fails the test")]

mod batch;
mod chat;
mod doctor;
mod exit;
mod lab;
mod modes;
#[path = "../support/screen.rs"]
mod screen;
mod sessions;
mod terminal;
