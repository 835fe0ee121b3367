//! Ready handlers for what an agent asks leave for.
//!
//! Without a handler everything is declined, visibly: `declined: nobody could be asked`. The others:
//!
//! - [`Fixed`]: always the same answer, [`deny`] or [`accept_all`];
//! - [`Rules`]: accepts what rules allow, and leaves the rest to somebody else;
//! - [`channel`]: asks through a channel, which is what a chat bridge or a terminal reads from;
//! - [`with_timeout`]: any handler, for so long.
//!
//! They compose. A bot that lets its own tool server and `cargo test` pass, and asks its people for
//! everything else, for five minutes at most:
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
//!         println!("{} in {}?", question.request.title, question.request.cwd.display());
//!         question.answer(Decision::Accept);
//!     }
//! };
//! # drop((request, bridge));
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```

mod channel;
mod rules;
mod words;

use std::time::Duration;

use futures::future::BoxFuture;

pub use channel::{Ask, Pending, channel};
pub use rules::Rules;

use crate::runner::{ApprovalHandler, ApprovalRequest, Decision, Reply};

/// A handler that always says the same.
#[derive(Debug, Clone)]
pub struct Fixed {
    reply: Reply,
}

/// Says no to everything.
pub fn deny() -> Fixed {
    Fixed { reply: Reply::from(Decision::Decline).because("everything is declined here") }
}

/// Says yes to everything, once each. Questions that want something filled in get nothing filled in.
pub fn accept_all() -> Fixed {
    Fixed { reply: Reply::from(Decision::Accept).because("everything is accepted here") }
}

impl ApprovalHandler for Fixed {
    fn decide(&self, _: ApprovalRequest) -> BoxFuture<'static, Decision> {
        Box::pin(std::future::ready(self.reply.decision))
    }

    fn reply(&self, _: ApprovalRequest) -> BoxFuture<'static, Reply> {
        Box::pin(std::future::ready(self.reply.clone()))
    }
}

/// A handler that is asked for so long. Made by [`with_timeout`].
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
                Reply::from(Decision::Decline).because(format!("nobody answered within {limit:?}"))
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
    use crate::runner::ApprovalKind;

    fn request() -> ApprovalRequest {
        ApprovalRequest::new("lab".into(), ApprovalKind::Command, "ls", "/".into())
    }

    #[tokio::test]
    async fn fixed_answers_say_that_they_are_fixed() {
        let denied = deny().reply(request()).await;
        assert_eq!(denied.decision, Decision::Decline);
        assert_eq!(denied.to_string(), "declined: everything is declined here");
        let accepted = accept_all().reply(request()).await;
        assert_eq!(accepted.decision, Decision::Accept);
        assert_eq!(accepted.to_string(), "accepted: everything is accepted here");
        for (handler, reply) in [(deny(), denied), (accept_all(), accepted)] {
            assert_eq!(handler.decide(request()).await, reply.decision);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_handler_that_is_late_declines_and_says_so() {
        let (ask, _questions) = channel(1);
        let patient = with_timeout(ask, Duration::from_secs(30));
        let said = patient.reply(request()).await;
        assert_eq!(said.to_string(), "declined: nobody answered within 30s");
    }
}
