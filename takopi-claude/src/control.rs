//! Requests of the process to its host. Every request gets a response.

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use takopi_core::peer::Wire;
use takopi_core::rpc::RequestId;

/// A request. Dropped without an answer, it is declined.
#[derive(Debug)]
pub(crate) struct ControlRequest {
    id: String,
    subtype: String,
    request: Box<RawValue>,
    /// `None` once it is answered.
    wire: Option<Wire>,
}

impl ControlRequest {
    pub(crate) fn new(id: String, subtype: String, request: Box<RawValue>, wire: Wire) -> Self {
        Self { id, subtype, request, wire: Some(wire) }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn subtype(&self) -> &str {
        &self.subtype
    }

    /// The request as JSON.
    pub(crate) fn json(&self) -> &str {
        self.request.get()
    }

    /// The request as JSON; `Null` if it cannot be read.
    pub(crate) fn value(&self) -> Value {
        serde_json::from_str(self.request.get()).unwrap_or_default()
    }

    /// Answers it.
    pub(crate) fn answer(mut self, response: &Value) {
        self.respond(&json!({
            "subtype": "success",
            "request_id": self.id,
            "response": response,
        }));
    }

    /// Refuses it.
    pub(crate) fn refuse(mut self, error: &str) {
        self.respond_error(error);
    }

    /// Leaves it: the process no longer waits for a response.
    pub(crate) fn forget(mut self) {
        self.wire = None;
    }

    fn respond_error(&mut self, error: &str) {
        self.respond(&json!({ "subtype": "error", "request_id": self.id, "error": error }));
    }

    fn respond(&mut self, response: &Value) {
        if let Some(wire) = self.wire.take() {
            wire.send_soon(&json!({ "type": "control_response", "response": response }));
        }
    }
}

/// Refuses a request that cannot be read.
pub(crate) fn refuse_unreadable(id: &RequestId, wire: Wire) {
    #[derive(Serialize)]
    struct Line<'a> {
        #[serde(rename = "type")]
        kind: &'static str,
        response: Refusal<'a>,
    }
    #[derive(Serialize)]
    struct Refusal<'a> {
        subtype: &'static str,
        request_id: &'a RequestId,
        error: &'static str,
    }
    let error = "the host cannot read this request";
    let response = Refusal { subtype: "error", request_id: id, error };
    wire.send_soon(&Line { kind: "control_response", response });
}

impl Drop for ControlRequest {
    fn drop(&mut self) {
        if self.subtype == "can_use_tool" {
            let response = json!({ "behavior": "deny", "message": "nobody can be asked" });
            self.respond(&json!({
                "subtype": "success",
                "request_id": self.id,
                "response": response,
            }));
        } else {
            self.respond_error("not supported by this host");
        }
    }
}
