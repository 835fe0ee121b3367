//! The sending end: one line a message, through the owner's bounded queue.

use std::sync::{Arc, Weak};

use serde::Serialize;
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

    /// Sends a message; `false` if the server no longer reads.
    pub(super) async fn send(&self, message: &impl Serialize) -> bool {
        match line_of(message) {
            Some(line) => self.write(line).await,
            None => false,
        }
    }

    /// Sends a message in the background, from where nothing can be waited for.
    pub(super) fn send_soon(self, message: &impl Serialize) {
        let Some(line) = line_of(message) else { return };
        let host = self.host.clone();
        host.track(async move {
            self.write(line).await;
        });
    }

    async fn write(&self, line: Vec<u8>) -> bool {
        match self.stdin.upgrade() {
            Some(stdin) => stdin.write(line).await,
            None => false,
        }
    }
}

fn line_of(message: &impl Serialize) -> Option<Vec<u8>> {
    let mut line = serde_json::to_vec(message).ok()?;
    line.push(b'\n');
    Some(line)
}
