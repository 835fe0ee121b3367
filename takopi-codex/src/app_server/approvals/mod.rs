//! What codex asks of its client in a turn: approvals, answers, calls of the host's tools.
//!
//! - A request is read strictly into a typed question with all that a yes would grant: the command and
//!   its extra permissions, the patch as it was in the item's start, the server and its form. What is
//!   not understood is marked as such and never dropped. The directory is never empty.
//! - Every request is an action: waiting, then decided by a handler, declined because there was none,
//!   or withdrawn.
//! - Every request is answered once. One that codex takes back, or that the end of the turn
//!   overtakes, is closed, and the handler's future is dropped. A sub-agent goes on behind the end of the
//!   turn: its open requests are declined.
//! - A handler or a tool that panics is a no, not the end of the run.

mod asked;
mod fields;
mod forms;
mod patches;
mod permissions;
mod read;

use std::path::PathBuf;
use std::sync::Arc;

use takopi_core::model::TakopiEvent;
use takopi_core::runner::{Desk, EngineRun, Outcome, Settled, StoppedError};
use takopi_core::tools::HostTools;

use self::asked::{Asked, Method};
use self::patches::Patches;
use super::notification::{Kind, Notification};
use super::requests::ServerRequest;
use super::tools::{CallAsked, response};

/// Where the requests of one turn are dealt with.
pub(super) struct RequestHandler {
    run: EngineRun,
    tools: Arc<HostTools>,
    /// The thread of the turn: what names none is the turn's own.
    thread: String,
    directory: PathBuf,
    patches: Patches,
    desk: Desk<Ticket>,
}

/// What is needed to answer a request.
struct Ticket {
    request: ServerRequest,
    /// What is asked, unless it is the call of a tool.
    asked: Option<Asked>,
}

/// Whether the turn must be ended for what was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    GoOn,
    EndTurn,
}

impl RequestHandler {
    /// The desk of a turn on a thread, that works in a directory.
    pub(super) fn new(
        run: EngineRun,
        tools: Arc<HostTools>,
        thread: &str,
        directory: PathBuf,
    ) -> Self {
        let (desk, thread) = (Desk::new(run.clone()), thread.to_owned());
        Self { run, tools, thread, directory, patches: Patches::default(), desk }
    }

    /// Whether a handler is being asked, or a host tool is running.
    pub(super) fn is_busy(&self) -> bool {
        self.desk.is_busy()
    }

    /// Records patches, and requests that codex settled by itself.
    pub(super) fn notification(
        &mut self,
        notification: &Notification,
        kind: &Kind<'_>,
        events: &mut Vec<TakopiEvent>,
    ) {
        match kind {
            Kind::ItemStarted(item) | Kind::ItemCompleted(item) if item.is_patch() => {
                let thread = notification.thread().unwrap_or(&self.thread);
                self.patches.record(thread, notification);
            }
            Kind::RequestResolved(id) => {
                let is_it = |ticket: &Ticket| ticket.request.id() == id;
                if let Some(ticket) = self.desk.withdraw(is_it, events) {
                    ticket.request.forget();
                }
            }
            _ => {}
        }
    }

    /// Takes up a request.
    pub(super) fn take(&mut self, request: ServerRequest, events: &mut Vec<TakopiEvent>) {
        if request.method() == "item/tool/call" {
            let asked: CallAsked = request.parse().unwrap_or_default();
            let tool = asked.tool.clone();
            return match self.tools.call(&tool, asked.into_call()) {
                Ok(call) => self.desk.call(Ticket { request, asked: None }, call),
                Err(missing) => {
                    events.push(self.run.warning(missing.clone()));
                    request.answer(response(Err(missing)));
                }
            };
        }
        let asked = Asked::read(&request, &self.thread, &self.patches, &self.directory);
        let Some(asked) = asked else {
            let what =
                format!("declined: this version of takopi does not know `{}`", request.method());
            events.push(self.run.warning(what));
            return request.decline();
        };
        let question = asked.request.clone();
        self.desk.ask(Ticket { request, asked: Some(asked) }, question, events);
    }

    /// The next request that is settled. Never resolves while no request is open.
    pub(super) async fn settled(&mut self) -> Settled {
        self.desk.settled().await
    }

    /// Answers a request that is settled.
    pub(super) fn settle(
        &mut self,
        settled: Settled,
        events: &mut Vec<TakopiEvent>,
    ) -> Result<Next, StoppedError> {
        match self.desk.settle(settled, events)? {
            Some((Ticket { request, asked: Some(asked) }, Outcome::Decided(reply))) => {
                request.answer(asked.response(&reply));
                Ok(if asked.ends_turn(&reply) { Next::EndTurn } else { Next::GoOn })
            }
            Some((Ticket { request, .. }, Outcome::Called(result))) => {
                request.answer(response(result));
                Ok(Next::GoOn)
            }
            Some(_) | None => Ok(Next::GoOn),
        }
    }

    /// The turn is over: closes what is still open. codex settles the requests of that turn alone: a
    /// sub-agent would wait for its response for ever.
    pub(super) fn close(&mut self, events: &mut Vec<TakopiEvent>) {
        for Ticket { request, .. } in self.desk.close(events) {
            if request.subagent().is_some() {
                request.decline();
            } else {
                request.forget();
            }
        }
    }
}
