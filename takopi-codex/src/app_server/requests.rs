//! What the server asks of its client. Every request gets an answer.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::message::{Address, RequestId};
use super::wire::Wire;

/// A request of the server. Dropped without an answer, it is declined.
#[derive(Debug)]
pub struct ServerRequest {
    id: RequestId,
    method: String,
    params: Box<RawValue>,
    wire: Option<Wire>,
}

impl ServerRequest {
    pub(super) fn new(id: RequestId, method: String, params: Box<RawValue>, wire: Wire) -> Self {
        Self { id, method, params, wire: Some(wire) }
    }

    /// Its id.
    pub fn id(&self) -> &RequestId {
        &self.id
    }

    /// What is asked.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Its particulars in a type of the caller's choice.
    pub fn parse<'a, T: Deserialize<'a>>(&'a self) -> Option<T> {
        serde_json::from_str(self.params.get()).ok()
    }

    /// The thread it concerns.
    pub fn thread(&self) -> Option<Cow<'_, str>> {
        Address::of(&self.params).into_thread()
    }

    /// Answers it.
    pub fn answer(mut self, result: impl Into<Value>) {
        let result = result.into();
        self.send(json!({ "id": self.id, "result": result }));
    }

    /// Refuses it as unknown.
    pub fn refuse(mut self, code: i64, message: &str) {
        self.send(json!({ "id": self.id, "error": { "code": code, "message": message } }));
    }

    /// Says no, in the way that its kind wants it said.
    pub fn decline(mut self) {
        self.send_decline();
    }

    /// Leaves it: the server has settled it by itself.
    pub(super) fn forget(mut self) {
        self.wire = None;
    }

    fn send_decline(&mut self) {
        let message = match decline_of(&self.method) {
            Some(result) => json!({ "id": self.id, "result": result }),
            None => json!({
                "id": self.id,
                "error": { "code": -32601, "message": format!("{} is not supported", self.method) },
            }),
        };
        self.send(message);
    }

    fn send(&mut self, message: Value) {
        if let Some(wire) = self.wire.take() {
            wire.send_soon(message);
        }
    }
}

impl Drop for ServerRequest {
    fn drop(&mut self) {
        if self.wire.is_some() {
            self.send_decline();
        }
    }
}

/// The refusal of each kind of request; `None` for kinds nobody here knows.
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
