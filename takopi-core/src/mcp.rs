//! MCP servers of the host, for the agents that it starts.
//!
//! An engine passes them to its program. The user's own configuration is never edited.

use std::path::PathBuf;

use thiserror::Error;

/// A name that engines would not take for an MCP server.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{name:?} is no name for an MCP server: letters, digits, `-` and `_` only")]
pub struct McpNameError {
    name: String,
}

/// An MCP server that the agent starts and talks to over stdio.
///
/// ```
/// use takopi_core::mcp::{McpNameError, McpServer};
///
/// let tickets = McpServer::new("tickets", "/opt/bin/tickets-mcp")?.arg("--read-only");
/// assert_eq!(tickets.name, "tickets");
/// # Ok::<(), McpNameError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct McpServer {
    /// Its name: letters, digits, `-` and `_`.
    pub name: String,
    /// The program.
    pub command: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables that are set for it.
    pub env: Vec<(String, String)>,
    /// Variables of the agent's own environment that it gets.
    pub inherits: Vec<String>,
}

impl McpServer {
    /// A server with a name of letters, digits, `-` and `_`.
    pub fn new(name: impl Into<String>, command: impl Into<PathBuf>) -> Result<Self, McpNameError> {
        let name = name.into();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if name.is_empty() || !name.bytes().all(plain) {
            return Err(McpNameError { name });
        }
        let (command, args) = (command.into(), Vec::new());
        Ok(Self { name, command, args, env: Vec::new(), inherits: Vec::new() })
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Sets a variable for the server. Its value may be an argument of the agent's program, which
    /// every process of the machine can read: not for secrets. See [`McpServer::inherit`].
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Passes a variable of the agent's own environment on to the server, which otherwise gets few of
    /// them.
    pub fn inherit(mut self, name: impl Into<String>) -> Self {
        self.inherits.push(name.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_reach_another_setting() {
        for name in ["", "a.b", "a b", "a=b", "ä"] {
            let error = McpServer::new(name, "x").unwrap_err();
            assert!(error.to_string().contains("no name for an MCP server"), "{name}");
        }
    }
}
