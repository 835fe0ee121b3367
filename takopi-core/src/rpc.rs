//! JSON-RPC with a process, both ways, one object a line.
//!
//! What every client of such a process needs and no protocol differs in: the envelope, ids, errors, our requests that wait
//! for a response ([`Caller`]), and the requests of the other side ([`PeerRequest`]). Methods and routing are the
//! engine's business.
//!
//! Promises:
//! - the envelope is read tolerantly: of a member that stands twice the first counts, and an odd member reads as absent;
//! - an id goes back exactly as its sender wrote it;
//! - a request of ours ends within its limit, also if the process is gone;
//! - a request of the other side that is dropped without an answer is declined: none is left unanswered.

mod message;
mod request;

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use crate::peer::Wire;

pub use message::{ErrorBody, Incoming, MessageHead, RequestId, read_line};
pub use request::PeerRequest;

/// The error code for a method that the receiver does not have.
pub const METHOD_NOT_FOUND: i64 = -32601;

/// How messages are marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// Without a `jsonrpc` member, as codex has it.
    Bare,
    /// With `"jsonrpc":"2.0"`.
    Versioned,
}

impl Dialect {
    fn version(self) -> Option<&'static str> {
        (self == Self::Versioned).then_some("2.0")
    }
}

/// A response to a request of ours.
pub type Response = Result<Box<RawValue>, ResponseError>;

/// Why there is no result.
#[derive(Debug)]
#[non_exhaustive]
pub enum ResponseError {
    /// The other side refused.
    Refused(ErrorBody),
    /// The response was too long to be read.
    TooLong,
}

/// A request of ours failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum CallError {
    /// The process is gone, or reads no more.
    Gone,
    /// There was no response in time.
    Timeout(Duration),
    /// There was a response, and it was no result.
    Response(ResponseError),
}

/// Sends requests and notifications.
#[derive(Debug)]
pub struct Caller {
    wire: Wire,
    dialect: Dialect,
    next_id: AtomicI64,
}

#[derive(Serialize)]
struct Outgoing<'a, P> {
    #[serde(skip_serializing_if = "Option::is_none")]
    jsonrpc: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<i64>,
    method: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<&'a P>,
}

impl Caller {
    /// A caller over this sender.
    pub fn new(wire: Wire, dialect: Dialect) -> Self {
        Self { wire, dialect, next_id: AtomicI64::new(1) }
    }

    /// The sender.
    pub fn wire(&self) -> &Wire {
        &self.wire
    }

    /// An id for the next request, to register its response with.
    pub fn next_id(&self) -> i64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a request under an id of [`Caller::next_id`]; `false` if the process no longer reads.
    pub async fn send(&self, id: i64, method: &str, params: &impl Serialize) -> bool {
        let (jsonrpc, params) = (self.dialect.version(), Some(params));
        self.wire.send(&Outgoing { jsonrpc, id: Some(id), method, params }).await
    }

    /// Sends a request and waits for the response that was registered for its id.
    pub async fn call(
        &self,
        id: i64,
        method: &str,
        params: &impl Serialize,
        response: oneshot::Receiver<Response>,
        limit: Duration,
    ) -> Result<Box<RawValue>, CallError> {
        let exchange = async {
            if !self.send(id, method, params).await {
                return Err(CallError::Gone);
            }
            response.await.map_err(|_| CallError::Gone)?.map_err(CallError::Response)
        };
        tokio::time::timeout(limit, exchange).await.map_err(|_| CallError::Timeout(limit))?
    }

    /// Sends a notification; `false` if the process no longer reads.
    pub async fn notify(&self, method: &str, params: Option<&impl Serialize>) -> bool {
        let jsonrpc = self.dialect.version();
        self.wire.send(&Outgoing { jsonrpc, id: None, method, params }).await
    }
}
