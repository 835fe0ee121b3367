//! The command as people and scripts meet it: the binary is run, and what it prints is compared.

mod acp;
mod batch;
mod batch_input;
mod chat;
mod chat_gates;
mod claude;
mod doctor;
mod durable;
mod exit;
mod failures;
pub(crate) mod lab;
mod modes;
mod projects;
mod sessions;
mod telegram;
mod terminal;
