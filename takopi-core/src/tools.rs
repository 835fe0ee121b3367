//! Tools of the host: async functions that the agent can call.
//!
//! An engine offers them to its agent and passes calls on to [`HostTools::call`]. A call runs on
//! takopi's own thread, so it must not block; it is dropped when its time is over, when the agent
//! takes it back, and when the turn ends. Whatever goes wrong, the model gets an error text.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;

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

impl HostToolCall {
    /// A call.
    pub fn new(session: impl Into<String>, id: impl Into<String>, arguments: Value) -> Self {
        Self { arguments, session: session.into(), id: id.into() }
    }
}

/// What a tool gives back: texts and images.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolOutput {
    /// In the order in which they were added.
    pub items: Vec<ToolItem>,
}

/// A part of what a tool gives back.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolItem {
    /// A text.
    Text(String),
    /// An image by its URL, which may be a `data:` one.
    Image(String),
}

impl ToolOutput {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a text.
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.items.push(ToolItem::Text(text.into()));
        self
    }

    /// Adds an image by its URL, which may be a `data:` one.
    pub fn image(mut self, url: impl Into<String>) -> Self {
        self.items.push(ToolItem::Image(url.into()));
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
/// use takopi_core::tools::{HostTool, HostToolCall};
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
/// assert_eq!(tool.name(), "read_ticket");
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

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the model is told about it.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The JSON Schema of its arguments.
    pub fn schema(&self) -> &Value {
        &self.schema
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

/// The tools of a host, each under another name.
#[derive(Debug, Clone, Default)]
pub struct HostTools {
    tools: Vec<HostTool>,
}

impl HostTools {
    /// Adds a tool; one of the same name is replaced.
    pub fn add(&mut self, tool: HostTool) {
        self.tools.retain(|known| known.name != tool.name);
        self.tools.push(tool);
    }

    /// The tools, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = &HostTool> {
        self.tools.iter()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// The call of a tool, on its way to the result; an error if there is no such tool. The error of a
    /// call is a text for the model.
    pub fn call(
        &self,
        name: &str,
        call: HostToolCall,
    ) -> Result<BoxFuture<'static, Result<ToolOutput, String>>, String> {
        let tool = self.tools.iter().find(|tool| tool.name == name);
        let tool = tool.ok_or_else(|| format!("there is no tool `{name}` here"))?.clone();
        Ok(run(tool, call).boxed())
    }
}

async fn run(tool: HostTool, call: HostToolCall) -> Result<ToolOutput, String> {
    let HostTool { name, limit, function, .. } = tool;
    // The function itself may panic too, before there is a future.
    let work = AssertUnwindSafe(async move { function(call).await }).catch_unwind();
    match tokio::time::timeout(limit, work).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(format!("the tool `{name}` broke")),
        Err(_) => Err(format!("the tool `{name}` did not answer within {limit:?}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(arguments: Value) -> HostToolCall {
        HostToolCall::new("", "", arguments)
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
        assert_eq!(run(echo, call(json!({ "x": 1 }))).await, Ok("1".into()));
        let fails = tool(|_| async { Err("no such ticket".to_owned()) });
        assert_eq!(run(fails, call(Value::Null)).await, Err("no such ticket".into()));
        let hangs = tool(|_| std::future::pending()).timeout(Duration::from_millis(1));
        let error = run(hangs, call(Value::Null)).await;
        assert_eq!(error, Err("the tool `lab` did not answer within 1ms".into()));
        let breaks = tool(|_| async { panic!("on purpose") });
        assert_eq!(run(breaks, call(Value::Null)).await, Err("the tool `lab` broke".into()));
    }

    #[tokio::test]
    async fn a_tool_of_the_same_name_is_replaced_and_an_unknown_one_is_an_error() {
        let mut tools = HostTools::default();
        tools.add(HostTool::new("a", "old", json!({}), |_| async { Ok::<_, String>("") }));
        tools.add(HostTool::new("a", "new", json!({}), |_| async { Ok::<_, String>("") }));
        let descriptions: Vec<_> = tools.iter().map(HostTool::description).collect();
        assert_eq!(descriptions, ["new"]);
        assert!(tools.call("a", call(Value::Null)).is_ok());
        assert_eq!(tools.call("b", call(Value::Null)).err().unwrap(), "there is no tool `b` here");
    }
}
