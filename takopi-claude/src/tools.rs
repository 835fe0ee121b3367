//! The host's tools, as an MCP server that takopi plays over the control protocol.

use futures::future::BoxFuture;
use serde_json::{Value, json};
use takopi_core::tools::{HostTool, HostToolCall, HostTools, ToolItem, ToolOutput};

use crate::control::ControlRequest;
use crate::launch::HOST_SERVER;

/// The version of MCP that is spoken if the client names none.
const PROTOCOL: &str = "2025-11-25";

/// Answers what takopi's MCP server is asked but for the call of a tool, which needs a run: that, and
/// every other request, is given back.
pub(crate) fn handshake(request: ControlRequest, tools: &HostTools) -> Option<ControlRequest> {
    if request.subtype() != "mcp_message" {
        return Some(request);
    }
    let asked = request.value();
    let message = &asked["message"];
    if asked["server_name"] != HOST_SERVER {
        request.refuse("this host has no such MCP server");
        return None;
    }
    let result = match message["method"].as_str().unwrap_or_default() {
        "tools/call" => return Some(request),
        "initialize" => {
            let protocol = message["params"]["protocolVersion"].as_str().unwrap_or(PROTOCOL);
            json!({
                "protocolVersion": protocol,
                "capabilities": { "tools": {} },
                "serverInfo": { "name": HOST_SERVER, "version": env!("CARGO_PKG_VERSION") },
            })
        }
        "tools/list" => json!({ "tools": tools.iter().map(spec).collect::<Vec<_>>() }),
        // Notifications want no response, but the control request that carries them does.
        "ping" | "notifications/initialized" | "notifications/cancelled" => json!({}),
        method => {
            let error = json!({ "code": -32601, "message": format!("no method `{method}`") });
            request.answer(&response(message, "error", error));
            return None;
        }
    };
    request.answer(&response(message, "result", result));
    None
}

/// The call of a tool, on its way to the result; an error if there is no such tool.
pub(crate) fn call(
    request: &ControlRequest,
    tools: &HostTools,
    session: &str,
) -> Result<BoxFuture<'static, Result<ToolOutput, String>>, String> {
    let asked = request.value();
    let params = &asked["message"]["params"];
    let id = params["_meta"]["claudecode/toolUseId"].as_str().unwrap_or_default();
    let arguments = params["arguments"].clone();
    let name = params["name"].as_str().unwrap_or_default();
    tools.call(name, HostToolCall::new(session, id, arguments))
}

/// Answers the call of a tool.
pub(crate) fn answer(request: ControlRequest, result: Result<ToolOutput, String>) {
    let (is_error, output) = match result {
        Ok(output) => (false, output),
        Err(error) => (true, error.into()),
    };
    let content: Vec<Value> = output.items.into_iter().filter_map(item).collect();
    let result = json!({ "content": content, "isError": is_error });
    let asked = request.value();
    request.answer(&response(&asked["message"], "result", result));
}

fn response(message: &Value, kind: &str, body: Value) -> Value {
    let mut response = json!({ "jsonrpc": "2.0" });
    if let Some(id) = message.get("id") {
        response["id"] = id.clone();
    }
    response[kind] = body;
    json!({ "mcp_response": response })
}

fn spec(tool: &HostTool) -> Value {
    json!({
        "name": tool.name(),
        "description": tool.description(),
        "inputSchema": tool.schema(),
    })
}

fn item(item: ToolItem) -> Option<Value> {
    match item {
        ToolItem::Text(text) => Some(json!({ "type": "text", "text": text })),
        // MCP has images as data, not as addresses.
        ToolItem::Image(url) => Some(match data_url(&url) {
            Some((kind, data)) => json!({ "type": "image", "mimeType": kind, "data": data }),
            None => json!({ "type": "text", "text": url }),
        }),
        _ => None,
    }
}

fn data_url(url: &str) -> Option<(&str, &str)> {
    url.strip_prefix("data:")?.split_once(";base64,")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_images_become_content() {
        assert_eq!(item(ToolItem::Text("a".into())), Some(json!({ "type": "text", "text": "a" })));
        let image = item(ToolItem::Image("data:image/png;base64,AAAA".into()));
        let expected = json!({ "type": "image", "mimeType": "image/png", "data": "AAAA" });
        assert_eq!(image, Some(expected));
        let address = item(ToolItem::Image("https://example.org/a.png".into()));
        assert_eq!(address, Some(json!({ "type": "text", "text": "https://example.org/a.png" })));
    }
}
