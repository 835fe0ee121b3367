//! Requests of the server to its client. Every request gets a response.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::address::Address;
use super::message::{RequestId, address_of};
use takopi_core::peer::Wire;

/// A request of the server. Dropped without an answer, it is declined.
#[derive(Debug)]
pub struct ServerRequest {
    id: RequestId,
    method: String,
    params: Box<RawValue>,
    wire: Option<Wire>,
    of_subagent: bool,
}

#[derive(Serialize)]
struct Response<'a> {
    id: &'a RequestId,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a Value>,
}

impl ServerRequest {
    pub(super) fn new(id: RequestId, method: String, params: Box<RawValue>, wire: Wire) -> Self {
        Self { id, method, params, wire: Some(wire), of_subagent: false }
    }

    /// Its id.
    pub fn id(&self) -> &RequestId {
        &self.id
    }

    /// What is asked.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Its parameters in a type of the caller's choice.
    pub fn parse<'a, T: Deserialize<'a>>(&'a self) -> Option<T> {
        serde_json::from_str(self.params.get()).ok()
    }

    /// Its particulars as JSON.
    pub(super) fn params(&self) -> &str {
        self.params.get()
    }

    /// The thread it concerns.
    pub fn thread(&self) -> Option<Cow<'_, str>> {
        self.address().thread.into_known()
    }

    /// The thread of the sub-agent that asks, if it is not the agent of the turn itself.
    pub fn subagent(&self) -> Option<Cow<'_, str>> {
        self.thread().filter(|_| self.of_subagent)
    }

    pub(super) fn mark_subagent(&mut self) {
        self.of_subagent = true;
    }

    pub(super) fn address(&self) -> Address<'_> {
        address_of(&self.params)
    }

    pub(super) fn weight(&self) -> usize {
        self.method.len() + self.params.get().len()
    }

    /// Why its parameters cannot be read as a whole, if they cannot: they may be nested too deep.
    pub(super) fn unreadable(&self) -> Option<String> {
        serde_json::from_str::<Value>(self.params.get()).err().map(|error| error.to_string())
    }

    /// Answers it.
    pub fn answer(mut self, result: impl Into<Value>) {
        self.respond(Some(&result.into()), None);
    }

    /// Refuses it as unknown.
    pub fn refuse(mut self, code: i64, message: &str) {
        self.respond(None, Some(&json!({ "code": code, "message": message })));
    }

    /// Declines it, in the form that its kind of request takes.
    pub fn decline(mut self) {
        self.respond_no();
    }

    /// Leaves it: the server has settled it by itself.
    pub(super) fn forget(mut self) {
        self.wire = None;
    }

    fn respond_no(&mut self) {
        if let Some(result) = decline_of(&self.method) {
            return self.respond(Some(&result), None);
        }
        let message = format!("{} is not supported", self.method);
        self.respond(None, Some(&json!({ "code": -32601, "message": message })));
    }

    fn respond(&mut self, result: Option<&Value>, error: Option<&Value>) {
        if let Some(wire) = self.wire.take() {
            wire.send_soon(&Response { id: &self.id, result, error });
        }
    }
}

impl Drop for ServerRequest {
    fn drop(&mut self) {
        self.respond_no();
    }
}

/// The refusal of each kind of request; `None` for unknown kinds.
fn decline_of(method: &str) -> Option<Value> {
    Some(match method {
        "item/commandExecution/requestApproval" | "item/fileChange/requestApproval" => {
            json!({ "decision": "decline" })
        }
        "item/permissions/requestApproval" => json!({ "permissions": {} }),
        "mcpServer/elicitation/request" => json!({ "action": "decline" }),
        "item/tool/requestUserInput" => json!({ "answers": {} }),
        "item/tool/call" => json!({
            "success": false,
            "contentItems": [{ "type": "inputText", "text": "this tool is not available" }],
        }),
        // The names of these before version 2 of the protocol.
        "execCommandApproval" | "applyPatchApproval" => json!({ "decision": "denied" }),
        _ => return None,
    })
}
