//! The command as people and scripts meet it: the binary is run, and what it prints is compared.

mod doctor;
mod exit;
mod lab;
mod modes;
#[path = "../support/screen.rs"]
mod screen;
mod sessions;
mod terminal;
