//! What codex asks of its client in a turn: approvals, answers, calls of the host's tools.
//!
//! - A request is read strictly into a typed question with all that a yes would grant: the command and
//!   its extra permissions, the patch as it was in the item's start, the server and its form. What is
//!   not understood is marked as such and never dropped. The directory is never empty.
//! - Every request is an action: waiting, then decided by a handler, declined because there was none,
//!   or withdrawn.
//! - Every request is answered once. One that codex takes back, or that the end of the turn
//!   overtakes, is closed, and the handler's future is dropped.
//! - A handler or a tool that panics is a no, not the end of the run.

mod asked;
mod fields;
mod forms;
mod patches;
mod permissions;
mod read;

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::{AbortHandle, BoxFuture, abortable};
use futures::stream::{FuturesUnordered, StreamExt};
use serde_json::Value;
use takopi_core::Decision;
use takopi_core::model::TakopiEvent;
use takopi_core::runner::{EngineRun, Reply, StoppedError};

use self::asked::{Asked, Method};
use self::patches::Patches;
use super::notification::{Kind, Notification};
use super::requests::ServerRequest;
use super::tools::Tools;

/// Where the questions of one turn are dealt with.
pub(super) struct RequestHandler {
    run: EngineRun,
    tools: Arc<Tools>,
    directory: PathBuf,
    patches: Patches,
    open: Vec<Open>,
    work: FuturesUnordered<BoxFuture<'static, (u64, Option<Outcome>)>>,
    next: u64,
}

/// A request that is being dealt with.
struct Open {
    number: u64,
    request: ServerRequest,
    /// What is asked, unless it is the call of a tool.
    asked: Option<Asked>,
    work: AbortHandle,
}

enum Outcome {
    Decided(Result<Option<Reply>, StoppedError>),
    Tool(Value),
}

/// What came of a request.
pub(super) struct Settled {
    number: u64,
    /// Nothing if the request was withdrawn.
    outcome: Option<Outcome>,
}

/// Whether the turn must be ended for what was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    GoOn,
    EndTurn,
}

impl RequestHandler {
    /// The desk of a turn that works in a directory.
    pub(super) fn new(run: EngineRun, tools: Arc<Tools>, directory: PathBuf) -> Self {
        Self {
            run,
            tools,
            directory,
            patches: Patches::default(),
            open: Vec::new(),
            work: FuturesUnordered::new(),
            next: 0,
        }
    }

    /// Whether a handler is being asked, or a host tool is running.
    pub(super) fn is_busy(&self) -> bool {
        !self.open.is_empty()
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
                self.patches.record(notification);
            }
            Kind::RequestResolved(id) => {
                let place = self.open.iter().position(|open| open.request.id() == id);
                if let Some(place) = place {
                    withdraw(self.open.remove(place), events);
                }
            }
            _ => {}
        }
    }

    /// Takes up a request.
    pub(super) fn take(&mut self, request: ServerRequest, events: &mut Vec<TakopiEvent>) {
        if request.method() == "item/tool/call" {
            let call = self.tools.call(&request);
            if let Err(missing) = &call {
                events.push(self.run.warning(missing.clone()));
            }
            let answer = async move {
                match call {
                    Ok(call) => Outcome::Tool(call.await),
                    Err(missing) => Outcome::Tool(super::tools::failure(&missing)),
                }
            };
            return self.begin(request, None, answer);
        }
        let id = format!("codex.approval_{}", self.next);
        let Some(asked) = Asked::read(id, &request, &self.patches, &self.directory) else {
            let what =
                format!("declined: this version of takopi does not know `{}`", request.method());
            events.push(self.run.warning(what));
            return request.decline();
        };
        events.push(asked.waiting().into());
        let (run, question) = (self.run.clone(), asked.request.clone());
        let decision = async move {
            let decided = AssertUnwindSafe(run.request_approval(question)).catch_unwind().await;
            Outcome::Decided(decided.unwrap_or_else(|_| {
                let reply = Reply::from(Decision::Decline);
                Ok(Some(reply.because("the approval handler panicked")))
            }))
        };
        self.begin(request, Some(asked), decision);
    }

    fn begin(
        &mut self,
        request: ServerRequest,
        asked: Option<Asked>,
        work: impl Future<Output = Outcome> + Send + 'static,
    ) {
        let number = self.next;
        self.next += 1;
        let (work, handle) = abortable(work);
        self.open.push(Open { number, request, asked, work: handle });
        self.work.push(work.map(move |outcome| (number, outcome.ok())).boxed());
    }

    /// The next request that is settled. Never resolves while no request is open.
    pub(super) async fn settled(&mut self) -> Settled {
        match self.work.next().await {
            Some((number, outcome)) => Settled { number, outcome },
            None => std::future::pending().await,
        }
    }

    /// Answers a request that is settled.
    pub(super) fn settle(
        &mut self,
        settled: Settled,
        events: &mut Vec<TakopiEvent>,
    ) -> Result<Next, StoppedError> {
        let place = self.open.iter().position(|open| open.number == settled.number);
        let (Some(place), Some(outcome)) = (place, settled.outcome) else { return Ok(Next::GoOn) };
        let Open { request, asked, .. } = self.open.remove(place);
        match (outcome, asked) {
            (Outcome::Decided(reply), Some(asked)) => {
                let reply = reply?;
                events.push(asked.decided(reply.as_ref()).into());
                let reply = reply.unwrap_or_else(|| Decision::Decline.into());
                request.answer(asked.response(&reply));
                Ok(if asked.ends_turn(&reply) { Next::EndTurn } else { Next::GoOn })
            }
            (Outcome::Tool(result), _) => {
                request.answer(result);
                Ok(Next::GoOn)
            }
            (Outcome::Decided(_), None) => Ok(Next::GoOn),
        }
    }

    /// The turn is over: closes what is still open.
    pub(super) fn close(&mut self, events: &mut Vec<TakopiEvent>) {
        for open in self.open.drain(..) {
            withdraw(open, events);
        }
        self.work.clear();
    }
}

/// Closes a request that codex does not wait for any more.
fn withdraw(open: Open, events: &mut Vec<TakopiEvent>) {
    open.work.abort();
    events.extend(open.asked.map(|asked| asked.withdrawn().into()));
    open.request.forget();
}
