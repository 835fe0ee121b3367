//! A turn that may still begin or go on on a shared server, though its run is over.

use std::future::pending;
use std::time::Duration;

use super::ending::interrupt_and_read;
use crate::app_server::client::Client;
use crate::app_server::error::ClientError;
use crate::app_server::turn::{StartReply, TurnStream};

/// A turn whose run did not wait for the response to `turn/start` or for the end, or could not read the response.
/// Left alone, it would run for as long as the neighbours of its run.
pub(in crate::app_server) struct LateTurn {
    client: Client,
    thread: String,
    turn: TurnStream,
    reply: Option<StartReply>,
    /// How long it may take to end.
    limit: Duration,
}

impl LateTurn {
    pub(super) fn new(
        client: &Client,
        thread: &str,
        turn: TurnStream,
        reply: Option<StartReply>,
        limit: Duration,
    ) -> Self {
        Self { client: client.clone(), thread: thread.to_owned(), turn, reply, limit }
    }

    /// Interrupts the turn as soon as its id is known, from the response or from a notification. What it
    /// asks is declined. Returns when it is over, was refused, does not end within a limit, or its server
    /// is gone.
    pub(in crate::app_server) async fn end(self) {
        let Self { client, thread, mut turn, mut reply, limit } = self;
        while turn.id().is_empty() {
            let response = async {
                match &mut reply {
                    Some(reply) => reply.await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                response = response => {
                    reply = None;
                    match response {
                        Ok(id) => turn.named(id),
                        Err(ClientError::Refused { .. }) => return,
                        Err(_) => {}
                    }
                }
                event = turn.next() => match event {
                    Ok(None) | Err(ClientError::Closed { .. }) => return,
                    Ok(Some(_)) | Err(_) => {}
                },
            }
        }
        // With it the end of the turn would be held back.
        drop(reply);
        interrupt_and_read(&client, &thread, &mut turn, limit, |_| {}).await;
    }
}
