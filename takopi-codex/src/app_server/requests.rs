//! Requests of the server to its client. Every request gets a response.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use takopi_core::peer::Wire;
use takopi_core::rpc::{Dialect, PeerRequest, RequestId};

use super::address::Address;
use super::message::address_of;

/// A request of the server. Dropped without an answer, it is declined.
#[derive(Debug)]
pub struct ServerRequest {
    request: PeerRequest,
    of_subagent: bool,
}

impl ServerRequest {
    pub(super) fn new(id: RequestId, method: String, params: Box<RawValue>, wire: Wire) -> Self {
        let request = PeerRequest::new(id, method, params, wire, Dialect::Bare, decline_of);
        Self { request, of_subagent: false }
    }

    /// Its id.
    pub fn id(&self) -> &RequestId {
        self.request.id()
    }

    /// What is asked.
    pub fn method(&self) -> &str {
        self.request.method()
    }

    /// Its parameters in a type of the caller's choice.
    pub fn parse<'a, T: Deserialize<'a>>(&'a self) -> Option<T> {
        self.request.parse()
    }

    /// Its particulars as JSON.
    pub(super) fn params(&self) -> &str {
        self.request.params().get()
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
        address_of(self.request.params())
    }

    /// Whether it shows that the turn has begun that it goes to. MCP servers ask at any time, and the turn of that is a
    /// guess; a sub-agent names a turn of its own.
    pub(super) fn names_turn(&self) -> bool {
        let guesses = self.method() == "mcpServer/elicitation/request";
        !guesses && !self.of_subagent && self.address().turn.known().is_some()
    }

    pub(super) fn weight(&self) -> usize {
        self.method().len() + self.params().len()
    }

    /// Why its parameters cannot be read as a whole, if they cannot: they may be nested too deep.
    pub(super) fn unreadable(&self) -> Option<String> {
        serde_json::from_str::<Value>(self.params()).err().map(|error| error.to_string())
    }

    /// Answers it.
    pub fn answer(self, result: impl Into<Value>) {
        self.request.answer(result);
    }

    /// Refuses it as unknown.
    pub fn refuse(self, code: i64, message: &str) {
        self.request.refuse(code, message);
    }

    /// Declines it, in the form that its kind of request takes.
    pub fn decline(self) {
        self.request.decline();
    }

    /// Leaves it: the server has settled it by itself.
    pub(super) fn forget(self) {
        self.request.forget();
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
