//! How a turn ends: its interruption, its `Completed`, and what becomes of its server.

use std::time::Duration;

use takopi_core::model::{Completed, Reason, TakopiEvent};
use takopi_core::runner::RunError;
use tokio::time::{Instant, timeout};

use super::{LateTurn, ServerHealth, ServerUse, TurnDriver, TurnEnd};
use crate::CODEX;
use crate::app_server::client::Client;
use crate::app_server::engine::refusal_of;
use crate::app_server::error::ClientError;
use crate::app_server::notification::Notification;
use crate::app_server::translator::interrupted;
use crate::app_server::turn::{TurnEvent, TurnStream, interrupt};

/// How long codex may take to end a turn that was interrupted, on a process of its own.
const INTERRUPT_LIMIT: Duration = Duration::from_secs(5);
/// How soon a refused interrupt is sent again, while the turn has not ended.
const INTERRUPT_AGAIN: Duration = Duration::from_millis(200);

impl TurnDriver<'_> {
    pub(super) fn end(&mut self, completed: Completed, server: ServerHealth) -> TurnEnd {
        let last_events = std::mem::take(&mut self.events);
        TurnEnd { completed, server, last_events, never_began: false, late: self.late.take() }
    }

    /// Interrupts the turn, whose end is then received like any other.
    pub(super) fn interrupt_in_background(&self, turn: &TurnStream) {
        let client = self.client.clone();
        let (thread, turn) = (self.thread.id().to_owned(), turn.id().to_owned());
        self.run.host().track(async move {
            if let Err(error) = interrupt(&client, &thread, &turn, INTERRUPT_LIMIT).await {
                tracing::debug!(%error, "a turn was not interrupted");
            }
        });
    }

    /// Interrupts the turn and reads it to its end, for the answer so far.
    pub(super) async fn interrupt(&mut self, mut turn: TurnStream) -> ServerHealth {
        let (client, thread) = (self.client, self.thread.id());
        let limit = match (self.server_use, self.give_up_at) {
            (ServerUse::Own, _) => INTERRUPT_LIMIT,
            // It is busier, and not given up lightly …
            (ServerUse::Shared { response, .. }, None) => response,
            // … but the response to `turn/start` was waited for within the same limit.
            (ServerUse::Shared { .. }, Some(at)) => at.saturating_duration_since(Instant::now()),
        };
        let handle = |notification: &Notification| self.handle(notification, notification.kind());
        let health = interrupt_and_read(client, thread, &mut turn, limit, handle).await;
        if let ServerUse::Shared { response, .. } = self.server_use
            && health == ServerHealth::Broken
            && !client.is_closed()
        {
            self.late = Some(LateTurn::new(client, thread, turn, None, response));
        }
        health
    }

    /// The `Completed` of a turn that was ended for this. Its own end, if it came to one, was not
    /// what ended the run.
    pub(super) fn cut_short(&mut self, refusal: RunError) -> Completed {
        let turn = self.completed(interrupted);
        Completed::failure(CODEX, refusal.reason, refusal.message)
            .answer(turn.answer)
            .usage(turn.usage)
            .resume(turn.resume)
    }

    /// The `Completed` of a turn whose server failed. The end of its stderr goes into a warning.
    pub(super) fn server_failure(&mut self, error: &ClientError) -> Completed {
        let refusal = refusal_of(error);
        self.events.extend(self.run.stderr_warning(&refusal));
        self.failure(refusal)
    }

    pub(super) fn failure(&mut self, refusal: RunError) -> Completed {
        self.completed(|| Completed::failure(CODEX, refusal.reason, refusal.message))
    }

    /// The `Completed` of the turn; `otherwise` if the turn did not come to an end.
    pub(super) fn completed(&mut self, otherwise: impl FnOnce() -> Completed) -> Completed {
        if !self.translator.is_over() {
            self.translator.finish(otherwise(), &mut self.events);
        }
        let is_end = |event: &mut TakopiEvent| matches!(event, TakopiEvent::Completed(_));
        match self.events.extract_if(.., is_end).next() {
            Some(TakopiEvent::Completed(completed)) => *completed,
            _ => interrupted(),
        }
    }
}

/// Interrupts a turn and reads it to its end.
pub(super) async fn interrupt_and_read(
    client: &Client,
    thread: &str,
    turn: &mut TurnStream,
    limit: Duration,
    mut handle: impl FnMut(&Notification),
) -> ServerHealth {
    let id = turn.id().to_owned();
    let (ended, mut end) = tokio::sync::oneshot::channel::<()>();
    // The server must have answered, so that the request cannot reach a later turn.
    let request = async {
        loop {
            match interrupt(client, thread, &id, limit).await {
                Ok(()) => return Ok(()),
                // The turn has just ended, or has not quite begun: its end shows which.
                Err(ClientError::Refused { .. }) => {
                    if timeout(INTERRUPT_AGAIN, &mut end).await.is_ok() {
                        return Ok(());
                    }
                }
                Err(error) => return Err(error),
            }
        }
    };
    // Read meanwhile: a server that waits for its reader does not read the request.
    let rest = async {
        loop {
            match turn.next().await {
                Ok(Some(TurnEvent::Notification(notification))) => handle(&notification),
                Ok(None) => break,
                Err(error @ ClientError::Closed { .. }) => return Err(error),
                // Requests are declined; the end comes even behind an overflow.
                Ok(Some(_)) | Err(_) => {}
            }
        }
        let _ = ended.send(());
        Ok(())
    };
    match timeout(limit, futures::future::try_join(request, rest)).await {
        Ok(Ok(_)) => ServerHealth::Interrupted,
        Ok(Err(_)) | Err(_) => ServerHealth::Broken,
    }
}

/// A server that lost its login is of no further use.
pub(super) fn health_after(completed: &Completed) -> ServerHealth {
    if completed.reason == Some(Reason::Auth) { ServerHealth::Broken } else { ServerHealth::Usable }
}
