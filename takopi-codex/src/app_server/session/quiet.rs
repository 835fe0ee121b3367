//! How a thread whose turn was interrupted is brought to rest on a server that others use.
//!
//! codex interrupts a turn alone: the sub-agents below it have turns of their own and go on, with ever new
//! commands. Their turns are interrupted, and then the background terminals of all are ended.

use std::time::Duration;

use futures::future::join_all;
use tokio::time::timeout;

use crate::app_server::client::Client;
use crate::app_server::error::ClientError;
use crate::app_server::thread::{Thread, clean_background_terminals};
use crate::app_server::turn::interrupt;

/// How long a server may take to end the turns of sub-agents.
const SUBAGENTS_LIMIT: Duration = Duration::from_secs(10);
/// How often sub-agents are looked for: one that was interrupted may begin another turn, or may have
/// started one more.
const LOOKS: usize = 4;

/// Ends the turns of the thread's sub-agents, and what runs in background terminals. `false` if the server
/// does not answer in time, or if sub-agents begin ever new turns.
pub(super) async fn bring_to_rest(thread: &Thread) -> bool {
    let client = thread.client();
    let stopping = timeout(SUBAGENTS_LIMIT, stop_subagents(client, thread.id()));
    if !stopping.await.unwrap_or(false) {
        return false;
    }
    let below = client.routes().subagents(thread.id());
    let threads = below.iter().map(|(agent, _)| agent.as_str()).chain([thread.id()]);
    let cleaned = threads.map(|thread| clean_background_terminals(client, thread));
    join_all(cleaned).await.iter().all(is_answer)
}

async fn stop_subagents(client: &Client, thread: &str) -> bool {
    let routes = client.routes();
    for _ in 0..LOOKS {
        let below = routes.subagents(thread).into_iter();
        let running: Vec<_> = below.filter_map(|(agent, turn)| Some((agent, turn?))).collect();
        if running.is_empty() {
            return true;
        }
        let interrupts =
            running.iter().map(|(agent, turn)| interrupt(client, agent, turn, SUBAGENTS_LIMIT));
        if !join_all(interrupts).await.iter().all(is_answer) {
            return false;
        }
        // The response may come before the notification of the end.
        for (agent, turn) in &running {
            routes.subagent_stopped(agent, turn);
        }
    }
    false
}

/// Whether the server has answered. It refuses what has ended, and threads that it does not have any more.
fn is_answer(result: &Result<(), ClientError>) -> bool {
    matches!(result, Ok(()) | Err(ClientError::Refused { .. }))
}
