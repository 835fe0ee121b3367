//! The sending end: one line a message, through the owner's bounded queue.

use std::sync::{Arc, Weak};

use serde::Serialize;
use serde_json::Value;
use takopi_core::Host;
use takopi_core::process::StdinWriter;

/// Sends messages for as long as the client keeps the server's input open.
#[derive(Clone)]
pub(super) struct Wire {
    stdin: Weak<StdinWriter>,
    host: Host,
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wire")
    }
}

impl Wire {
    pub(super) fn new(stdin: &Arc<StdinWriter>, host: Host) -> Self {
        Self { stdin: Arc::downgrade(stdin), host }
    }

    /// Sends a message; `false` when nobody reads any more.
    pub(super) async fn send(&self, message: &impl Serialize) -> bool {
        let Ok(mut line) = serde_json::to_vec(message) else { return false };
        line.push(b'\n');
        match self.stdin.upgrade() {
            Some(stdin) => stdin.write(line).await,
            None => false,
        }
    }

    /// Sends a message in the background, from where nothing can be waited for.
    pub(super) fn send_soon(self, message: Value) {
        let host = self.host.clone();
        host.track(async move {
            self.send(&message).await;
        });
    }
}
