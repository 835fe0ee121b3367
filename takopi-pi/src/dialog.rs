//! What extensions ask of the host. Every dialog gets an answer.

use serde_json::{Value, json};
use takopi_core::peer::Wire;

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
        self.respond(&json!({ "value": answer.to_string() }));
    }

    fn respond(&mut self, fields: &Value) {
        if let Some(wire) = self.wire.take() {
            let mut response = fields.clone();
            response["type"] = "extension_ui_response".into();
            response["id"] = self.line.id.as_str().into();
            wire.send_soon(&response);
        }
    }
}

impl Drop for Dialog {
    fn drop(&mut self) {
        self.respond(&json!({ "cancelled": true }));
    }
}
