#![doc = include_str!("../README.md")]
//!
//! # How it works
//!
//! In the order a message travels:
//!
//! - [`api`] polls the Bot API; [`update`] reads what came, tolerantly; chats do not wait for each other
//!   (`lanes`), what is forwarded behind a message is gathered (`gather`), and what was not finished is delivered again after a crash (`window`);
//! - [`bot`] decides who is answered (`access`), reads commands (`commands`), projects, branches (`prompt`) and
//!   files (`attach`), and passes the rest to the bridge;
//! - [`transport`] shows what the bridge has to show, at a rate that Telegram allows ([`rate`]) and once, though
//!   responses are lost (`delivery`);
//! - [`state`] keeps what must survive a restart; [`files`] moves files in and out of a project;
//! - [`config`] is the table `[telegram]` of the configuration.

mod access;
pub mod api;
mod attach;
pub mod bot;
mod commands;
pub mod config;
mod delivery;
pub mod files;
mod gather;
mod lanes;
mod prompt;
pub mod rate;
pub mod state;
pub mod transport;
pub mod update;
mod window;

pub use api::{Api, ApiError, Token};
pub use bot::{Bot, BotError};
pub use config::{Config, ConfigError, Mode, Trigger};
pub use state::Store;
pub use transport::Telegram;
