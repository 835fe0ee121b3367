//! MCP servers of the host as settings of the process (`-c mcp_servers.…`).
//!
//! A server of the same name in the user's `config.toml` is overridden key by key.

use takopi_core::mcp::McpServer;

/// A server as arguments of codex.
pub(crate) fn args_of(server: McpServer) -> Vec<String> {
    let list = |texts: &[String]| {
        let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
        format!("[{}]", texts.join(","))
    };
    let mut settings = vec![("command", quoted(&server.command.to_string_lossy()))];
    settings.push(("args", list(&server.args)));
    if !server.env.is_empty() {
        let pair = |(name, value): &(String, String)| format!("{}={}", quoted(name), quoted(value));
        let pairs: Vec<String> = server.env.iter().map(pair).collect();
        settings.push(("env", format!("{{{}}}", pairs.join(","))));
    }
    if !server.inherits.is_empty() {
        settings.push(("env_vars", list(&server.inherits)));
    }
    let name = server.name;
    settings
        .into_iter()
        .flat_map(|(key, value)| ["-c".to_owned(), format!("mcp_servers.{name}.{key}={value}")])
        .collect()
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
            args_of(server),
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
}
