//! The desk of a turn: what the agent asks of its client, while it is open.
//!
//! An engine reads a request of its agent, and puts it here with a ticket of its own: what it needs to
//! answer. Promises:
//! - every approval request is an action: waiting, then decided by a handler, declined because there
//!   was none, or withdrawn;
//! - every ticket comes back once: with an outcome, or withdrawn because the agent took the request
//!   back, or because the turn is over; then the future of the handler or the tool is dropped;
//! - a handler that panics is a no, not the end of the run.

use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use futures::future::{AbortHandle, BoxFuture, abortable};
use futures::stream::{FuturesUnordered, StreamExt};

use super::{ApprovalRequest, Decision, EngineRun, Reply, StoppedError};
use crate::model::TakopiEvent;
use crate::tools::ToolOutput;

/// The open requests of one turn.
pub struct Desk<T> {
    run: EngineRun,
    open: Vec<Open<T>>,
    work: FuturesUnordered<BoxFuture<'static, (u64, Option<Work>)>>,
    next: u64,
}

/// A request that is being dealt with.
struct Open<T> {
    number: u64,
    ticket: T,
    /// What is asked, with the id of its action; nothing for the call of a tool.
    asked: Option<(String, Box<ApprovalRequest>)>,
    work: AbortHandle,
}

enum Work {
    Decided(Result<Option<Reply>, StoppedError>),
    Called(Result<ToolOutput, String>),
}

/// What came of a request.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// An approval request was decided; declined if there was no handler.
    Decided(Reply),
    /// A tool of the host returned, or failed with a text for the model.
    Called(Result<ToolOutput, String>),
}

/// A request that is settled, for [`Desk::settle`].
pub struct Settled {
    number: u64,
    /// Nothing if the request was withdrawn.
    work: Option<Work>,
}

impl<T> Desk<T> {
    /// The desk of a run.
    pub fn new(run: EngineRun) -> Self {
        Self { run, open: Vec::new(), work: FuturesUnordered::new(), next: 0 }
    }

    /// Whether a handler is being asked, or a tool is running.
    pub fn is_busy(&self) -> bool {
        !self.open.is_empty()
    }

    /// Passes an approval request to the run's handler.
    pub fn ask(&mut self, ticket: T, request: ApprovalRequest, events: &mut Vec<TakopiEvent>) {
        let id = format!("{}.approval_{}", self.run.engine(), self.next);
        events.push(request.waiting(&id).into());
        let (run, question) = (self.run.clone(), request.clone());
        let work = async move {
            let decided = AssertUnwindSafe(run.request_approval(question)).catch_unwind().await;
            Work::Decided(decided.unwrap_or_else(|_| {
                let reply = Reply::from(Decision::Decline);
                Ok(Some(reply.because("the approval handler panicked")))
            }))
        };
        self.begin(ticket, Some((id, Box::new(request))), work);
    }

    /// Runs the call of a tool.
    pub fn call(
        &mut self,
        ticket: T,
        call: impl Future<Output = Result<ToolOutput, String>> + Send + 'static,
    ) {
        self.begin(ticket, None, call.map(Work::Called));
    }

    fn begin(
        &mut self,
        ticket: T,
        asked: Option<(String, Box<ApprovalRequest>)>,
        work: impl Future<Output = Work> + Send + 'static,
    ) {
        let number = self.next;
        self.next += 1;
        let (work, handle) = abortable(work);
        self.open.push(Open { number, ticket, asked, work: handle });
        self.work.push(work.map(move |work| (number, work.ok())).boxed());
    }

    /// The next request that is settled. Never resolves while no request is open. Cancel-safe.
    pub async fn settled(&mut self) -> Settled {
        match self.work.next().await {
            Some((number, work)) => Settled { number, work },
            None => std::future::pending().await,
        }
    }

    /// Takes a settled request off the desk: its ticket and what came of it. `None` if it was withdrawn
    /// meanwhile.
    pub fn settle(
        &mut self,
        settled: Settled,
        events: &mut Vec<TakopiEvent>,
    ) -> Result<Option<(T, Outcome)>, StoppedError> {
        let place = self.open.iter().position(|open| open.number == settled.number);
        let (Some(place), Some(work)) = (place, settled.work) else { return Ok(None) };
        let Open { ticket, asked, .. } = self.open.remove(place);
        let outcome = match work {
            Work::Called(result) => Outcome::Called(result),
            Work::Decided(reply) => {
                let reply = reply?;
                if let Some((id, request)) = asked {
                    events.push(request.decided(&id, reply.as_ref()).into());
                }
                Outcome::Decided(reply.unwrap_or_else(|| Decision::Decline.into()))
            }
        };
        Ok(Some((ticket, outcome)))
    }

    /// The agent has taken back a request: closes it, and returns its ticket.
    pub fn withdraw(
        &mut self,
        is_it: impl Fn(&T) -> bool,
        events: &mut Vec<TakopiEvent>,
    ) -> Option<T> {
        let place = self.open.iter().position(|open| is_it(&open.ticket))?;
        Some(close(self.open.remove(place), events))
    }

    /// The turn is over: closes what is still open, and returns the tickets.
    pub fn close(&mut self, events: &mut Vec<TakopiEvent>) -> Vec<T> {
        self.work.clear();
        self.open.drain(..).map(|open| close(open, events)).collect()
    }
}

fn close<T>(open: Open<T>, events: &mut Vec<TakopiEvent>) -> T {
    open.work.abort();
    events.extend(open.asked.map(|(id, request)| request.withdrawn(&id).into()));
    open.ticket
}
