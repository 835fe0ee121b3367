//! What extensions ask of the host. Every dialog gets an answer.

use serde::Serialize;
use serde_json::Value;
use takopi_core::peer::Wire;
use takopi_core::rpc::RequestId;

use crate::wire::DialogLine;

/// A dialog that is open. Dropped without an answer, it is cancelled: pi cannot be aborted while it waits.
#[derive(Debug)]
pub(crate) struct Dialog {
    line: DialogLine,
    /// `None` once it is answered.
    wire: Option<Wire>,
}

impl Dialog {
    pub(crate) fn new(line: DialogLine, wire: Wire) -> Self {
        Self { line, wire: Some(wire) }
    }

    /// What takopi's own extension asks; `None` if another one does.
    pub(crate) fn question(&self) -> Option<Value> {
        let mut title: Value = serde_json::from_str(&self.line.title).ok()?;
        (self.line.method == "input").then(|| title["takopi"].take()).filter(Value::is_object)
    }

    /// What it is, for people.
    pub(crate) fn title(&self) -> &str {
        &self.line.title
    }

    /// Answers a question of takopi's own extension.
    pub(crate) fn answer(mut self, answer: &Value) {
        self.respond(Some(answer.to_string()));
    }

    /// Answers with a value; without one it is cancelled.
    fn respond(&mut self, value: Option<String>) {
        if let Some(wire) = self.wire.take() {
            let cancelled = value.is_none().then_some(true);
            let (kind, id) = ("extension_ui_response", self.line.id.as_ref());
            wire.send_soon(&Response { kind, id, value, cancelled });
        }
    }
}

#[derive(Serialize)]
struct Response<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a RequestId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cancelled: Option<bool>,
}

impl Drop for Dialog {
    fn drop(&mut self) {
        self.respond(None);
    }
}
