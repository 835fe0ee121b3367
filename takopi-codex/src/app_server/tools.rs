//! The host's tools in the spelling of the app-server.
//!
//! They are offered when a thread is started, and codex keeps them with the thread.

use serde::Deserialize;
use serde_json::{Value, json};
use takopi_core::tools::{HostTool, HostToolCall, HostTools, ToolItem, ToolOutput};

/// A call as codex asks for it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct CallAsked {
    pub(super) tool: String,
    arguments: Value,
    thread_id: String,
    call_id: String,
}

impl CallAsked {
    pub(super) fn into_call(self) -> HostToolCall {
        HostToolCall::new(self.thread_id, self.call_id, self.arguments)
    }
}

/// The tools as `thread/start` wants them.
pub(super) fn specs(tools: &HostTools) -> Vec<Value> {
    let spec = |tool: &HostTool| {
        json!({
            "type": "function",
            "name": tool.name(),
            "description": tool.description(),
            "inputSchema": tool.schema(),
        })
    };
    tools.iter().map(spec).collect()
}

/// The result of a call as codex wants it.
pub(super) fn response(result: Result<ToolOutput, String>) -> Value {
    let (success, output) = match result {
        Ok(output) => (true, output),
        Err(error) => (false, error.into()),
    };
    let items: Vec<Value> = output.items.into_iter().filter_map(item).collect();
    json!({ "success": success, "contentItems": items })
}

fn item(item: ToolItem) -> Option<Value> {
    match item {
        ToolItem::Text(text) => Some(json!({ "type": "inputText", "text": text })),
        ToolItem::Image(url) => Some(json!({ "type": "inputImage", "imageUrl": url })),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_and_errors_are_items_for_the_model() {
        let output = ToolOutput::new().text("a").image("data:b");
        assert_eq!(
            response(Ok(output)),
            json!({ "success": true, "contentItems": [
                { "type": "inputText", "text": "a" },
                { "type": "inputImage", "imageUrl": "data:b" },
            ] })
        );
        assert_eq!(
            response(Err("no".into())),
            json!({ "success": false, "contentItems": [{ "type": "inputText", "text": "no" }] })
        );
    }
}
