//! MCP servers of the host, only for the codex that it starts.
//!
//! They are passed as settings of the process (`-c mcp_servers.…`). The user's `config.toml` is never
//! edited; a server of the same name in it is overridden key by key.

use std::path::PathBuf;

use thiserror::Error;

/// A name that codex would not take for an MCP server.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{name:?} is no name for an MCP server: letters, digits, `-` and `_` only")]
pub struct BadMcpName {
    name: String,
}

/// An MCP server that codex starts and talks to over stdio.
///
/// ```
/// use takopi_codex::{Codex, McpServer};
///
/// let tickets = McpServer::new("tickets", "/opt/bin/tickets-mcp")?.arg("--read-only");
/// let runner = Codex::new().mcp_server(tickets).app_server();
/// # drop(runner);
/// # Ok::<(), takopi_codex::BadMcpName>(())
/// ```
#[derive(Debug, Clone)]
pub struct McpServer {
    name: String,
    command: PathBuf,
    args: Vec<String>,
    env: Vec<(String, String)>,
    inherits: Vec<String>,
}

impl McpServer {
    /// A server with a name of letters, digits, `-` and `_`.
    pub fn new(name: impl Into<String>, command: impl Into<PathBuf>) -> Result<Self, BadMcpName> {
        let name = name.into();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if name.is_empty() || !name.bytes().all(plain) {
            return Err(BadMcpName { name });
        }
        let (command, args) = (command.into(), Vec::new());
        Ok(Self { name, command, args, env: Vec::new(), inherits: Vec::new() })
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Sets a variable for the server. Its value is an argument of codex, which every process of
    /// the machine can read: not for secrets. See [`McpServer::inherit`].
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Passes a variable of codex's own environment on to the server, which otherwise gets few of
    /// them.
    pub fn inherit(mut self, name: impl Into<String>) -> Self {
        self.inherits.push(name.into());
        self
    }

    /// As arguments of codex.
    pub(crate) fn into_args(self) -> Vec<String> {
        let list = |texts: &[String]| {
            let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
            format!("[{}]", texts.join(","))
        };
        let mut settings = vec![("command", quoted(&self.command.to_string_lossy()))];
        settings.push(("args", list(&self.args)));
        if !self.env.is_empty() {
            let pair =
                |(name, value): &(String, String)| format!("{}={}", quoted(name), quoted(value));
            let pairs: Vec<String> = self.env.iter().map(pair).collect();
            settings.push(("env", format!("{{{}}}", pairs.join(","))));
        }
        if !self.inherits.is_empty() {
            settings.push(("env_vars", list(&self.inherits)));
        }
        let name = self.name;
        settings
            .into_iter()
            .flat_map(|(key, value)| ["-c".to_owned(), format!("mcp_servers.{name}.{key}={value}")])
            .collect()
    }
}

/// A text as a TOML string.
fn quoted(text: &str) -> String {
    let letters: String = text
        .chars()
        .map(|letter| match letter {
            '"' | '\\' => format!("\\{letter}"),
            letter if letter.is_control() => format!("\\u{:04X}", u32::from(letter)),
            letter => letter.to_string(),
        })
        .collect();
    format!("\"{letters}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_becomes_settings_of_the_process() {
        let server = McpServer::new("lab-1", "/opt/a \"b\"")
            .unwrap()
            .arg("--x")
            .arg("tab\there")
            .env("A", "1\\2")
            .inherit("TOKEN");
        assert_eq!(
            server.into_args(),
            [
                "-c",
                r#"mcp_servers.lab-1.command="/opt/a \"b\"""#,
                "-c",
                r#"mcp_servers.lab-1.args=["--x","tab\u0009here"]"#,
                "-c",
                r#"mcp_servers.lab-1.env={"A"="1\\2"}"#,
                "-c",
                r#"mcp_servers.lab-1.env_vars=["TOKEN"]"#,
            ]
        );
    }

    #[test]
    fn a_name_cannot_reach_another_setting() {
        for name in ["", "a.b", "a b", "a=b", "ä"] {
            let error = McpServer::new(name, "x").unwrap_err();
            assert!(error.to_string().contains("no name for an MCP server"), "{name}");
        }
    }
}
