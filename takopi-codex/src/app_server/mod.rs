//! Codex over `codex app-server`: a process that is talked to.
//!
//! From the bottom up:
//!
//! - [`Client`] starts a server and talks JSON-RPC with it; everything can be called by name;
//! - [`Thread`]s and [`TurnStream`]s are codex's conversations and what runs on them;
//! - [`CodexAppServer`] is the engine behind [`Codex::app_server`](crate::Codex::app_server): the same
//!   events as over exec, and what is streamed on top of them; the host's own [`HostTool`](takopi_core::tools::HostTool)s can be
//!   called in it;
//! - [`Conversation`] is for programs with an agent loop of their own: one thread, a report and a
//!   [`Transcript`] per turn.
//!
//! Promises of the engine:
//! - one process per live session, kept warm for a set time after a run and reused only for the
//!   same binary, settings and environment;
//! - a warm session is a lease: it is given up within a second when another process, or another
//!   runner, wants it;
//! - a process of one session whose run died, timed out or was cancelled is never used again;
//! - in shared mode ([`CodexAppServer::shared`]) many sessions run on few processes, each with a limit
//!   on running and on loaded sessions. None is closed under a run. A cancel or a timeout changes
//!   nothing for the other runs, ends the sub-agents of its own, and a process that answered it is used again;
//! - a turn of which anything was received is never sent twice;
//! - every request of the server gets an answer; without anybody to ask it is declined, visibly.

mod address;
mod approvals;
mod client;
mod conversation;
mod driver;
mod engine;
mod error;
mod inbox;
mod limits;
#[cfg(test)]
mod logs;
mod message;
mod notification;
mod reader;
mod requests;
mod routes;
mod servers;
mod session;
mod settings;
mod streams;
mod subagents;
mod thread;
mod tools;
mod transcript;
mod translator;
mod turn;
mod usage;

pub use client::{Client, ServerInfo, ServerLaunch};
pub use conversation::{Conversation, ConversationReport};
pub use engine::CodexAppServer;
pub use error::ClientError;
pub use notification::Notification;
pub use requests::ServerRequest;
pub use servers::PoolLimits;
pub use takopi_core::rpc::RequestId;
pub use thread::{ModelOptions, Thread, ThreadOptions};
pub use transcript::{Message, Transcript, TranscriptCall};
pub use turn::{TurnEvent, TurnOptions, TurnReport, TurnStatus, TurnStream};

/// The events of an app-server's lines of one turn: the pure part of the transport, for fuzzers. Each
/// line is a batch of its own.
#[doc(hidden)]
pub fn translate_lines<'a>(
    lines: impl IntoIterator<Item = &'a [u8]>,
    deltas: bool,
) -> Vec<takopi_core::TakopiEvent> {
    let directory = takopi_core::paths::Directory::new([std::path::Path::new("/workspace")]);
    let translator = translator::TurnTranslator::new("Codex", directory, false);
    let mut translator = translator.deltas(deltas);
    let mut events = Vec::new();
    translator.thread_started("01a1e21b-26e5-7eb0-9d27-459e98f10b74", &mut events);
    for line in lines {
        let text = String::from_utf8_lossy(line);
        if let Ok(takopi_core::rpc::Incoming {
            method: Some(method), params: Some(params), ..
        }) = takopi_core::rpc::Incoming::parse(&text)
        {
            let notification = Notification::new(method.into_owned(), params.to_owned());
            translator.notification(notification.kind(), &mut events);
            translator.flush(&mut events);
        }
    }
    events
}
