//! The command as people and scripts meet it: the binary is run, and what it prints is compared.

mod batch;
mod chat;
mod claude;
mod doctor;
mod exit;
mod lab;
mod modes;
mod sessions;
mod terminal;
