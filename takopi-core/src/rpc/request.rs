//! Requests of the other side. Every request gets a response.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{Dialect, METHOD_NOT_FOUND, RequestId};
use crate::peer::Wire;

/// A request of the other side. Dropped without an answer, it is declined.
#[derive(Debug)]
pub struct PeerRequest {
    id: RequestId,
    method: String,
    params: Box<RawValue>,
    /// `None` once it is answered.
    wire: Option<Wire>,
    dialect: Dialect,
    declines: fn(&str) -> Option<Value>,
}

#[derive(Serialize)]
struct Answer<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    jsonrpc: Option<&'static str>,
    id: &'a RequestId,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a Value>,
}

impl PeerRequest {
    /// A request as it came. `declines` has the result that declines a request of a method; one without is
    /// declined with [`METHOD_NOT_FOUND`].
    pub fn new(
        id: RequestId,
        method: String,
        params: Box<RawValue>,
        wire: Wire,
        dialect: Dialect,
        declines: fn(&str) -> Option<Value>,
    ) -> Self {
        Self { id, method, params, wire: Some(wire), dialect, declines }
    }

    /// Its id.
    pub fn id(&self) -> &RequestId {
        &self.id
    }

    /// What is asked.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Its parameters.
    pub fn params(&self) -> &RawValue {
        &self.params
    }

    /// Its parameters in a type of the caller's choice.
    pub fn parse<'a, T: Deserialize<'a>>(&'a self) -> Option<T> {
        serde_json::from_str(self.params.get()).ok()
    }

    /// Answers it.
    pub fn answer(mut self, result: impl Into<Value>) {
        self.respond(Some(&result.into()), None);
    }

    /// Refuses it.
    pub fn refuse(mut self, code: i64, message: &str) {
        self.respond(None, Some(&json!({ "code": code, "message": message })));
    }

    /// Declines it, in the form that its kind of request takes.
    pub fn decline(mut self) {
        self.respond_no();
    }

    /// Leaves it: the other side no longer waits for an answer.
    pub fn forget(mut self) {
        self.wire = None;
    }

    fn respond_no(&mut self) {
        if let Some(result) = (self.declines)(&self.method) {
            return self.respond(Some(&result), None);
        }
        let message = format!("{} is not supported", self.method);
        self.respond(None, Some(&json!({ "code": METHOD_NOT_FOUND, "message": message })));
    }

    fn respond(&mut self, result: Option<&Value>, error: Option<&Value>) {
        if let Some(wire) = self.wire.take() {
            let jsonrpc = self.dialect.version();
            wire.send_soon(&Answer { jsonrpc, id: &self.id, result, error });
        }
    }
}

impl Drop for PeerRequest {
    fn drop(&mut self) {
        self.respond_no();
    }
}
