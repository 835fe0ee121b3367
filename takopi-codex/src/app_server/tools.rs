//! Tools of the host: async functions that the agent can call.
//!
//! They are offered when a thread is started, and codex keeps them with the thread. A call runs on
//! takopi's own thread, so it must not block; it is dropped when its time is over, when codex takes
//! the call back, and when the turn ends. Whatever goes wrong, the model gets an error text.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};

use super::requests::ServerRequest;

/// How long a tool may take by default.
const LIMIT: Duration = Duration::from_mins(1);

/// A call of a tool.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HostToolCall {
    /// What the model passes; meant to follow the tool's schema, but not checked.
    pub arguments: Value,
    /// The session that calls.
    pub session: String,
    /// The call's id.
    pub id: String,
}

/// What a tool gives back: texts and images.
#[derive(Debug, Clone, Default)]
pub struct ToolOutput {
    items: Vec<Value>,
}

impl ToolOutput {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a text.
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.items.push(json!({ "type": "inputText", "text": text.into() }));
        self
    }

    /// Adds an image by its URL, which may be a `data:` one.
    pub fn image(mut self, url: impl Into<String>) -> Self {
        self.items.push(json!({ "type": "inputImage", "imageUrl": url.into() }));
        self
    }
}

impl From<String> for ToolOutput {
    fn from(text: String) -> Self {
        Self::new().text(text)
    }
}

impl From<&str> for ToolOutput {
    fn from(text: &str) -> Self {
        Self::new().text(text)
    }
}

/// As JSON text.
impl From<Value> for ToolOutput {
    fn from(value: Value) -> Self {
        Self::new().text(value.to_string())
    }
}

type Function =
    dyn Fn(HostToolCall) -> BoxFuture<'static, Result<ToolOutput, String>> + Send + Sync;

/// An async function of the host that the agent can call.
///
/// ```
/// use serde_json::json;
/// use takopi_codex::Codex;
/// use takopi_codex::app_server::{CodexAppServer, HostTool, HostToolCall};
/// use takopi_core::EngineRunner;
///
/// let schema = json!({
///     "type": "object",
///     "properties": { "id": { "type": "integer" } },
///     "required": ["id"],
/// });
/// let tool = HostTool::new("read_ticket", "Reads a ticket.", schema, |call: HostToolCall| async move {
///     match call.arguments["id"].as_i64() {
///         Some(id) => Ok(format!("ticket {id}: the build is red")),
///         None => Err("there is no ticket without an id"),
///     }
/// });
/// let runner = EngineRunner::new(CodexAppServer::new(Codex::new()).tool(tool));
/// # drop(runner);
/// ```
#[derive(Clone)]
pub struct HostTool {
    name: String,
    description: String,
    schema: Value,
    limit: Duration,
    function: Arc<Function>,
}

impl HostTool {
    /// A tool with the JSON Schema of its arguments. The function's error is sent to the
    /// model.
    pub fn new<F, R, T, E>(
        name: impl Into<String>,
        description: impl Into<String>,
        schema: Value,
        function: F,
    ) -> Self
    where
        F: Fn(HostToolCall) -> R + Send + Sync + 'static,
        R: Future<Output = Result<T, E>> + Send + 'static,
        T: Into<ToolOutput>,
        E: fmt::Display,
    {
        let function = move |call| {
            let result = function(call);
            async move { result.await.map(Into::into).map_err(|error| error.to_string()) }.boxed()
        };
        Self {
            name: name.into(),
            description: description.into(),
            schema,
            limit: LIMIT,
            function: Arc::new(function),
        }
    }

    /// How long a call may take; a minute by default.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }
}

impl fmt::Debug for HostTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostTool").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The tools of a host.
#[derive(Debug, Clone, Default)]
pub(super) struct Tools {
    tools: Vec<HostTool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct CallAsked {
    tool: String,
    arguments: Value,
    thread_id: String,
    call_id: String,
}

impl Tools {
    /// Adds a tool; one of the same name is replaced.
    pub(super) fn add(&mut self, tool: HostTool) {
        self.tools.retain(|known| known.name != tool.name);
        self.tools.push(tool);
    }

    /// As `thread/start` wants them.
    pub(super) fn specs(&self) -> Vec<Value> {
        let spec = |tool: &HostTool| {
            json!({
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "inputSchema": tool.schema,
            })
        };
        self.tools.iter().map(spec).collect()
    }

    /// The call that codex asks for, on its way to the answer; an error if there is no such tool.
    pub(super) fn call(
        &self,
        request: &ServerRequest,
    ) -> Result<BoxFuture<'static, Value>, String> {
        let asked: CallAsked = request.parse().unwrap_or_default();
        let tool = self.tools.iter().find(|tool| tool.name == asked.tool);
        let tool = tool.ok_or_else(|| format!("there is no tool `{}` here", asked.tool))?.clone();
        let call = HostToolCall {
            arguments: asked.arguments,
            session: asked.thread_id,
            id: asked.call_id,
        };
        Ok(run(tool, call).boxed())
    }
}

async fn run(tool: HostTool, call: HostToolCall) -> Value {
    let HostTool { name, limit, function, .. } = tool;
    // The function itself may panic too, before there is a future.
    let work = AssertUnwindSafe(async move { function(call).await }).catch_unwind();
    match tokio::time::timeout(limit, work).await {
        Ok(Ok(Ok(output))) => json!({ "success": true, "contentItems": output.items }),
        Ok(Ok(Err(error))) => failure(&error),
        Ok(Err(_)) => failure(&format!("the tool `{name}` broke")),
        Err(_) => failure(&format!("the tool `{name}` did not answer within {limit:?}")),
    }
}

/// The error text that the model gets for a failed call.
pub(super) fn failure(text: &str) -> Value {
    json!({ "success": false, "contentItems": [{ "type": "inputText", "text": text }] })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(arguments: Value) -> HostToolCall {
        HostToolCall { arguments, session: String::new(), id: String::new() }
    }

    fn text(answer: &Value) -> (bool, &str) {
        let text = answer["contentItems"][0]["text"].as_str();
        (answer["success"].as_bool().unwrap(), text.unwrap())
    }

    fn tool<R>(function: fn(HostToolCall) -> R) -> HostTool
    where
        R: Future<Output = Result<String, String>> + Send + 'static,
    {
        HostTool::new("lab", "", json!({}), function)
    }

    #[tokio::test]
    async fn every_call_gets_a_result_or_an_error_text() {
        let echo = tool(|call| async move { Ok(call.arguments["x"].to_string()) });
        assert_eq!(text(&run(echo, call(json!({ "x": 1 }))).await), (true, "1"));
        let fails = tool(|_| async { Err("no such ticket".to_owned()) });
        assert_eq!(text(&run(fails, call(Value::Null)).await), (false, "no such ticket"));
        let hangs = tool(|_| std::future::pending()).timeout(Duration::from_millis(1));
        let answer = run(hangs, call(Value::Null)).await;
        assert_eq!(text(&answer), (false, "the tool `lab` did not answer within 1ms"));
        let breaks = tool(|_| async { panic!("on purpose") });
        assert_eq!(text(&run(breaks, call(Value::Null)).await), (false, "the tool `lab` broke"));
    }

    #[test]
    fn a_tool_of_the_same_name_is_replaced() {
        let mut tools = Tools::default();
        tools.add(HostTool::new("a", "old", json!({}), |_| async { Ok::<_, String>("") }));
        tools.add(HostTool::new("a", "new", json!({}), |_| async { Ok::<_, String>("") }));
        assert_eq!(tools.specs().len(), 1);
        assert_eq!(tools.specs()[0]["description"], "new");
    }
}
