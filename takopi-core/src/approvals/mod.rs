//! Ready handlers for what an agent asks approval for.
//!
//! Without a handler everything is declined, visibly: `declined: no approval handler`. The others:
//!
//! - [`Fixed`]: always the same answer, [`deny`] or [`accept_all`];
//! - [`Rules`]: accepts what rules allow and passes the rest to another handler;
//! - [`from_fn`]: a closure or function;
//! - [`channel`]: asks through a channel, which is what a chat bridge or a terminal reads from;
//! - [`with_timeout`]: any handler, with a time limit.
//!
//! They compose. A bot that accepts calls of its own tool server and `cargo test`, and asks people
//! about everything else, for five minutes at most:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use takopi_core::approvals::{Rules, channel, with_timeout};
//! use takopi_core::{Decision, RunRequest};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let (people, mut questions) = channel(16);
//! let people = with_timeout(people, Duration::from_secs(300));
//! let rules = Rules::new().command("cargo test").mcp_server("tickets").otherwise(people);
//! let request = RunRequest::new("fix the build").approvals(Arc::new(rules));
//!
//! let bridge = async move {
//!     while let Some(question) = questions.recv().await {
//!         println!("{} in {}?", question.request.title(), question.request.cwd.display());
//!         question.answer(Decision::Accept);
//!     }
//! };
//! # drop((request, bridge));
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```

mod channel;
mod rules;

use std::time::Duration;

use futures::future::BoxFuture;

pub use channel::{ChannelHandler, PendingApproval, channel};
pub use rules::Rules;

use crate::runner::{ApprovalHandler, ApprovalRequest, Decision, Reply};

/// A handler that always gives the same answer.
#[derive(Debug, Clone)]
pub struct Fixed {
    reply: Reply,
}

/// Declines everything.
pub fn deny() -> Fixed {
    Fixed { reply: Reply::from(Decision::Decline).by("policy") }
}

/// Accepts everything, once each. Fields and questions get no answer.
pub fn accept_all() -> Fixed {
    Fixed { reply: Reply::from(Decision::Accept).by("policy") }
}

impl Fixed {
    /// Gives this as the reason, instead of `by policy`.
    #[must_use]
    pub fn because(self, why: impl Into<String>) -> Self {
        Self { reply: Reply::from(self.reply.decision).because(why) }
    }
}

impl ApprovalHandler for Fixed {
    fn decide(&self, _: ApprovalRequest) -> BoxFuture<'static, Decision> {
        Box::pin(std::future::ready(self.reply.decision))
    }

    fn reply(&self, _: ApprovalRequest) -> BoxFuture<'static, Reply> {
        Box::pin(std::future::ready(self.reply.clone()))
    }
}

/// A closure as a handler. Made by [`from_fn`].
#[derive(Debug, Clone)]
pub struct FromFn<F> {
    function: F,
}

/// A closure or function as a handler. It returns a [`Decision`] or a [`Reply`]. A request that is not
/// [understood](ApprovalRequest::is_understood) may grant more than its question shows.
///
/// ```
/// use takopi_core::approvals::from_fn;
/// use takopi_core::runner::Question;
/// use takopi_core::{ApprovalRequest, Decision};
///
/// let handler = from_fn(async |request: ApprovalRequest| match request.question {
///     Question::ToolCall(_) if request.is_understood() => Decision::Accept,
///     _ => Decision::Decline,
/// });
/// # drop(handler);
/// ```
pub fn from_fn<F, Fut, R>(function: F) -> FromFn<F>
where
    F: Fn(ApprovalRequest) -> Fut + Send + Sync,
    Fut: Future<Output = R> + Send + 'static,
    R: Into<Reply>,
{
    FromFn { function }
}

impl<F, Fut, R> ApprovalHandler for FromFn<F>
where
    F: Fn(ApprovalRequest) -> Fut + Send + Sync,
    Fut: Future<Output = R> + Send + 'static,
    R: Into<Reply>,
{
    fn decide(&self, request: ApprovalRequest) -> BoxFuture<'static, Decision> {
        decision_of(self.reply(request))
    }

    fn reply(&self, request: ApprovalRequest) -> BoxFuture<'static, Reply> {
        let decision = (self.function)(request);
        Box::pin(async move { decision.await.into() })
    }
}

/// A handler with a time limit. Made by [`with_timeout`].
#[derive(Debug, Clone)]
pub struct WithTimeout<H> {
    handler: H,
    limit: Duration,
}

/// Asks this handler, and declines what it has not decided within the limit.
pub fn with_timeout<H: ApprovalHandler>(handler: H, limit: Duration) -> WithTimeout<H> {
    WithTimeout { handler, limit }
}

impl<H: ApprovalHandler> ApprovalHandler for WithTimeout<H> {
    fn decide(&self, request: ApprovalRequest) -> BoxFuture<'static, Decision> {
        decision_of(self.reply(request))
    }

    fn reply(&self, request: ApprovalRequest) -> BoxFuture<'static, Reply> {
        let (reply, limit) = (self.handler.reply(request), self.limit);
        Box::pin(async move {
            tokio::time::timeout(limit, reply).await.unwrap_or_else(|_| {
                Reply::from(Decision::Decline).because(format!("no answer within {limit:?}"))
            })
        })
    }
}

/// The decision alone.
fn decision_of(reply: BoxFuture<'static, Reply>) -> BoxFuture<'static, Decision> {
    Box::pin(async move { reply.await.decision })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::Question;

    fn request() -> ApprovalRequest {
        ApprovalRequest::new("lab".into(), Question::command("ls"), "/".into())
    }

    #[tokio::test]
    async fn fixed_answers_give_their_reason() {
        let reply = deny().reply(request()).await;
        assert_eq!(reply.to_string(), "declined by policy");
        let reply = deny().because("--approve deny").reply(request()).await;
        assert_eq!(reply.to_string(), "declined: --approve deny");
        let accepted = accept_all().reply(request()).await;
        assert_eq!(accepted.decision, Decision::Accept);
        assert_eq!(accepted.to_string(), "accepted by policy");
    }

    #[tokio::test]
    async fn closures_and_functions_are_handlers() {
        let by_name = |request: ApprovalRequest| async move {
            Reply::from(Decision::Accept).by(request.title())
        };
        assert_eq!(from_fn(by_name).reply(request()).await.to_string(), "accepted by ls");
        let limited = with_timeout(from_fn(async |_| Decision::Cancel), Duration::from_secs(1));
        assert_eq!(limited.decide(request()).await, Decision::Cancel);
    }

    #[tokio::test(start_paused = true)]
    async fn a_handler_that_is_late_declines_and_gives_the_reason() {
        let (ask, _questions) = channel(1);
        let patient = with_timeout(ask, Duration::from_secs(30));
        let said = patient.reply(request()).await;
        assert_eq!(said.to_string(), "declined: no answer within 30s");
    }
}
